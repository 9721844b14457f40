"""Opens tables of predictions, whatever they are kept in, and hands on their columns.

In: a file of CSV, Parquet, Arrow, JSON Lines or NumPy, or a table in memory. Out: columns of
numbers, and codes of equal values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

from steptime.errors import DataError, NotFoundError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from steptime.verify.model.two_arms import Floats


def read_table(source: Any, useful: set[str] | None) -> pa.Table:
    """Return a table; of a file that allows it, the useful columns alone.

    Args:
        source: a file, a table of pyarrow or pandas, a mapping of arrays, or a function that
            returns one of these.
        useful: the columns that are read; None for all.

    Raises:
        NotFoundError: the file is not there.
        DataError: it cannot be read as a table.
    """
    found = _read(source() if callable(source) else source, useful)
    twice = [name for name, num in Counter(found.column_names).items() if num > 1]
    if twice:
        where = f"`{source}`" if isinstance(source, Path) else "the table"
        raise DataError(f"{where} has more than one column `{twice[0]}`.")
    return found


def _read(source: Any, useful: set[str] | None) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv, feather, json, parquet

    if not isinstance(source, Path):
        return _in_memory(source)
    if not source.is_file():
        raise NotFoundError(f"there is no file `{source}`.", hint="Name a table.")
    try:
        kind = source.suffix.lower()
        if kind in (".parquet", ".pq"):
            known = parquet.read_schema(source).names
            chosen = known if useful is None else [name for name in known if name in useful]
            return parquet.read_table(source, columns=chosen)
        if kind in (".arrow", ".feather", ".ipc"):
            return feather.read_table(source)
        if kind in (".jsonl", ".ndjson"):
            return json.read_json(source)
        if kind in (".npz", ".npy"):
            return _in_memory(_arrays(source))
        return csv.read_csv(source)
    except (pa.ArrowException, OSError, ValueError, EOFError, BadZipFile) as error:
        raise DataError(f"`{source}` cannot be read as a table: {error}") from error


def _arrays(source: Path) -> Mapping[str, Any]:
    """Read the arrays of a file of NumPy: named ones, or the fields of one."""
    import numpy as np

    found = np.load(source, allow_pickle=False)
    if source.suffix.lower() == ".npz":
        return dict(found)
    return {name: found[name] for name in found.dtype.names or ()}


def _in_memory(source: Any) -> pa.Table:
    import pyarrow as pa

    try:
        if isinstance(source, pa.Table):
            return source
        if isinstance(source, Mapping):
            return pa.table(dict(source))
        return pa.Table.from_pandas(source, preserve_index=False)
    except (pa.ArrowException, AttributeError, TypeError, ValueError) as error:
        raise DataError(f"the rows are no table: {error}") from error


def column_of(table: pa.Table, name: str | None) -> Any:
    """Return a column; None where there is none of that name."""
    return None if name is None or name not in table.column_names else table.column(name)


def needed_column(table: pa.Table, name: str) -> Any:
    """Return a column.

    Raises:
        UsageError: there is none of that name.
    """
    if name in table.column_names:
        return table.column(name)
    known = ", ".join(f"`{one}`" for one in table.column_names)
    raise UsageError(f"there is no column `{name}`; the table has {known}.")


def ids_of(columns: Sequence[Any]) -> list[Any] | None:
    """Return numbers that are equal where ids are; whole numbers are their own."""
    import pyarrow as pa

    if any(column is None for column in columns):
        return None
    if all(pa.types.is_integer(column.type) and not column.null_count for column in columns):
        return [column.to_numpy() for column in columns]
    found = codes_of(columns)
    return None if found is None else found[0]


def codes_of(columns: Sequence[Any]) -> tuple[list[Any], tuple[str, ...]] | None:
    """Return the same codes for equal values of all columns, and the value of each code."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if any(column is None for column in columns):
        return None
    texts = [pc.fill_null(pc.cast(column, pa.string()), "(none)") for column in columns]
    whole = pa.chunked_array([chunk for text in texts for chunk in text.chunks], pa.string())
    coded = whole.combine_chunks().dictionary_encode()
    coded = coded.chunk(0) if isinstance(coded, pa.ChunkedArray) else coded
    indices = coded.indices.to_numpy(zero_copy_only=False)
    ends = [0]
    for text in texts:
        ends.append(ends[-1] + len(text))
    parts = [indices[begin:end] for begin, end in pairwise(ends)]
    return parts, tuple(coded.dictionary.to_pylist())


def numbers_of(table: pa.Table, name: str) -> Floats:
    """Return a column as numbers (num_rows,).

    Raises:
        UsageError: there is no such column.
        DataError: it holds something else.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        column = pc.cast(needed_column(table, name), pa.float64())
    except pa.ArrowException as error:
        raise DataError(f"`{name}` holds something that is no number: {error}") from error
    found: Floats = column.to_numpy()
    return found
