"""Measures what levers give small trainings that they should help, and others.

    python benchmarks/lever_switches.py [--rounds 12] [--only NAME] [-o FILE]

Each case is one training in a process of its own, with one thread. Blocks of steps with the lever
and without it take turns; the measure is CPU time (user and system) of a block. A speedup is the
median over the rounds of the mean of the two neighbors without the lever, divided by the time with
it; the range is that of the middle half of the rounds. A case `hurts` where the lever is expected
to cost more than it gives.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from steptime.levers import load
from steptime.testing.lever_session_double import PlainSession

Step = Callable[[], None]


def make_mlp(torch: Any, width: int, depth: int, batch: int, **zeroing: Any) -> Step:
    """Return a step of a multilayer perceptron with AdamW."""
    torch.manual_seed(0)
    layers = [m for _ in range(depth) for m in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x = torch.randn(batch, width)

    def step() -> None:
        optimizer.zero_grad(**zeroing)
        model(x).square().mean().backward()
        optimizer.step()

    return step


def with_anomaly_mode(torch: Any, *shape: int) -> Step:
    """Leave anomaly detection on."""
    torch.autograd.set_detect_anomaly(True)
    return make_mlp(torch, *shape)


def with_profiler(torch: Any, *shape: int, **how: Any) -> Step:
    """Leave a profiler on, for one block at a time: it keeps what it records in memory."""
    step = make_mlp(torch, *shape)

    def steps() -> None:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **how):
            for _ in range(20):
                step()

    return steps


def with_sums(torch: Any, rows: int) -> Step:
    """Add rows into a table with deterministic algorithms on, which also fill new memory."""
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    table = torch.nn.Embedding(rows, 64)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    index = torch.randint(0, rows, (20_000,))

    def step() -> None:
        optimizer.zero_grad()
        found = table(index)
        sums = torch.zeros(500, 64).index_add(0, index % 500, found)
        sums.square().mean().backward()
        optimizer.step()

    return step


def with_games(torch: Any, num_kept: int, num_new: int) -> Step:
    """Keep many small Python objects, some of them renewed in each step."""
    step = make_mlp(torch, 64, 2, 32)

    def play(number: int) -> list[Any]:
        return [{"state": [i, i + 1], "reward": [i % 2]} for i in range(number)]

    memory: deque[Any] = deque(play(num_kept), maxlen=num_kept)

    def steps() -> None:
        memory.extend(play(num_new))
        step()

    return steps


def with_idle_layers(torch: Any) -> Step:
    """Zero the gradients of layers of which half are used in no step."""
    torch.manual_seed(0)
    used, idle = (torch.nn.Linear(1500, 1500) for _ in range(2))
    optimizer = torch.optim.SGD([*used.parameters(), *idle.parameters()], lr=0.1)
    x = torch.randn(8, 1500)
    idle(x).sum().backward()

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        used(x).square().mean().backward()
        optimizer.step()

    return step


def with_checkpoints(torch: Any, width: int, batch: int) -> Step:
    """Checkpoint each of some blocks."""
    checkpoint = torch.utils.checkpoint.checkpoint
    torch.manual_seed(0)
    nn = torch.nn
    blocks = nn.ModuleList(
        nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        for _ in range(6)
    )
    optimizer = torch.optim.SGD(blocks.parameters(), lr=0.1)
    x = torch.randn(batch, width)

    def step() -> None:
        optimizer.zero_grad()
        y = x
        for block in blocks:
            y = y + checkpoint(block, y, use_reentrant=False)
        y.square().mean().backward()
        optimizer.step()

    return step


def with_denormals(torch: Any, value: float) -> Step:
    """Multiply by weights of one size, which is denormal or not."""
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(1000, 1000) * value)
    optimizer = torch.optim.SGD([weight], lr=0.0)
    x = torch.randn(1000, 1000)

    def step() -> None:
        optimizer.zero_grad()
        (weight * x).sum().backward()
        optimizer.step()

    return step


def with_decayed_moments(torch: Any, value: float) -> Step:
    """Update weights whose gradients are zero and whose moments in Adam have one size."""
    weight = torch.nn.Parameter(torch.ones(1_000_000))
    weight.grad = torch.zeros_like(weight)
    optimizer = torch.optim.Adam([weight], lr=1e-3)

    def step() -> None:
        for state in optimizer.state.values():
            state["exp_avg"].fill_(value)
            state["exp_avg_sq"].fill_(value)
        optimizer.step()

    return step


@dataclass(frozen=True)
class Case:
    """A training, the lever that is tried on it, and what is expected of that.

    `num_steps` is the length of a block.
    """

    name: str
    lever: str
    expected: str
    num_steps: int
    make: Callable[[Any], Step]
    settings: dict[str, Any] = field(default_factory=dict)


def with_windows(torch: Any, batch: int, length: int) -> Step:
    """Return a step on windows of a series, which are cut out one by one."""
    torch.manual_seed(0)
    series = torch.randint(65, (1_000_000,))
    model = torch.nn.Embedding(65, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def draw() -> Any:
        at = torch.randint(len(series) - length, (batch,))
        return torch.stack([series[i : i + length] for i in at])

    def step() -> None:
        optimizer.zero_grad()
        model(draw()).mean().backward()
        optimizer.step()

    return step


def edit_of_windows() -> dict[str, str]:
    """Return the settings of `vectorized_loops` for `with_windows`, as its trial finds them."""
    lines = Path(__file__).read_text(encoding="utf-8").split("\n")
    number = next(
        n for n, line in enumerate(lines) if line.startswith("        return torch.stack([")
    )
    after = "        return series.unfold(0, length, 1).movedim(-1, 1)[at]"
    name = Path(__file__).name
    head = f"--- a/{name}\n+++ b/{name}\n@@ -{number + 1} +{number + 1} @@\n"
    return {"diff": f"{head}-{lines[number]}\n+{after}\n"}


STACKS = {"with_stack": True, "record_shapes": True}
SMALL = (64, 12, 8)
ZEROS = {"set_to_none": False}
ANOMALY, PROFILER, ZEROING = "no_anomaly_mode", "no_profiler", "set_to_none"
CASES = (
    Case("small layers", ANOMALY, "helps", 60, lambda t: with_anomaly_mode(t, *SMALL)),
    Case("large layers", ANOMALY, "helps", 6, lambda t: with_anomaly_mode(t, 768, 4, 256)),
    Case("small layers", PROFILER, "helps", 3, lambda t: with_profiler(t, *SMALL)),
    Case("stacks and shapes", PROFILER, "helps", 3, lambda t: with_profiler(t, *SMALL, **STACKS)),
    Case("large layers", PROFILER, "nothing", 1, lambda t: with_profiler(t, 512, 2, 256)),
    Case("sums into a table", "no_deterministic", "nothing", 20, lambda t: with_sums(t, 50_000)),
    Case(
        *("60,000 kept objects, 5,000 new ones a step", "gc_control", "helps", 60),
        lambda t: with_games(t, 60_000, 5_000),
        {"every_updates": 10},
    ),
    Case(
        *("60,000 kept objects, 5,000 new ones, each update", "gc_control", "helps", 60),
        lambda t: with_games(t, 60_000, 5_000),
        {"every_updates": 1},
    ),
    Case(
        *("60,000 kept objects, 20 new ones a step, each update", "gc_control", "hurts", 60),
        lambda t: with_games(t, 60_000, 20),
        {"every_updates": 1},
    ),
    Case(
        *("large gradients, batch of 4", ZEROING, "helps", 10),
        lambda t: make_mlp(t, 1024, 4, 4, **ZEROS),
    ),
    Case("half of the layers idle", ZEROING, "hurts", 20, with_idle_layers),
    Case("small gradients", ZEROING, "nothing", 60, lambda t: make_mlp(t, *SMALL, **ZEROS)),
    Case(
        *("six blocks of 256, batch of 512", "no_checkpointing", "helps", 4),
        lambda t: with_checkpoints(t, 256, 512),
    ),
    Case(
        *("six blocks of 32, batch of 8", "no_checkpointing", "helps", 40),
        lambda t: with_checkpoints(t, 32, 8),
    ),
    Case(
        *("denormal moments in Adam", "flush_denormal", "helps", 10),
        lambda t: with_decayed_moments(t, 1e-39),
    ),
    Case(
        *("normal moments in Adam", "flush_denormal", "nothing", 10),
        lambda t: with_decayed_moments(t, 1e-10),
    ),
    Case(
        *("64 windows of 32", "vectorized_loops", "helps", 200),
        lambda t: with_windows(t, 64, 32),
        edit_of_windows(),
    ),
    Case(
        *("2 windows of 65,536", "vectorized_loops", "hurts", 50),
        lambda t: with_windows(t, 2, 65_536),
        edit_of_windows(),
    ),
    Case("denormal weights", "flush_denormal", "nothing", 10, lambda t: with_denormals(t, 1e-39)),
)


HOOKED = ("gc_control", "set_to_none", "vectorized_loops")
"""Levers that ask a session for more than torch."""


@dataclass(frozen=True)
class Bare:
    """What the other levers ask for."""

    torch: Any


def measure(case: Case, rounds: int) -> dict[str, Any]:
    """Return the speedup of a case: blocks without the lever and with it take turns."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    lever = load(case.lever)
    times: dict[bool, list[float]] = {False: [], True: []}
    assert lever.apply is not None
    # A profiler with stacks takes a wrapper of `Module.__call__` for a call of a module.
    make_session = PlainSession if case.lever in HOOKED else lambda torch: nullcontext(Bare(torch))
    with make_session(torch) as session:
        step = case.make(torch)
        block(step, case.num_steps)
        for place in range(2 * rounds + 1):
            undo = lever.apply(case.settings, session) if place % 2 else None
            for _ in range(4):  # past what a lever does once
                step()
            times[bool(place % 2)].append(block(step, case.num_steps))
            if undo is not None:
                undo()
    without, ours = times[False], times[True]
    ratios = [(a + b) / 2 / c for a, b, c in zip(without, without[1:], ours, strict=False)]
    low, speedup, high = statistics.quantiles(ratios, n=4)
    found = asdict(replace(case, make=str)) | {"n": rounds, "speedup": speedup}
    del found["make"]
    step_ms = 1e3 * statistics.median(without) / case.num_steps
    return found | {"low": low, "high": high, "step_ms": step_ms}


def block(step: Step, num_steps: int) -> float:
    """Return the CPU time of some steps [s]."""
    began = time.process_time()
    for _ in range(num_steps):
        step()
    return time.process_time() - began


def main() -> None:
    """Measure each case in a process of its own, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--only", help="a lever")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.case is not None:
        print(json.dumps(measure(CASES[words.case], words.rounds)))
        return
    rows = []
    for number, case in enumerate(CASES):
        if words.only in (None, case.lever):
            command = (sys.executable, __file__, "--case", str(number))
            command += ("--rounds", str(words.rounds))
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            row = json.loads(done.stdout.splitlines()[-1])
            rows.append(row)
            told = f"{case.lever:18}{case.name:58}{case.expected:9}{row['step_ms']:8.2f} ms"
            print(f"{told}{row['speedup']:7.2f}  {row['low']:.2f} to {row['high']:.2f}", flush=True)
    if words.output is not None:
        words.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
