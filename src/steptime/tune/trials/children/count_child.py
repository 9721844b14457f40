"""A short extra child that counts the work of steps, where the run itself must not.

In: a command that has just ended. Out: `count.jsonl` in its run folder: the guest's lines, or why
there are none. The child is contained like a trial, does not compile, and is ended once it has
counted as many updates as it takes until they repeat.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from steptime.core.executable import NotStarted
from steptime.core.store import write_text
from steptime.errors import ContainmentError
from steptime.isolate.child import start_contained
from steptime.isolate.left.left_folders import remove_left, temporary_folders
from steptime.isolate.probe import probe
from steptime.isolate.surroundings import SHADOW
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
LIMITS = TrialLimits(start_s=300.0, silence_s=120.0, working_s=180.0, total_s=600.0)


def count_in_child(
    argv: tuple[str, ...],
    environment: Mapping[str, str],
    *,
    run_folder: Path,
    cwd: Path,
    training: int | None = None,
) -> None:
    """Run the command until steps were counted; write what it said to `count.jsonl`.

    Args:
        argv: the command.
        environment: the user's, in which it ran.
        run_folder: of the run that has ended; absolute or not.
        cwd: where it ran.
        training: the number of the training whose step is counted, if the command has several.
    """
    folder = run_folder.resolve() / "count"
    rows = _count(argv, environment, folder=folder, cwd=cwd, training=training)
    head = {"k": kinds.HEAD, "schema": SCHEMA, "training": training or 1}
    lines = (json.dumps(one) + "\n" for one in (head, *rows))
    write_text(run_folder / files.COUNTED, "".join(lines))


def _count(
    argv: tuple[str, ...],
    environment: Mapping[str, str],
    *,
    folder: Path,
    cwd: Path,
    training: int | None,
) -> Sequence[Mapping[str, Any]]:
    try:
        remove_left((*temporary_folders(), *_left_shadows(folder.parent.parent)))
        trial = start_counting(argv, environment, folder=folder, cwd=cwd, training=training)
        if isinstance(trial, NotStarted):
            return _missing("child_not_started")
        try:
            ended = trial.wait(has_counted)
            found = _counted(trial.watch)
        finally:
            trial.close()
    except ContainmentError:
        return _missing("child_uncontained")
    if found:
        return found
    if ended is not None and ended.end is TrialEnd.OUT_OF_MEMORY:
        return _missing("child_out_of_memory")
    timed_out = ended is not None and ended.end is TrialEnd.TIMED_OUT
    return _missing("child_time_limit" if timed_out else "child_ended")


def start_counting(
    argv: tuple[str, ...],
    environment: Mapping[str, str],
    *,
    folder: Path,
    cwd: Path,
    training: int | None = None,
    wish: Mapping[str, Any] | None = None,
    share_network: bool = False,
    allow_unsafe: bool = False,
) -> TrialProcess | NotStarted:
    """Start a child that counts its updates and does nothing else of ours.

    Args:
        argv: the command.
        environment: the user's.
        folder: of the child; made here.
        cwd: where the command runs.
        training: the number of the only training that counts.
        wish: more for the guest's plan.
        share_network: whether the child may use the network.
        allow_unsafe: whether it may run where nothing keeps it from changing files.

    Raises:
        ContainmentError: nothing here keeps it from doing harm.
    """
    containment = probe(folder.parent, allow_unsafe=allow_unsafe, share_network=share_network)

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
        plan={"schema": SCHEMA, "mode": "count", "levers": [], **(wish or {})},
        training=training,
    )
    return start_trial(begin, start, LIMITS)


def _left_shadows(runs: Path) -> Iterator[str]:
    """Yield the folders that the killed children of earlier runs may have left."""
    for pattern in ("count", "probe-*/trial"):
        yield from (str(path) for path in runs.glob(f"*/{pattern}/{SHADOW}"))


def has_counted(watch: TrialWatch) -> bool:
    """Return whether a process has counted all that it will."""
    return any(process.is_counted for process in watch.processes)


def _counted(watch: TrialWatch) -> Sequence[Mapping[str, Any]]:
    """Return the lines of the process of the lowest rank; none before it has counted."""
    ready = [process for process in watch.processes if process.counts]
    first = min(ready, key=lambda process: process.rank or 0, default=None)
    return () if first is None else first.counts


def _missing(word: str) -> tuple[dict[str, Any]]:
    return ({"k": kinds.COUNT, "missing": word},)
