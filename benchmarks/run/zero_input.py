"""What a sparse input gives where Steptime says that it is mostly zeros, and what the lever does.

    python benchmarks/run/zero_input.py [--rounds 20]

A first layer on a bag of words of Cora's shape (2,708 x 1,433, 1.27 % ones), with a dropout of 0.5
on the input and without one, and a second layer. The dense arm is what the examples do; the sparse
one keeps the input in compressed rows and drops out its values alone, by hand. The arm `lever` is
the dense one with the lever `sparse_input` on; in the last row (`needs_whole`) both normalize what
was dropped, so that the whole matrix is needed. All compute the same layer; a dropout draws other
numbers. Steps of the arms alternate in random order in one process; CPU time of the thread, medians
of paired ratios. The bound is the headroom of the finding in a run of the dense arm under Steptime.
Results go to benchmarks/results/zero_input.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import steptime

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import BENCHMARKS, ENVIRONMENT, conditions

OUT = BENCHMARKS / "results" / "zero_input.json"
ROWS, COLUMNS, ONES = 2708, 1433, 0.0127
WIDTHS = (16, 64, 256)
STEPS_IN_RUN = 40


def make_step(
    arm: str, width: int, dropout: float, *, needs_whole: bool = False
) -> Callable[[], None]:
    """Return a training step of one arm, `dense` or `sparse`."""
    import torch
    from torch.nn import functional

    torch.manual_seed(0)
    words = (torch.rand(ROWS, COLUMNS) < ONES).float()
    labels = torch.randint(0, 7, (ROWS,))
    first, second = torch.nn.Linear(COLUMNS, width), torch.nn.Linear(width, 7)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01)
    rows = words.to_sparse_csr()
    places = rows.crow_indices(), rows.col_indices()

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = first, second

        def forward(self, x: Any) -> Any:
            if dropout and arm == "dense":
                x = functional.dropout(x, dropout)
            elif dropout:
                x = torch.sparse_csr_tensor(
                    *places, functional.dropout(x.values(), dropout), x.shape
                )
            if needs_whole:
                x = functional.normalize(x, dim=1)
            return self.second(self.first(x).relu())

    model, given = Model(), words if arm == "dense" else rows

    def step() -> None:
        loss = functional.cross_entropy(model(given), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def with_lever(step: Callable[[], None]) -> Callable[[], None]:
    """Return a step that is made with the lever on."""
    import torch

    from steptime.levers import load
    from steptime.testing.lever_session_double import PlainSession

    lever = load("sparse_input")
    assert lever.apply is not None

    def made() -> None:
        with PlainSession(torch) as session:
            undo: Any = lever.apply({}, session)
            step()
            undo()

    return made


def compare(arms: dict[str, Callable[[], None]], rounds: int) -> dict[str, Any]:
    """Return CPU times of the arms, and the paired ratios of the first one to each other."""
    times: dict[str, list[float]] = {arm: [] for arm in arms}
    chance = random.Random(0)
    for number in range(rounds + 3):
        for arm in chance.sample(list(arms), len(arms)):
            began = time.thread_time()
            arms[arm]()
            if number >= 3:
                times[arm].append(time.thread_time() - began)
    found: dict[str, Any] = {"n": rounds}
    first, *others = arms
    for arm in arms:
        found[f"{arm}_ms"] = round(1e3 * statistics.median(times[arm]), 2)
    for arm in others:
        ratios = sorted(a / b for a, b in zip(times[first], times[arm], strict=True))
        low, middle, high = statistics.quantiles(ratios, n=4)
        found[arm] = {"ratio": round(middle, 2), "quartiles": [round(low, 2), round(high, 2)]}
    return found


def find_bound(width: int, dropout: float) -> float | None:
    """Return the most that Steptime says a sparse input can give, of a run of the dense arm."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "steptime", "run", "--", sys.executable]
        words += [str(Path(__file__).resolve()), "--train", str(width), str(dropout)]
        subprocess.run(
            words,
            cwd=folder,
            env=os.environ | ENVIRONMENT,
            capture_output=True,
            check=True,
            timeout=300,
        )
        (run,) = (Path(folder) / ".steptime" / "runs").iterdir()
        diagnosis = steptime.load(run).diagnosis
    findings = () if diagnosis is None else diagnosis.findings
    bounds = [one.headroom_speedup or 0.0 for one in findings if one.cause == "zero_input"]
    return round(bounds[0], 2) if bounds else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--train", nargs=2, help="train the dense arm: width and dropout")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    if options.train:
        step = make_step("dense", int(options.train[0]), float(options.train[1]))
        for _ in range(STEPS_IN_RUN):
            step()
        return
    rows = []
    started = conditions()
    for dropout in (0.0, 0.5):
        for width in WIDTHS:
            dense = make_step("dense", width, dropout)
            arms = {"dense": dense, "sparse": make_step("sparse", width, dropout)}
            arms["lever"] = with_lever(make_step("dense", width, dropout))
            row: dict[str, Any] = {"width": width, "dropout": dropout}
            row |= compare(arms, options.rounds) | {"bound": find_bound(width, dropout)}
            rows.append(row)
            print(row, flush=True)
    whole = make_step("dense", 16, 0.5, needs_whole=True)
    harmed = with_lever(make_step("dense", 16, 0.5, needs_whole=True))
    row = {"width": 16, "dropout": 0.5, "needs_whole": True}
    rows.append(row | compare({"dense": whole, "lever": harmed}, options.rounds))
    print(rows[-1], flush=True)
    OUT.write_text(json.dumps({"conditions": started, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
