"""Reads the experiments of a release: effects as they were found, or the rows of their units.

In: the table. Out: experiments, whose gains are signed so that more is better. From rows, the noise
that two metrics share is measured; a table of effects cannot show it, so it must be declared.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steptime.app.verify.release.release_file import ExperimentTable
from steptime.app.verify.release.release_tables import candidates_in, gains_in, signed
from steptime.app.verify.release.table_columns import TableColumns, read_columns
from steptime.errors import DataError
from steptime.verify.model.signed_gains import SignedGain
from steptime.verify.release.release_question import MetricExperiment, ReleaseMetric

if TYPE_CHECKING:
    from steptime.verify.model.two_arms import Codes, Floats

_LEAST_ROWS = 2
_NO_LAG = -math.inf
Gains = dict[str, SignedGain]


def read_experiments(
    asked: ExperimentTable | None, metrics: Sequence[ReleaseMetric], folder: Path
) -> tuple[MetricExperiment, ...]:
    """Return the experiments, in the order of the table.

    Raises:
        NotFoundError: the table is not there.
        UsageError: a column is missing.
        DataError: an effect stands there twice, an experiment contradicts itself, or is too small.
    """
    if asked is None:
        return ()
    columns = read_columns(folder / asked.path)
    made = _of_rows if asked.rows else _of_effects
    return tuple(made(columns, asked, metrics))


def _experiment(
    name: str,
    facts: dict[str, Any],
    by_lag: dict[str, dict[float, SignedGain]],
    by_segment: dict[str, Gains],
    noise: dict[tuple[str, str], float],
) -> MetricExperiment:
    lags = {name: {k: v for k, v in one.items() if k != _NO_LAG} for name, one in by_lag.items()}
    return MetricExperiment(
        name=name,
        gains={metric: gains[max(gains)] for metric, gains in by_lag.items()},
        noise=noise,
        by_segment=by_segment,
        by_lag={metric: gains for metric, gains in lags.items() if gains},
        **facts,
    )


# -- effects


def _of_effects(
    columns: TableColumns, asked: ExperimentTable, metrics: Sequence[ReleaseMetric]
) -> Iterator[MetricExperiment]:
    known = {one.column or one.name: one for one in metrics}
    names, segments, gains = (
        _texts(columns, "metric"),
        _texts(columns, "segment"),
        gains_in(columns),
    )
    lags = columns.numbers("lag") if "lag" in columns else [math.nan] * len(columns)
    for name, rows, facts in _grouped(columns):
        by_lag, parts = dict[str, dict[float, SignedGain]](), dict[str, Gains]()
        for i in rows.tolist():
            metric, segment = known.get(names[i]), segments[i]
            if metric is None:
                continue
            key: Any = _NO_LAG if math.isnan(lags[i]) else float(lags[i])
            place: dict[Any, SignedGain] = by_lag.setdefault(metric.name, {})
            if segment:
                key, place = metric.name, parts.setdefault(segment, {})
            if key in place:
                where = f"`{name}`, segment `{segment}`" if segment else f"`{name}`"
                told = f"`{columns.path}` has two effects of `{metric.name}` in {where}."
                raise DataError(told)
            place[key] = signed(gains[i], metric)
        by_lag = {metric: found for metric, found in by_lag.items() if found}
        latest = {metric: found[max(found)] for metric, found in by_lag.items()}
        shared = asked.noise_correlation or 0.0
        noise = {
            (a, b): shared * latest[a].error * latest[b].error for a, b in combinations(latest, 2)
        }
        yield _experiment(name, facts, by_lag, parts, noise)


# -- rows


def _of_rows(
    columns: TableColumns, asked: ExperimentTable, metrics: Sequence[ReleaseMetric]
) -> Iterator[MetricExperiment]:
    import numpy as np

    is_candidate = candidates_in(columns, asked.arm, asked.reference_arm)
    places = [
        (metric, lag, column)
        for metric in metrics
        for lag, column in _lagged(columns, metric.column or metric.name)
    ]
    latest = {metric.name: i for i, (metric, _, _) in enumerate(places)}  # lags rise
    values = np.column_stack([one.sign * columns.numbers(column) for one, _, column in places])
    segments = _texts(columns, "segment")
    for name, rows, facts in _grouped(columns):
        gains, shared = _of_units(values[rows], is_candidate[rows], f"`{name}`")
        by_lag = dict[str, dict[float, SignedGain]]()
        for (metric, lag, _), gain in zip(places, gains, strict=True):
            by_lag.setdefault(metric.name, {})[lag] = gain
        groups, parts = dict[str, list[int]](), dict[str, Gains]()
        for i in rows.tolist():
            groups.setdefault(segments[i], []).append(i)
        for segment, group in groups.items():
            if segment:
                where = f"`{name}`, segment `{segment}`"
                found, _ = _of_units(values[group], is_candidate[group], where)
                parts[segment] = {metric: found[i] for metric, i in latest.items()}
        noise = {(a, b): float(shared[latest[a], latest[b]]) for a, b in combinations(latest, 2)}
        yield _experiment(name, facts, by_lag, parts, noise)


def _of_units(values: Floats, is_candidate: Codes, where: str) -> tuple[list[SignedGain], Floats]:
    """Return the gain of each column (num_units, num_columns), and the covariance of noise."""
    import numpy as np

    if not np.isfinite(values).all():
        raise DataError(f"NonFiniteMetric: {where} holds something that is no finite number.")
    arms = values[~is_candidate], values[is_candidate]
    if min(map(len, arms)) < _LEAST_ROWS:
        raise DataError(f"SliceTooSmall: {where} has fewer than {_LEAST_ROWS} rows of an arm.")
    parts = [np.atleast_2d(np.cov(arm, rowvar=False, ddof=0)) / len(arm) for arm in arms]
    shared: Floats = parts[0] + parts[1]
    means = arms[1].mean(axis=0) - arms[0].mean(axis=0)
    errors = np.sqrt(np.diag(shared))
    rows = zip(means.tolist(), errors.tolist(), strict=True)
    return [SignedGain(mean, error, len(values)) for mean, error in rows], shared


def _lagged(columns: TableColumns, column: str) -> list[tuple[float, str]]:
    """Return the lags of a column, rising, with their columns: `revenue@7` is after 7."""
    found = [(_NO_LAG, column)] if column in columns else []
    for name in columns.table.column_names:
        lag = re.fullmatch(rf"{re.escape(column)}@(\d+(?:\.\d+)?)", name)
        found += [(float(lag[1]), name)] if lag else []
    return sorted(found)


# -- both


def _grouped(columns: TableColumns) -> Iterator[tuple[str, Codes, dict[str, Any]]]:
    """Yield each experiment with its rows, kind, dose and component, which must be one of each."""
    import numpy as np

    codes, names = columns.codes("experiment")
    order = np.argsort(codes, kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(codes, minlength=len(names)))[:-1])
    doses: Sequence[Any] = [""] * len(columns)
    if "dose" in columns:
        doses = ["" if math.isnan(x) else x for x in columns.numbers("dose").tolist()]
    if any(not 0 <= dose < math.inf for dose in doses if dose != ""):
        raise DataError(f"`{columns.path}` has a dose that is no number from 0 on.")
    known = {"kind": _texts(columns, "kind"), "component": _texts(columns, "component")}
    for name, rows in zip(names, groups, strict=True):
        facts = dict[str, Any]()
        for fact, values in (*known.items(), ("dose", doses)):
            found = {values[i] for i in rows.tolist()}
            if len(found) > 1:
                told = ", ".join(sorted(str(one) for one in found))
                raise DataError(f"`{name}` of `{columns.path}` has more than one {fact}: {told}.")
            facts[fact] = next(iter(found))
            if facts[fact] == "" and fact != "kind":
                facts[fact] = None
        yield name, rows, facts


def _texts(columns: TableColumns, name: str) -> Sequence[str]:
    """Return a column of texts; empty where it, or one of its values, is missing."""
    if name not in columns:
        return [""] * len(columns)
    codes, texts = columns.codes(name)
    return [texts[code] for code in codes.tolist()]
