"""A judgement of a candidate model beside a reference: the difference, its slices, the answer."""

from __future__ import annotations

from dataclasses import dataclass

from steptime.core.interval import Interval
from steptime.verify.values import Outcome
from steptime.verify.values.calibration_result import Calibration
from steptime.verify.values.check_results import ModelChecks
from steptime.verify.values.found_slice import Hunt


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceResult:
    """One slice of the rows in both arms.

    Attributes:
        name: its value in the column.
        num_reference, num_candidate: its rows in each arm.
        reference, candidate: the mean metric in each arm.
        share: its share at which both arms are compared.
        gain: how much better the candidate is, with its interval; `n` is the rows of both arms.
        outcome: `PASS` where it is not worse by more than the margin, or without a margin not
            worse at all; `FAIL` where it is, by a test that counts how many slices the column has
            (Holm); `INCONCLUSIVE` where the rows are too few to tell.
        num_needed: rows of each arm that would decide, if the gain is as it was seen; None where
            it is decided, or where none would.
    """

    name: str
    num_reference: int
    num_candidate: int
    reference: float
    candidate: float
    share: float
    gain: Interval
    outcome: Outcome
    num_needed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceColumn:
    """The rows split by one column, compared at the same shares in both arms.

    `raw` = `within` + `mix`, where `within` is the sum of (w1 + w2) / 2 * (m2 - m1) and `mix` the
    sum of (m1 + m2) / 2 * (w2 - w1) over slices with shares w and means m of the arms.

    Attributes:
        column: the column.
        slices: each value, in order of its share.
        raw: the gain of all rows as they are.
        within: the part of it that lies within slices.
        mix: the part that comes from other shares of the slices in the two arms.
        standardized: the gain at the shares of `slices`, the same in both arms.
        is_reversal: `raw` and `within` point in opposite directions, and `raw` is beyond the
            margin.
        pooled_odds_ratio: of a metric of 0 and 1: the odds of the candidate over the reference's,
            all rows together.
        odds_ratio: the same by Mantel and Haenszel, within slices.
        p_association: of Cochran, Mantel and Haenszel: that there is no difference within slices.
        p_homogeneous: of Breslow and Day: that the odds ratio is the same in every slice.
        num_left_out: rows in slices that only one arm has.
    """

    column: str
    slices: tuple[SliceResult, ...]
    raw: float
    within: float
    mix: float
    standardized: Interval
    is_reversal: bool = False
    pooled_odds_ratio: float | None = None
    odds_ratio: Interval | None = None
    p_association: float | None = None
    p_homogeneous: float | None = None
    num_left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVerdict:
    """Whether a candidate model is as good as a reference.

    Gains are signed so that more is better, in the unit of the metric.

    Attributes:
        metric: the metric.
        is_better_down: whether less of it is better.
        reference_arm, candidate_arm: how the arms are called.
        num_reference, num_candidate: rows of each arm.
        is_paired: whether the arms were scored on the same rows.
        reference, candidate: the mean metric of each arm.
        gain: how much better the candidate is, with its two-sided interval of 90 %, on which a
            one-sided test at 5 % rests.
        num_seeds_reference, num_seeds_candidate: trainings of each arm; None where there was one
            of each. With them, the interval of `gain` holds for other trainings and other rows.
        gain_on_these_rows: the gain with the interval that other trainings alone give.
        margin: the loss that does not matter; None where none was given.
        outcome: PASS where the interval lies above minus the margin, FAIL where it lies below it
            or that of a slice does.
        reason: why it is not PASS, as a machine word: `no_margin`, `reversal`, `too_few_rows`,
            `too_few_runs`, `rows_missing`, `slice_worse`, `found_slice_worse`; of a check: `leak`,
            `rows_repeat`, `adds_nothing`, `simple_undecided`, `probe_violated`, `probe_undecided`,
            `no_human_baseline`, and `calibrated`, `human` or `preferred` with `_fails` or
            `_undecided`; None where the gain says it.
        is_allowed_loss: it passes, and is worse nevertheless: a loss within the margin.
        p_not_worse: of the one-sided test that the candidate is worse by the margin or more.
        num_fixed, num_broken: of a paired metric of 0 and 1: rows that the candidate alone has
            right, and rows that it alone has wrong.
        p_exact: of McNemar's exact test, where these are few.
        num_needed: rows (pairs, or of each arm) that would decide, if the gain is as it was seen.
        columns: the rows split by each column that was named.
        decided_by: the column at whose shares the verdict was made; None for all rows.
        hunt: slices that were looked for, where that was asked for.
        calibration: whether the probabilities of the reference and of the candidate come true;
            empty where the rows have none.
        notes: what was assumed, as machine words: `reference_is_first`, `unpaired`,
            `pooled_shares`.
        checks: what else was asked of the candidate: simple predictors, people, leaks, probes.
        required: checks that decide because they were required: `calibrated`, `human` (not worse
            than the mean labeler by the margin), `preferred` (by more people than the reference).
    """

    metric: str
    is_better_down: bool
    reference_arm: str
    candidate_arm: str
    num_reference: int
    num_candidate: int
    is_paired: bool
    reference: float
    candidate: float
    gain: Interval
    num_seeds_reference: int | None = None
    num_seeds_candidate: int | None = None
    gain_on_these_rows: Interval | None = None
    margin: float | None
    outcome: Outcome
    reason: str | None = None
    is_allowed_loss: bool = False
    p_not_worse: float | None = None
    num_fixed: int | None = None
    num_broken: int | None = None
    p_exact: float | None = None
    num_needed: int | None = None
    columns: tuple[SliceColumn, ...] = ()
    decided_by: str | None = None
    hunt: Hunt | None = None
    calibration: tuple[Calibration, ...] = ()
    notes: tuple[str, ...] = ()
    checks: ModelChecks | None = None
    required: tuple[str, ...] = ()
