"""What a judgement of quality says: checks and a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Outcome(str, Enum):
    """What a judgement of quality says."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityCheck:
    """One thing that was compared, for a level or a count, with its numbers.

    Attributes:
        name: the check, a machine word: `replay`, `one_step`, `lockstep`, `batches`, `updates`,
            `evaluations`, `ranks_agree`, `graphs`, …
        outcome: what it says.
        estimate: the value that was found.
        limit: the largest value that passes.
        n: how many things were compared.
        detail: where it was found, such as the worst tensor's name.
    """

    name: str
    outcome: Outcome
    estimate: float | None = None
    limit: float | None = None
    n: int | None = None
    detail: str | None = None
    """Where it was found, such as the worst tensor's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether the training is as good: the worst of its checks.

    Attributes:
        outcome: what the judgement says.
        level: the highest level of proof that was reached, `L0` to `L3`.
        checks: what was compared.
    """

    outcome: Outcome
    level: str | None
    checks: tuple[QualityCheck, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LossOverlay:
    """The losses of one optimizer's updates, of runs beside each other; thinned where many.

    Attributes:
        updates: numbers of the updates, rising (num_points,); all others are as long.
        baseline: losses of the command as written; None where a loss is not known or not finite.
        candidate: losses with the levers.
    """

    updates: tuple[int, ...]
    baseline: tuple[float | None, ...]
    candidate: tuple[float | None, ...]
