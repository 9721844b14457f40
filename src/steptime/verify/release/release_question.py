"""What is asked about a release: teams, metrics, what was measured, experiments, the ledger.

In and out: values. `app.verify` makes them from a file and its tables; `judge_release` answers.
Every gain in them is signed: more is better, whichever way the metric goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from msgspec import Meta

from steptime.verify.model.signed_gains import SignedGain
from steptime.verify.values import QualityCheck
from steptime.verify.values.release_verdict import MetricKind

Size = Annotated[float, Meta(gt=0, le=1e100)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """A team: its name, the person who signs, and the components that it builds."""

    name: str
    owner: str
    components: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseMetric:
    """A metric with its margin.

    Attributes:
        name: its name, and its column unless `column` names another.
        kind: its rung: acceptance, team or kpi.
        margin: the change that does not matter, in its unit, above 0.
        team: whose it is; None for a KPI of all.
        better: which way is better.
        proxy_for: the metric above it for which it stands.
        table: the table with its rows; None where only experiments have it.
        column: the column of its values.
        denominator: for a ratio of sums: the column of what it is divided by.
        unit: what a row must be, such as `user`.
        erosion: what all releases together may cost.
        read_after: the lag at which it was read, in the unit of the experiments' lags.
    """

    name: str
    kind: MetricKind
    margin: Size
    team: str | None = None
    better: Literal["up", "down"] = "up"
    proxy_for: str | None = None
    table: str | None = None
    column: str | None = None
    denominator: str | None = None
    unit: str | None = None
    erosion: Size | None = None
    read_after: float | None = None

    @property
    def sign(self) -> float:
        """Return -1 where less is better."""
        return -1.0 if self.better == "down" else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The gain of a metric, the table it comes from, and whether it may be looked at repeatedly."""

    gain: SignedGain
    table: str
    is_online: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricExperiment:
    """One experiment with its effects on metrics.

    Attributes:
        name: its name.
        kind: how the component was degraded, such as `stale features`.
        dose: how much; 0 is A/A, None is an experiment that degrades nothing on purpose.
        component: what was degraded.
        gains: by metric; of several lags, the latest.
        noise: by pair of metrics, the covariance of the noise of their gains.
        by_segment: by segment and metric.
        by_lag: by metric and lag.
    """

    name: str
    kind: str = ""
    dose: float | None = None
    component: str | None = None
    gains: Mapping[str, SignedGain] = field(default_factory=dict)
    noise: Mapping[tuple[str, str], float] = field(default_factory=dict)
    by_segment: Mapping[str, Mapping[str, SignedGain]] = field(default_factory=dict)
    by_lag: Mapping[str, Mapping[float, SignedGain]] = field(default_factory=dict)

    @property
    def is_degraded(self) -> bool:
        """Return whether something was made worse on purpose."""
        return self.dose is not None and self.dose > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One release in the ledger.

    Attributes:
        release: its name.
        reference: what it was compared with.
        gains: the estimate of each metric that has an erosion margin.
        previous: SHA-256 of the line before; empty for the first.
    """

    release: str
    reference: str
    gains: dict[str, float]
    previous: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseQuestion:
    """Everything a decision rests on.

    Attributes:
        release, team: the name of the release, and the team that wants to ship.
        teams, metrics: all of them.
        measured: by metric.
        missing: by metric, rows that it lacks to be judged at all.
        experiments: all of them; empty where there are none.
        checks: of the data, made before.
        ledger: the releases before this one.
        prices: by table, the price of a row.
        currency: of the prices.
        threshold: the correlation above which a metric is a proxy.
        notes: what was assumed before, as machine words.
    """

    release: str
    team: str
    teams: tuple[Team, ...]
    metrics: tuple[ReleaseMetric, ...]
    measured: Mapping[str, Measured]
    missing: Mapping[str, int] = field(default_factory=dict)
    experiments: tuple[MetricExperiment, ...] = ()
    checks: tuple[QualityCheck, ...] = ()
    ledger: tuple[LedgerEntry, ...] = ()
    prices: Mapping[str, float] = field(default_factory=dict)
    currency: str = ""
    threshold: float = 0.5
    notes: tuple[str, ...] = ()
