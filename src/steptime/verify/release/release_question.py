"""What is asked about a release: its file, what was measured, experiments, the ledger.

In and out: values. `app.verify` makes them from a file and its tables; `judge_release` answers.
Every gain in them is signed: more is better, whichever way the metric goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from msgspec import Meta

from steptime.verify.model.metrics import is_loss
from steptime.verify.model.signed_gains import SignedGain
from steptime.verify.values import QualityCheck
from steptime.verify.values.release_verdict import MetricKind

Size = Annotated[float, Meta(gt=0, le=1e100)]
Price = Annotated[float, Meta(ge=0, le=1e100)]

EXPERIMENTS = "experiments"
"""The table of the experiments, among those of the metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """A team: its name, the person who signs, and the components that it builds."""

    name: str
    owner: str
    components: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseMetric:
    """A metric with its margin; `docs/how-to/ship-a-model.md` says more of each key."""

    name: str
    kind: MetricKind
    margin: Size  # the change that does not matter, in its unit
    team: str | None = None  # whose it is; None for a KPI of all
    better: Literal["up", "down"] | None = None  # None for up, but down for a loss by its name
    proxy_for: str | None = None  # the metric above it for which it stands
    table: str | None = None  # where its rows are; None where only experiments have it
    column: str | None = None  # of its values; None for its name
    unit: str | None = None  # what a row must be, such as `user`
    erosion: Size | None = None  # what all releases together may cost
    read_after: float | None = None  # the lag at which it was read, as lags of experiments

    @property
    def sign(self) -> float:
        """Return -1 where less is better."""
        is_down = (
            is_loss(self.column or self.name) if self.better is None else self.better == "down"
        )
        return -1.0 if is_down else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricTable:
    """A table of rows, or of effects."""

    name: str
    path: str | None = None  # of both arms; else the file of each
    reference: str | None = None
    candidate: str | None = None
    effects: bool = False  # it has a row for each metric: metric, effect, error, n
    arm: str = "arm"  # the column that names the arm
    reference_arm: str = "reference"
    id: str = "id"  # the column that tells a row from the others
    group: str | None = None  # the column of what rows belong to; None where independent
    paired: bool = False  # both arms must have the same ids
    unit: str | None = None  # what a row is, such as `user`
    online: bool = False  # rows come in over time, and one may look at any time
    order: str | None = None  # the column of the time; None for the order of the file
    candidate_share: Annotated[float, Meta(ge=0.001, le=0.999)] = 0.5  # of the units, as planned
    price: Price | None = None  # of a row


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentTable:
    """The table of the experiments, with a row for each effect on a metric."""

    path: str
    # Of the noise of two metrics in one experiment; effects cannot show it.
    noise_correlation: Annotated[float, Meta(ge=-1, le=1)]
    threshold: Annotated[float, Meta(ge=0, lt=1)] = 0.5  # correlation of what stands for another
    price: Price | None = None  # of a row of an experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class ErosionFile:
    """The file of the ledger, and what this release is compared with."""

    ledger: str
    reference: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFile:
    """What the file says; its paths are relative to it."""

    release: str
    team: str  # that wants to ship
    teams: tuple[Team, ...]
    metrics: tuple[ReleaseMetric, ...]
    tables: tuple[MetricTable, ...]
    experiments: ExperimentTable | None = None
    erosion: ErosionFile | None = None
    documents: tuple[str, ...] = ()  # files of `--json` whose verdicts must be PASS
    currency: str = ""  # of the prices

    def owner_of(self, team: str | None) -> str | None:
        """Return the person of a team."""
        return next((one.owner for one in self.teams if one.name == team), None)

    def price_of(self, table: str) -> float | None:
        """Return the price of a row; None where there is none."""
        if table == EXPERIMENTS:
            return None if self.experiments is None else self.experiments.price
        return next((one.price for one in self.tables if one.name == table), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricExperiment:
    """One experiment with its effects on metrics."""

    name: str
    kind: str = ""  # how the component was degraded, such as `stale features`
    dose: float | None = None  # 0 is A/A; None where nothing was made worse on purpose
    component: str | None = None  # what was degraded
    gains: Mapping[str, SignedGain] = field(default_factory=dict)  # of several lags, the latest
    by_segment: Mapping[str, Mapping[str, SignedGain]] = field(default_factory=dict)
    by_lag: Mapping[str, Mapping[float, SignedGain]] = field(default_factory=dict)  # by metric

    @property
    def is_degraded(self) -> bool:
        """Return whether something was made worse on purpose."""
        return self.dose is not None and self.dose > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One release in the ledger."""

    release: str
    reference: str  # what it was compared with
    gains: dict[str, float]  # the estimate of each metric that has an erosion margin
    previous: str = ""  # SHA-256 of the entry before; empty for the first


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseQuestion:
    """Everything a decision rests on."""

    file: ReleaseFile
    measured: Mapping[str, SignedGain]  # by metric
    missing: Mapping[str, int] = field(default_factory=dict)  # rows to be judged at all, by metric
    experiments: tuple[MetricExperiment, ...] = ()
    checks: tuple[QualityCheck, ...] = ()  # of the data, made before
    ledger: tuple[LedgerEntry, ...] = ()  # the releases before this one
