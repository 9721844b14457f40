"""The scheduler beside every fixed solver and the oracle, on the blocks of a training.

    OMP_NUM_THREADS=1 python benchmarks/methods/qnewton_scheduler.py MNIST_FOLDER [--steps 12]

An MLP 64-60-40-20-10 on digits at 8x8: weights of 200 to 3,840 entries, biases of 10 to 60. At each
step and block all solvers solve the same system in turns, each timed by CPU time on one thread,
making the matrix included (LU and Cholesky above 500 unknowns twice a block, and not at each
step: their time does not depend on values); the scheduler, which learns from its own solutions
alone, chooses beside them. Two times stand for the scheduler: its own
solutions as they were timed when it made them (`own`), and the table's time of the solver that it
chose (`chosen`), which shares its noise with the oracle. A fixed solver that misses the error bound
of 1 % is not a rival. Results go to benchmarks/results/qnewton_scheduler.json.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import torch
from _qnewton_parts import RESULTS, batch_of, digits, machine, network
from torch.nn import functional

from steptime.methods.qnewton import SOLVERS, Curvature, Objective, QNewton, Scheduler, SolverTimes

BOUND = 1e-2
REPEATS = 5


class Watched(Scheduler):
    """A scheduler beside which all solvers are timed on the same systems."""

    def __init__(self, times: SolverTimes) -> None:
        super().__init__(times, error_bound=BOUND)
        self.rows: list[dict[str, Any]] = []
        self.slow: dict[tuple[str, str], list[float]] = {}

    def solve(self, system: Any, step: int = 0) -> Any:
        values, decision = super().solve(system, step)
        timed: dict[str, list[float]] = {}
        keeps: dict[str, float] = {}
        for _ in range(REPEATS):
            for solver in SOLVERS:
                if solver.refuses(system) is not None:
                    continue
                known = self.slow.get((solver.name, system.name), [])
                if len(known) == 2:  # what takes so long depends on the size alone
                    timed[solver.name], keeps[solver.name] = [median(known)], 0.0
                    continue
                solution, took = self.times.timed(solver, system, BOUND)
                timed.setdefault(solver.name, []).append(took)
                if solver.name in {"lu", "cholesky"} and system.num_unknowns > 500:
                    self.slow.setdefault((solver.name, system.name), []).append(took)
                is_there = solution.values is not None
                keeps[solver.name] = system.residual(solution.values) if is_there else float("inf")
        self.rows.append(
            {
                "step": step,
                "block": system.name,
                "n": system.num_unknowns,
                "rank": system.rank,
                "kappa": system.kappa,
                "chosen": decision.chosen,
                "own_s": decision.took_s,
                "cpu_s": {name: median(found) for name, found in timed.items()},
                "residual": keeps,
            }
        )
        return values, decision


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    names = [solver.name for solver in SOLVERS]
    fixed = {}
    for name in names:
        keep = all(name in row["cpu_s"] and row["residual"][name] <= BOUND for row in rows)
        if keep:
            fixed[name] = sum(row["cpu_s"][name] for row in rows)
    oracle = sum(
        min(took for name, took in row["cpu_s"].items() if row["residual"][name] <= BOUND)
        for row in rows
    )
    chosen = sum(row["cpu_s"][row["chosen"]] for row in rows)
    best = min(fixed, key=lambda name: fixed[name])
    own = sum(row["own_s"] for row in rows)
    return {
        "fixed_s": fixed,
        "best_fixed": best,
        "oracle_s": oracle,
        "chosen_s": chosen,
        "own_s": own,
        "always_lu_over_own": fixed["lu"] / own,
        "chosen_over_oracle": chosen / oracle,
        "chosen_over_best_fixed": chosen / fixed[best],
        "own_over_best_fixed": own / fixed[best],
        "choices": Counter(row["chosen"] for row in rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = digits(options.folder)["train"]
    results: dict[str, Any] = {"bound": BOUND, "steps": options.steps, "curvatures": {}}
    for kind, samples in (("fisher", 256), ("gauss_newton", 64)):
        times = SolverTimes(time.process_time)
        began = time.process_time()
        times.calibrate(torch.zeros(1), bound=BOUND)
        calibration = time.process_time() - began
        objective = Objective(network((64, 60, 40, 20, 10), 0), functional.cross_entropy)
        scheduler = Watched(times)
        optimizer = QNewton(
            objective,
            curvature=Curvature(kind=kind, num_samples=samples),
            scheduler=scheduler,
        )
        for step in range(options.steps):
            inputs, targets = batch_of(data, 2048, step)
            optimizer.step(lambda x=inputs, y=targets, o=objective: o(x, y))
        found = summary(scheduler.rows)
        results["curvatures"][kind] = found | {
            "samples": samples,
            "calibration_s": calibration,
            "num_solutions": len(scheduler.rows),
        }
        fixed = ", ".join(f"{name} {took:.2f}" for name, took in found["fixed_s"].items())
        print(
            f"{kind}: own {found['own_s']:.3f} s CPU, always: {fixed}, oracle "
            f"{found['oracle_s']:.3f}\n  {found['always_lu_over_own']:.1f}x faster than always-LU "
            f"(at least 3); chosen "
            f"{found['chosen_over_oracle']:.3f} of the oracle (at most 1.05), "
            f"{found['chosen_over_best_fixed']:.2f} of {found['best_fixed']} (at most 1.1; own "
            f"{found['own_over_best_fixed']:.2f})\n  {dict(found['choices'])}, "
            f"calibration {calibration:.1f} s"
        )
        results["machine"] = machine()
        RESULTS.joinpath("qnewton_scheduler.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
