"""What probabilities promise beside what happened, and what would repair them."""

from __future__ import annotations

from dataclasses import dataclass

from steptime.core.interval import Interval
from steptime.verify.values import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreBin:
    """Rows of neighboring probabilities.

    Attributes:
        low, high: the least and the largest probability.
        num: rows.
        promised: the mean probability.
        happened: the share of rows that came true, with its exact interval of 95 %.
        chance_low, chance_high: between which it lies in 95 % of draws, were it as promised.
        is_broken: the two differ, by an exact test with Holm's correction over the bins.
    """

    low: float
    high: float
    num: int
    promised: float
    happened: Interval
    chance_low: float
    chance_high: float
    is_broken: bool = False


@dataclass(frozen=True, slots=True)
class Fitted:
    """A number that a repair has learned.

    Attributes:
        name: `temperature`, or `slope` or `offset` of the logit.
        value: the number.
    """

    name: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """Another reading of the probabilities, fitted on one half of the rows, judged on the other.

    Attributes:
        method: `temperature`, `platt` or `isotonic`.
        parameters: what was fitted on all rows; empty for a curve.
        log_loss_gain, brier_gain: how much less the losses are, row by row; 98.3 % intervals,
            so that those of three methods hold together at 95 %.
        error_after: the calibration error of the repaired probabilities.
        is_proven: the interval of the log loss lies above 0, and the Brier score is not worse.
    """

    method: str
    parameters: tuple[Fitted, ...] = ()
    log_loss_gain: Interval
    brier_gain: Interval
    error_after: float
    is_proven: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Whether what gets a probability of 0.6 comes true in 60 % of the rows.

    Attributes:
        arm: whose probabilities.
        is_of_top_label: they are of the predicted label being right, not of the label 1.
        num: rows.
        outcome: FAIL where a calibrated model would hardly show such an error (p below 0.05).
        error: the expected calibration error, over bins of equally many rows.
        error_of_chance: what a calibrated model with these probabilities shows on average.
        limit_of_chance: and in 5 % of the draws at most.
        p: probability of such an error, or of such a shift of neighboring bins, were the model
            calibrated.
        least_seen: a constant overconfidence that these rows would show with 80 % power; None
            where not even 0.3 would be.
        error_coarse, error_fine: the same error over 10 and over 20 bins.
        is_cancelling: errors of opposite signs cancel within the coarse bins.
        error_smooth: smoothed with a kernel that chooses its width, without bins.
        mean_shift: mean probability minus the share that came true.
        p_kolmogorov_smirnov, p_kuiper, p_spiegelhalter: of tests without bins.
        bins: the rows by probability.
        num_per_bin: rows that a bin needs to show an error of 0.1 with 80 % power.
        repairs: what was tried where the model is not calibrated, best first.
    """

    arm: str
    is_of_top_label: bool
    num: int
    outcome: Outcome
    error: float
    error_of_chance: float
    limit_of_chance: float
    p: float
    least_seen: float | None
    error_coarse: float
    error_fine: float
    is_cancelling: bool
    error_smooth: float
    mean_shift: float
    p_kolmogorov_smirnov: float | None
    p_kuiper: float | None
    p_spiegelhalter: float | None
    bins: tuple[ScoreBin, ...]
    num_per_bin: int
    repairs: tuple[Repair, ...] = ()
