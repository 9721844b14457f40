"""A short extra child that counts the work of one step, where the run itself must not.

In: a command that has just ended. Out: `count.jsonl` in its run folder: the guest's line, or why
there is none. The child is contained like a trial, does not compile, and is ended once it has
counted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steptime.core.executable import NotStarted
from steptime.core.store import write_text
from steptime.errors import ContainmentError
from steptime.isolate.child import start_contained
from steptime.isolate.probe import probe
from steptime.record import files, kinds
from steptime.tune.trials.trial_process import (
    ContainedProcess,
    TrialLimits,
    TrialProcess,
    TrialStart,
    start_trial,
)
from steptime.tune.trials.trial_watch import TrialWatch
from steptime.tune.values.study_values import TrialEnd

SCHEMA = 1

_EAGER = {"TORCHDYNAMO_DISABLE": "1"}
"""Compiled code cannot be counted, and compiling would take longer than the count."""

# The first steps of an eager program: more than that, and something is wrong.
_LIMITS = TrialLimits(start_s=300.0, silence_s=120.0, working_s=180.0, total_s=600.0)


def count_in_child(
    argv: tuple[str, ...], environment: Mapping[str, str], *, run_folder: Path, cwd: Path
) -> None:
    """Run the command until a step was counted; write what it said to `count.jsonl`.

    Args:
        argv: the command.
        environment: the user's, in which it ran.
        run_folder: of the run that has ended; absolute or not.
        cwd: where it ran.
    """
    row = _count(argv, environment, folder=run_folder.resolve() / "count", cwd=cwd)
    head = {"k": kinds.HEAD, "schema": SCHEMA}
    lines = (json.dumps(one) + "\n" for one in (head, row))
    write_text(run_folder / files.COUNTED, "".join(lines))


def _count(
    argv: tuple[str, ...], environment: Mapping[str, str], *, folder: Path, cwd: Path
) -> Mapping[str, Any]:
    try:
        trial = _start(argv, environment, folder=folder, cwd=cwd)
        if isinstance(trial, NotStarted):
            return _missing("child_not_started")
        try:
            ended = trial.wait(lambda watch: _counted(watch) is not None)
            found = _counted(trial.watch)
        finally:
            trial.close()
    except ContainmentError:
        return _missing("child_uncontained")
    if found is not None:
        return found
    if ended is not None and ended.end is TrialEnd.OUT_OF_MEMORY:
        return _missing("child_out_of_memory")
    timed_out = ended is not None and ended.end is TrialEnd.TIMED_OUT
    return _missing("child_time_limit" if timed_out else "child_ended")


def _start(
    argv: tuple[str, ...], environment: Mapping[str, str], *, folder: Path, cwd: Path
) -> TrialProcess | NotStarted:
    containment = probe(folder.parent, allow_unsafe=False, share_network=False)

    def begin(
        environment: Mapping[str, str], *, folder: Path, stdin: Path | None
    ) -> ContainedProcess | NotStarted:
        return start_contained(
            argv, environment, cwd=cwd, folder=folder, containment=containment, stdin=stdin
        )

    start = TrialStart(
        folder=folder,
        argv=argv,
        environment={**environment, **_EAGER},
        plan={"schema": SCHEMA, "mode": "count", "levers": []},
    )
    return start_trial(begin, start, _LIMITS)


def _counted(watch: TrialWatch) -> Mapping[str, Any] | None:
    """The line of the process of the lowest rank, once it is there."""
    ready = [process for process in watch.processes if process.count is not None]
    first = min(ready, key=lambda process: process.rank or 0, default=None)
    return None if first is None else first.count


def _missing(word: str) -> dict[str, Any]:
    return {"k": kinds.COUNT, "missing": word}
