"""The value of a run that `--stop-on` ended."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedRun:
    """Why a run was ended before its own end, and what that saved.

    Attributes:
        reason: what was asked for: `non_finite`, `stall`, `no_learning` or `sense`.
        cause: cause of the finding that ended it.
        finding: that finding, as a sentence.
        num_steps: steps that were on disk when it was decided.
        wasted_steps: how many of them came after the fault began; null where that is not known.
        wasted_s: the time of these steps, or of the stall [s].
        left_steps: steps that were left, by the last finished run of the same command; null where
            the store holds none.
        left_s: the time that they would have taken [s].
        signal: what ended it: `SIGTERM`, or `SIGKILL` after the grace time.
    """

    reason: str
    cause: str
    finding: str
    num_steps: int
    wasted_steps: int | None = None
    wasted_s: float | None = None
    left_steps: int | None = None
    left_s: float | None = None
    signal: str = "SIGTERM"
