"""Runs a command in contained children that measure its loader: one child for each pass.

In: a command. Out: the lines of each pass, and how its child ended. Each child is ended once its
pass is over; nothing of what it wrote stays, but the pass's own folder.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptime.core.executable import NotStarted
from steptime.core.units import format_seconds
from steptime.errors import NotFoundError
from steptime.isolate.child import start_contained
from steptime.isolate.tiers import Containment
from steptime.record import files, kinds
from steptime.record.lines import Line, LineReader, kind_of
from steptime.record.loaders.tf_data_lines import has_enough
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

TELL_S = 10.0

_LIMITS = TrialLimits(start_s=300.0, silence_s=600.0, working_s=0.0, total_s=600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchStart:
    """What all passes are started with; `tell` hears how long a slow loop still takes."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path
    cwd: Path
    containment: Containment
    tell: Callable[[str], None] = lambda text: None


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
    left = TimeLeft(start.tell)

    def is_over(watch: TrialWatch) -> bool:
        lines.extend(reader.read())
        if not lines:
            return watch.num_updates > MAX_UPDATES or has_enough(folder)
        left.look(lines[-1], watch.num_updates)
        return kind_of(lines[-1]) == kinds.BENCH_DONE

    try:
        ended = trial.wait(is_over)
    finally:
        trial.close()
    lines.extend(reader.read())
    return PassEnded(lines=lines, ended=ended, num_updates=trial.watch.num_updates)


class TimeLeft:
    """Says from time to time how long a slow loop still takes, by its steps so far."""

    def __init__(
        self, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tell, self._clock = tell, clock
        self._begun: tuple[float, int] | None = None
        self._told_s = clock()

    def look(self, last: Line, num_updates: int) -> None:
        """Look at the newest line, and at how many steps there were."""
        now = self._clock()
        if kind_of(last) != kinds.BENCH_BEGUN:
            self._begun = None
        elif self._begun is None:
            self._begun, self._told_s = (now, num_updates), now
        elif now - self._told_s >= TELL_S and (num := num_updates - self._begun[1]) > 0:
            self._told_s, left = now, int(last.get("steps", 0)) - num
            left_s = max(0.0, (now - self._begun[0]) / num * left)
            self._tell(f"it is slow: {num} steps so far, at most {format_seconds(left_s)} more")
