"""The paper's figure with all that it rests on: modeled hybrid time beside classical alone.

    OMP_NUM_THREADS=1 python benchmarks/methods/qnewton_modeled.py MNIST_FOLDER [--steps 6]

Nothing here is quantum, and no quantum time is measured. MLPs 64-16-16-10, pruned and not, train on
digits at 8x8 (Gauss-Newton, 64 samples); each step's systems give sizes, sparsity, estimated and
true condition numbers. Classical time is what a fitted model predicts for LU, as in the paper, and
for the cheapest classical solver, the honest opponent. Quantum time is the query bound times gates
times an assumed gate time. The hybrid takes the smaller of both by the estimated condition number
and is charged by the true one. Results go to benchmarks/results/qnewton_modeled.json.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import torch
from _qnewton_parts import RESULTS, batch_of, digits, machine, network
from torch.nn import functional

from steptime.methods.qnewton import (
    SOLVERS,
    Curvature,
    ModeledTime,
    Objective,
    QNewton,
    QuantumAssumptions,
    Scheduler,
    SolverTimes,
    named,
    quantum_time,
)

BOUND = 1e-2


class Noting(Scheduler):
    """A scheduler that notes what a modeled one would have to know."""

    def __init__(self, times: SolverTimes) -> None:
        super().__init__(times, error_bound=BOUND)
        self.trace: list[dict[str, Any]] = []

    def solve(self, system: Any, step: int = 0) -> Any:
        values = torch.linalg.eigvalsh(system.matrix().double())
        classical = [s for s in SOLVERS if s.name != "kfac" and not s.refuses(system)]
        self.rank(system)  # calibrates where that was not done
        self.trace.append(
            {
                "step": step,
                "block": system.name,
                "n": system.num_unknowns,
                "sparsity": system.sparsity,
                "kappa": system.kappa,
                "true_kappa": max(1.0, float(values[-1] / values[0])),
                "lu_s": self.times.fitted(named("lu"), system, BOUND),
                "cheapest_s": min(self.times.fitted(s, system, BOUND) for s in classical),
            }
        )
        return super().solve(system, step)


def with_gates(trace: list[dict[str, Any]], readout: Any) -> list[dict[str, Any]]:
    """The rows with modeled times at a gate time of one second, by guess and in truth."""
    unit = QuantumAssumptions(gate_time_s=1.0, precision=BOUND, readout=readout)
    return [
        row
        | {
            "guess": quantum_time(row["n"], row["sparsity"], row["kappa"], unit).in_model_s,
            "true": quantum_time(row["n"], row["sparsity"], row["true_kappa"], unit).in_model_s,
        }
        for row in trace
    ]


def totals(trace: list[dict[str, Any]], opponent: str, assumed: QuantumAssumptions) -> Any:
    """All-classical, all-quantum, hybrid by the estimate, and the oracle's hybrid."""
    classical, quantum, hybrid, oracle = [], [], [], []
    for row in trace:
        slow = ModeledTime.of_classical(row[opponent], assumed)
        guess = ModeledTime(row["guess"] * assumed.gate_time_s, assumed)
        true = ModeledTime(row["true"] * assumed.gate_time_s, assumed)
        classical.append(slow)
        quantum.append(true)
        hybrid.append(true if guess < slow else slow)
        oracle.append(min(true, slow))
    return [ModeledTime.total(one) for one in (classical, quantum, hybrid, oracle)]


def gate_time_for(
    trace: list[dict[str, Any]], opponent: str, *, share: float, readout: Any
) -> QuantumAssumptions:
    """The longest gate time at which the hybrid takes this share of classical alone."""
    low, high = -40.0, 0.0
    for _ in range(60):
        middle = (low + high) / 2
        assumed = QuantumAssumptions(gate_time_s=10**middle, precision=BOUND, readout=readout)
        classical, _, hybrid, _ = totals(trace, opponent, assumed)
        if hybrid / classical <= share:
            low = middle
        else:
            high = middle
    return QuantumAssumptions(gate_time_s=10**low, precision=BOUND, readout=readout)


def of_trace(name: str, trace: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"num_solutions": len(trace), "figures": [], "worst": {}}
    worst_bound = worst_oracle = 0.0
    for opponent in ("lu_s", "cheapest_s"):
        for readout in ("none", "amplitudes"):
            rows = with_gates(trace, readout)
            for exponent in range(-30, -5):
                assumed = QuantumAssumptions(
                    gate_time_s=10.0**exponent, precision=BOUND, readout=readout
                )
                classical, quantum, hybrid, oracle = totals(rows, opponent, assumed)
                worst_bound = max(worst_bound, hybrid / min(classical, quantum))
                worst_oracle = max(worst_oracle, hybrid / oracle)
            for share in (0.5, 0.1):
                needed = gate_time_for(rows, opponent, share=share, readout=readout)
                even = gate_time_for(rows, opponent, share=0.999, readout=readout)
                against = "LU" if opponent == "lu_s" else "the cheapest solver"
                print(
                    f"{name}: hybrid is {share:g} of {against} at {needed}; "
                    f"break-even gate time {even.gate_time_s:.2g} s"
                )
                found["figures"].append(
                    {
                        "opponent": against,
                        "share": share,
                        "gate_time_s": needed.gate_time_s,
                        "precision": needed.precision,
                        "readout": readout,
                        "break_even_gate_time_s": even.gate_time_s,
                    }
                )
    off = [abs(math.log(row["kappa"] / row["true_kappa"])) for row in trace]
    found["worst"] = {
        "hybrid_over_best_fixed": worst_bound,
        "hybrid_over_oracle": worst_oracle,
        "kappa_off_by": math.exp(max(off)),
    }
    print(
        f"{name}: over 100 assumptions, hybrid at most {worst_bound:.3f} of the better of all "
        f"classical and all quantum (limit 1.02), {worst_oracle:.3f} of the oracle (limit 1.05); "
        f"condition numbers off by at most {math.exp(max(off)):.2f}"
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = digits(options.folder)["train"]
    times = SolverTimes(time.process_time)
    times.calibrate(torch.zeros(1), bound=BOUND)
    results: dict[str, Any] = {"traces": {}}
    cases = [(16, 1.0), (16, 0.1)]
    for width, keep in cases:
        objective = Objective(network((64, width, width, 10), 0), functional.cross_entropy)
        scheduler = Noting(times)
        curvature = Curvature(num_samples=64, keep=keep, refresh_steps=1)
        optimizer = QNewton(objective, curvature=curvature, scheduler=scheduler)
        for step in range(options.steps):
            inputs, targets = batch_of(data, 2048, step)
            optimizer.step(lambda x=inputs, y=targets, o=objective: o(x, y))
        name = f"64-{width}-{width}-10, {keep:g} kept"
        results["traces"][name] = of_trace(name, scheduler.trace)
    results["machine"] = machine()
    RESULTS.joinpath("qnewton_modeled.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
