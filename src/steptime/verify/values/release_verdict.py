"""A release decision: what each metric says, what it rests on, and what keeps it from shipping."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from steptime.core.interval import Interval
from steptime.verify.values import Outcome, QualityCheck


class MetricKind(str, Enum):
    """A rung of the ladder: what a team accepts by, what it is judged by, what is paid for."""

    ACCEPTANCE = "acceptance"
    TEAM = "team"
    KPI = "kpi"


class Color(str, Enum):
    """What a metric did: better, worse (or moved, of a colleague's), shown still, or not known."""

    GREEN = "green"
    RED = "red"
    STILL = "still"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricResult:
    """One metric of the release, with what is required of it.

    Attributes:
        metric: its name.
        kind: its rung.
        team: whose it is; None for a KPI of all.
        owner: the person of that team.
        table: where its rows are.
        gain: how much better the candidate is, in the metric's unit; an interval of 90 %, or of a
            confidence sequence of 90 % where `is_online`.
        margin: the change that does not matter.
        color: what it did.
        outcome: of what is required: own and shared metrics are not worse than by the margin, and
            those of colleagues stay still within it.
        p_better: that it is not better, after Holm over all own metrics; None of others.
        is_online: its rows may be looked at as often as one likes.
    """

    metric: str
    kind: MetricKind
    team: str | None
    owner: str | None
    table: str
    gain: Interval
    margin: float
    color: Color
    outcome: Outcome
    p_better: float | None = None
    is_online: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """Whether an acceptance (or team) metric stands for the metric above it.

    Attributes:
        metric, target: the proxy, and what it stands for.
        outcome: PASS where it does.
        reason: a machine word where it does not: `weak_experiments`, `no_experiments`,
            `aa_moved`, `no_aa`, `no_correlation`, `no_consequence`, `correlation_open`,
            `direction_open`, `zero_variance`.
        num_experiments: experiments with both metrics, without A/A.
        signal_share: the part of the spread of the proxy's effects that is no noise.
        naive_correlation: of the effects as they are, noise of shared units included.
        correlation: without the noise, by the jackknife over kinds; None where no variance
            remains.
        slope: what the target moves when the proxy moves by 1, likewise.
        num_kinds, num_kinds_agree: kinds of degradation, and those that move both the same way.
        p_direction: of so many that agree, by chance.
        lag: the earliest lag at which the target has the proxy's sign in 80 % of the degradations;
            None where there are no lags, or never.
        directional_accuracy, fragility_rate, reliability: the scores of PROXIMA, beside
            `naive_correlation`; the last two are None without segments.
        segment_flips: by segment, how often both point in opposite directions, a fraction.
    """

    metric: str
    target: str
    outcome: Outcome
    reason: str | None = None
    num_experiments: int = 0
    signal_share: float | None = None
    naive_correlation: float | None = None
    correlation: Interval | None = None
    slope: Interval | None = None
    num_kinds: int = 0
    num_kinds_agree: int = 0
    p_direction: float | None = None
    lag: float | None = None
    directional_accuracy: float | None = None
    fragility_rate: float | None = None
    reliability: float | None = None
    segment_flips: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationCell:
    """What degrading a component does to a metric: one of its own team must move, others not.

    Attributes:
        component, component_team: what was degraded, and whose it is.
        metric, metric_team: what was measured, and whose it is.
        gain: the gain of the metric: of an own cell the mean over kinds at their highest dose, of
            others that of the kind that is farthest from still.
        margin: the change that does not matter.
        num_experiments: experiments behind the cell.
        outcome: PASS where it does what it must.
    """

    component: str
    component_team: str
    metric: str
    metric_team: str
    gain: Interval
    margin: float
    num_experiments: int
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ErosionTotal:
    """What releases have cost a metric since the first reference, this one included.

    Attributes:
        metric: the metric.
        num_releases: releases in the ledger.
        lost: the sum of all losses, in the metric's unit.
        net: losses minus gains.
        margin: what all releases together may cost.
        outcome: PASS where `lost` is within it.
    """

    metric: str
    num_releases: int
    lost: float
    net: float
    margin: float
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One thing that keeps a release from shipping.

    Attributes:
        code: the rule, a machine word: `own_worse`, `colleague_moved`, `no_gain`, `not_measured`,
            `acceptance_at_fault`, `proxy`, `kpi_too_early`, `leak`, `blind`, `check`, `erosion`.
        outcome: FAIL where more rows change nothing, INCONCLUSIVE where they may.
        subject: the metric or the check; the team where it has no metric.
        other: what it is about beside it: the KPI, component or team.
        owner: who answers for it.
        table: where rows are missing; None where rows decide nothing.
        num_more: rows beside those there are that decide; None where none would.
    """

    code: str
    outcome: Outcome
    subject: str
    other: str | None = None
    owner: str | None = None
    table: str | None = None
    num_more: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataNeed:
    """Rows that would decide, if the effects are as they were seen.

    Attributes:
        table: where they belong.
        metrics: what they decide.
        num_more: rows (pairs where the table is paired, else of both arms) beside those there are.
        cost: their price; None where the table has none.
    """

    table: str
    metrics: tuple[str, ...]
    num_more: int
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseVerdict:
    """Whether a model may ship: PASS ship, FAIL do not, INCONCLUSIVE not yet.

    Attributes:
        release: its name.
        team, owner: the team that wants to ship, and its person.
        outcome: the answer.
        reasons: everything that keeps it from shipping, the final ones first; empty for PASS.
        needs: the cheapest rows that would decide what is open.
        currency: of the prices.
        metrics: what each metric did.
        ladder: whether each metric stands for the one above it.
        isolation: what degrading each component does to each metric.
        checks: of the data: the ratio of the arms, and verdicts that were handed in.
        erosion: what releases have cost since the first reference.
        first_reference: the reference of the first release in the ledger.
    """

    release: str
    team: str
    owner: str
    outcome: Outcome
    reasons: tuple[Reason, ...] = ()
    needs: tuple[DataNeed, ...] = ()
    currency: str = ""
    metrics: tuple[MetricResult, ...] = ()
    ladder: tuple[Rung, ...] = ()
    isolation: tuple[IsolationCell, ...] = ()
    checks: tuple[QualityCheck, ...] = ()
    erosion: tuple[ErosionTotal, ...] = ()
    first_reference: str | None = None
