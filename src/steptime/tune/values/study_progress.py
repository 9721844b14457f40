"""How far a study is, for whoever shows it while it runs.

A new value is made for each thing that happens. `report` has the words for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from steptime.core.interval import Interval
from steptime.core.note import Note
from steptime.tune.values.study_values import (
    State,
    Trial,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyProgress:
    """Where a study is.

    Attributes:
        study_id: its id.
        phase: `probe`, `observe`, `live`, `process`, `confirm`, `quality`, `quiet` (waiting for
            the machine) or `done`.
        trial: number of things tried so far, this one included.
        num_trials: about how many there will be; None while it is not known.
        state: what is on in this one.
        ended: the trial that has just ended; None where something else happened.
        best: the speedup of the best state so far over the command as written; not confirmed yet.
        best_state: the levers of it.
        left_s: of the budget; below zero when it is spent.
        is_replayed: the answer came from disk, because the study resumes an earlier one.
        tier: how the trials are kept from harm; None before it is known.
        tier_reasons: why no better tier is possible.
        tier_lacks: what nothing keeps the trials from, as machine words.
        note: something to say once (`not_quiet`, `resumed`, …).
    """

    study_id: str
    phase: str
    trial: int
    num_trials: int | None = None
    state: State = ()
    ended: Trial | None = None
    best: Interval | None = None
    best_state: State = ()
    left_s: float = 0.0
    is_replayed: bool = False
    tier: str | None = None
    tier_reasons: tuple[str, ...] = ()
    tier_lacks: tuple[str, ...] = ()
    note: Note | None = None
