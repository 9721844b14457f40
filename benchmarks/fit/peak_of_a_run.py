"""The peak of a run whose steps differ: the reported one against all events of torch's allocator.

    python benchmarks/fit/peak_of_a_run.py [--before FOLDER] [--only NAME ...] [--out FILE]

The scripts are those of the tests (`tests/specimens/work`), on the CPU. Each runs once under
`steptime run`, and once under torch.profiler from before its model is made: the sum of all events
of torch's CPU allocator gives the true peak of each step. For each script: the true peak over the
steps from the window on, the reported one with how it is known, and what a version before said
(`--before`, the `src` folder of an earlier version), which was the peak of one step. The table goes
to benchmarks/results/peak_of_a_run.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

BENCHMARKS = Path(__file__).resolve().parents[1]
SCRIPTS = BENCHMARKS.parent / "tests" / "specimens" / "work"
OUT = BENCHMARKS / "results" / "peak_of_a_run.json"
LIMIT_S = 300
MAX_ERROR = 0.02

CASES = (
    *("varying_batch", "random_lengths", "token_budget", "growing_sequences", "batch_jumps"),
    *("irregular_accumulation", "uneven_accumulation", "gradual_unfreezing", "lbfgs_closures"),
    *("fixed_point", "gan_in_turns"),
)
ALONE = {"OMP_NUM_THREADS": "1", "KINETO_LOG_LEVEL": "5"}


def profile(script: Path, out: Path, words: Sequence[str] = ()) -> None:
    """Write the peak of each update of a script, which runs in this process."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook
    from torch.profiler import ProfilerActivity, record_function
    from torch.profiler import profile as profiled

    def mark(*_: Any) -> None:
        with record_function("update ends"):
            pass

    torch.set_num_threads(1)
    register_optimizer_step_post_hook(mark)
    with profiled(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        sys.argv = [str(script), *words]
        runpy.run_path(str(script), run_name="__main__")
    events = prof.profiler.kineto_results.events()
    told = [e for e in events if e.name() in ("[memory]", "update ends")]
    peaks, held, peak = [], 0, 0
    for event in sorted(told, key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
        else:
            peaks.append(peak)
            peak = held
    out.write_text(json.dumps(peaks))


def true_peaks(name: str) -> list[int]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "peaks.json")
        command = [sys.executable, __file__, "--profile", str(SCRIPTS / f"{name}.py"), str(out)]
        own = dict(os.environ) | ALONE
        subprocess.run(
            command, cwd=folder, env=own, capture_output=True, timeout=LIMIT_S, check=True
        )
        return list(json.loads(out.read_text()))


def reported(name: str, source: Path | None) -> dict[str, Any]:
    """What one version reports of a script's memory."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "STEPTIME"))}
    own |= ALONE | ({} if source is None else {"PYTHONPATH": str(source)})
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "steptime", "run", "--json", "result.json", "--"]
        command += [sys.executable, str(SCRIPTS / f"{name}.py")]
        subprocess.run(
            command, cwd=folder, env=own, capture_output=True, timeout=LIMIT_S, check=True
        )
        return dict(json.loads(Path(folder, "result.json").read_bytes())["data"]["measurement"])


def measure(name: str, before: Path | None) -> dict[str, Any]:
    """One row of the table."""
    peaks, found = true_peaks(name), reported(name, None)
    first, memory = found["steady"]["first_step"], found["memory"]
    steps = found["num_steps"]
    if steps != len(peaks):  # optimizers take turns
        rounds = len(peaks) // steps
        peaks = [max(peaks[at : at + rounds]) for at in range(0, steps * rounds, rounds)]
    true = max(peaks[first:])
    peak = memory["run_peak"] or {}
    row: dict[str, Any] = {"script": name, "true": true, "true_low": min(peaks[first:])}
    row["of_one_step"] = memory["timeline"]["peak"] and sum(
        memory["timeline"]["peak"]["by_part"].values()
    )
    row |= {key: peak.get(key) for key in ("bytes", "low_bytes", "how", "step", "num_followed")}
    row["error_fraction"] = peak.get("error_fraction")
    row["error"] = None if not peak else peak["bytes"] / true - 1
    row["true_in_step"] = None if not peak else peaks[peak["step"]]
    if before is not None:
        timeline = reported(name, before)["memory"]["timeline"]
        row["before"] = timeline and sum(timeline["peak"]["by_part"].values())
    print(describe(row), flush=True)
    return row


def describe(row: Mapping[str, Any]) -> str:
    def kib(size: int | None) -> str:
        return "-" if size is None else f"{size / 1024:,.0f}"

    sizes = (row["true"], row.get("before"), row["bytes"])
    known = f"{row['how']}, {row['num_followed']} followed"
    error = "-" if row["error"] is None else f"{row['error']:+.2%}"
    return "  ".join(
        (f"{row['script']:24}", *(f"{kib(size):>10}" for size in sizes), f"{error:>9}", known)
    )


def is_right(row: Mapping[str, Any]) -> bool:
    """Whether the peak is near the true one, or is said to be less than it may be."""
    if row["error"] is None:
        return False
    return abs(row["error"]) <= MAX_ERROR or (row["how"] == "at_least" and row["error"] < 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, help="`src` folder of an earlier version")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--out", type=Path, default=OUT, help="where the figures go")
    parser.add_argument("--profile", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.profile:
        profile(*options.profile)
        return 0
    import torch

    print(f"Python {platform.python_version()}, torch {torch.__version__}, CPU, one thread; KiB")
    head = ("true", "before", "now")
    print("  ".join([f"{'script':24}", *(f"{one:>10}" for one in head), "    error  known by"]))
    rows = [measure(name, options.before) for name in options.only]
    right = [row for row in rows if is_right(row)]
    print(f"{len(right)} of {len(rows)} peaks within {MAX_ERROR:.0%}, or said to be a lower bound")
    figures = {
        **stamp(),
        "python": platform.python_version(),
        "versions": {"torch": str(torch.__version__)},
        "device": "cpu, 1 thread",
        "n": 1,
        "rows": rows,
    }
    options.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0 if len(right) == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
