"""Reads the columns of a table: CSV, Parquet, Arrow or JSON Lines.

In: a file. Out: columns of numbers, texts and codes, or one clear error that names file and column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steptime.errors import DataError, MissingExtraError, NotFoundError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from steptime.verify.model.two_arms import Codes, Floats

NO_VALUE = "(none)"


@dataclass(frozen=True, slots=True)
class TableColumns:
    """A table that was read; `path` is its file."""

    path: Path
    table: pa.Table

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.table.num_rows)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns."""
        return tuple(self.table.column_names)

    def numbers(self, name: str) -> Floats:
        """Return a column as numbers (num_rows,); what is missing is not a number.

        Raises:
            DataError: it holds something else.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        self.need([name])
        try:
            column: Any = pc.cast(self.table.column(name), pa.float64())
        except pa.ArrowException as error:
            raise DataError(
                f"`{name}` of `{self.path}` holds something that is no number: {error}"
            ) from error
        found: Floats = column.to_numpy()
        return found

    def texts(self, name: str) -> list[str]:
        """Return a column as texts; what is missing is `(none)`."""
        codes, values = self.codes(name)
        return [values[code] for code in codes.tolist()]

    def codes(self, name: str) -> tuple[Codes, tuple[str, ...]]:
        """Return the code of each row's value (num_rows,), and the value of each code."""
        import pyarrow as pa
        import pyarrow.compute as pc

        self.need([name])
        texts = pc.fill_null(pc.cast(self.table.column(name), pa.string()), NO_VALUE)
        coded = texts.combine_chunks().dictionary_encode()
        coded = coded.chunk(0) if isinstance(coded, pa.ChunkedArray) else coded
        indices: Codes = coded.indices.to_numpy(zero_copy_only=False).astype("int64")
        return indices, tuple(coded.dictionary.to_pylist())

    def need(self, names: Sequence[str]) -> None:
        """Check that the columns are there.

        Raises:
            UsageError: one is missing.
        """
        missing = ", ".join(f"`{name}`" for name in names if name not in self.names)
        if missing:
            known = ", ".join(f"`{name}`" for name in self.names)
            raise UsageError(f"`{self.path}` has no column {missing}; it has {known}.")


def read_columns(path: Path) -> TableColumns:
    """Return the table of a file.

    Raises:
        NotFoundError: the file is not there.
        DataError: it cannot be read as a table, or has no rows.
        MissingExtraError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        from pyarrow import csv, feather, json, parquet
    except ImportError as error:
        raise MissingExtraError(
            "Reading tables needs pyarrow, which is not installed.",
            needs="steptime[verify-model]",
        ) from error
    if not path.is_file():
        raise NotFoundError(f"there is no file `{path}`.", hint="Name a table.")
    readers = {
        **dict.fromkeys((".parquet", ".pq"), parquet.read_table),
        **dict.fromkeys((".arrow", ".feather", ".ipc"), feather.read_table),
        **dict.fromkeys((".jsonl", ".ndjson"), json.read_json),
    }
    try:
        table = readers.get(path.suffix.lower(), csv.read_csv)(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"`{path}` cannot be read as a table: {error}") from error
    if not table.num_rows:
        raise DataError(f"EmptySlice: `{path}` has no rows.")
    return TableColumns(path, table)
