"""How near Lanczos's condition number is, and what it costs beside one solution by LU.

    OMP_NUM_THREADS=1 python benchmarks/methods/qnewton_condition.py [--rounds 9]

Matrices have logarithmic spectra, N of 256 to 1,024. At N = 1,024 estimate and LU take turns, by
CPU time. The paper's bound from norm and determinant stands beside. Results go to
benchmarks/results/qnewton_condition.json.
"""

from __future__ import annotations

import argparse
import json
import time
from statistics import median, quantiles
from typing import Any

import torch
from _qnewton_parts import RESULTS, machine, matrix_of

from steptime.methods.qnewton import estimate_condition, norm_determinant_bound

SEEDS = 3


def accuracy() -> list[dict[str, Any]]:
    rows = []
    for dtype in (torch.float32, torch.float64):
        for num in (256, 512, 1024):
            for kappa in (10, 100, 1e3, 1e4):
                ratios = []
                for seed in range(SEEDS):
                    matrix = matrix_of(num, kappa, seed, dtype)
                    found = estimate_condition(matrix.mv, matrix[0], seed=seed)
                    ratios.append(found.kappa / kappa)
                within = 1.5 if kappa <= 1e3 else 4.0
                rows.append(
                    {
                        "dtype": str(dtype).removeprefix("torch."),
                        "n": num,
                        "kappa": kappa,
                        "estimate_over_true": ratios,
                        "limit": within,
                        "holds": all(1 / within <= one <= within for one in ratios),
                        "norm_determinant_bound": norm_determinant_bound(matrix),
                    }
                )
                print(
                    f"{rows[-1]['dtype']} N={num:<5} kappa={kappa:<8g} estimate over true "
                    f"{min(ratios):.2f} to {max(ratios):.2f} (limit {within:g})  "
                    f"norm-determinant bound {rows[-1]['norm_determinant_bound']:.2g}"
                )
    return rows


def cpu_of(act: Any, *words: Any) -> float:
    began = time.process_time()
    act(*words)
    return time.process_time() - began


def cost(rounds: int) -> list[dict[str, Any]]:
    rows = []
    for dtype in (torch.float32, torch.float64):
        matrix = matrix_of(1024, 1e3, 0, dtype)
        right = matrix[0].clone()
        pairs = []
        for _ in range(rounds + 1):
            ours = cpu_of(estimate_condition, matrix.mv, right)
            theirs = cpu_of(torch.linalg.solve, matrix, right)
            pairs.append((ours, theirs))
        shares = [ours / theirs for ours, theirs in pairs[1:]]  # the first warms up
        rows.append(
            {
                "dtype": str(dtype).removeprefix("torch."),
                "estimate_s": median(one for one, _ in pairs[1:]),
                "lu_s": median(one for _, one in pairs[1:]),
                "share": median(shares),
                "quartiles": quantiles(shares)[::2],
                "n": rounds,
            }
        )
        one = rows[-1]
        print(
            f"{one['dtype']} N=1024: estimate {one['estimate_s'] * 1e3:.1f} ms CPU, "
            f"LU {one['lu_s'] * 1e3:.1f} ms: {one['share']:.0%} "
            f"({one['quartiles'][0]:.0%} to {one['quartiles'][1]:.0%}, n {rounds}); limit 25%"
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = {"accuracy": accuracy(), "cost": cost(options.rounds), "machine": machine()}
    RESULTS.joinpath("qnewton_condition.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
