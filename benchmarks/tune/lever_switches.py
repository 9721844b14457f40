"""Measures what levers give small trainings that they should help, and others.

    python benchmarks/tune/lever_switches.py [--rounds 12] [--only NAME ...] [--save]

Each case is one training in a process of its own, with one thread. Blocks of steps with the lever
and without it take turns; the measure is CPU time (user and system) of a block. A speedup is the
median over the rounds of the mean of the two neighbors without the lever, divided by the time with
it; the range is that of the middle half of the rounds. A case `hurts` where the lever is expected
to cost more than it gives. Where checkpoints are taken out, `kept` says how many times as many
bytes autograd keeps of a step.

`--save` puts the rows into benchmarks/results/lever_switches.json, beside those of other machines;
`scripts/gen_lever_evidence.py` then takes them into the reference of the levers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import warnings
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from _machine_results import Results
from _switch_trainings import CASES, Case, Step

from steptime.levers import load
from steptime.testing.lever_session_double import PlainSession

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import BENCHMARKS, conditions

OUT = BENCHMARKS / "results" / "lever_switches.json"
HOOKED = ("gc_control", "vectorized_loops")
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
        sizes = kept_with_and_without(torch, case, step) if "checkpoint" in case.lever else {}
    without, ours = times[False], times[True]
    ratios = [(a + b) / 2 / c for a, b, c in zip(without, without[1:], ours, strict=False)]
    low, speedup, high = statistics.quantiles(ratios, n=4)
    found = asdict(replace(case, make=str)) | {"n": rounds, "speedup": speedup}
    del found["make"]
    step_ms = 1e3 * statistics.median(without) / case.num_steps
    return found | {"low": low, "high": high, "step_ms": step_ms} | sizes


def kept_with_and_without(torch: Any, case: Case, step: Step) -> dict[str, float]:
    """Return what autograd keeps of a step with the lever, over what it keeps without it."""
    lever, found = load(case.lever), []
    assert lever.apply is not None
    for is_on in (False, True):
        undo = lever.apply(case.settings, Bare(torch)) if is_on else None  # type: ignore[arg-type]
        sizes: dict[int, int] = {}

        def pack(tensor: Any, sizes: dict[int, int] = sizes) -> Any:
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            step()
        found.append(sum(sizes.values()))
        if undo is not None:
            undo()
    return {"kept": found[1] / found[0]}


def block(step: Step, num_steps: int) -> float:
    """Return the CPU time of some steps [s]."""
    began = time.process_time()
    for _ in range(num_steps):
        step()
    return time.process_time() - began


def main() -> None:
    """Measure each case in a process of its own, and print a table."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--only", nargs="+", metavar="LEVER", help="levers, without others")
    parser.add_argument("--new", action="store_true", help="what this machine has no figure of")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.case is not None:
        print(json.dumps(measure(CASES[words.case], words.rounds)))
        return
    here = conditions() | {"accelerator": torch.accelerator.is_available()}
    results = Results(OUT, here)
    for number, case in enumerate(CASES):
        if words.only is not None and case.lever not in words.only:
            continue
        if words.new and results.is_known(case.lever, case.name):
            continue
        command = (sys.executable, __file__, "--case", str(number), "--rounds", str(words.rounds))
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        row = json.loads(done.stdout.splitlines()[-1])
        told = f"{case.lever:18}{case.name:58}{case.expected:9}{row['step_ms']:8.2f} ms"
        print(f"{told}{row['speedup']:7.2f}  {row['low']:.2f} to {row['high']:.2f}", flush=True)
        if words.save:
            results.save(row)


if __name__ == "__main__":
    main()
