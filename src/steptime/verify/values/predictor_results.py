"""A model beside simple predictors, human labelers, and other columns of the same rows."""

from __future__ import annotations

from dataclasses import dataclass

from steptime.core.interval import Interval
from steptime.verify.values import Outcome
from steptime.verify.values.leak_results import LeakVerdict
from steptime.verify.values.probe_results import ProbeReport


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorRow:
    """One predictor on the rows of the evaluation.

    Attributes:
        kind: `model`, `most_common`, `mean`, `stratified`, `last_value`, `one_column`,
            `neighbor`, `human`.
        column: the column that it rests on, or that holds it.
        num_rows: rows on which it was judged.
        mean: its mean metric there.
        trained: its mean metric in cross-validation on the training rows; None where it has none.
        gain: how much better the model is, row by row, with its interval of 90 %.
    """

    kind: str
    column: str | None = None
    num_rows: int
    mean: float
    trained: float | None = None
    gain: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleVerdict:
    """Whether the model is better than the best of the simple predictors.

    Attributes:
        rows: the model, then each predictor.
        best: the place in `rows` of the predictor that is best on the training rows.
        outcome: PASS where the model is better; FAIL where it is not, or by less than the margin.
        num_needed: rows that would decide; None where it is decided, or where none would.
        num_train: training rows from which they were made.
        left_out: columns that are no features because hardly a value repeats.
    """

    rows: tuple[PredictorRow, ...]
    best: int
    outcome: Outcome
    num_needed: int | None = None
    num_train: int
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanVerdict:
    """Human labelers, their agreement, and the model beside them on the same rows.

    Attributes:
        rows: each labeler.
        num_shared: rows that all of them labeled.
        kappa: their agreement beyond chance (Cohen's of two, Fleiss's of more); None for one.
        gain: how much better the model is than the mean labeler, with its interval of 90 %.
        outcome: INCONCLUSIVE where there is no human baseline; None where there is one, for it is
            a point of reference and no gate.
        reason: why there is none: `one_labeler`, `few_shared`, `people_disagree`.
    """

    rows: tuple[PredictorRow, ...]
    num_shared: int
    kappa: float | None
    gain: Interval | None = None
    outcome: Outcome | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherColumn:
    """A benchmark, a product's number or a preference beside the metric.

    Attributes:
        column: its name.
        kind: `numbers` or `preference`.
        num_reference, num_candidate: rows that have a value.
        reference, candidate: the means; of a preference, the rows that prefer each.
        num_ties: rows that prefer neither.
        gain: how much more the candidate has, with its interval of 90 %; of a preference, the
            fraction that prefers it, without ties.
        p: of a preference: of the exact test that both are preferred alike.
    """

    column: str
    kind: str
    num_reference: int
    num_candidate: int
    reference: float
    candidate: float
    num_ties: int | None = None
    gain: Interval
    p: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChecks:
    """What else was asked of a model; None where it was not.

    Attributes:
        simple: the model beside simple predictors.
        human: the model beside people.
        others: further columns of both arms.
        leaks: rows of the evaluation that stand in the training.
        probes: what probes of the predictor found.
    """

    simple: SimpleVerdict | None = None
    human: HumanVerdict | None = None
    others: tuple[OtherColumn, ...] = ()
    leaks: LeakVerdict | None = None
    probes: ProbeReport | None = None
