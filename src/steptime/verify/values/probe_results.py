"""What the probes of a model found: for each, how many rows violate it, or the curve over doses."""

from __future__ import annotations

from dataclasses import dataclass

from steptime.core.interval import Interval
from steptime.verify.values import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ViolatingRow:
    """A row that violates a probe.

    Attributes:
        row: its id.
        before, after: its prediction before and after the change.
    """

    row: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeDose:
    """The metric under one dose of a perturbation.

    Attributes:
        dose: the size of the change.
        retained: the metric under this dose over the metric without it.
        reference: the same of the reference's predictor; None where none was given.
        gain: the candidate's less the reference's, with its interval of 90 %.
        outcome: whether it is not worse by the margin.
    """

    dose: float
    retained: float
    reference: float | None = None
    gain: Interval | None = None
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What one probe found.

    Attributes:
        name: how it is called.
        kind: what it asks: `perturbation`, `fresh`, `invariance`, `direction`, `compliance`.
        change: what was done to the inputs; None for `compliance`.
        num_rows: rows that were changed and judged.
        num_violations: those that violate it; None where doses are judged.
        rate: their fraction, with its two-sided interval of 90 % (Clopper and Pearson).
        allowed: the fraction that may.
        own_rate: the fraction of rows that violate it between two predictions of the same inputs;
            it is subtracted.
        outcome: None where the curve is shown without a judgement.
        reason: why it is inconclusive, as a machine word: `too_few_rows`, `no_direction_probe`,
            `constant_predictor`, `no_margin`.
        num_needed: rows that would decide, at the rate that was seen; None where none would.
        worst: the rows that violate it most.
        metric: of doses: the metric of a row, `right`, `error`, or `same` without labels.
        doses: the curve.
    """

    name: str
    kind: str
    change: str | None = None
    num_rows: int
    num_violations: int | None = None
    rate: Interval | None = None
    allowed: float | None = None
    own_rate: float = 0.0
    outcome: Outcome | None = None
    reason: str | None = None
    num_needed: int | None = None
    worst: tuple[ViolatingRow, ...] = ()
    metric: str | None = None
    doses: tuple[ProbeDose, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """All probes of a model.

    Attributes:
        num_rows: rows of the inputs.
        is_random: whether two predictions of the same inputs differ.
        is_constant: whether all rows have the same prediction.
        results: what each probe found, in the order in which they were asked for.
    """

    num_rows: int
    is_random: bool
    is_constant: bool
    results: tuple[ProbeResult, ...]
