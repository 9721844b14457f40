"""Reads `release.toml`: teams, metrics, tables, experiments, the ledger.

In: the path. Out: a `ReleaseFile`, whose paths are relative to the file, or one clear error that
names the key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from steptime.app.verify.toml_file import read_toml
from steptime.errors import UsageError
from steptime.verify.release.release_question import (
    EXPERIMENTS,
    MetricTable,
    ReleaseFile,
    ReleaseMetric,
)
from steptime.verify.values.release_verdict import MetricKind

_RUNGS = tuple(MetricKind)
_SHAPE = "docs/how-to/ship-a-model.md shows each key."


def read_release(path: Path) -> ReleaseFile:
    """Return what the file says.

    Raises:
        NotFoundError: there is no such file.
        UsageError: it is no TOML, or a key is missing, unknown or wrong.
    """
    data = read_toml(path, hint=_SHAPE)
    try:
        found = msgspec.convert(data, ReleaseFile)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$.")
        named = "NoMargin: " if what.endswith("required field `margin`") else ""
        where = f"`{place} of `{path}`" if place else f"`{path}`"
        raise UsageError(f"{named}{where}: {what}.", hint=_SHAPE) from error
    known = msgspec.to_builtins(found)
    for told in (*_unknown(data, known, ""), *_mistakes(found)):
        raise UsageError(f"`{path}`: {told}", hint=_SHAPE)
    return found


def _unknown(data: Any, known: Any, place: str) -> Iterator[str]:
    """Yield a sentence for each key that there is not."""
    if isinstance(data, Mapping):
        for name, one in data.items():
            where = f"{place}.{name}".lstrip(".")
            if name in known:
                yield from _unknown(one, known[name], where)
            else:
                yield f"there is no key `{where}`; the keys here are {', '.join(known)}."
    elif isinstance(data, list):
        for i, (one, other) in enumerate(zip(data, known, strict=True)):
            yield from _unknown(one, other, f"{place}[{i}]")


def _mistakes(found: ReleaseFile) -> Iterator[str]:
    """Yield what does not fit together, one sentence each."""
    parts = [name for team in found.teams for name in team.components]
    yield from _twice("teams: the component", parts)
    for group in ("teams", "metrics", "tables"):
        yield from _twice(f"{group}:", [one.name for one in getattr(found, group)])
    teams = [team.name for team in found.teams]
    yield from _strange("team", found.team, teams)
    for i, metric in enumerate(found.metrics):
        where = f"metrics[{i}]"
        yield from _strange(f"{where}.team", metric.team, teams)
        yield from _strange(f"{where}.table", metric.table, [one.name for one in found.tables])
        yield from _strange(f"{where}.proxy_for", metric.proxy_for, [x.name for x in found.metrics])
        yield from (f"{where}{told}" for told in _mistakes_of(metric, found))
    for i, table in enumerate(found.tables):
        yield from (f"tables[{i}]{told}" for told in _mistakes_of_table(table))


def _twice(what: str, names: Iterable[str]) -> Iterator[str]:
    yield from (f"{what} `{x}` stands there twice." for x, n in Counter(names).items() if n > 1)


def _strange(where: str, name: str | None, known: Iterable[str]) -> Iterator[str]:
    if name is not None and name not in known:
        names = ", ".join(f"`{one}`" for one in sorted(known)) or "none"
        yield f"{where}: there is no `{name}`; there are {names}."


def _mistakes_of(metric: ReleaseMetric, found: ReleaseFile) -> Iterator[str]:
    if metric.erosion is not None and found.erosion is None:
        yield ".erosion needs the table [erosion] with the file of the ledger."
    if metric.team is None and metric.kind is not MetricKind.KPI:
        yield ".team is missing; only a KPI may belong to all."
    above = next((one for one in found.metrics if one.name == metric.proxy_for), None)
    if above is not None and _RUNGS.index(above.kind) <= _RUNGS.index(metric.kind):
        yield f".proxy_for: `{above.name}` is no rung above; they are acceptance, team, kpi."


def _mistakes_of_table(table: MetricTable) -> Iterator[str]:
    if table.name == EXPERIMENTS:
        yield f".name: `{EXPERIMENTS}` is the name of the table of experiments."
    pair = [one for one in (table.reference, table.candidate) if one is not None]
    if len(pair) != (2 if table.path is None else 0):
        yield ": its rows are in one file (`path`), or in two (`reference` and `candidate`)."
    if pair and (table.online or table.effects):
        yield ": an `online` table, or one of effects, is one file (`path`)."
    if table.online and (table.paired or table.effects or table.group is not None):
        yield ": an `online` table has a row for each unit, in one arm."
    if table.order is not None and not table.online:
        yield ".order is of an `online` table."
