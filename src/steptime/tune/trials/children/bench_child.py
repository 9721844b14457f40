"""Runs a command in contained children that measure its loader: one child for each pass.

In: a command. Out: the lines of each pass, and how its child ended. Each child is ended once its
pass is over; nothing of what it wrote stays, but the pass's own folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptime.core.executable import NotStarted
from steptime.errors import NotFoundError
from steptime.isolate.child import start_contained
from steptime.isolate.tiers import Containment
from steptime.record import files, kinds
from steptime.record.lines import Line, LineReader, kind_of
from steptime.record.tf_data_lines import has_enough
from steptime.tune.trials.trial_process import (
    ContainedProcess,
    TrialEnded,
    TrialLimits,
    TrialStart,
    start_trial,
)
from steptime.tune.trials.trial_watch import TrialWatch

SCHEMA = 1

MAX_UPDATES = 200
"""After so many steps without a batch of a loader, the training has none."""

_LIMITS = TrialLimits(start_s=300.0, silence_s=600.0, working_s=0.0, total_s=600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchStart:
    """What all passes are started with."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path
    cwd: Path
    containment: Containment


@dataclass(frozen=True, slots=True, kw_only=True)
class PassEnded:
    """What a pass said; `ended` is None where we ended its child."""

    lines: Sequence[Line]
    ended: TrialEnded | None
    num_updates: int


def run_pass(start: BenchStart, wish: Mapping[str, Any], *, name: str) -> PassEnded:
    """Run the command until a pass is over, or the command is.

    Args:
        start: the command, and what it is started in.
        wish: `bench` of the plan (docs/internals/study-folder.md).
        name: of the pass's folder.

    Raises:
        NotFoundError: the command cannot be started.
    """

    def begin(
        environment: Mapping[str, str], *, folder: Path, stdin: Path | None
    ) -> ContainedProcess | NotStarted:
        return start_contained(
            start.argv,
            environment,
            cwd=start.cwd,
            folder=folder,
            containment=start.containment,
            stdin=stdin,
        )

    folder = start.folder / name
    plan = {"schema": SCHEMA, "mode": "bench", "levers": [], "bench": dict(wish)}
    trial = start_trial(
        begin,
        TrialStart(folder=folder, argv=start.argv, environment=start.environment, plan=plan),
        _LIMITS,
    )
    if isinstance(trial, NotStarted):
        raise NotFoundError(f"the command `{start.argv[0]}` {trial.reason}.")
    reader, lines = LineReader(folder / files.BENCH), list[Line]()

    def is_over(watch: TrialWatch) -> bool:
        lines.extend(reader.read())
        if not lines:
            return watch.num_updates > MAX_UPDATES or has_enough(folder)
        return kind_of(lines[-1]) == kinds.BENCH_DONE

    try:
        ended = trial.wait(is_over)
    finally:
        trial.close()
    lines.extend(reader.read())
    return PassEnded(lines=lines, ended=ended, num_updates=trial.watch.num_updates)
