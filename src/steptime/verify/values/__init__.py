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
        low: the smallest loss of the runs that make the envelope, and of the baseline.
        high: the largest.
    """

    updates: tuple[int, ...]
    baseline: tuple[float | None, ...]
    candidate: tuple[float | None, ...]
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LossComparison:
    """How far the losses with levers went from those of the command as written.

    Attributes:
        curves: the losses, one curve for each optimizer.
        num_updates: updates that were compared.
        updates: numbers of the updates for `distance`, rising (num_points,).
        distance: size of the differences up to each of them: the root of the mean square of the
            differences of logarithms, as the check `lockstep` measures it at its end.
        limit: what passes, up to each of them; empty where the runs must agree bit for bit.
        num_runs: runs that make the envelope: with perturbed weights, or with other draws.
        are_redrawn: they had other random draws.
    """

    curves: tuple[LossOverlay, ...]
    num_updates: int
    updates: tuple[int, ...] = ()
    distance: tuple[float, ...] = ()
    limit: tuple[float, ...] = ()
    num_runs: int = 0
    are_redrawn: bool = False
