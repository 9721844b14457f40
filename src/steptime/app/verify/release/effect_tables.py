"""Opens the tables of a release, and reads those whose rows are effects, such as its experiments.

In: a file. Out: its table, an `EffectRow` for each row, or experiments. Gains are signed so that
more is better.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, ValidationError, convert

from steptime.app.verify.prediction_table import read_table
from steptime.errors import DataError, UsageError
from steptime.verify.model.signed_gains import SignedGain
from steptime.verify.model.two_arms import LARGEST
from steptime.verify.release.release_question import MetricExperiment, ReleaseFile, ReleaseMetric

if TYPE_CHECKING:
    import pyarrow as pa

Number = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Positive = Annotated[float, Meta(ge=0, le=LARGEST)]

_NUMBERS = ("effect", "error", "n", "dose", "lag")
_TEXTS = ("metric", "experiment", "kind", "component", "segment")


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectRow:
    """What an experiment, or the release, did to a metric."""

    metric: str
    effect: Number  # candidate minus reference
    error: Positive  # the standard error of it
    n: Positive = 0.0  # rows behind it; 0 where that is not known
    experiment: str = ""
    kind: str = ""
    dose: Positive | None = None
    component: str | None = None
    segment: str = ""  # the part of the units; empty for all
    lag: Number | None = None  # how long after

    def gain(self, metric: ReleaseMetric) -> SignedGain:
        """Return the effect as a gain: more is better."""
        return SignedGain(metric.sign * self.effect, self.error, int(self.n))


@contextmanager
def opened(*paths: Path) -> Iterator[list[pa.Table]]:
    """Open the tables of files; errors of what is done with them name the files.

    Raises:
        NotFoundError: there is no such file.
        DataError: it cannot be read as a table, or has no rows.
    """
    import pyarrow as pa

    tables = [read_table(one, None) for one in paths]
    for path, table in zip(paths, tables, strict=True):
        if not table.num_rows:
            raise DataError(f"EmptySlice: `{path}` has no rows.")
    where = " and ".join(f"`{path}`" for path in paths)
    try:
        yield tables
    except (DataError, UsageError) as error:
        hint = error.hint and error.hint.replace("--", "")  # options are keys of the file here
        raise type(error)(f"{str(error).rstrip('.')} (in {where}).", hint=hint) from error
    except pa.ArrowException as error:
        raise DataError(f"{where} cannot be read: {error}") from error


def effect_rows(table: pa.Table) -> list[EffectRow]:
    """Return the rows of a table of effects.

    Raises:
        DataError: a value is missing, or is no finite number (`NonFiniteMetric`).
    """
    import pyarrow as pa

    kinds = {**dict.fromkeys(_TEXTS, pa.string()), **dict.fromkeys(_NUMBERS, pa.float64())}
    known = table.select([name for name in table.column_names if name in kinds])
    typed = known.cast(pa.schema([(name, kinds[name]) for name in known.column_names]))
    rows = list[EffectRow]()
    for i, row in enumerate(typed.to_pylist()):
        try:
            told = {name: value for name, value in row.items() if value not in (None, "")}
            rows.append(convert(told, EffectRow))
        except ValidationError as error:
            named = "NonFiniteMetric: " if re.search(r"\b(effect|error)\b", str(error)) else ""
            raise DataError(f"{named}row {i + 1}: {error}.") from error
    return rows


def read_experiments(file: ReleaseFile, folder: Path) -> tuple[MetricExperiment, ...]:
    """Return the experiments, by name.

    Raises:
        NotFoundError: the table is not there.
        UsageError: a component is of no team.
        DataError: an effect stands there twice, or an experiment contradicts itself.
    """
    if file.experiments is None:
        return ()
    metrics = {one.name: one for one in file.metrics}
    known = {None, *(name for team in file.teams for name in team.components)}
    with opened(folder / file.experiments.path) as (table,):
        rows = sorted(effect_rows(table), key=lambda row: row.experiment)
        for row in rows:
            if row.component not in known:
                raise UsageError(
                    f"the experiments degrade `{row.component}`, which is a component of no team.",
                    hint="Name it in `components` of the team that builds it.",
                )
        groups = groupby(rows, key=lambda row: row.experiment)
        return tuple(_experiment(name, list(group), metrics) for name, group in groups)


def _experiment(
    name: str, rows: Sequence[EffectRow], metrics: Mapping[str, ReleaseMetric]
) -> MetricExperiment:
    for fact in ("kind", "dose", "component"):
        values = {str(getattr(row, fact)) for row in rows}
        if len(values) > 1:
            told = ", ".join(f"`{one}`" for one in sorted(values))
            raise DataError(f"`{name}` has more than one {fact}: {told}.")
    if rows[0].component is not None and rows[0].dose is None:
        raise DataError(f"`{name}` degrades `{rows[0].component}` by no `dose`; 0 would be A/A.")
    places = Counter((row.metric, row.segment, row.lag) for row in rows)
    (metric, segment, _), num = places.most_common(1)[0]
    if num > 1:
        where = f"`{name}`, segment `{segment}`" if segment else f"`{name}`"
        raise DataError(f"there are {num} effects of `{metric}` in {where}; it must have one.")
    gains, by_lag = dict[str, SignedGain](), dict[str, dict[float, SignedGain]]()
    by_segment = dict[str, dict[str, SignedGain]]()
    for row in sorted(rows, key=lambda row: -math.inf if row.lag is None else row.lag):
        if row.metric in metrics:
            gain = row.gain(metrics[row.metric])
            place = by_segment.setdefault(row.segment, {}) if row.segment else gains
            place[row.metric] = gain  # lags rise, so the latest stays
            if row.lag is not None and not row.segment:
                by_lag.setdefault(row.metric, {})[row.lag] = gain
    return MetricExperiment(
        name=name,
        kind=rows[0].kind,
        dose=rows[0].dose,
        component=rows[0].component,
        gains=gains,
        by_segment=by_segment,
        by_lag=by_lag,
    )
