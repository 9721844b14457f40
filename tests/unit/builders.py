"""Values with defaults for the tests: a test names only the numbers it depends on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from steptime.core.interval import Interval
from steptime.core.process_end import ProcessEnd, RunState
from steptime.core.schema import SCHEMA
from steptime.measure.fold.run_fold import measure
from steptime.measure.fold.run_records import RunRecords, read_records
from steptime.measure.values.machine_load import HostLoad
from steptime.measure.values.measurement import (
    INNER_PHASES,
    PHASES,
    Measurement,
    Phase,
    RankSummary,
    SteadyWindow,
)
from steptime.record import buckets as record
from steptime.record.buckets import BUCKETS

COUNTS = tuple(name for name in record.COUNTS if name not in record.SIZES)
"""Of a guest that measures no sizes of inputs."""

MS = 1_000_000

Line = dict[str, Any]

# -- values of the chain


def make_quantity(median: float, *, half_width: float = 0.0, n: int = 100) -> Interval:
    return Interval(estimate=median, low=median - half_width, high=median + half_width, n=n)


def make_phases(
    times_s: Mapping[str, float],
    *,
    missing: Mapping[str, str] | None = None,
    cpu_s: Mapping[str, float] | None = None,
    device_s: Mapping[str, float] | None = None,
) -> tuple[Phase, ...]:
    """Phases with these median times; every other phase was observed and took no time."""
    total_s = sum(times_s.get(name, 0.0) for name in PHASES)
    phases = []
    for name in (*PHASES, *INNER_PHASES):
        if missing and name in missing:
            phases.append(Phase(name=name, missing=missing[name]))
            continue
        time_s = times_s.get(name, 0.0)
        phases.append(
            Phase(
                name=name,
                median_s=time_s,
                fraction=time_s / total_s if total_s else 0.0,
                cpu_median_s=time_s if cpu_s is None else cpu_s.get(name),
                mean_s=time_s,
                cpu_mean_s=time_s if cpu_s is None else cpu_s.get(name),
                device_mean_s=device_s.get(name) if device_s else None,
                device_median_s=device_s.get(name) if device_s else None,
            )
        )
    return tuple(phases)


def make_steady(
    step_time_s: Interval | None, *, num_steps: int = 100, step_cpu_s: Interval | None = None
) -> SteadyWindow:
    return SteadyWindow(
        first_step=1,
        num_steps=num_steps,
        num_warmup_steps=1,
        rule="the test's",
        step_time_s=step_time_s,
        step_cpu_s=step_time_s if step_cpu_s is None else step_cpu_s,
    )


def make_rank(
    rank: int = 0, *, world_size: int = 1, device: str = "cpu", n: int = 100, **times_s: float
) -> RankSummary:
    """A rank with these phase times: `make_rank(1, world_size=2, forward=0.5)`."""
    step_time_s = make_quantity(sum(times_s.get(name, 0.0) for name in PHASES), n=n)
    return RankSummary(
        rank=rank,
        pid=100 + rank,
        world_size=world_size,
        python_version="3.11.7",
        torch_version="2.13.0",
        device=device,
        num_threads=1,
        num_steps=n + 1,
        num_optimizer_updates=n + 1,
        num_backwards=n + 1,
        step_time_s=step_time_s if n else None,
        step_cpu_s=step_time_s if n else None,
        phases=make_phases(times_s),
        ended_cleanly=True,
    )


def make_measurement(
    *,
    input_wait_s: float = 0.0,
    fetch_s: float = 0.0,
    collate_s: float = 0.0,
    compute_s: float = 0.5,
    communication_s: float = 0.0,
    other_s: float = 0.0,
    missing: Mapping[str, str] | None = None,
    cpu_s: Mapping[str, float] | None = None,
    device_s: Mapping[str, float] | None = None,
    others_cores: float | None = 0.0,
    idle_cores: float = 0.0,
    **fields: Any,
) -> Measurement:
    """A measurement of 101 steps, 100 of them steady; `compute_s` is split over three phases.

    `others_cores` are of four; None means that the load was not observed.
    """
    times_s = {
        "input_wait": input_wait_s,
        "fetch": fetch_s,
        "collate": collate_s,
        "forward": 0.3 * compute_s,
        "backward": 0.6 * compute_s,
        "optimizer": 0.1 * compute_s,
        "communication": communication_s,
        "other": other_s,
    }
    step_time_s = sum(times_s[name] for name in times_s if name not in INNER_PHASES)
    host = None
    if others_cores is not None:
        job_cores = 4 - others_cores - idle_cores
        host = HostLoad(num_cores=4, job_cores=job_cores, others_cores=others_cores, num_samples=9)
    values: dict[str, Any] = {
        "schema": SCHEMA,
        "run_id": "20261120-101500-3fa2",
        "command": ("python", "train.py"),
        "started_unix_s": 1_790_000_000.0,
        "duration_s": 60.0,
        "end": ProcessEnd(state=RunState.FINISHED, exit_code=0),
        "num_steps": 101,
        "num_optimizer_updates": 101,
        "num_backwards": 101,
        "num_skipped_updates": 0,
        "num_ranks": 1,
        "period": 1,
        "steady": make_steady(make_quantity(step_time_s)),
        "phases": make_phases(times_s, missing=missing, cpu_s=cpu_s, device_s=device_s),
        "spans": (),
        "copies_per_step": 0.0,
        "syncs_per_step": 1.0,
        "ranks": (make_rank(forward=step_time_s),),
        "workers": None,
        "host": host,
        "overhead": None,
        "notes": (),
    }
    return Measurement(**{**values, **fields})


# -- lines of a run folder


def make_head(**fields: Any) -> Line:
    return {
        "k": "head",
        "schema": 1,
        "pid": 101,
        "rank": 0,
        "rank_source": "order",
        "world_size": 1,
        "local_rank": 0,
        "python": "3.11.7",
        "torch": "2.13.0",
        "device": "cpu",
        "device_name": None,
        "num_threads": 2,
        "t_unix_s": 1000.0,
        "t_ns": 0,
        "argv": ["train.py"],
        "buckets": list(BUCKETS),
        "counts": list(COUNTS),
        **fields,
    }


def by_bucket(times_ms: Mapping[str, float]) -> list[int]:
    """Nanoseconds in the order of the head."""
    return [round(times_ms.get(bucket, 0) * MS) for bucket in BUCKETS]


def by_count(**counts: int) -> list[int]:
    return [counts.get(name, 0) for name in COUNTS]


def make_row(
    number: int,
    times_ms: Mapping[str, float] | None = None,
    *,
    th: int = 0,
    o: int = 0,
    sk: int = 0,
    is_detailed: int = 1,
    w: Sequence[int] | None = None,
    c: Sequence[int] | None = None,
    x: Sequence[int] | None = None,
) -> list[int]:
    """An update of 10 ms of forward that ends at (number + 1) × 10 ms, if nothing else is said.

    `w`, `c` and `x` are the wall times, CPU times and counts as they stand in the file.
    """
    wall = by_bucket({"forward": 10} if times_ms is None else times_ms) if w is None else w
    counts = by_count(forwards=1, backwards=1, batches=1) if x is None else x
    end_ns = (number + 1) * 10 * MS
    leading = [number, th, o, end_ns - sum(wall), end_ns, sk, is_detailed]
    return [*leading, *wall, *counts, *(wall if c is None else c)]


def make_update(number: int, times_ms: Mapping[str, float] | None = None, **fields: Any) -> Line:
    """A line with one row of `make_row`."""
    return {"k": "u", "rows": [make_row(number, times_ms, **fields)]}


def make_device(number: int, times_ms: Mapping[str, float]) -> Line:
    return {"k": "d", "n": number, "d": by_bucket(times_ms)}


def make_block(
    number: int,
    num_rounds: int,
    *,
    round_ms: float = 10,
    th: int = 0,
    num_detailed: int = 0,
    times_ms: Mapping[str, float] | None = None,
    cpu_ms: Mapping[str, float] | None = None,
    counts: Mapping[str, int] | None = None,
) -> Line:
    """Rounds of one update each, all forward if nothing else is said."""
    wall = by_bucket({"forward": round_ms * num_rounds} if times_ms is None else times_ms)
    usual = dict.fromkeys(("forwards", "backwards", "batches"), num_rounds)
    counted = by_count(**{**usual, **(counts or {})})
    times_ns = (number * 10 * MS, (number + num_rounds) * 10 * MS)
    leading = [number, th, num_rounds, num_rounds, 0, *times_ns]
    return {
        "k": "b",
        "row": [*leading, *wall, *counted, num_detailed, *by_bucket(cpu_ms or {})],
        "rw": [round(round_ms * 1000)] * num_rounds,
        "rc": [round(round_ms * 1000)] * num_rounds,
    }


def make_memory(after_ms: float, rss: int | None = None, **fields: Any) -> Line:
    """A sample of memory; from within the forward if nothing else is said."""
    return {"k": "m", "n": 0, "t": round(after_ms * MS), "rss": rss, "bucket": 5, **fields}


def make_sites(*sites: Sequence[Any], num_updates: int = 4) -> Line:
    """Places of `num_updates` updates: what, file, line, end line, calls, time [ns] or None."""
    return {"k": "s", "n": 28, "updates": num_updates, "sites": [list(site) for site in sites]}


def make_spans(*sites: Sequence[Any]) -> Line:
    """Places of spans over the run, as in `make_sites`."""
    return {"k": "a", "n": 500, "sites": [list(site) for site in sites]}


def make_exit(num_updates: int = 0, **fields: Any) -> Line:
    """A process that reached its end; `error` is what ended it."""
    counted = {"updates": num_updates, "backwards": 0, "forwards": 0, "batches": 0}
    return {"k": "exit", "pid": 101, "t": 1009.0, **counted, "failures": {}, **fields}


def make_error(text: str = "boom", **fields: Any) -> Line:
    """What the exit line has of an exception, raised in line 31 if nothing else is said."""
    place = {"file": "/home/me/project/train.py", "line": 31}
    rest = {"phase": None, "is_memory": False, "requested_bytes": None}
    return {"type": "RuntimeError", "text": text, **place, **rest, **fields}


def make_source(**fields: Any) -> Line:
    """The content of `source.json`."""
    return {"schema": 1, "lines": [], "suspicions": [], "switches": [], **fields}


def make_end(num_updates: int, **fields: Any) -> Line:
    end = {"k": "end", "t": 0, "updates": num_updates, "backwards": num_updates, "failures": {}}
    return {**end, **fields}


COMMAND: Line = {
    "schema": 1,
    "run_id": "20261120-101500-3fa2",
    "argv": ["python", "train.py"],
    "cwd": "/home/me/project",
    "environment_names": ["HOME", "PATH"],
    "started_unix_s": 1000.0,
    "steptime_version": "0.1.0",
    "python_version": "3.11.7",
    "git_revision": None,
    "machine": {"hostname_hash": "abc", "cpu": None, "num_cores": 2, "memory_bytes": None},
    "parent_pid": 100,
    "child_pid": 101,
    "ended_unix_s": 1060.0,
    "exit_code": 0,
    "signal": None,
}


def write_run(folder: Path, files: Mapping[str, Sequence[Line | str]], **command: Any) -> Path:
    """A run folder with these files; a line is an object, or text as it stands.

    Without `processes.jsonl` among them one says that torch was seen.
    """
    folder.mkdir(exist_ok=True)
    (folder / "command.json").write_text(json.dumps({**COMMAND, **command}))
    processes: Sequence[Line | str] = (
        {"k": "start", "pid": 101, "ppid": 1, "python": "3.11.7", "argv": [], "t": 1000.0},
        {"k": "torch", "pid": 101, "version": "2.13.0", "t": 1001.0},
    )
    for name, lines in {"processes.jsonl": processes, **files}.items():
        texts = [line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines]
        (folder / name).write_text("".join(texts))
    return folder


def read(files: Mapping[str, Sequence[Line | str]], **command: Any) -> RunRecords:
    """The records of a run folder with these files, which is gone afterwards."""
    with TemporaryDirectory() as folder:
        return read_records(write_run(Path(folder) / "run", files, **command))


def measure_lines(*lines: Line, **head: Any) -> Measurement:
    """The measurement of one rank with these lines after its head."""
    return measure(read({"rank-0.jsonl": [make_head(**head), *lines]}))
