"""Measures the metrics of a release from its tables, and checks the tables.

In: a `ReleaseFile`, and the folder to which its paths are relative. Out: gains by metric, and
checks of the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steptime.app.verify.release.release_file import MetricTable, ReleaseFile
from steptime.app.verify.release.table_columns import TableColumns, read_columns
from steptime.errors import DataError, NotFoundError, UsageError
from steptime.record.regular_file import read_regular
from steptime.verify.model.signed_gains import SignedGain, gain_of
from steptime.verify.model.two_arms import ArmRows, join
from steptime.verify.release.release_question import Measured, ReleaseMetric
from steptime.verify.release.sequential import sample_ratio, sequential_gain
from steptime.verify.values import Outcome, QualityCheck

if TYPE_CHECKING:
    from steptime.verify.model.two_arms import Floats

LEAST_ROWS = 30
"""Of an arm: below it, an interval of the normal distribution is too narrow."""


@dataclass(slots=True)
class TablesRead:
    """What the tables say; `missing` is the rows that a metric lacks to be judged at all."""

    measured: dict[str, Measured] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    checks: list[QualityCheck] = field(default_factory=list)


def read_tables(file: ReleaseFile, folder: Path) -> TablesRead:
    """Return what the tables of a release say.

    Raises:
        NotFoundError: a table or document is not there.
        UsageError: a column or an arm is missing, or a document holds no verdict.
        DataError: a table cannot be read, or holds what cannot be judged.
    """
    read = TablesRead()
    for table in file.tables:
        metrics = [one for one in file.metrics if one.table == table.name]
        columns = read_columns(folder / table.path)
        if table.effects:
            read.measured |= _effects(columns, table, metrics)
        else:
            _read_rows(columns, table, metrics, read)
    read.checks += [_document(folder / name) for name in file.documents]
    return read


# -- effects


def _effects(
    columns: TableColumns, table: MetricTable, metrics: Iterable[ReleaseMetric]
) -> dict[str, Measured]:
    rows = dict[str, SignedGain]()
    codes, names = columns.codes("metric")
    for name, gain in zip((names[code] for code in codes.tolist()), gains_in(columns), strict=True):
        if name in rows:
            raise DataError(f"`{columns.path}` has two effects of `{name}`.")
        rows[name] = gain
    found = dict[str, Measured]()
    for metric in metrics:
        name = metric.column or metric.name
        if name not in rows:
            raise UsageError(
                f"`{columns.path}` has no effect of `{name}`; it has {', '.join(sorted(rows))}."
            )
        found[metric.name] = Measured(gain=signed(rows[name], metric), table=table.name)
    return found


def gains_in(columns: TableColumns) -> list[SignedGain]:
    """Return the effect of each row of a table of effects, as it is.

    Raises:
        DataError: an effect is no finite number, or its error is none above 0.
    """
    import numpy as np

    effects, errors = columns.numbers("effect"), columns.numbers("error")
    nums = columns.numbers("n") if "n" in columns else np.zeros(len(effects))
    for i, (effect, error) in enumerate(zip(effects, errors, strict=True)):
        if not (np.isfinite(effect) and np.isfinite(error) and error >= 0):
            raise DataError(
                f"NonFiniteMetric: row {i + 1} of `{columns.path}` has the effect {effect:g} with "
                f"the error {error:g}.",
                hint="An effect is a number, and its standard error is one that is not below 0.",
            )
    nums = np.nan_to_num(nums)
    rows = zip(effects.tolist(), errors.tolist(), nums.tolist(), strict=True)
    return [SignedGain(effect, error, int(num)) for effect, error, num in rows]


def signed(gain: SignedGain, metric: ReleaseMetric) -> SignedGain:
    """Return an effect as a gain: more is better."""
    return SignedGain(metric.sign * gain.mean, gain.error, gain.num)


# -- rows


def _read_rows(
    columns: TableColumns, table: MetricTable, metrics: Iterable[ReleaseMetric], read: TablesRead
) -> None:
    is_candidate = candidates_in(columns, table.arm, table.reference_arm)
    order = _order(columns, table)
    is_candidate = is_candidate[order]
    nums = (int((~is_candidate).sum()), int(is_candidate.sum()))
    ids = columns.codes(table.id)[0][order] if table.id in columns else None
    groups = None if table.group is None else columns.codes(table.group)[0][order]
    if not _are_pairs(ids, is_candidate):
        read.checks.append(sample_ratio(*nums, share=table.candidate_share, of=table.name))
    for metric in metrics:
        _check_unit(metric, table)
        if min(nums) < LEAST_ROWS:
            read.missing[metric.name] = sum(max(0, LEAST_ROWS - num) for num in nums)
            continue
        scores = _scores(columns, metric, order, is_candidate)
        try:
            gain = _gain(metric.sign * scores, {"ids": ids, "groups": groups}, is_candidate, table)
        except DataError as error:
            told = f"{error} (`{metric.name}` in `{columns.path}`)"
            raise DataError(told, hint=error.hint) from None
        read.measured[metric.name] = Measured(gain=gain, table=table.name, is_online=table.online)


def _gain(scores: Floats, codes: Any, is_candidate: Any, table: MetricTable) -> SignedGain:
    if table.online:
        _check_finite(scores)
        units = is_candidate.astype(float)
        return sequential_gain(scores, units, share=table.candidate_share)
    reference, candidate = (
        ArmRows(scores=scores[None, arm], **{k: v[arm] for k, v in codes.items() if v is not None})
        for arm in (~is_candidate, is_candidate)
    )
    return gain_of(join(reference, candidate, must_pair=table.paired), sign=1.0)


def candidates_in(columns: TableColumns, arm: str, reference_arm: str) -> Any:
    """Return which rows are of the candidate (num_rows,).

    Raises:
        UsageError: there are not two arms, or none of them is the reference.
    """
    codes, values = columns.codes(arm)
    if len(values) != 2:
        raise UsageError(
            f"`{arm}` of `{columns.path}` has {len(values)} values ({', '.join(values[:5])}); a "
            "comparison is of two arms.",
            hint="Name the column with `arm`, and leave other arms out of the file.",
        )
    if reference_arm not in values:
        raise UsageError(
            f"`{arm}` of `{columns.path}` has no value `{reference_arm}`; it has "
            f"{' and '.join(values)}.",
            hint="Name the reference with `reference_arm`.",
        )
    return codes != values.index(reference_arm)


def _order(columns: TableColumns, table: MetricTable) -> Any:
    import numpy as np

    if table.order is None:
        return np.arange(len(columns))
    return np.argsort(columns.numbers(table.order), kind="stable")


def _are_pairs(ids: Any, is_candidate: Any) -> bool:
    """Return whether both arms have the same ids, so that their ratio says nothing."""
    import numpy as np

    if ids is None:
        return False
    return bool(np.array_equal(np.sort(ids[~is_candidate]), np.sort(ids[is_candidate])))


def _check_unit(metric: ReleaseMetric, table: MetricTable) -> None:
    units = (metric.unit, table.unit)
    if metric.denominator is None and None not in units and metric.unit != table.unit:
        raise DataError(
            f"UnitMismatch: `{metric.name}` is per {metric.unit}, and a row of `{table.name}` is "
            f"one {table.unit}.",
            hint="Name the column that counts them with `denominator`: the metric is then a ratio.",
        )


def _scores(columns: TableColumns, metric: ReleaseMetric, order: Any, is_candidate: Any) -> Floats:
    """Return the metric of each row; of a ratio of sums, values whose mean and spread are its.

    Source: the delta method, as in A. Deng, U. Knoblich, J. Lu, KDD 2018.
    """
    scores: Floats = columns.numbers(metric.column or metric.name)[order]
    if metric.denominator is None:
        return scores
    below = columns.numbers(metric.denominator)[order]
    found: Floats = scores.copy()
    for arm in (~is_candidate, is_candidate):
        middle = float(below[arm].mean())
        if not middle > 0:
            raise DataError(
                f"ZeroVariance: `{metric.denominator}` adds up to {middle * arm.sum():g} in one "
                f"arm of `{columns.path}`; a ratio is divided by it."
            )
        ratio = float(scores[arm].mean()) / middle
        found[arm] = (scores[arm] - ratio * below[arm]) / middle + ratio
    return found


def _check_finite(scores: Floats) -> None:
    import numpy as np

    num_bad = int((~np.isfinite(scores)).sum())
    if num_bad:
        raise DataError(
            f"NonFiniteMetric: the metric is no finite number in {num_bad:,} of {len(scores):,} "
            "rows."
        )


# -- documents


def _document(path: Path) -> QualityCheck:
    """Return the verdict of a document that a command wrote with `--json`."""
    import msgspec

    try:
        data = msgspec.json.decode(read_regular(path), type=dict[str, Any])
    except FileNotFoundError as error:
        raise NotFoundError(f"documents: there is no file `{path}`.") from error
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"documents: `{path}` cannot be read: {error}") from error
    inner = data.get("data")
    outcome = inner.get("outcome") if isinstance(inner, Mapping) else None
    if outcome not in [one.value for one in Outcome]:
        raise UsageError(
            f"documents: `{path}` holds no verdict.",
            hint="Write one: steptime verify model ... --json FILE",
        )
    detail = f"{data.get('command', '?')}: {path.name}"
    return QualityCheck(name="document", outcome=Outcome(outcome), detail=detail)
