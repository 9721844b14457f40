"""Kills conversions at random moments, lets them go on, and compares what came out.

    python benchmarks/data/data_kills.py [--kills 50] [--seed 0] [--out FILE]

Each conversion is a process group of its own that reads 3,000 samples of five columns and writes
some 40 shards. It is killed by SIGKILL at a moment drawn evenly from the time that a whole one
takes, then begun again, up to three kills, then run to its end. Nothing may be lost or be there
twice: the samples of the result must be those of the source, in their order, with the checksums of
all shards and samples; and nothing may be left beside it. A target under its final name is compared
whenever it appears. Its files are compared with those of a
conversion that was not. Results go to benchmarks/results/data_kills.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

BENCHMARKS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCHMARKS.parent / "tests"))

from steptime.data.convert.conversion import convert, partial_of  # noqa: E402
from steptime.data.convert.planning import make_plan, take_sample  # noqa: E402
from steptime.data.convert.treatment import Treatment  # noqa: E402
from steptime.data.prepared.prepared_source import open_prepared  # noqa: E402
from unit.data_lists import make_mixed  # noqa: E402

OUT = BENCHMARKS / "results" / "data_kills.json"
NUM_SAMPLES = 3000
SHARD_BYTES = 4000
MAX_KILLS = 3


def main() -> None:
    """Kill, go on, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    draw, folder = random.Random(options.seed), Path(tempfile.mkdtemp(prefix="kills-"))
    try:
        source = make_mixed(NUM_SAMPLES)
        plan = plan_of(source)
        whole = whole_of(source, folder, plan)
        cases: list[dict[str, Any]] = []
        while sum(case["num_kills"] for case in cases) < options.kills:
            cases.append(one_case(source, folder, plan, whole, draw))
            print(json.dumps(cases[-1]), flush=True)
    finally:
        shutil.rmtree(folder)
    document = {
        "command": "python benchmarks/data/data_kills.py",
        **stamp(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "seed": options.seed,
        "num_samples": NUM_SAMPLES,
        "num_shards": plan.num_shards,
        "num_kills": sum(case["num_kills"] for case in cases),
        "kills_by_phase": dict(Counter(p for case in cases for p in case["phases"])),
        "num_conversions": len(cases),
        "num_equal": sum(case["is_equal"] for case in cases),
        "num_left_over": sum(case["num_left_over"] for case in cases),
        "num_resumed_shards": sum(case["num_resumed"] for case in cases),
    }
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    print(document)


def plan_of(source: Any) -> Any:
    """Return the plan."""
    kept = Treatment()
    return make_plan(source, "lists", kept, take_sample(source, kept), shard_bytes=SHARD_BYTES)


def whole_of(source: Any, folder: Path, plan: Any) -> tuple[float, dict[str, str]]:
    """Return how long an undisturbed conversion takes, and its files."""
    target, started = folder / "whole", time.monotonic()
    start(source, target, plan, wait=True)
    return time.monotonic() - started, files_of(target)


def start(source: Any, target: Path, plan: Any, *, wait: bool) -> int:
    """Convert in a process group of its own; return its id, or what it ended with."""
    process = os.fork()
    if process == 0:
        os.setsid()
        code = 1
        try:
            done = convert(source, target, plan, Treatment(), num_threads=2)
            target.with_name(target.name + ".resumed").write_text(str(done.num_resumed))
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) if wait else process


def one_case(
    source: Any, folder: Path, plan: Any, whole: tuple[float, Any], draw: random.Random
) -> dict[str, Any]:
    """Kill one conversion up to three times, then let it end."""
    target = folder / f"out-{draw.getrandbits(32):08x}"
    phases: list[str] = []
    for _ in range(draw.randint(1, MAX_KILLS)):
        process = start(source, target, plan, wait=False)
        time.sleep(draw.uniform(0, whole[0]))
        kill = os.killpg if is_group(process) else os.kill  # killed before it had a group
        kill(process, signal.SIGKILL)
        if os.WIFSIGNALED(os.waitpid(process, 0)[1]):
            phases.append(phase_of(target, plan))
        if target.exists():
            break  # it has its name, so it must be whole: it is compared below
    code = 0 if target.exists() else start(source, target, plan, wait=True)
    resumed = target.with_name(target.name + ".resumed")
    case = {
        "num_kills": len(phases),
        "phases": phases,
        "exit_code": code,
        "num_resumed": int(resumed.read_text()) if resumed.exists() else 0,
        "is_equal": is_equal(source, target, whole[1]),
        "num_left_over": int(partial_of(target).exists()),
    }
    shutil.rmtree(target)
    return case


def is_group(process: int) -> bool:
    """Return whether a child leads its own group already."""
    try:
        return os.getpgid(process) == process
    except ProcessLookupError:
        return False


def phase_of(target: Path, plan: Any) -> str:
    """Return in which phase a conversion was killed, by what it left."""
    if target.exists():
        return "under its name"
    journal = partial_of(target) / "journal.jsonl"
    if not journal.exists():
        return "before the journal"
    num_whole = journal.read_bytes().count(b"\n")
    return "checking" if num_whole == plan.num_shards else "writing"


def is_equal(source: Any, target: Path, whole: dict[str, str]) -> bool:
    """Return whether a target is what an undisturbed conversion makes."""
    if files_of(target) != whole:
        return False
    prepared = open_prepared(target)
    if len(prepared) != NUM_SAMPLES or next(prepared.damage(), None) is not None:
        return False
    ours, theirs = prepared.read(range(NUM_SAMPLES)), source.read(range(NUM_SAMPLES))
    return all(
        all(map(np.array_equal, ours[column.name], theirs[column.name]))
        for column in source.columns
    )


def files_of(target: Path) -> dict[str, str]:
    """Return the digest of each file of a target, without what resuming needs."""
    names = [path for path in target.iterdir() if path.name not in ("plan.json", "journal.jsonl")]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in names}


if __name__ == "__main__":
    main()
