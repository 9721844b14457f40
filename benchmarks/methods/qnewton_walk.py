"""Queries that a simulated quantum linear solver took, beside the bound and a practical constant.

    OMP_NUM_THREADS=1 python benchmarks/methods/qnewton_walk.py [--seeds 3]

The bound Q is that of arXiv 2305.11352; the constant in practice is that of arXiv 2312.07690: 1.84
kappa / distance for the walk alone, here with the same filter behind it as ours, at the distance
of 0.4 where the filter takes over. Nothing is timed. Results go to
benchmarks/results/qnewton_walk.json.
"""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

import torch
from _qnewton_parts import RESULTS, machine, matrix_of

from steptime.methods.qnewton import num_queries, solve_by_walk


def practical(kappa: float, precision: float) -> float:
    return 1.84 * kappa / 0.4 + kappa * math.log(2 / precision)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for num in (4, 8, 16, 32):
        for kappa in (2, 5, 10, 20):
            for precision in (0.1, 0.01):
                errors, counts, attempts = [], [], []
                for seed in range(options.seeds):
                    matrix = matrix_of(num, kappa, seed, torch.float64)
                    chance = torch.Generator().manual_seed(100 + seed)
                    right = torch.randn(num, generator=chance, dtype=torch.float64)
                    found = solve_by_walk(matrix, right, precision=precision, seed=seed)
                    expected = torch.linalg.solve(matrix, right)
                    errors.append(float((found.direction - expected / expected.norm()).norm()))
                    counts.append(found.num_queries)
                    attempts.append(found.num_attempts)
                bound, real = num_queries(1, kappa, precision), practical(kappa, precision)
                rows.append(
                    {
                        "n": num,
                        "kappa": kappa,
                        "precision": precision,
                        "largest_error": max(errors),
                        "queries": counts,
                        "attempts": attempts,
                        "bound": bound,
                        "practical": real,
                        "over_bound": max(counts) / bound,
                        "over_practical": max(counts) / real,
                        "holds": max(errors) <= precision
                        and max(counts) <= bound
                        and max(counts) <= 10 * real,
                    }
                )
                print(
                    f"N={num:<3} kappa={kappa:<3} eps={precision:<5} error {max(errors):.1e}  "
                    f"queries {max(counts):>4}, {max(counts) / bound:.3f} of Q, "
                    f"{max(counts) / real:.2f} of the practical constant"
                )
    print(f"{sum(row['holds'] for row in rows)} of {len(rows)} hold")
    results = {"rows": rows, "seeds": options.seeds, "machine": machine()}
    RESULTS.joinpath("qnewton_walk.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
