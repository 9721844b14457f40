"""Reads the rows of both arms from tables, column by column.

In: files of CSV, Parquet, Arrow or JSON Lines. Out: `Arms` with the values of each slice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steptime.errors import DataError, MissingExtraError, NotFoundError, UsageError
from steptime.verify.model.two_arms import ArmRows, Arms, join

if TYPE_CHECKING:
    import pyarrow as pa

ACCURACY, BRIER, LOG_LOSS = "accuracy", "brier", "log_loss"
ABSOLUTE, SQUARED = "absolute_error", "squared_error"
BETTER_DOWN = frozenset({BRIER, LOG_LOSS, ABSOLUTE, SQUARED, "loss", "error"})
"""Metrics of which less is better, by their names."""

LABEL, PREDICTION, PROBABILITY = "label", "prediction", "probability"
_NEEDS: Mapping[str, tuple[str, ...]] = {
    ACCURACY: (LABEL, PREDICTION),
    BRIER: (LABEL, PROBABILITY),
    LOG_LOSS: (LABEL, PROBABILITY),
    ABSOLUTE: (LABEL, PREDICTION),
    SQUARED: (LABEL, PREDICTION),
}
_LEAST = 1e-15
"""A probability is kept this far from 0 and 1, as scikit-learn keeps it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsAsked:
    """Where the rows are.

    Attributes:
        reference, candidate: a file for each arm; `reference` alone where one file has both.
        arm: the column that names the arm of a row, where one file has both.
        reference_arm: the value of that column that is the reference; None for the first row's.
        metric: a column of numbers, or `accuracy`, `brier`, `log_loss`, `absolute_error` or
            `squared_error` of the columns `label` and `prediction` or `probability`.
        id_column: the column that tells a row from the others.
        slices: the columns by which the rows are split.
        must_pair: refuse arms that were not scored on the same rows.
    """

    reference: Path
    candidate: Path | None = None
    arm: str | None = None
    reference_arm: str | None = None
    metric: str
    id_column: str = "id"
    slices: Sequence[str] = ()
    must_pair: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsFound:
    """The arms, the values of each slice column by code, their names, and what was assumed."""

    arms: Arms
    columns: Mapping[str, tuple[str, ...]]
    reference_arm: str
    candidate_arm: str
    notes: tuple[str, ...] = ()


def read_rows(asked: RowsAsked) -> RowsFound:
    """Return the rows of both arms, joined by id where they have the same ids.

    Raises:
        NotFoundError: a file is not there.
        UsageError: a column is missing, or there are not two arms.
        DataError: a file cannot be read, or holds no numbers where the metric is.
        MissingExtraError: pyarrow is not installed.
    """
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            "Reading tables of predictions needs pyarrow, which is not installed.",
            needs="steptime[verify-model]",
        ) from error
    notes = list[str]()
    tables, names = arm_tables(asked, notes)
    ids = _codes([_ids(table, asked) for table in tables])
    slices = {name: _codes([table.column(name) for table in tables]) for name in asked.slices}
    rows = [
        ArmRows(
            row_scores(table, asked.metric),
            None if ids is None else ids[0][i],
            {name: found[0][i] for name, found in slices.items() if found is not None},
        )
        for i, table in enumerate(tables)
    ]
    return RowsFound(
        arms=join(rows[0], rows[1], must_pair=asked.must_pair),
        columns={name: found[1] for name, found in slices.items() if found is not None},
        reference_arm=names[0],
        candidate_arm=names[1],
        notes=tuple(notes),
    )


def arm_tables(
    asked: RowsAsked, notes: list[str], *, others: Sequence[str] = ()
) -> tuple[list[pa.Table], tuple[str, str]]:
    """Return the table of each arm and its name; `others` are columns to read if they are there."""
    if asked.candidate is None:
        whole = _table(asked.reference, asked, needs_arm=True, others=others)
        return _arms_of(whole, asked, notes)
    paths = (asked.reference, asked.candidate)
    tables = [_table(path, asked, needs_arm=False, others=others) for path in paths]
    return tables, (asked.reference.stem, asked.candidate.stem)


def _table(
    path: Path, asked: RowsAsked, *, needs_arm: bool, others: Sequence[str] = ()
) -> pa.Table:
    """Read the columns that are needed of one file."""
    wanted = [*_NEEDS.get(asked.metric, (asked.metric,)), *asked.slices]
    wanted += [str(asked.arm)] if needs_arm else []
    table = load_table(path, [*wanted, asked.id_column, *others])
    missing = [name for name in wanted if name not in table.column_names]
    if missing:
        known = ", ".join(f"`{name}`" for name in table.column_names)
        raise UsageError(
            f"`{path}` has no column {', '.join(f'`{name}`' for name in missing)}; it has {known}.",
            hint="--metric names a column of numbers, or accuracy, brier or log_loss.",
        )
    return table


def load_table(path: Path, wanted: Sequence[str] | None = None) -> pa.Table:
    """Read a file; of Parquet, only the columns that are wanted, where these are named."""
    import pyarrow as pa
    from pyarrow import csv, feather, json, parquet

    if not path.is_file():
        raise NotFoundError(f"there is no file `{path}`.", hint="Name a table of predictions.")
    try:
        kind = path.suffix.lower()
        if kind in (".parquet", ".pq"):
            known = parquet.read_schema(path).names
            chosen = [name for name in known if wanted is None or name in wanted]
            table = parquet.read_table(path, columns=chosen)
        elif kind in (".arrow", ".feather", ".ipc"):
            table = feather.read_table(path)
        elif kind in (".jsonl", ".ndjson"):
            table = json.read_json(path)
        else:
            table = csv.read_csv(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"`{path}` cannot be read as a table: {error}") from error
    return table


def _arms_of(
    table: pa.Table, asked: RowsAsked, notes: list[str]
) -> tuple[list[pa.Table], tuple[str, str]]:
    """Split one table by the column of its arms."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = pc.cast(table.column(str(asked.arm)), pa.string())
    arms = [value for value in pc.unique(column).to_pylist() if value is not None]
    if len(arms) != 2:
        raise UsageError(
            f"`{asked.arm}` has {len(arms)} values ({', '.join(map(str, arms[:5]))}); a comparison "
            "is of two arms.",
            hint="Name the column with --arm, and leave other arms out of the file.",
        )
    first = asked.reference_arm
    if first is None:
        first = arms[0]
        notes.append("reference_is_first")
    if first not in arms:
        raise UsageError(f"`{asked.arm}` has no value `{first}`; it has {' and '.join(arms)}.")
    second = next(one for one in arms if one != first)
    return [table.filter(pc.equal(column, name)) for name in (first, second)], (first, second)


def _ids(table: pa.Table, asked: RowsAsked) -> Any:
    return table.column(asked.id_column) if asked.id_column in table.column_names else None


def _codes(columns: Sequence[Any]) -> tuple[list[Any], tuple[str, ...]] | None:
    """Return the same codes for equal values of both arms, and the value of each code."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if any(column is None for column in columns):
        return None
    texts = [pc.fill_null(pc.cast(column, pa.string()), "(none)") for column in columns]
    whole = pa.chunked_array([chunk for text in texts for chunk in text.chunks], pa.string())
    coded = whole.combine_chunks().dictionary_encode()
    coded = coded.chunk(0) if isinstance(coded, pa.ChunkedArray) else coded
    indices = coded.indices.to_numpy(zero_copy_only=False).astype("int64")
    num = len(texts[0])
    return [indices[:num], indices[num:]], tuple(coded.dictionary.to_pylist())


def row_scores(table: pa.Table, metric: str) -> Any:
    """Return the metric of each row as a number."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if metric in table.column_names:
        return _numbers(table, metric)
    label = table.column(LABEL)
    if metric == ACCURACY:
        same = pc.equal(pc.cast(label, pa.string()), pc.cast(table.column(PREDICTION), pa.string()))
        return pc.cast(same, pa.float64()).to_numpy(zero_copy_only=False)
    y = _numbers(table, LABEL)
    if metric in (ABSOLUTE, SQUARED):
        off = np.abs(_numbers(table, PREDICTION) - y)
        return off if metric == ABSOLUTE else off**2
    p = _numbers(table, PROBABILITY)
    if not bool(((p >= 0) & (p <= 1)).all()):
        raise DataError("ProbabilitiesInvalid: `probability` is not between 0 and 1 in each row.")
    if metric == BRIER:
        return (p - y) ** 2
    p = np.clip(p, _LEAST, 1 - _LEAST)
    return -(y * np.log(p) + (1 - y) * np.log(1 - p))


def _numbers(table: pa.Table, name: str) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        column = pc.cast(table.column(name), pa.float64())
    except pa.ArrowException as error:
        raise DataError(f"`{name}` holds something that is no number: {error}") from error
    return column.to_numpy()
