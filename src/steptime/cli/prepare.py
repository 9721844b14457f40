"""The record of one run, from before the command starts to its end."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from steptime.cli.profiling import wrapped
from steptime.cli.run import RunOptions
from steptime.core.process_end import ProcessEnd
from steptime.core.store import Run, create_run, write_text, write_value
from steptime.launch.origin import describe_run
from steptime.launch.user_command import observed_environment
from steptime.launch.values import CommandRecord
from steptime.measure.values.profiled import FOLDER

if TYPE_CHECKING:
    from steptime.tune.recipe.recipe_setup import Setup


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """A run's folder, its `command.json` so far, and with what in which environment it starts."""

    run: Run
    record: CommandRecord
    environment: Mapping[str, str]
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """A run whose command has ended, with its final `command.json`."""

    run: Run
    record: CommandRecord
    end: ProcessEnd


def prepare(options: RunOptions, environment: Mapping[str, str], setup: Setup | None) -> RunPlan:
    """Make the run's folder with what the command's processes need, a recipe's plan too."""
    started_unix_s = time.time()
    run = create_run(options.store, started_unix_s=started_unix_s)
    record = describe_run(
        run.run_id, options.command, environment=environment, started_unix_s=started_unix_s
    )
    record = replace(record, profile=options.profile)
    if setup is not None:
        record = replace(record, recipe=setup.use)
    write_value(run, "command.json", record)
    observed = observed_environment(environment, run.folder)
    if setup is not None:
        observed = _with_recipe(observed, run, setup)
    if options.profile is not None:
        (run.folder / FOLDER).mkdir()
        observed = {**observed, "STEPTIME_PROFILE": options.profile.variable}
    argv = wrapped(options.command, options.profile, run.folder / FOLDER)
    return RunPlan(run=run, record=record, environment=observed, argv=argv)


def _with_recipe(environment: Mapping[str, str], run: Run, setup: Setup) -> dict[str, str]:
    """The environment with the recipe's variables; the guest's part is written to `plan.json`."""
    from steptime.tune.trials.trial_setting import add_variables

    found = add_variables(environment, setup.variables)
    if setup.plan is not None:
        path = run.folder / "plan.json"
        write_text(path, json.dumps(setup.plan) + "\n")
        found["STEPTIME_PLAN"] = str(path)
    return found


def note_child(plan: RunPlan, child_pid: int) -> None:
    """Put the id of the started process into `command.json`."""
    write_value(plan.run, "command.json", replace(plan.record, child_pid=child_pid))


def end_run(
    plan: RunPlan, child_pid: int, end: ProcessEnd, *, num_sample_failures: int | None
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
