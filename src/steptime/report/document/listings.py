"""The documents of the commands that list things, or write one file."""

from __future__ import annotations

from dataclasses import dataclass

from steptime.core.interval import Interval
from steptime.measure.values.run_summary import RunSummary
from steptime.report.blocks.study.lever_report import LeverCard
from steptime.tune.values.study_values import State, Study, StudyOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySummary:
    """One study in a list; the keys mean what they mean in a study.

    Attributes:
        study_id: name of the study's folder.
        command: the command as given.
        started_unix_s: its start, seconds since 1970.
        ended_unix_s: its end; None while it has none.
        is_interrupted: whether it was ended early.
        outcome: how it ended; None while it has not.
        speedup: of a step, of the recipe over the command as written, from the confirmation.
        loop_speedup: of the loop, from its first step to its last; None where it is not known.
        recipe: what was proven; empty unless the outcome is `faster`.
        num_trials: number of trials so far.
    """

    study_id: str
    command: tuple[str, ...]
    started_unix_s: float
    ended_unix_s: float | None
    is_interrupted: bool
    outcome: StudyOutcome | None
    speedup: Interval | None
    loop_speedup: Interval | None
    recipe: State
    num_trials: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSummary:
    """A folder of a store: a fit, or what another command has kept.

    Attributes:
        id: name of its folder.
        kind: `runs`, `studies`, `fits`, `plans`, `benches`, `sweeps` or `verifications`.
        changed_unix_s: when something was last added, seconds since 1970.
        bytes: size of its files.
        page: path of its page; None where it has none.
    """

    id: str
    kind: str
    changed_unix_s: float
    bytes: int
    page: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListDocument:
    """What a store holds, the newest first; empty where it holds none, or another kind was named.

    Attributes:
        store: its path.
        runs: the runs.
        studies: the studies.
        others: the fits, and what other commands have kept.
    """

    store: str
    runs: tuple[RunSummary, ...]
    studies: tuple[StudySummary, ...]
    others: tuple[KeptSummary, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedDocument:
    """What was removed from a store, or would be.

    Attributes:
        is_removed: whether it is gone; false with `--dry-run`, and where the answer was no.
        folders: what goes.
        bytes: size of all its files.
    """

    is_removed: bool
    folders: tuple[KeptSummary, ...]
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeversDocument:
    """What Steptime can try: every lever, or the one that was named.

    Attributes:
        levers: the levers.
    """

    levers: tuple[LeverCard, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportDocument:
    """The trace that was written.

    Attributes:
        run_id: name of the run's folder.
        format: `chrome`.
        path: path of the file.
        bytes: size of the file.
        num_events: number of events in the file.
    """

    run_id: str
    format: str
    path: str
    bytes: int
    num_events: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PageDocument:
    """The page that was written.

    Attributes:
        id: name of the folder of the run, the study or the fit.
        kind: `runs`, `studies` or `fits`.
        page: path of the file.
    """

    id: str
    kind: str
    page: str


def summarize(study: Study) -> StudySummary:
    """Return the study as one row."""
    return StudySummary(
        study_id=study.study_id,
        command=study.command,
        started_unix_s=study.started_unix_s,
        ended_unix_s=study.ended_unix_s,
        is_interrupted=study.is_interrupted,
        outcome=study.outcome,
        speedup=study.speedup,
        loop_speedup=study.loop_speedup,
        recipe=study.recipe,
        num_trials=len(study.trials),
    )
