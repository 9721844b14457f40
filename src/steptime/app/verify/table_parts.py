"""Reads tables part by part, so that tables larger than the memory can be compared.

In: two tables. Out: which rows of one stand in the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steptime.app.verify.prediction_table import read_table
from steptime.app.verify.probe_inputs import column_values
from steptime.errors import DataError, NotFoundError, UsageError
from steptime.verify.model.leaks import RowPart, find_leaks
from steptime.verify.values.leak_results import LeakVerdict

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 262_144
"""Of a part: some tens of MB."""


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
    one, other = (next(_batches(path, None)) for path in (train, evaluation))
    shared = [name for name in one.schema.names if name in other.schema.names]
    features = [name for name in shared if name not in (*without, id_column)]
    ids = [name for name in shared if name == id_column]
    if not features and not ids:
        raise UsageError(
            f"`{train}` and `{evaluation}` share neither a feature nor the column `{id_column}`.",
            hint="--inputs names the table with the features of the evaluation rows.",
        )
    texts = {
        name
        for name in shared
        if "U" in (column_values(table.column(name)[:0]).dtype.kind for table in (one, other))
    }
    parts = [_parts(path, features, ids, texts) for path in (train, evaluation)]
    return find_leaks(parts[0], parts[1], features)


def _parts(
    path: Path, features: Sequence[str], ids: Sequence[str], texts: Collection[str]
) -> Iterator[RowPart]:
    import pyarrow as pa

    for batch in _batches(path, [*features, *ids]):
        found = {
            name: batch.column(name).cast(pa.string()).fill_null("").to_numpy(zero_copy_only=False)
            if name in texts
            else column_values(batch.column(name))
            for name in batch.schema.names
        }
        yield RowPart(
            columns=[found[name] for name in features], ids=found[ids[0]] if ids else None
        )


def _batches(path: Path, wanted: Sequence[str] | None) -> Iterator[Any]:
    """Yield the parts of a table, with the columns that are wanted; at least one, if empty."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    if not path.is_file():
        raise NotFoundError(f"there is no file `{path}`.", hint="Name a table.")
    kind = path.suffix.lower()
    try:
        if kind in (".parquet", ".pq"):
            with parquet.ParquetFile(path) as file:
                yield file.schema_arrow.empty_table().select(wanted or file.schema_arrow.names)
                yield from file.iter_batches(batch_size=_ROWS, columns=wanted)
        elif kind == ".csv":
            options = csv.ConvertOptions(include_columns=wanted or [])
            with csv.open_csv(path, convert_options=options) as reader:
                yield reader.schema.empty_table()
                yield from reader
        else:
            table: pa.Table = read_table(path, None if wanted is None else set(wanted))
            yield table.slice(0, 0)
            yield from table.to_batches(max_chunksize=_ROWS)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"`{path}` cannot be read as a table: {error}") from error
