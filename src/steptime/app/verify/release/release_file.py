"""Reads `release.toml`: teams, metrics, tables, experiments, the ledger.

In: the path. Out: a `ReleaseFile`, whose paths are relative to the file, or one clear error that
names the key and those that there may be.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import msgspec

from steptime.errors import NotFoundError, UsageError
from steptime.record.regular_file import read_regular
from steptime.verify.release.data_needs import EXPERIMENTS
from steptime.verify.release.release_question import ReleaseMetric, Team
from steptime.verify.values.release_verdict import MetricKind

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_RUNGS = (MetricKind.ACCEPTANCE, MetricKind.TEAM, MetricKind.KPI)
_Price = Annotated[float, msgspec.Meta(ge=0, le=1e100)]
_SHAPE = "docs/how-to/ship-a-model.md shows each key."


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricTable:
    """A table of rows, or of effects.

    Attributes:
        name: how metrics name it.
        path: the file.
        effects: it holds a row for each metric: metric, effect, error, n.
        arm: the column that names the arm.
        reference_arm: the value of it that is the reference.
        id: the column that tells a row from the others.
        group: the column of what rows belong to, such as a user; None where rows are independent.
        paired: both arms must have the same ids.
        unit: what a row is, such as `user`.
        online: rows come in over time, and one may look at any time.
        order: the column of the time; without it, rows are in the order of the file.
        candidate_share: the share of the units that was to go to the candidate.
        price: of a row.
    """

    name: str
    path: str
    effects: bool = False
    arm: str = "arm"
    reference_arm: str = "reference"
    id: str = "id"
    group: str | None = None
    paired: bool = False
    unit: str | None = None
    online: bool = False
    order: str | None = None
    candidate_share: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.5
    price: _Price | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentTable:
    """The experiments: a table of effects, or of rows.

    Attributes:
        path: the file.
        rows: it holds rows of units; else a row for each experiment and metric.
        arm, reference_arm: of rows, as of a `MetricTable`.
        noise_correlation: of the noise of two metrics in one experiment; a table of effects cannot
            show it.
        threshold: the correlation above which a metric stands for another.
        price: of a row.
    """

    path: str
    rows: bool = False
    arm: str = "arm"
    reference_arm: str = "reference"
    noise_correlation: Annotated[float, msgspec.Meta(ge=-1, le=1)] | None = None
    threshold: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.5
    price: _Price | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ErosionFile:
    """The file of the ledger, and what this release is compared with."""

    ledger: str
    reference: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFile:
    """What the file says.

    Attributes:
        release: the name of the release.
        team: the team that wants to ship.
        teams, metrics, tables: all of them.
        experiments: None where there are none.
        erosion: None without a ledger.
        documents: files of `--json` whose verdicts must be PASS.
        currency: of the prices.
    """

    release: str
    team: str
    teams: tuple[Team, ...]
    metrics: tuple[ReleaseMetric, ...]
    tables: tuple[MetricTable, ...]
    experiments: ExperimentTable | None = None
    erosion: ErosionFile | None = None
    documents: tuple[str, ...] = ()
    currency: str = ""


def read_release(path: Path) -> ReleaseFile:
    """Return what the file says.

    Raises:
        NotFoundError: there is no such file.
        UsageError: it is no TOML, or a key is missing, unknown or wrong.
    """
    try:
        data = tomllib.loads(read_regular(path).decode("utf-8"))
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no file `{path}`.", hint=_SHAPE) from error
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"`{path}` cannot be read: {error}") from error
    _check_keys(data, ReleaseFile, str(path), "")
    try:
        found = msgspec.convert(data, ReleaseFile)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$.")
        where = f"{path}: {place.rstrip('`')}" if place else str(path)
        raise UsageError(f"{where}: {what}.", hint=_SHAPE) from error
    for told in _mistakes(found):
        raise UsageError(f"{path}: {told}", hint=_SHAPE)
    return found


def _check_keys(data: Any, kind: Any, path: str, place: str) -> None:
    """Refuse a key that there is not, or a missing one, with those that there are."""
    if not isinstance(data, Mapping):
        return
    known = {one.name: one for one in fields(kind)}
    allowed = f"The keys here are: {', '.join(known)}."
    for name in data:
        if name not in known:
            where = f"{place}.{name}".lstrip(".")
            raise UsageError(f"{path}: `{where}` is no key of it.", hint=allowed)
    for name, one in known.items():
        if name not in data and one.default is MISSING:
            where = f"{place}.{name}".lstrip(".")
            named = "NoMargin: " if name == "margin" else ""
            raise UsageError(f"{path}: {named}`{where}` is missing.", hint=allowed)
    hints = get_type_hints(kind)
    for name, value in data.items():
        inner = [one for one in (hints[name], *get_args(hints[name])) if is_dataclass(one)]
        if inner and isinstance(value, list):
            for i, item in enumerate(value):
                _check_keys(item, inner[0], path, f"{place}.{name}[{i}]".lstrip("."))
        elif inner:
            _check_keys(value, inner[0], path, f"{place}.{name}".lstrip("."))


def _mistakes(found: ReleaseFile) -> Iterable[str]:
    """Yield what does not fit together, one sentence each."""
    for group in ("teams", "metrics", "tables"):
        names = Counter(one.name for one in getattr(found, group))
        yield from (f"{group}: `{name}` stands there twice." for name, n in names.items() if n > 1)
    parts = Counter(part for team in found.teams for part in team.components)
    yield from (f"teams: the component `{name}` is of two." for name, n in parts.items() if n > 1)
    teams = {team.name for team in found.teams}
    if found.team not in teams:
        yield f"team: there is no team `{found.team}`; there are {_listed(teams)}."
    for i, metric in enumerate(found.metrics):
        yield from (f"metrics[{i}]{told}" for told in _mistakes_of(metric, found, teams))
    for i, table in enumerate(found.tables):
        if table.name == EXPERIMENTS:
            yield f"tables[{i}].name: `{EXPERIMENTS}` is the name of the table of experiments."
        if table.online and (table.paired or table.effects or table.group is not None):
            yield f"tables[{i}]: an `online` table has a row for each unit, in one arm."
        if table.order is not None and not table.online:
            yield f"tables[{i}].order is of an `online` table."
    one = found.experiments
    if one is not None and not one.rows and one.noise_correlation is None:
        yield (
            "experiments.noise_correlation is missing: how far the noise of two metrics agrees in "
            "one experiment (0 for other units, near 1 for the same)."
        )


def _mistakes_of(metric: ReleaseMetric, found: ReleaseFile, teams: set[str]) -> Iterable[str]:
    metrics = {one.name: one for one in found.metrics}
    tables = {one.name: one for one in found.tables}
    if metric.erosion is not None and found.erosion is None:
        yield ".erosion needs the table [erosion] with the file of the ledger."
    if metric.team is None and metric.kind is not MetricKind.KPI:
        yield ".team is missing; only a KPI may belong to all."
    if metric.team is not None and metric.team not in teams:
        yield f".team: there is no team `{metric.team}`; there are {_listed(teams)}."
    if metric.table is not None and metric.table not in tables:
        yield f".table: there is no table `{metric.table}`; there are {_listed(tables)}."
    table = tables.get(metric.table or "")
    if metric.denominator is not None and table is not None and (table.online or table.effects):
        yield ".denominator: a ratio needs a table of rows that is not `online`."
    above = None if metric.proxy_for is None else metrics.get(metric.proxy_for)
    if metric.proxy_for is not None and above is None:
        yield f".proxy_for: there is no metric `{metric.proxy_for}`; there are {_listed(metrics)}."
    if above is not None and _RUNGS.index(above.kind) <= _RUNGS.index(metric.kind):
        yield (
            f".proxy_for: `{above.name}` is no rung above; the ladder goes from acceptance to team "
            "to kpi."
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "none"
