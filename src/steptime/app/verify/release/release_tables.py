"""Turns a release file with its tables, its experiments and its ledger into a question.

In: the path of the file. Out: gains by metric, checks of the data, and the rest, as one value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from steptime.app.verify.prediction_table import (
    codes_of,
    ids_of,
    needed_column,
    numbers_of,
)
from steptime.app.verify.release.effect_tables import (
    LARGEST,
    effect_rows,
    opened,
    read_experiments,
)
from steptime.app.verify.release.erosion_ledger import read_ledger
from steptime.app.verify.release.release_file import read_release
from steptime.errors import DataError, MissingExtraError, NotFoundError, UsageError
from steptime.record.regular_file import read_regular
from steptime.verify.model.signed_gains import SignedGain, gain_of
from steptime.verify.model.two_arms import ArmRows, join
from steptime.verify.release.release_question import MetricTable, ReleaseMetric, ReleaseQuestion
from steptime.verify.release.sequential import sample_ratio, sequential_gain
from steptime.verify.values import Outcome, QualityCheck

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from steptime.verify.model.two_arms import Codes

    Mask = NDArray[np.bool_]

LEAST_ROWS = 30
"""Of an arm: below it, an interval of the normal distribution is too narrow."""


_LIBRARIES = ("pyarrow", "scipy", "statsmodels", "ville")


@dataclass(slots=True)
class _Read:
    """What tables say; `missing` is the rows that a metric lacks to be judged at all."""

    measured: dict[str, SignedGain] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    checks: list[QualityCheck] = field(default_factory=list)


def read_question(path: Path) -> ReleaseQuestion:
    """Return what a release file asks, with what its tables and its ledger say.

    Raises:
        NotFoundError: the file, a table or a document is not there.
        UsageError: a key, a column or an arm is missing or wrong, or a document holds no verdict.
        DataError: a table or the ledger is damaged, or holds what cannot be judged.
        MissingExtraError: the extra `verify-model` is not installed.
    """
    if absent := [name for name in _LIBRARIES if find_spec(name) is None]:
        what = f"Judging a release needs {absent[0]}, which is not installed."
        raise MissingExtraError(what, needs="steptime[verify-model]")
    file, folder, read = read_release(path), path.parent, _Read()
    ledger = () if file.erosion is None else read_ledger(folder / file.erosion.ledger)
    for asked in file.tables:
        metrics = [one for one in file.metrics if one.table == asked.name]
        with opened(folder / asked.path) as table:
            if asked.effects:
                _read_effects(table, metrics, read)
            else:
                _read_rows(table, asked, metrics, read)
    read.checks += [_document(folder / name) for name in file.documents]
    return ReleaseQuestion(
        file=file,
        measured=read.measured,
        missing=read.missing,
        experiments=read_experiments(file, folder),
        checks=tuple(read.checks),
        ledger=tuple(one for one in ledger if one.release != file.release),
    )


def _read_effects(table: pa.Table, metrics: Iterable[ReleaseMetric], read: _Read) -> None:
    rows = effect_rows(table)
    for metric in metrics:
        name = metric.column or metric.name
        found = [row for row in rows if row.metric == name]
        if len(found) != 1:
            raise DataError(f"there are {len(found)} effects of `{name}`; it must have one.")
        read.measured[metric.name] = found[0].gain(metric)


# -- rows


def _read_rows(
    table: pa.Table, asked: MetricTable, metrics: Iterable[ReleaseMetric], read: _Read
) -> None:
    if asked.order is not None:
        needed_column(table, asked.order)
        table = table.sort_by(asked.order)
    is_candidate = _candidates(table, asked)
    nums = (int((~is_candidate).sum()), int(is_candidate.sum()))
    has_ids = asked.paired or asked.id in table.column_names
    ids = _codes(table, asked.id) if has_ids else None
    groups = None if asked.group is None else _codes(table, asked.group)
    if not asked.paired:  # whose arms have the same ids, or it is refused
        read.checks.append(sample_ratio(*nums, share=asked.candidate_share, of=asked.name))
    for metric in metrics:
        _check_unit(metric, asked)
        if min(nums) < LEAST_ROWS:
            read.missing[metric.name] = sum(max(0, LEAST_ROWS - num) for num in nums)
            continue
        scores = metric.sign * numbers_of(table, metric.column or metric.name)
        if (abs(scores) > LARGEST).any():
            told = f"NonFiniteMetric: `{metric.name}` has values that are larger than {LARGEST:g}"
            raise DataError(f"{told}, whose squares are too large to be summed.")
        arms = (
            ArmRows(
                scores=scores[None, arm],
                ids=None if ids is None else ids[arm],
                groups=None if groups is None else groups[arm],
            )
            for arm in (~is_candidate, is_candidate)
        )
        joined = join(*arms, must_pair=asked.paired)  # which checks the scores and ids, too
        if asked.online:
            units, share = is_candidate.astype(float), asked.candidate_share
            read.measured[metric.name] = sequential_gain(scores, units, share=share)
        else:
            read.measured[metric.name] = gain_of(joined, sign=1.0)


def _codes(table: pa.Table, name: str) -> Codes:
    """Return numbers that are equal where the values of a column are (num_rows,)."""
    found = ids_of([needed_column(table, name)])
    assert found is not None
    codes: Codes = found[0]
    return codes


def _candidates(table: pa.Table, asked: MetricTable) -> Mask:
    """Return which rows are of the candidate (num_rows,).

    Raises:
        UsageError: there are not two arms, or none of them is the reference.
    """
    found = codes_of([needed_column(table, asked.arm)])
    assert found is not None
    (codes,), values = found
    if len(values) != 2 or asked.reference_arm not in values:
        told = ", ".join(f"`{one}`" for one in values[:5])
        raise UsageError(
            f"`{asked.arm}` has the values {told}; a comparison is of two arms, of which one is "
            f"the reference, `{asked.reference_arm}`.",
            hint="Name the column with `arm`, and the reference with `reference_arm`; leave other "
            "arms out of the file.",
        )
    is_candidate: Mask = codes != values.index(asked.reference_arm)
    return is_candidate


def _check_unit(metric: ReleaseMetric, asked: MetricTable) -> None:
    if None not in (metric.unit, asked.unit) and metric.unit != asked.unit:
        raise DataError(
            f"UnitMismatch: `{metric.name}` is per {metric.unit}, and a row of `{asked.name}` is "
            f"one {asked.unit}.",
            hint=f"Make a table with a row for each {metric.unit}, or with its effect.",
        )


# -- documents


def _document(path: Path) -> QualityCheck:
    """Return the verdict of a document that a command wrote with `--json`."""
    try:
        found: Any = msgspec.json.decode(read_regular(path))
        command, outcome = str(found["command"]), Outcome(found["data"]["outcome"])
    except FileNotFoundError as error:
        raise NotFoundError(f"documents: there is no file `{path}`.") from error
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise UsageError(
            f"documents: `{path}` holds no verdict: {error!r}.",
            hint="Write one: steptime verify model ... --json FILE",
        ) from error
    return QualityCheck(name="document", outcome=outcome, detail=f"{command}: {path.name}")
