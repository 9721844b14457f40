"""What two levers give scripts that compile their model themselves: `dynamic_shapes`, `no_compile`.

    python benchmarks/tune/own_compile.py [--rounds 6] [--only CASE ...] [--save]

Each case is a training with AdamW on one thread. Processes without the lever and with it take
turns, A B A B A, each with an empty cache of torch's compiler. `whole` is the CPU time of all the
steps, compilations and children included; `step` that of the later steps alone, the median of
blocks in which each size comes equally often. A speedup is the median over the rounds of the mean
of the two neighbors without the lever over the time with it; the range is that of the middle half.

`--save` puts the rows into benchmarks/results/own_compile.json, beside those of other machines;
`scripts/gen_lever_evidence.py` then takes them into the reference of the levers.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _machine_results import Results

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import BENCHMARKS, conditions

OUT = BENCHMARKS / "results" / "own_compile.json"
BLOCKS = 5
"""Blocks of later steps in each process."""


@dataclass(frozen=True)
class Case:
    """A training that compiles its model, the lever that is tried on it, and what is expected.

    `lengths` come in turn; the last `num_later` steps count as later ones.
    """

    name: str
    lever: str
    expected: str
    make: Callable[[Any], Any]
    lengths: tuple[int, ...]
    num_steps: int
    num_later: int
    dynamic: bool | None = None


def text_model(torch: Any) -> Any:
    """Return layers on each token of texts, whose batches have the lengths of their rows."""
    nn = torch.nn
    layers = nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 64)
    return nn.Sequential(nn.Embedding(500, 64), *layers)


def transformer_model(torch: Any) -> Any:
    """Return a model of texts with a layer of attention."""
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Embedding(500, 64), layer, nn.Linear(64, 64))


def pointwise_model(torch: Any) -> Any:
    """Return layers whose time goes into single operators on each number, which the compiler fuses.

    They are gates and normalizations written out.
    """

    class Gates(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(500, 64)
            self.gain = torch.nn.Parameter(torch.ones(4, 64))

        def forward(self, tokens: Any) -> Any:
            x = self.table(tokens)
            for gain in self.gain:
                x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt() * gain
                x = 0.5 * x * (1 + torch.tanh(0.8 * (x + 0.04 * x * x * x))) + torch.sigmoid(x)
            return x

    return Gates()


def broken_model(torch: Any) -> Any:
    """Return small layers in each of which a number is read: a graph ends there."""
    nn = torch.nn
    largest = [0.0]

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def note(x: Any) -> None:
        largest[0] = max(largest[0], x.detach().max().item())

    class Watched(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.norm = nn.Linear(16, 16), nn.LayerNorm(16)

        def forward(self, x: Any) -> Any:
            x = self.layer(x).relu()
            note(x)
            return self.norm(x)

    return nn.Sequential(nn.Embedding(500, 16), *(Watched() for _ in range(8)))


TWELVE = tuple(range(20, 68, 4))
THREE = (40, 56, 64)
FIXED = (64,)
DYNAMIC, EAGER = "dynamic_shapes", "no_compile"
CASES = {
    one.name: one
    for one in (
        Case("twelve lengths", DYNAMIC, "helps", text_model, TWELVE, 132, 60, dynamic=False),
        Case("three lengths", DYNAMIC, "hurts", transformer_model, THREE, 210, 150, dynamic=False),
        Case("lengths and last batches", DYNAMIC, "helps", text_model, (40, 64, 24), 132, 60),
        Case("graph breaks, few steps", EAGER, "helps", broken_model, FIXED, 100, 50),
        Case("twelve lengths, eager", EAGER, "helps", text_model, TWELVE, 132, 60, dynamic=False),
        Case("fused operators", EAGER, "hurts", pointwise_model, FIXED, 6000, 500),
    )
}


def main() -> None:
    """Measure each case, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--arm", choices=("with", "without"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.arm is not None:
        print(json.dumps(train(CASES[options.only[0]], is_on=options.arm == "with")))
        return
    results = Results(OUT, conditions())
    for name in options.only:
        row = compare(CASES[name], options.rounds)
        told = "  ".join(
            f"{what} {one['speedup']:.2f} ({one['low']:.2f} to {one['high']:.2f})"
            for what, one in row["speedups"].items()
        )
        print(f"{row['lever']:15}{name:27}{row['expected']:7}{told}", flush=True)
        print(f"  {json.dumps(row['without'])} -> {json.dumps(row['with'])}", flush=True)
        if options.save:
            results.save(row)


def compare(case: Case, rounds: int) -> dict[str, Any]:
    """Return what processes without the lever and with it took, in turns."""
    found: dict[str, list[dict[str, float]]] = {"without": [], "with": []}
    for place in range(2 * rounds + 1):
        arm = "with" if place % 2 else "without"
        found[arm].append(in_new_process(case, arm))
    speedups = {}
    for what in ("whole_s", "step_s"):
        off, on = ([one[what] for one in found[arm]] for arm in ("without", "with"))
        ratios = [(a + b) / 2 / c for a, b, c in zip(off, off[1:], on, strict=False)]
        low, speedup, high = statistics.quantiles(ratios, n=4)
        speedups[what[:-2]] = {"speedup": speedup, "low": low, "high": high}
    medians = {
        arm: {what: statistics.median(one[what] for one in runs) for what in runs[0]}
        for arm, runs in found.items()
    }
    words = {"lever": case.lever, "name": case.name, "expected": case.expected, "n": rounds}
    return {**words, "num_steps": case.num_steps, "speedups": speedups, **medians}


def in_new_process(case: Case, arm: str) -> dict[str, float]:
    """Return what the training took in a process of its own, with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "TORCHINDUCTOR_CACHE_DIR": folder,
            "TORCHINDUCTOR_COMPILE_THREADS": "1",  # else a pool would, which outlives the count
        }
        command = [sys.executable, __file__, "--only", case.name, "--arm", arm]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def train(case: Case, *, is_on: bool) -> dict[str, float]:
    """Return the CPU time of all steps and of a later one [s], and how many graphs were made."""
    import torch
    from torch._dynamo.utils import counters

    from steptime.levers import load
    from steptime.testing.lever_session_double import PlainSession

    torch.set_num_threads(1)
    torch.manual_seed(0)
    lever = load(case.lever)
    assert lever.apply is not None
    with PlainSession(torch) as session:
        if is_on:
            lever.apply({}, session)
    model = case.make(torch)
    compiled = torch.compile(model, dynamic=case.dynamic)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)

    def step(number: int) -> None:
        length = case.lengths[number % len(case.lengths)]
        # What an epoch leaves over makes its last batch smaller.
        batch = 5 if case.dynamic is None and number % 11 == 10 else 16
        optimizer.zero_grad()
        compiled(torch.randint(500, (batch, length))).square().mean().backward()
        optimizer.step()

    began, blocks = cpu_s(), []
    num_first, size = case.num_steps - case.num_later, case.num_later // BLOCKS
    for number in range(num_first):
        step(number)
    for place in range(BLOCKS):
        before = cpu_s()
        for number in range(size):
            step(num_first + place * size + number)
        blocks.append((cpu_s() - before) / size)
    graphs = counters["stats"]["unique_graphs"]
    return {"whole_s": cpu_s() - began, "step_s": statistics.median(blocks), "graphs": graphs}


def cpu_s() -> float:
    """CPU time of this process and of its children that have ended [s]."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


if __name__ == "__main__":
    main()
