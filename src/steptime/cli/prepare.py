"""The record of one run, from before the command starts to its end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from steptime.cli.run import RunOptions
from steptime.core.store import CommandRecord, Run, create_run, write_value
from steptime.core.types import ProcessEnd
from steptime.measure.launch import observed_environment
from steptime.measure.origin import describe_run


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run's folder, its `command.json` so far, and the environment of the command."""

    run: Run
    record: CommandRecord
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """A run whose command has ended, with its final `command.json`."""

    run: Run
    record: CommandRecord
    end: ProcessEnd


def prepare(options: RunOptions, environment: Mapping[str, str]) -> Plan:
    """Make the run's folder with what the command's processes need."""
    started_unix_s = time.time()
    run = create_run(options.store, started_unix_s=started_unix_s)
    record = describe_run(
        run.run_id, options.command, environment=environment, started_unix_s=started_unix_s
    )
    write_value(run, "command.json", record)
    observed = observed_environment(environment, run.folder)
    return Plan(run=run, record=record, environment=observed)


def note_child(plan: Plan, child_pid: int) -> None:
    """Put the id of the started process into `command.json`."""
    write_value(plan.run, "command.json", replace(plan.record, child_pid=child_pid))


def end_run(
    plan: Plan, child_pid: int, end: ProcessEnd, *, num_sample_failures: int | None
) -> EndedRun:
    """The run with its end, not written yet."""
    record = replace(
        plan.record,
        child_pid=child_pid,
        ended_unix_s=time.time(),
        exit_code=end.exit_code,
        signal=end.signal,
        num_sample_failures=num_sample_failures,
    )
    return EndedRun(run=plan.run, record=record, end=end)
