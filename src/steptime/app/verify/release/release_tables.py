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

from steptime.app.verify.prediction_rows import RowsAsked, read_rows
from steptime.app.verify.prediction_table import column_of, needed_column
from steptime.app.verify.release.effect_tables import effect_rows, opened, read_experiments
from steptime.app.verify.release.erosion_ledger import read_ledger
from steptime.app.verify.release.release_file import read_release
from steptime.errors import DataError, MissingExtraError, NotFoundError, UsageError
from steptime.record.regular_file import read_regular
from steptime.verify.model.metrics import check_margin
from steptime.verify.model.signed_gains import SignedGain, gain_of
from steptime.verify.release.release_question import MetricTable, ReleaseMetric, ReleaseQuestion
from steptime.verify.release.sequential import sample_ratio, sequential_gain
from steptime.verify.values import Outcome, QualityCheck

if TYPE_CHECKING:
    import pyarrow as pa

    from steptime.verify.model.two_arms import Arms

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
        paths = [asked.path] if asked.path else [str(asked.reference), str(asked.candidate)]
        with opened(*(folder / one for one in paths)) as tables:
            if asked.effects:
                _read_effects(tables[0], metrics, read)
            else:
                _read_rows(tables, asked, metrics, read)
    read.checks += [_document(folder / name) for name in file.documents]
    experiments = read_experiments(file, folder)
    told = {name for one in experiments for name in one.gains}
    for metric in file.metrics:
        if metric.table is None and metric.name not in told:
            raise UsageError(
                f"`{path}`: the metric `{metric.name}` has no `table`, and no experiment has it.",
                hint="Name the table of its rows, or leave the metric out.",
            )
    return ReleaseQuestion(
        file=file,
        measured=read.measured,
        missing=read.missing,
        experiments=experiments,
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
    tables: list[pa.Table], asked: MetricTable, metrics: Iterable[ReleaseMetric], read: _Read
) -> None:
    if asked.order is not None:
        needed_column(tables[0], asked.order)
        tables = [tables[0].sort_by(asked.order)]
    nums = (0, 0)
    for metric in metrics:
        _check_unit(metric, asked)
        arms = _arms(tables, asked, metric)
        nums = (arms.reference.num, arms.candidate.num)
        both = (arms.reference.scores, arms.candidate.scores)
        check_margin(metric.column or metric.name, metric.margin, both)
        if min(nums) < LEAST_ROWS:
            read.missing[metric.name] = sum(max(0, LEAST_ROWS - num) for num in nums)
        elif asked.online:
            read.measured[metric.name] = _sequential(tables[0], asked, metric, arms)
        else:
            read.measured[metric.name] = gain_of(arms, sign=metric.sign)
    if any(nums) and not asked.paired:  # whose arms have the same ids, or it is refused
        read.checks.append(sample_ratio(*nums, share=asked.candidate_share, of=asked.name))


def _arms(tables: list[pa.Table], asked: MetricTable, metric: ReleaseMetric) -> Arms:
    """Return the rows of both arms, as a comparison of two models reads them."""
    is_one = len(tables) == 1
    if is_one:
        needed_column(tables[0], asked.arm)
    ids = column_of(tables[0], asked.id) if asked.online else None
    if ids is not None and (num := len(ids) - len(ids.unique())):
        told = f"{num:,} rows have an `{asked.id}` that stands there already"
        raise DataError(f"{told}; an `online` table has a row for each unit.")
    rows = RowsAsked(
        reference=tables[0],
        candidate=None if is_one else tables[1],
        arm=asked.arm if is_one else None,
        reference_arm=asked.reference_arm if is_one else None,
        metric=metric.column or metric.name,
        id_column="" if asked.online else asked.id,  # rows of pairs would change their order
        group=asked.group,
        must_pair=asked.paired,
    )
    return read_rows(rows).arms


def _sequential(
    table: pa.Table, asked: MetricTable, metric: ReleaseMetric, arms: Arms
) -> SignedGain:
    """Return the gain of units in the order of their arrival."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    names = pc.cast(table.column(asked.arm), pa.string())
    is_candidate = pc.not_equal(names, asked.reference_arm).to_numpy()
    scores = np.empty(len(is_candidate))
    scores[~is_candidate] = metric.sign * arms.reference.scores[0]
    scores[is_candidate] = metric.sign * arms.candidate.scores[0]
    units = is_candidate.astype(float)
    return sequential_gain(scores, units, share=asked.candidate_share)


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
