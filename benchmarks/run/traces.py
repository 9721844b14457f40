"""What reading a profiler's trace costs, and whether its figures are those of HTA.

    python benchmarks/run/traces.py [--events 100000 900000] [TRACE.json.gz ...]

First a made-up trace of so many events (an operator each, every fourth with a launch and a kernel)
is written, read and folded in a process of its own: time, and memory at its highest. Then, for each
trace that is named, idle time and hidden communication of the device beside those that Holistic
Trace Analysis (`pip install HolisticTraceAnalysis`) computes from it over the same steps. HTA
leaves out what was launched before the trace began, and rounds fractions of a microsecond, so that
thousands of kernels lose up to one each: where a trace has neither, the figures are equal.
Results go to benchmarks/results/traces.json.
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import multiprocessing
import os
import platform
import resource
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from steptime.measure.profile.profile_device import fold_devices
from steptime.measure.profile.profile_host import fold_host
from steptime.measure.profile.profile_trace import Trace, collect
from steptime.measure.profile.trace_file import read_events

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

BENCHMARKS = Path(__file__).resolve().parents[1]


def write_trace(path: Path, num_events: int) -> None:
    """Three steps of operators that take 2 µs each, nested two deep."""
    length = num_events * 1.5 / 3
    with gzip.open(path, "wt", 6) as file:
        file.write('{"schemaVersion": 1, "traceEvents": [\n')
        for step in range(3):
            write(file, "user_annotation", f"ProfilerStep#{step}", step * length, length, {})
        for number in range(num_events // 6 * 4):
            start, args = number * 2.0, {"External id": number, "Input Dims": [[64, number % 64]]}
            write(file, "cpu_op", f"aten::op{number % 90}", start, 3.5 - number % 2 * 2, args)
            if number % 4 == 0:
                ids = {"correlation": number, "External id": number}
                write(file, "cuda_runtime", "cudaLaunchKernel", start, 1.0, ids)
                device = {**ids, "device": 0, "stream": 7}
                write(file, "kernel", f"gemm_{number % 30}", start + 9, 6.0, device)
        file.write('{"ph": "M"}]}\n')


def write(file: Any, cat: str, name: str, start: float, length: float, args: Any) -> None:
    event = {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": length}
    file.write(json.dumps({**event, "args": args}) + ",\n")


def fold(path: Path, *, num_steps: int) -> tuple[Trace, Any]:
    trace = collect(read_events(path), num_steps=num_steps)
    if trace is None:
        raise SystemExit(f"{path}: no steps are marked in it")
    _, launchers = fold_host(trace, is_users=lambda _: False)
    return trace, fold_devices(trace, launchers)


def cost_of(path: str, answer: Any) -> None:
    """In a process of its own, so that the highest memory is that of the reading."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    fold(Path(path), num_steps=3)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer.put((time.process_time() - began, (after - before) * 1024))


def measure_cost(num_events: int) -> dict[str, float]:
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rank-0.pt.trace.json.gz"
        write_trace(path, num_events)
        answer = context.Queue()
        process = context.Process(target=cost_of, args=(str(path), answer))
        process.start()
        cpu_s, added_bytes = answer.get()
        process.join()
        packed = path.stat().st_size
    return {
        "num_events": num_events,
        "packed_bytes": packed,
        "cpu_s": cpu_s,
        "added_bytes": added_bytes,
    }


def of_hta(path: Path) -> tuple[float, float]:
    """Idle share and hidden communication of the device, in percent."""
    from hta.trace_analysis import TraceAnalysis

    document = json.loads(gzip.decompress(path.read_bytes()))
    document["distributedInfo"] = {**document.get("distributedInfo", {}), "rank": 0}
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "rank0.json.gz")
        with gzip.open(copy, "wt") as file:
            file.write(json.dumps(document))
        analysis = TraceAnalysis(trace_files={0: copy}, include_last_profiler_step=True)
        idle = analysis.get_temporal_breakdown(visualize=False)["idle_time_pctg"].iloc[0]
        hidden = analysis.get_comm_comp_overlap(visualize=False)["comp_comm_overlap_pctg"].iloc[0]
    return float(idle), float(hidden)


def compare(path: Path) -> dict[str, Any]:
    _, devices = fold(path, num_steps=1_000_000)
    device = max(devices, key=lambda one: one.num_kernels)
    idle, hidden = of_hta(path)
    exchange_s = device.communication_s
    ours = 100 * (1 - device.exposed_communication_s / exchange_s) if exchange_s else None
    return {
        "trace": path.name,
        "num_kernels": device.num_kernels,
        "idle_percent": round(100 * device.idle_s / device.window_s, 2),
        "idle_percent_hta": idle,
        "hidden_percent": None if ours is None else round(ours, 2),
        "hidden_percent_hta": None if hidden != hidden else hidden,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, nargs="*", default=[100_000, 900_000])
    parser.add_argument("traces", nargs="*", type=Path)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    costs = [measure_cost(num) for num in options.events]
    print("     events   packed MB    CPU s   added MiB")
    for one in costs:
        print(
            f"{one['num_events']:>11,} {one['packed_bytes'] / 1e6:>11.1f} {one['cpu_s']:>8.1f}"
            f" {one['added_bytes'] / 2**20:>11.0f}"
        )
    rows = [compare(path) for path in options.traces]
    for row in rows:
        print(
            f"{row['trace']}: {row['num_kernels']:,} kernels; idle {row['idle_percent']} % (HTA "
            f"{row['idle_percent_hta']} %), hidden {row['hidden_percent']} % (HTA "
            f"{row['hidden_percent_hta']} %)"
        )
    result = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        **stamp(),
        "python": platform.python_version(),
        "n": 1,
        "costs": costs,
        "against_hta": rows,
    }
    target = BENCHMARKS / "results" / "traces.json"
    target.write_text(json.dumps(result, indent=1) + "\n")
    print(f"written to {target.relative_to(BENCHMARKS.parent)}")


if __name__ == "__main__":
    sys.exit(main())
