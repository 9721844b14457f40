"""Steps and time to SGD's final loss, beside Adam and K-FAC, and what pruning does to accuracy.

    OMP_NUM_THREADS=1 python benchmarks/methods/qnewton_training.py MNIST_FOLDER [--widths 16 48]

MLPs 64-w-w-10 (tanh) on 10,000 digits at 8x8, batches of 2,048, w of 16 and 48. Learning rates of
SGD (momentum 0.9), Adam and K-FAC are the best of a sweep at the first seed; ours has its
defaults. The loss is that of all training digits, taken outside the time. A step is a batch.
Time is CPU time on one thread, to the step at which SGD's final loss was reached; methods take
turns by seed. First-order methods are looked at every 5 steps. Results go to
benchmarks/results/qnewton_training.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from _qnewton_parts import RESULTS, batch_of, digits, machine, network
from torch.nn import functional

from steptime.methods.qnewton import (
    BlockSystem,
    Curvature,
    Objective,
    QNewton,
    Scheduler,
    SolverTimes,
    named,
)
from steptime.methods.qnewton.objective import kronecker_factors

Step = Callable[[Any], None]
SGD_STEPS, OUR_STEPS, BATCH = 200, 40, 2048
SWEEP_STEPS, LOOK = 60, 5


class KFac:
    """K-FAC as such: factors by running means, momentum, biases by the outputs' factor."""

    def __init__(self, model: Any, lr: float, damping: float = 1e-2) -> None:
        self.objective = Objective(model, functional.cross_entropy)
        self.lr, self.damping = lr, damping
        self.factors: dict[str, Any] = {}
        self.speed: dict[str, torch.Tensor] = {}

    def step(self, batch: Any) -> None:
        named_ones = self.objective.parameters
        found = torch.autograd.grad(self.objective(*batch), list(named_ones.values()))
        for name, (a, g) in kronecker_factors(self.objective, batch).items():
            old = self.factors.get(name, (a, g))
            self.factors[name] = tuple(0.9 * o + 0.1 * n for o, n in zip(old, (a, g), strict=True))
        for (name, parameter), gradient in zip(named_ones.items(), found, strict=True):
            inputs, outputs = self.factors[name.replace("bias", "weight")]
            if name.endswith("bias"):
                inputs = torch.ones(1, 1)
            system = BlockSystem(
                name=name,
                gradient=gradient.reshape(-1),
                damping=self.damping,
                kronecker=(inputs, outputs),
                shape=(len(gradient), gradient.numel() // len(gradient)),
            )
            move = named("kfac").solve(system, 0.01).values
            old = self.speed.get(name)
            self.speed[name] = move if old is None else 0.9 * old + move
            with torch.no_grad():
                parameter.sub_(self.lr * self.speed[name].view_as(parameter))


def first_order(make: Callable[[Any], Any]) -> Callable[[Any], Step]:
    def prepare(model: Any) -> Step:
        optimizer = make(model.parameters())

        def step(batch: Any) -> None:
            optimizer.zero_grad()
            functional.cross_entropy(model(batch[0]), batch[1]).backward()
            optimizer.step()

        return step

    return prepare


def newton(times: SolverTimes, curvature: Curvature) -> Callable[[Any], Step]:
    def prepare(model: Any) -> Step:
        objective = Objective(model, functional.cross_entropy)
        solvers = tuple(named(name) for name in ("lu", "cholesky", "woodbury", "cg"))
        scheduler = Scheduler(times, solvers=solvers)
        optimizer = QNewton(objective, curvature=curvature, scheduler=scheduler)
        return lambda batch: optimizer.step(lambda: objective(*batch))

    return prepare


@torch.no_grad()
def judge(model: Any, data: Any) -> tuple[float, float]:
    outputs = model(data[0])
    right = (outputs.argmax(1) == data[1]).double().mean()
    return float(functional.cross_entropy(outputs, data[1])), 100 * float(right)


def train(
    prepare: Callable[[Any], Step], width: int, seed: int, *, steps: int, data: Any
) -> dict[str, Any]:
    model = network((64, width, width, 10), seed)
    step = prepare(model)
    losses, cpu = [], [0.0]
    for number in range(steps):
        batch = batch_of(data["train"], BATCH, 1000 * seed + number)
        began = time.process_time()
        step(batch)
        cpu.append(cpu[-1] + time.process_time() - began)
        is_seen = steps <= OUR_STEPS or number % LOOK == LOOK - 1
        losses.append(judge(model, data["train"])[0] if is_seen else math.inf)
    return {"losses": losses, "cpu_s": cpu[1:], "accuracy": judge(model, data["test"])[1]}


def reached(run: dict[str, Any], goal: float) -> tuple[int, float] | None:
    for number, loss in enumerate(run["losses"]):
        if loss <= goal:
            return number + 1, run["cpu_s"][number]
    return None


def best_of(
    sweep: dict[float, Callable[[Any], Step]], width: int, *, steps: int, data: Any
) -> tuple[float, Callable[[Any], Step]]:
    ends = {
        lr: train(prepare, width, 0, steps=steps, data=data)["losses"][-1]
        for lr, prepare in sweep.items()
    }
    lr = min(ends, key=lambda one: ends[one] if ends[one] == ends[one] else float("inf"))
    return lr, sweep[lr]


def sweeps() -> dict[str, dict[float, Callable[[Any], Step]]]:
    def sgd(lr: float) -> Callable[[Any], Step]:
        return first_order(lambda p: torch.optim.SGD(p, lr=lr, momentum=0.9))

    def adam(lr: float) -> Callable[[Any], Step]:
        return first_order(lambda p: torch.optim.Adam(p, lr=lr))

    def kfac(lr: float) -> Callable[[Any], Step]:
        return lambda model: KFac(model, lr).step

    return {
        "sgd": {lr: sgd(lr) for lr in (0.1, 0.3)},
        "adam": {lr: adam(lr) for lr in (1e-2, 3e-2)},
        "kfac": {lr: kfac(lr) for lr in (3e-3, 1e-2)},
    }


def of_width(width: int, seeds: int, data: Any, times: SolverTimes) -> dict[str, Any]:
    methods: dict[str, Any] = {}
    rates = {}
    for name, sweep in sweeps().items():
        rates[name], methods[name] = best_of(sweep, width, steps=SWEEP_STEPS, data=data)
    usual = Curvature()
    methods["ours"] = newton(times, usual)
    if width == 16:
        methods["ours, half pruned"] = newton(times, dataclasses.replace(usual, keep=0.5))
    rows: dict[str, list[Any]] = {name: [] for name in methods}
    for seed in range(seeds):
        runs = {}
        for name, prepare in methods.items():
            steps = OUR_STEPS if name.startswith("ours") else SGD_STEPS
            runs[name] = train(prepare, width, seed, steps=steps, data=data)
        goal = runs["sgd"]["losses"][-1]
        for name, run in runs.items():
            found = reached(run, goal)
            rows[name].append(
                {
                    "seed": seed,
                    "goal": goal,
                    "steps": found[0] if found else None,
                    "cpu_s": found[1] if found else None,
                    "final_loss": run["losses"][-1],
                    "accuracy": run["accuracy"],
                    "cpu_per_step_s": run["cpu_s"][-1] / len(run["losses"]),
                }
            )
    return {"learning_rates": rates, "methods": rows}


def tell(width: int, found: dict[str, Any]) -> None:
    print(f"width {width}, rates {found['learning_rates']}")
    for name, runs in found["methods"].items():
        steps = [one["steps"] for one in runs]
        there = [one["cpu_s"] for one in runs if one["cpu_s"] is not None]
        print(
            f"  {name:<18} steps to SGD's loss after {SGD_STEPS}: {steps}, CPU "
            f"{median(there) if there else float('nan'):.2f} s, "
            f"{median(one['cpu_per_step_s'] for one in runs) * 1e3:.1f} ms a step, "
            f"test accuracy {median(one['accuracy'] for one in runs):.2f} %"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--widths", type=int, nargs="+", default=[16, 48])
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = digits(options.folder)
    times = SolverTimes(time.process_time)
    times.calibrate(torch.zeros(1))
    results: dict[str, Any] = {"sgd_steps": SGD_STEPS, "batch": BATCH, "widths": {}}
    for width in options.widths:
        results["widths"][width] = of_width(width, options.seeds, data, times)
        tell(width, results["widths"][width])
        results["machine"] = machine()
        RESULTS.joinpath("qnewton_training.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
