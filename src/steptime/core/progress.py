"""How far a study is: what the command line shows while it runs.

Values alone; a new one for each thing that happens. What they are called is left to `report`.
"""

from __future__ import annotations

from dataclasses import dataclass

from steptime.core.study import Speedup, Trial

TUNE_PHASES = ("prepare", "observe", "noise", "levers", "combine", "confirm", "quality", "wait")
"""What a study is at: probing the containment, running the command as written, its A/A noise,
levers alone, levers together, the confirmation, the judgement, waiting for a quiet machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One moment of a study.

    Attributes:
        phase: one of `TUNE_PHASES`.
        time_left_s: of the budget; below zero when it is spent.
        num_trials: that have ended.
        num_planned: trials in all as far as is known now, at least those that ended and the one
            that runs; None before it is known.
        trial: the one that has ended just now; None where something else happened.
        current: names of the levers that are tried now.
        best: of what was found so far, not confirmed yet.
        study_id: of the study; None before it has one.
        tier: how the trials are kept from harm; None before it is known.
        tier_reasons: why not better.
        resumed: trials that an earlier call of the same command has made.
    """

    phase: str
    time_left_s: float
    num_trials: int = 0
    num_planned: int | None = None
    trial: Trial | None = None
    current: tuple[str, ...] = ()
    best: Speedup | None = None
    study_id: str | None = None
    tier: str | None = None
    tier_reasons: tuple[str, ...] = ()
    resumed: int = 0
