"""Runs for the tests of comparing: values, and folders of a store with nothing raw in them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from steptime.compare.facts import take_run
from steptime.compare.judge import compare
from steptime.compare.values import ComparedRun, Comparison
from steptime.core.devices.machine_identity import MachineIdentity
from steptime.core.interval import Interval
from steptime.core.process_end import ProcessEnd, RunState
from steptime.core.schema import SCHEMA
from steptime.core.store import Run, write_value
from steptime.diagnose.values.finding import BottleneckKind as Kind
from steptime.diagnose.values.finding import Diagnosis
from steptime.launch.values import CommandRecord
from steptime.measure.values.machine_load import HostLoad
from steptime.measure.values.measurement import (
    PHASES,
    Measurement,
    Phase,
    RankSummary,
    Span,
    SteadyWindow,
)

BEGAN_S = 1_790_000_000.0
MACHINE = MachineIdentity(
    hostname_hash="aaaa", cpu="a CPU", num_cores=4, memory_bytes=16 * 2**30, memory_limit_bytes=None
)
SHARES = {"input_wait": 0.1, "forward": 0.3, "backward": 0.5, "optimizer": 0.1}


def make_record(number: int = 0, **fields: Any) -> CommandRecord:
    """Run `number`, an hour after the one before."""
    values: dict[str, Any] = {
        "run_id": run_id_of(number),
        "argv": ("python", "train.py", "--lr", "0.1"),
        "cwd": "/home/me/project",
        "environment_names": ("HOME", "PATH"),
        "started_unix_s": BEGAN_S + 3600 * number,
        "steptime_version": "0.1.0",
        "python_version": "3.11.7",
        "git_revision": "3adf61e0c0ff",
        "machine": MACHINE,
        "parent_pid": 100,
        "child_pid": 101,
        "ended_unix_s": BEGAN_S + 3600 * number + 60,
        "exit_code": 0,
        "environment": {"OMP_NUM_THREADS": "4"},
        "script_files": ("train.py",),
        "script_hash": "sha256:" + "0" * 64,
    }
    return CommandRecord(**{**values, **fields})


def run_id_of(number: int) -> str:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(BEGAN_S + 3600 * number))
    return f"{stamp}-{number:04x}"


def make_measured(
    step_s: float | None = 0.1,
    *,
    number: int = 0,
    shares: Mapping[str, float] = SHARES,
    num_steps: int = 500,
    spans_s: Mapping[str, float] | None = None,
    rest_s: float = 5.0,
    others_cores: float = 0.0,
    cpu_s: float | None = None,
    **fields: Any,
) -> Measurement:
    """A run whose steps take `step_s` each, and `cpu_s` of CPU, divided into phases by `shares`."""
    seen = 0.0 if step_s is None else step_s
    interval = Interval(estimate=seen, low=seen * 0.999, high=seen * 1.001, n=num_steps - 10)
    steady = SteadyWindow(
        first_step=10,
        num_steps=num_steps - 10,
        num_warmup_steps=10,
        rule="the test's",
        step_time_s=interval,
        step_cpu_s=interval,
        mean_s=step_s,
    )
    phases = tuple(
        Phase(
            name=name,
            median_s=seen * shares.get(name, 0.0),
            fraction=shares.get(name, 0.0),
            cpu_mean_s=None if cpu_s is None else cpu_s * shares.get(name, 0.0),
        )
        for name in PHASES
    )
    spans = {} if spans_s is None else dict(spans_s)
    rank = RankSummary(
        rank=0,
        pid=101,
        world_size=1,
        python_version="3.11.7",
        torch_version="2.13.0",
        device="cpu",
        num_threads=4,
        num_steps=num_steps,
        num_optimizer_updates=num_steps,
        num_backwards=num_steps,
        step_time_s=interval,
        step_cpu_s=interval,
        phases=phases,
        ended_cleanly=True,
    )
    values: dict[str, Any] = {
        "schema": SCHEMA,
        "run_id": run_id_of(number),
        "command": ("python", "train.py", "--lr", "0.1"),
        "started_unix_s": BEGAN_S + 3600 * number,
        "duration_s": rest_s + num_steps * seen + sum(spans.values()),
        "end": ProcessEnd(state=RunState.FINISHED, exit_code=0),
        "num_steps": num_steps,
        "num_optimizer_updates": num_steps,
        "num_backwards": num_steps,
        "num_skipped_updates": 0,
        "num_ranks": 1,
        "period": 1,
        "steady": steady if step_s is not None else None,
        "phases": phases,
        "spans": tuple(
            Span(name=name, total_s=value, num_steps_touched=1) for name, value in spans.items()
        ),
        "copies_per_step": 0.0,
        "syncs_per_step": 0.0,
        "ranks": (rank,),
        "workers": None,
        "host": HostLoad(num_cores=4, job_cores=3.0, others_cores=others_cores, num_samples=30),
        "overhead": None,
        "notes": (),
    }
    return Measurement(**{**values, **fields})


def make_compared(
    step_s: float | None = 0.1,
    *,
    number: int = 0,
    record: Mapping[str, Any] | None = None,
    **fields: Any,
) -> ComparedRun:
    """The run as it is compared; `record` are fields of its `command.json`."""
    measurement = make_measured(step_s, number=number, **fields)
    return take_run(measurement, make_record(number, **(record or {})), place=f"/s/{number}")


def make_set(times_s: Sequence[float], *, first: int = 0, **fields: Any) -> list[ComparedRun]:
    """Runs with these step times, every second number from `first` on: sets take turns."""
    return [
        make_compared(step_s, number=first + 2 * i, **fields) for i, step_s in enumerate(times_s)
    ]


def store_run(
    folder: Path,
    step_s: float | None = 0.1,
    *,
    number: int = 0,
    record: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Run:
    """The same as a run folder of the store in `folder`."""
    measurement = make_measured(step_s, number=number, **fields)
    run = Run(run_id=measurement.run_id, folder=folder / ".steptime" / "runs" / measurement.run_id)
    run.folder.mkdir(parents=True)
    end = measurement.end
    known = {"exit_code": end.exit_code, "signal": end.signal, **(record or {})}
    write_value(run, "command.json", make_record(number, **known))
    write_value(run, "measurement.json", measurement)
    diagnosis = Diagnosis(schema=SCHEMA, run_id=run.run_id, kind=Kind.INCONCLUSIVE, findings=())
    write_value(run, "diagnosis.json", diagnosis)
    return run


def with_machine(**fields: Any) -> dict[str, Any]:
    """Fields of `command.json` of a run on another machine."""
    return {"machine": replace(MACHINE, **fields)}


# -- comparisons for the reports


def slower() -> Comparison:
    """Three runs a side; B waits for data and evaluates longer."""
    a = make_set((0.100, 0.101, 0.099), spans_s={"evaluation": 6.0})
    waiting = {"input_wait": 0.25, "forward": 0.25, "backward": 0.42, "optimizer": 0.08}
    record = {
        "argv": ("python", "train.py", "--lr", "0.1", "--workers", "0"),
        "environment": {},
        "script_hash": "sha256:" + "1" * 64,
    }
    fields = {"shares": waiting, "record": record, "spans_s": {"evaluation": 9.0}}
    return compare(a, make_set((0.120, 0.121, 0.119), first=1, **fields), limit=0.05)


def no_difference() -> Comparison:
    """Runs that differ as much among themselves, one set after the other on a busy machine."""
    a = [make_compared(step_s, number=i) for i, step_s in enumerate((0.1, 0.11, 0.104))]
    b = [
        make_compared(step_s, number=5 + i, others_cores=1.5, num_steps=400)
        for i, step_s in enumerate((0.104, 0.112, 0.107))
    ]
    return compare(a, b)


def single() -> Comparison:
    """One run a side, and nothing stored."""
    return compare([make_compared(0.1)], [make_compared(0.13, number=1)], limit=0.05)


def passed() -> Comparison:
    """Three quiet runs a side, a little apart."""
    a, b = make_set((0.100, 0.101, 0.099)), make_set((0.101, 0.102, 0.100), first=1)
    return compare(a, b, limit=0.05)


def two_runs() -> Comparison:
    """Two runs a side, far apart, and nothing stored."""
    return compare(make_set((0.1, 0.101)), make_set((0.13, 0.131), first=1), limit=0.05)


def unlike() -> Comparison:
    """Another script on another machine."""
    record = {"argv": ("python", "other.py"), **with_machine(cpu="another CPU")}
    a = make_set((0.100, 0.101, 0.099))
    return compare(a, make_set((0.100, 0.1, 0.101), first=1, record=record), limit=0.05)


def without_steps() -> Comparison:
    """A run that failed before its steps."""
    end = ProcessEnd(state=RunState.FAILED, exit_code=1)
    broken = make_compared(None, number=1, num_steps=3, end=end)
    return compare([make_compared(0.1)], [broken], limit=0.05)


CASES = {
    "slower": slower,
    "no_difference": no_difference,
    "passed": passed,
    "single": single,
    "two_runs": two_runs,
    "unlike": unlike,
    "without_steps": without_steps,
}
