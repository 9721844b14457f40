"""Reads the experiments of a release: effects as they were found, or the rows of their units.

In: the table. Out: experiments, whose gains are signed so that more is better. From rows, the noise
that two metrics share is measured; a table of effects cannot show it, so it must be declared.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from steptime.app.verify.release_file import ExperimentTable
from steptime.app.verify.release_tables import candidates_in, gains_in, signed
from steptime.app.verify.table_columns import NO_VALUE, TableColumns, read_columns
from steptime.errors import DataError
from steptime.verify.model.signed_gains import SignedGain, unpaired_gain
from steptime.verify.release.release_question import MetricExperiment, ReleaseMetric

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
    columns.need(["experiment"])
    if asked.rows:
        return tuple(_of_rows(columns, asked, metrics))
    return tuple(_of_effects(columns, asked, metrics))


# -- effects


def _of_effects(
    columns: TableColumns, asked: ExperimentTable, metrics: Sequence[ReleaseMetric]
) -> Iterator[MetricExperiment]:
    known = {one.column or one.name: one for one in metrics}
    names, gains = columns.texts("metric"), gains_in(columns)
    segments = _optional(columns, "segment")
    lags = columns.numbers("lag").tolist() if "lag" in columns.names else [math.nan] * len(names)
    for name, rows, facts in _grouped(columns):
        whole, parts = dict[str, dict[float, SignedGain]](), dict[str, Gains]()
        for i in rows:
            metric = known.get(names[i])
            if metric is None:
                continue
            lag = _NO_LAG if math.isnan(lags[i]) else lags[i]
            gain, segment = signed(gains[i], metric), segments[i]
            place = parts.setdefault(segment, {}) if segment else whole.setdefault(metric.name, {})
            key: Any = metric.name if segment else lag
            if key in place:
                raise DataError(
                    f"`{columns.path}` has two effects of `{metric.name}` in `{name}`"
                    + (f", segment `{segment}`." if segment else ".")
                )
            place[key] = gain
        latest = {metric: by_lag[max(by_lag)] for metric, by_lag in whole.items()}
        shared = asked.noise_correlation or 0.0
        yield MetricExperiment(
            name=name,
            gains=latest,
            noise={
                (a, b): shared * latest[a].error * latest[b].error
                for a, b in combinations(latest, 2)
            },
            by_segment=parts,
            by_lag=_with_lags(whole),
            **facts,
        )


def _with_lags(
    whole: Mapping[str, Mapping[float, SignedGain]],
) -> dict[str, dict[float, SignedGain]]:
    """Return the gains of the metrics that have lags."""
    found = {name: {k: v for k, v in one.items() if k != _NO_LAG} for name, one in whole.items()}
    return {name: one for name, one in found.items() if one}


# -- rows


def _of_rows(
    columns: TableColumns, asked: ExperimentTable, metrics: Sequence[ReleaseMetric]
) -> Iterator[MetricExperiment]:
    import numpy as np

    is_candidate = candidates_in(columns, asked.arm, asked.reference_arm)
    segments = _optional(columns, "segment")
    places = [
        (metric, lag, columns.numbers(column))
        for metric in metrics
        for lag, column in _lagged(columns.names, metric.column or metric.name)
    ]
    for name, rows, facts in _grouped(columns):
        chosen = np.array(rows)
        whole = dict[str, dict[float, SignedGain]]()
        latest = dict[str, Any]()
        for metric, lag, values in places:
            arms = _arms(values[chosen], is_candidate[chosen], f"`{metric.name}` in `{name}`")
            gain = unpaired_gain(*arms, sign=metric.sign)
            whole.setdefault(metric.name, {})[lag] = gain
            if lag == max(whole[metric.name]):
                latest[metric.name] = tuple(metric.sign * one for one in arms)
        yield MetricExperiment(
            name=name,
            gains={metric: by_lag[max(by_lag)] for metric, by_lag in whole.items()},
            noise={
                (a, b): math.fsum(
                    float(np.cov(x, y, ddof=0)[0, 1]) / len(x)
                    for x, y in zip(latest[a], latest[b], strict=True)
                )
                for a, b in combinations(latest, 2)
            },
            by_segment=_by_segment(rows, segments, places, is_candidate),
            by_lag=_with_lags(whole),
            **facts,
        )


def _by_segment(
    rows: Sequence[int], segments: Sequence[str], places: Sequence[Any], is_candidate: Any
) -> dict[str, Gains]:
    import numpy as np

    groups, found = dict[str, list[int]](), dict[str, Gains]()
    for i in rows:
        if segments[i]:
            groups.setdefault(segments[i], []).append(i)
    latest = {metric.name: (metric, values) for metric, _, values in places}  # lags rise
    for segment, group in groups.items():
        chosen = np.array(group)
        for name, (metric, values) in latest.items():
            arms = _arms(values[chosen], is_candidate[chosen], f"`{name}` in `{segment}`")
            found.setdefault(segment, {})[name] = unpaired_gain(*arms, sign=metric.sign)
    return found


def _lagged(names: Sequence[str], column: str) -> list[tuple[float, str]]:
    """Return the lags of a column, rising, with their columns: `revenue@7` is after 7."""
    found = [(_NO_LAG, column)] if column in names else []
    for name in names:
        lag = re.fullmatch(rf"{re.escape(column)}@(\d+(?:\.\d+)?)", name)
        if lag is not None:
            found.append((float(lag[1]), name))
    return sorted(found)


def _arms(values: Any, is_candidate: Any, where: str) -> tuple[Any, Any]:
    import numpy as np

    arms = values[~is_candidate], values[is_candidate]
    if min(map(len, arms)) < _LEAST_ROWS:
        raise DataError(f"SliceTooSmall: {where} has fewer than {_LEAST_ROWS} rows of an arm.")
    if not np.isfinite(values).all():
        raise DataError(f"NonFiniteMetric: {where} holds something that is no finite number.")
    return arms


# -- both


def _grouped(columns: TableColumns) -> Iterator[tuple[str, list[int], dict[str, Any]]]:
    """Yield each experiment with its rows, kind, dose and component, which must be one of each."""
    groups = dict[str, list[int]]()
    for i, name in enumerate(columns.texts("experiment")):
        groups.setdefault(name, []).append(i)
    kinds, components = _optional(columns, "kind"), _optional(columns, "component")
    doses = columns.numbers("dose").tolist() if "dose" in columns.names else []
    for name, rows in groups.items():
        dose = [doses[i] for i in rows] if doses else [math.nan]
        facts: dict[str, set[Any]] = {
            "kind": {kinds[i] for i in rows},
            "dose": {None if math.isnan(one) else one for one in dose},
            "component": {components[i] or None for i in rows},
        }
        for fact, values in facts.items():
            if len(values) > 1:
                told = ", ".join(sorted(str(one) for one in values))
                raise DataError(f"`{name}` of `{columns.path}` has more than one {fact}: {told}.")
        if any(one is not None and not 0 <= one < math.inf for one in facts["dose"]):
            raise DataError(f"`{name}` of `{columns.path}` has a dose that is no number from 0 on.")
        yield name, rows, {fact: next(iter(values)) for fact, values in facts.items()}


def _optional(columns: TableColumns, name: str) -> list[str]:
    """Return a column of texts; empty where it, or one of its values, is missing."""
    if name not in columns.names:
        return [""] * len(columns)
    return ["" if text == NO_VALUE else text for text in columns.texts(name)]
