"""What is judged over seeds, and what the judgement says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from steptime.core.note import Fact
from steptime.verify.values import Outcome

REFERENCE, CANDIDATE = "reference", "candidate"
"""The two arms."""

CUT = "cut"
"""The rival of anything that costs quality: the reference with fewer steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    """One finished training, the unit of every judgement.

    Attributes:
        arm: `reference` or `candidate`.
        seed: what its draws began with; None where it is not known.
        points: where it was evaluated, rising (num_points,): samples seen, or steps.
        values: the metric there (num_points,); not finite where the run diverged.
        seconds: wall time of the whole run [s]; None where unknown.
        seconds_at: since its start, at each evaluation [s] (num_points,); empty where unknown.
    """

    arm: str
    seed: str | None
    points: tuple[float, ...]
    values: tuple[float, ...]
    seconds: float | None = None
    seconds_at: tuple[float, ...] = ()

    @property
    def has_diverged(self) -> bool:
        """Whether its metric stopped being a number."""
        return not all(math.isfinite(value) for value in self.values)


class Unit(str, Enum):
    """What a margin counts."""

    METRIC = "metric"
    PERCENT = "percent"
    TRAINING = "training"


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """The worsening that is agreed not to matter.

    Attributes:
        amount: how much, above 0; percentages as they are written, so 1 is 1 %.
        unit: `metric`: in its own unit; `percent`: of the reference's final metric; `training`:
            percent of the reference's training, by how much its loss still falls at the end.
    """

    amount: float
    unit: Unit = Unit.METRIC


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingQuestion:
    """What is asked of the runs.

    Attributes:
        margin: the worsening that does not matter.
        is_better_down: smaller values are better, as of a loss.
        target: the metric whose first crossing is timed; None: the worst final one of the
            reference, worse by the margin.
        num_looks: how often these runs are judged while they are being made: once, or three times.
        are_paired: runs with the same seed belong together; to be declared before they are made.
        price_s: time that was spent to find and prepare the candidate, once [s].
    """

    margin: Margin
    is_better_down: bool = True
    target: float | None = None
    num_looks: int = 1
    are_paired: bool = False
    price_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryDifference:
    """How much better the candidate is by one summary of its runs.

    Gains are positive where it is better.

    Attributes:
        name: `final`: the mean of the last two evaluations; `area`: the mean of the log loss over
            the last 75 % (of the metric itself where that is not above 0); `to_target`: the log of
            the samples up to the target.
        outcome: whether it is not worse than by the margin.
        estimate: mean gain.
        low: lower end of the interval, each of whose ends misses with `look_level`.
        high: upper end.
        margin: what does not matter, in the unit of the gain.
        p_not_worse: probability of a gain this large were the candidate worse by the margin.
        p_permuted: the same by permuting the runs; None where there are too few, or it was not
            asked for.
        reference_sd: standard deviation of the reference's runs.
        candidate_sd: of the candidate's.
        is_worse_within_margin: the interval lies below zero and above the margin: a loss that is
            allowed.
    """

    name: str
    outcome: Outcome
    estimate: float
    low: float
    high: float
    margin: float
    p_not_worse: float
    p_permuted: float | None
    reference_sd: float
    candidate_sd: float
    is_worse_within_margin: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NetSpeed:
    """How much faster the candidate is in seconds, and less what its quality costs.

    Attributes:
        speedup: seconds of the reference's runs over those of the candidate's, by their logs.
        low: lower end of its 95 % interval.
        high: upper end.
        net: the speedup over what training longer would take to make up for the loss of quality;
            None where the reference no longer improves at its end.
        net_low: lower end.
        net_high: upper end.
        gap_fraction: the loss of quality as a share of the reference's training; negative where
            the candidate is better.
    """

    speedup: float
    low: float
    high: float
    net: float | None = None
    net_low: float | None = None
    net_high: float | None = None
    gap_fraction: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTime:
    """The time to the same quality, start-up and compilation of each run included.

    Attributes:
        target: the metric that is to be reached.
        reference_s: of the reference's runs that reached it, by their logs [s].
        candidate_s: of the candidate's [s]; None where one of them did not reach it, because an
            average without it would be too good.
        num_missed: runs that did not reach it, by arm.
        ratio: reference over candidate with the price added once; None where a run missed it.
        low: lower end of its 95 % interval.
        high: upper end.
        price_s: what it took to find and prepare the candidate [s].
        num_runs_to_earn: runs after which the price is earned; None where the candidate saves
            nothing.
        is_faster: the lower end is above 1, and it trains as well; None where it is not known.
    """

    target: float
    reference_s: float | None
    candidate_s: float | None
    num_missed: Mapping[str, int]
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    price_s: float = 0.0
    num_runs_to_earn: int | None = None
    is_faster: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """One evaluation over the runs of an arm.

    Attributes:
        point: where: samples seen, or steps.
        mean: mean of the metric.
        low: the least.
        high: the most.
        n: runs with a number there.
    """

    point: float
    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerRow:
    """One line of the table.

    Attributes:
        num_runs: runs of each arm.
        not_worse: the smallest margins that are decided by `not worse`, one for each power.
        still: the same for `still`: neither worse nor better.
    """

    num_runs: int
    not_worse: tuple[float, ...]
    still: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerPlan:
    """What runs can decide where there is no true difference.

    Attributes:
        sd: standard deviation of a run's metric that is planned with.
        sd_seen: that of the pilot runs, if it comes from such.
        num_pilots: how many these were.
        margin: the margin, in the unit of `sd`; None where a number of runs was asked about.
        powers: how often the margin shall be decided.
        level: probability with which a candidate at the margin passes.
        num_runs_not_worse: runs of each arm that `not worse` takes, one for each power; None beyond
            10,000.
        num_runs_still: the same for `still`.
        rows: what usual numbers of runs decide, in the unit of `sd`.
    """

    sd: float
    sd_seen: float | None
    num_pilots: int | None
    margin: float | None
    powers: tuple[float, ...]
    level: float
    num_runs_not_worse: tuple[int | None, ...] = ()
    num_runs_still: tuple[int | None, ...] = ()
    rows: tuple[PowerRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingVerdict:
    """Whether the candidate trains as well over seeds.

    Attributes:
        outcome: `PASS`: not worse than by the margin by all three summaries; `FAIL`: worse by one
            of them, or it diverges more often; `INCONCLUSIVE`: more runs are needed.
        margin: the margin in the metric's unit.
        estimate: gain of the final metric; positive where the candidate is better.
        low: lower end of its interval.
        high: upper end.
        num_runs: runs of the smaller arm.
        num_runs_needed: runs of each arm with which the margin is decided in 90 of 100 cases where
            there is no difference; None where that is more than 10,000 or not known.
        level: probability with which a candidate at the margin passes, in all looks together.
        look_level: the same where the runs are judged once.
        differences: the three summaries; empty where nothing was compared.
        is_better_down: smaller values of the metric are better.
        are_paired: runs with the same seed were compared with each other.
        num_diverged: runs that diverged or ended early, by arm.
        num_incomplete: those of them that ended before the reference does, by arm.
        seed_correlation: of the final metrics of runs with the same seed; None below three pairs.
        training_fraction: the margin as a share of the reference's training; None where its loss
            no longer falls.
        num_cut: runs of the reference with fewer steps that the margin was measured by; 0 where it
            was given, or the slope at the end says it.
        same: half of the reference's runs against the other half, by their final metric; None
            below four of them.
        speed: what the candidate saves; None where the seconds are not known.
        to_target: time to the same quality; None where the seconds are not known.
        curves: the metric over the training, by arm.
        reason: machine word for what kept it from an answer; None where there is one.
        reason_facts: the numbers for its sentence.
    """

    outcome: Outcome
    margin: float | None
    estimate: float | None
    low: float | None
    high: float | None
    num_runs: int
    num_runs_needed: int | None
    level: float
    look_level: float
    differences: tuple[SummaryDifference, ...] = ()
    is_better_down: bool = True
    are_paired: bool = False
    num_diverged: Mapping[str, int] | None = None
    num_incomplete: Mapping[str, int] | None = None
    seed_correlation: float | None = None
    training_fraction: float | None = None
    num_cut: int = 0
    same: SummaryDifference | None = None
    speed: NetSpeed | None = None
    to_target: TargetTime | None = None
    curves: Mapping[str, tuple[CurvePoint, ...]] | None = None
    reason: str | None = None
    reason_facts: Mapping[str, Fact] | None = None
