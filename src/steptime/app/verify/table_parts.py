"""Reads tables part by part, so that tables larger than the memory can be compared.

In: two tables. Out: the rows of each as `RowPart`, with the same features in the same order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steptime.app.verify.prediction_table import read_table
from steptime.errors import DataError, NotFoundError, UsageError
from steptime.verify.model.leaks import RowPart, find_leaks
from steptime.verify.values.leak_results import LeakVerdict

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 262_144
"""Of a part: some tens of MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The columns to read: those of numbers, those of text, and the id."""

    numbers: Sequence[str]
    texts: Sequence[str]
    id_column: str | None


def compare_tables(
    train: Path, evaluation: Path, *, id_column: str, without: Collection[str]
) -> LeakVerdict:
    """Return which rows of the evaluation stand in the training.

    Args:
        train: the table of the training.
        evaluation: that of the evaluation.
        id_column: the column of the ids, where both have it.
        without: columns that are no features.

    Raises:
        NotFoundError: there is no such file.
        UsageError: the tables share neither a feature nor the id.
        DataError: a file cannot be read, or has no rows.
    """
    one, other = schema_of(train), schema_of(evaluation)
    shared = [name for name in one.names if name in other.names and name not in without]
    has_ids = id_column in one.names and id_column in other.names
    features = [name for name in shared if name != id_column]
    if not features and not has_ids:
        raise UsageError(
            f"`{train}` and `{evaluation}` share neither a feature nor the column `{id_column}`.",
            hint="--inputs names the table with the features of the evaluation rows.",
        )
    numbers = [
        name for name in features if all(_is_number(s.field(name).type) for s in (one, other))
    ]
    texts = [name for name in features if name not in numbers]
    asked = _Asked(numbers=numbers, texts=texts, id_column=id_column if has_ids else None)
    return find_leaks(_parts(train, asked), _parts(evaluation, asked), [*numbers, *texts])


def schema_of(path: Path) -> pa.Schema:
    """Return the names and types of the columns of a table."""
    return next(iter(_batches(path, None)))[0]


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    )


def _parts(path: Path, asked: _Asked) -> Iterator[RowPart]:
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = [*asked.numbers, *asked.texts, *([asked.id_column] if asked.id_column else [])]
    for _, batch in _batches(path, wanted):
        if batch is None:
            continue
        try:
            columns = [
                pc.cast(
                    batch.column(name), pa.float32() if _is_bool(batch, name) else pa.float64()
                ).to_numpy(zero_copy_only=False)
                for name in asked.numbers
            ]
            columns += [_texts(batch.column(name)) for name in asked.texts]
            ids = _texts(batch.column(asked.id_column)) if asked.id_column else None
        except pa.ArrowException as error:
            raise DataError(f"a column of `{path}` is neither numbers nor text: {error}") from error
        yield RowPart(columns=columns, ids=ids)


def _is_bool(batch: pa.RecordBatch, name: str) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_boolean(batch.column(name).type))


def _texts(column: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.fill_null(pc.cast(column, pa.string()), "").to_numpy(zero_copy_only=False)


def _batches(
    path: Path, wanted: Sequence[str] | None
) -> Iterator[tuple[pa.Schema, pa.RecordBatch | None]]:
    """Yield the schema, then each part of the columns that are wanted; all for None."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    if not path.is_file():
        raise NotFoundError(f"there is no file `{path}`.", hint="Name a table.")
    kind = path.suffix.lower()
    try:
        if kind in (".parquet", ".pq"):
            with parquet.ParquetFile(path) as file:
                yield file.schema_arrow, None
                for batch in file.iter_batches(batch_size=_ROWS, columns=wanted):
                    yield batch.schema, batch
        elif kind == ".csv":
            options = csv.ConvertOptions(include_columns=wanted or [])
            with csv.open_csv(path, convert_options=options) as reader:
                yield reader.schema, None
                for batch in reader:
                    yield batch.schema, batch
        else:
            table = read_table(path, None if wanted is None else set(wanted))
            yield table.schema, None
            for batch in table.to_batches(max_chunksize=_ROWS):
                yield batch.schema, batch
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"`{path}` cannot be read as a table: {error}") from error
