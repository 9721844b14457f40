"""Makes one run of a search in a contained child, and ends it when its answer is known.

In: a command, where its metric is, and the rule that ends it. Out: a `SeekRun`. The metric is read
while the child runs: a run that has reached the target, or cannot win, is killed with everything
that it started. When an evaluation came is when it was read here.
"""

from __future__ import annotations

import math
import platform
import shlex
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from steptime.app.search.run_metric import BOARD, FILES, KEPT, last_lines, read_metric, with_kept
from steptime.core.executable import NotStarted
from steptime.core.process_end import ProcessEnd
from steptime.errors import NotStartedError
from steptime.isolate.child import ContainedChild, start_contained
from steptime.isolate.tiers import Containment
from steptime.launch.user_command import seeded_environment, shell_exit_code, user_environment
from steptime.seek.pace import StopRule, reached_at, why_stop
from steptime.seek.values.seek_values import Role, SeekEnd, SeekRun

_COPY_S = 0.5
_POLL_S, _POLL_SHARE, _MOST_POLL_S = 0.1, 0.005, 1.0
"""The output is read this often, or each 0.5 % of the run's time, at most a second: what a time to
the target is wrong by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoughtTrial:
    """A run that is to be made, in the absolute folder `cwd`.

    `is_seeded_by_guest`: the command takes no seed, so Python, numpy and torch begin with it.
    """

    number: int
    candidate: int
    parameters: Mapping[str, str]
    seed: int
    role: Role
    argv: tuple[str, ...]
    metric: str
    rule: StopRule
    cwd: Path
    is_seeded_by_guest: bool = False

    @property
    def name(self) -> str:
        """Return the name of its folder."""
        return f"run-{self.number:04d}"


def make_trial(trial: SoughtTrial, *, folder: Path, containment: Containment) -> SeekRun:
    """Make the run; the folder gets what it wrote, and an old one is removed first.

    Raises:
        NotStartedError: the command cannot be started.
        ContainmentError: nothing here keeps it from doing harm.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    argv = trial.argv
    if trial.metric.partition(":")[0] in (*FILES, BOARD):
        copied = with_kept(shlex.join(argv), trial.metric, folder / KEPT, every_s=_COPY_S)
        argv = ("sh", "-c", copied)
    # A pipe makes Python keep back what it prints, and the metric would come late or at the end.
    environment = {**user_environment(), "PYTHONUNBUFFERED": "1"}
    if trial.is_seeded_by_guest:
        environment = seeded_environment(environment, folder, trial.seed)
    began_s = time.monotonic()
    child = start_contained(
        argv,
        environment,
        cwd=trial.cwd,
        folder=folder,
        containment=containment,
        write_s=_POLL_S,
    )
    if isinstance(child, NotStarted):
        raise NotStartedError(f"`{argv[0]}` {child.reason}.", exit_code=child.exit_code)
    try:
        seen, end, stopped = _watch(trial, child, folder=folder, began_s=began_s)
    finally:
        child.kill()
    return _run_of(trial, seen, end, stopped, seconds=time.monotonic() - began_s, folder=folder)


@dataclass(slots=True)
class _Seen:
    """The evaluations that came, and when."""

    at_s: list[float]
    values: list[float]

    def add(self, values: Sequence[float], elapsed_s: float) -> None:
        """Add what is new in the metric as it is now."""
        new = newly_said(self.values, values)
        self.at_s += [elapsed_s] * len(new)
        self.values += new


def newly_said(known: Sequence[float], now: Sequence[float]) -> Sequence[float]:
    """Return the values at the end of `now` that are not known.

    Of a long output only the end is kept, so that the first values go.
    """
    for dropped in range(len(known) + 1):
        rest = known[dropped:]
        if list(now[: len(rest)]) == list(rest):
            return now[len(rest) :]
    return now


def _watch(
    trial: SoughtTrial, child: ContainedChild, *, folder: Path, began_s: float
) -> tuple[_Seen, ProcessEnd | None, SeekEnd | None]:
    """Wait until the run ends, or is to be ended; return what it said, and why it was ended."""
    seen = _Seen([], [])
    while True:
        elapsed_s = time.monotonic() - began_s
        wait_s = min(max(_POLL_S, _POLL_SHARE * elapsed_s), _MOST_POLL_S)
        end = child.wait(min(wait_s, max(trial.rule.limit_s - elapsed_s, 0.01)))
        elapsed_s = time.monotonic() - began_s
        _, values = read_metric(trial.metric, folder)
        seen.add(values, round(elapsed_s, 3))
        stopped = why_stop(trial.rule, seen.at_s, seen.values, elapsed_s=elapsed_s)
        if end is not None or stopped is not None:
            return seen, end, stopped


def _run_of(
    trial: SoughtTrial,
    seen: _Seen,
    end: ProcessEnd | None,
    stopped: SeekEnd | None,
    *,
    seconds: float,
    folder: Path,
) -> SeekRun:
    rule = trial.rule
    how = SeekEnd.FINISHED
    if stopped in (SeekEnd.REACHED, SeekEnd.DIVERGED):
        how = stopped
    elif end is not None and shell_exit_code(end):
        how = SeekEnd.FAILED
    elif end is None and stopped is not None:
        how = stopped
    said = None
    if how is SeekEnd.FAILED and end is not None:
        said = f"ended with {shell_exit_code(end)}: {last_lines(folder)}"
    # JSON has no number that is not finite; the end says that it diverged.
    points = [p for p in zip(seen.at_s, seen.values, strict=True) if math.isfinite(p[1])]
    reached_s = None
    if how is SeekEnd.REACHED:
        reached_s = reached_at(
            seen.at_s, seen.values, rule.target, is_better_down=rule.is_better_down
        )
    return SeekRun(
        number=trial.number,
        candidate=trial.candidate,
        parameters=trial.parameters,
        seed=trial.seed,
        role=trial.role,
        end=how,
        seconds=round(seconds, 3),
        at_s=tuple(at_s for at_s, _ in points),
        values=tuple(value for _, value in points),
        time_to_target_s=reached_s,
        said=said,
        machine=platform.node() or None,
    )
