"""What was asked of a model beside its comparison: simple predictors, people, leaks, probes."""

from __future__ import annotations

from dataclasses import dataclass

from steptime.core.interval import Interval
from steptime.verify.values import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class LeakCount:
    """One way in which rows are the same.

    Attributes:
        kind: `id`, `exact` (all features), `near` (numbers rounded, text without case and spaces)
            or `text` (most pieces of five letters).
        num_rows: rows of the evaluation that were examined.
        num_found: those that stand in the training, and by no way before this one.
        share: their fraction, with its two-sided interval of 90 % (Clopper and Pearson).
        own_share: the fraction of training rows that another training row repeats; None where it
            was not examined.
        outcome: FAIL where rows are in both more often than they repeat within the training.
        examples: ids of such rows; their numbers where rows have no id.
    """

    kind: str
    num_rows: int
    num_found: int
    share: Interval
    own_share: float | None = None
    outcome: Outcome
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeakVerdict:
    """Whether evaluation rows stand in the training.

    Attributes:
        num_train, num_rows: rows of the training and of the evaluation.
        columns: the features that were compared.
        counts: what was found.
        outcome: FAIL where one of them is; INCONCLUSIVE where rows repeat by nature and have no
            ids that would tell copies from others.
        num_texts: rows of each side whose text was compared piece by piece, where it was.
    """

    num_train: int
    num_rows: int
    columns: tuple[str, ...]
    counts: tuple[LeakCount, ...]
    outcome: Outcome
    num_texts: int | None = None


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
