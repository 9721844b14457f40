"""Judges whether a candidate model is as good as a reference, by the rows of both.

In: the arms, and the columns by which they are split. Out: a `ModelVerdict`. Arms that were scored
on unlike rows are compared at the same shares of their slices, for else another mix of rows would
be taken for another model. A reversal turns PASS into INCONCLUSIVE, unless the shares that count
were declared: then it is known which of the two differences is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from steptime.errors import DataError, MissingExtraError
from steptime.verify.model.calibration import Promises, judge_calibration
from steptime.verify.model.hunt import hunt
from steptime.verify.model.metrics import check_margin
from steptime.verify.model.signed_gains import SignedGain, discordant_of, gain_of, judge
from steptime.verify.model.slices import split
from steptime.verify.model.two_arms import Arms
from steptime.verify.values import Outcome
from steptime.verify.values.calibration_result import Calibration
from steptime.verify.values.found_slice import Hunt
from steptime.verify.values.model_verdict import ModelVerdict, SliceColumn

_LEAST_SEEDS = 3
"""Trainings of each arm below which there are estimates, and no verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelQuestion:
    """What is asked.

    Attributes:
        metric: the name of the metric.
        is_better_down: whether less of it is better.
        margin: the loss that does not matter, in the metric's unit; None for a report alone.
        slice_margin: the same of each slice; None for `margin`.
        reference_arm, candidate_arm: how the arms are called.
        columns: the values of each column by which the rows are split, by its code.
        hunted: the same of columns in which slices are looked for.
        shares: by column, the share of each value; others are compared at the shares of both arms.
        promises: the probabilities of the reference and of the candidate, where they have some.
        notes: what was assumed before, as machine words.
    """

    metric: str
    is_better_down: bool = False
    margin: float | None = None
    slice_margin: float | None = None
    reference_arm: str = "reference"
    candidate_arm: str = "candidate"
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    hunted: Mapping[str, Sequence[str]] = field(default_factory=dict)
    shares: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    promises: Sequence[Promises | None] = ()
    notes: tuple[str, ...] = ()


def judge_model(arms: Arms, asked: ModelQuestion) -> ModelVerdict:
    """Return the verdict.

    Raises:
        DataError: a slice is empty, or a share names no slice.
        UsageError: no loss can be larger than the margin.
        MissingExtraError: the extra `verify-model` is not installed.
    """
    _load_statistics()
    both = (arms.reference.scores, arms.candidate.scores)
    for margin in (asked.margin, asked.slice_margin):
        check_margin(asked.metric, margin, both)
    sign = -1.0 if asked.is_better_down else 1.0
    found, fixed, decided_by = _by_columns(arms, asked, sign)
    gain = gain_of(arms, sign=sign) if fixed is None else fixed
    notes = [*asked.notes, *(() if arms.is_paired else ("unpaired",))]
    is_holed = arms.num_missing + arms.num_extra > 0
    if is_holed:
        told = f"{arms.num_missing:,} rows are in the reference alone"
        notes.append(f"{told}, and {arms.num_extra:,} in the candidate alone")
    if decided_by is not None and not asked.shares:
        notes.append("pooled_shares")
    allowed = asked.margin or 0.0
    hunted = hunt(arms, asked.hunted, sign=sign, margin=allowed) if asked.hunted else None
    num_seeds = (len(arms.reference.scores), len(arms.candidate.scores))
    doubted = [one for one in found if one.is_reversal and one.column not in asked.shares]
    outcome, reason = _outcome(gain, asked.margin, found, hunted, num_seeds)
    if outcome is Outcome.PASS and doubted:
        outcome, reason = Outcome.INCONCLUSIVE, "reversal"
    if outcome is Outcome.PASS and is_holed:  # by chance, or for they are hard for the candidate?
        outcome, reason = Outcome.INCONCLUSIVE, "rows_missing"
    has_seeds = max(num_seeds) > 1
    pairs = discordant_of(arms, sign=sign)
    return ModelVerdict(
        metric=asked.metric,
        is_better_down=asked.is_better_down,
        reference_arm=asked.reference_arm,
        candidate_arm=asked.candidate_arm,
        num_reference=arms.reference.num,
        num_candidate=arms.candidate.num,
        is_paired=arms.is_paired,
        reference=float(arms.reference.scores.mean()),
        candidate=float(arms.candidate.scores.mean()),
        gain=gain.interval(),
        num_seeds_reference=num_seeds[0] if has_seeds else None,
        num_seeds_candidate=num_seeds[1] if has_seeds else None,
        gain_on_these_rows=gain_of(arms, sign=sign, is_of_this_set=True).interval()
        if has_seeds
        else None,
        margin=asked.margin,
        outcome=outcome,
        reason=reason,
        is_allowed_loss=outcome is Outcome.PASS and gain.interval().high < 0,
        p_not_worse=None if asked.margin is None else gain.p_not_worse(asked.margin),
        num_fixed=None if pairs is None else pairs.num_fixed,
        num_broken=None if pairs is None else pairs.num_broken,
        p_exact=None if pairs is None else pairs.p_exact,
        num_needed=gain.num_needed(allowed) if reason == "too_few_rows" else None,
        columns=tuple(found),
        decided_by=decided_by,
        hunt=hunted,
        calibration=_calibrations(asked, notes),
        notes=tuple(notes),
    )


def _by_columns(
    arms: Arms, asked: ModelQuestion, sign: float
) -> tuple[list[SliceColumn], SignedGain | None, str | None]:
    """Return the rows split by each column, the gain that decides, and the column of its shares.

    Shares that were declared decide before those that the rows happen to have.
    """
    margin = asked.margin if asked.slice_margin is None else asked.slice_margin
    num, found = len(asked.columns), dict[str, tuple[SliceColumn, SignedGain]]()
    for name, values in asked.columns.items():
        shares = asked.shares.get(name)
        found[name] = split(
            arms, name, values, sign=sign, margin=margin, shares=shares, num_columns=num
        )
    deciding = next(iter(asked.shares or (() if arms.is_paired else found)), None)
    gain = None if deciding is None else found[deciding][1]
    return [one for one, _ in found.values()], gain, deciding


def _outcome(
    gain: SignedGain,
    margin: float | None,
    columns: Sequence[SliceColumn],
    hunted: Hunt | None,
    num_seeds: tuple[int, int],
) -> tuple[Outcome, str | None]:
    """Return the answer of the rows, and why it is not PASS."""
    if margin is None:
        return Outcome.INCONCLUSIVE, "no_margin"
    if max(num_seeds) > 1 and min(num_seeds) < _LEAST_SEEDS:
        return Outcome.INCONCLUSIVE, "too_few_runs"
    outcome = judge(gain, margin)
    slices = [one for column in columns for one in column.slices]
    if outcome is not Outcome.FAIL and any(one.outcome is Outcome.FAIL for one in slices):
        return Outcome.FAIL, "slice_worse"
    if outcome is not Outcome.FAIL and hunted and any(one.is_confirmed for one in hunted.slices):
        return Outcome.FAIL, "found_slice_worse"
    if outcome is Outcome.INCONCLUSIVE:
        return outcome, "too_few_rows"
    return outcome, None


def _calibrations(asked: ModelQuestion, notes: list[str]) -> tuple[Calibration, ...]:
    """Return whether the probabilities come true; what cannot be judged becomes a note."""
    found = []
    names = (asked.reference_arm, asked.candidate_arm)
    for promises, name in zip(asked.promises, names, strict=False):
        if promises is not None:
            try:
                found.append(judge_calibration(promises, arm=name))
            except DataError as error:
                notes.append(str(error))
    return tuple(found)


def _load_statistics() -> None:
    try:
        import mapie
        import numpy
        import scipy.stats
        import sklearn
        import sliceline
        import statsmodels.stats.contingency_tables  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f"Judging a model by its predictions needs {error.name}, which is not installed.",
            needs="steptime[verify-model]",
        ) from error
    del mapie, numpy, scipy, sklearn, sliceline
