"""CSV: parsed by Arrow when it is opened, and held in memory by column. Source: RFC 4180."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv

from steptime.data.source import Column, Values
from steptime.data.sources.file_object import file_object
from steptime.data.sources.formats.arrow_values import columns_of, values_of
from steptime.data.sources.shards import ending_of, find_shards, name_of_set
from steptime.data.stored_bytes import DamagedBytesError, StoredBytes, StoredPlace, read_exactly
from steptime.errors import DataError

DELIMITERS = ",\t;|"
DELIMITERS_BY_NAME = {".csv": None, ".tsv": "\t", ".tab": "\t"}
"""Endings of names; None: the first lines tell."""
FIRST_BYTES = 64 << 10
"""Bytes from which the delimiter and the names are told."""
WHOLE = r"^[+-]?\d{16,}$"
BLOCK_BYTES = 16 << 20
"""Parsed at once; a row has less."""


class CSVForm(NamedTuple):
    """How files of rows are read."""

    shards: tuple[StoredPlace, ...]
    delimiter: str | None
    header: bool | None


class CSVReader:
    """See the module."""

    reads_in_flight = 0

    def __init__(self, form: CSVForm, wanted: tuple[str, ...] | None) -> None:
        self.name = name_of_set("CSV", form.shards)
        opened = [shard.stored() for shard in form.shards]
        self.num_bytes = sum(stored.size for stored in opened)
        _check_memory(form.shards[0].where, self.num_bytes)
        if form.header is None:
            form = form._replace(header=_has_header(opened[0], form))
        self._form = form
        tables = [_parsed(stored, form) for stored in opened]
        for stored, table in zip(opened, tables, strict=True):
            if table.column_names != tables[0].column_names:
                raise DataError(f"{stored.name} has other columns than {opened[0].name}")
            stored.close()
        self._starts = np.cumsum([0, *(len(table) for table in tables)], dtype=np.int64)
        rows = pa.concat_tables(tables, promote_options="permissive")
        self.columns: tuple[Column, ...] = columns_of(rows.schema, opened[0].name, wanted)
        self._rows = rows.select([column.name for column in self.columns]).combine_chunks()

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._rows)

    def read(self, indices: NDArray[np.int64]) -> dict[str, Values]:
        """Take rows."""
        return values_of(self._rows.take(pa.array(indices)), self.columns)

    def place_of(self, index: int) -> str:
        """Return file and row, the first below the header being 0."""
        shard = int(np.searchsorted(self._starts, index, side="right")) - 1
        return f"{self._form.shards[shard].where}, row {index - int(self._starts[shard])}"

    def index(self) -> CSVForm:
        """Return how the files are read."""
        return self._form

    def close(self) -> None:
        """Let go of the rows."""
        self._rows = self._rows.slice(0, 0)


def open_csv(
    place: StoredPlace,
    index: CSVForm | None,
    *,
    split: str | None = None,
    columns: tuple[str, ...] | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
) -> CSVReader:
    """Open a file or a folder of shards that have the same columns.

    Args:
        place: the file or folder.
        index: how the files are read, if that is known.
        split: the split to take, where names of shards tell several.
        columns: the columns to read; None for all.
        delimiter: what separates values; None tells it by the first lines.
        header: whether the first line has the names; None: its values are no numbers, and those
            of a column below it are. Anything else is asked for.
    """
    if index is None:
        shards = find_shards(place, split, tuple(DELIMITERS_BY_NAME))
        index = CSVForm(tuple(shards), delimiter, header)
    return CSVReader(index, None if columns is None else tuple(columns))


open_csv_with_header = partial(open_csv, header=True)
open_csv_without_header = partial(open_csv, header=False)


def _check_memory(where: str, num_bytes: int) -> None:
    free = psutil.virtual_memory().available
    if num_bytes > free:
        what = f"{num_bytes:,} bytes of rows would be held in memory, and {free:,} bytes are free"
        hint = "Write it as Parquet by pyarrow.csv.open_csv and pyarrow.parquet.ParquetWriter."
        raise DataError(f"{where}: {what}", hint=hint)


def _check_quotes(stored: StoredBytes) -> None:
    """Arrow takes all rows behind a quote that is not closed for one value."""
    begins = range(0, stored.size, BLOCK_BYTES)
    if sum(stored.read_at(begin, BLOCK_BYTES).count(b'"') for begin in begins) % 2:
        raise DamagedBytesError("a quote is opened and not closed: the file is damaged or cut off")


def _parsed(stored: StoredBytes, form: CSVForm) -> pa.Table:
    try:
        start = _start(stored)
        delimiter = _delimiter(stored, form, start)
        names = _names(start, delimiter, has_header=bool(form.header))
        _check_quotes(stored)
        reads = arrow_csv.ReadOptions(
            use_threads=False,  # so that an error has the number of its row
            block_size=BLOCK_BYTES,
            column_names=names,
            skip_rows_after_names=int(bool(form.header)),
        )
        parses = arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
        table = arrow_csv.read_csv(file_object(stored), reads, parses)
        if large := [name for name in names if _is_rounded(table[name])]:
            as_text = arrow_csv.ConvertOptions(column_types=dict.fromkeys(large, pa.string()))
            exact = arrow_csv.read_csv(file_object(stored), reads, parses, as_text)
            whole = [n for n in large if pc.any(pc.match_substring_regex(exact[n], WHOLE)).as_py()]
            for name in whole:
                table = table.set_column(names.index(name), name, exact[name])
    except (OSError, ValueError, pa.ArrowException, csv.Error) as error:
        raise DataError(f"{stored.name} cannot be read as CSV: {error}") from error
    text = pa.string()  # of a column whose values are all missing
    schema = [(f.name, text if f.type == pa.null() else f.type) for f in table.schema]
    return table.cast(pa.schema(schema))


def _is_rounded(column: pa.ChunkedArray) -> bool:
    """Whether float64 may not hold what a column has: Arrow takes integers of any length for it."""
    is_float = pa.types.is_floating(column.type)
    return is_float and bool(pc.any(pc.greater(pc.abs(column), 2.0**53)).as_py())


def _start(stored: StoredBytes) -> str:
    return read_exactly(stored, 0, min(stored.size, FIRST_BYTES)).decode("utf-8", "replace")


def _delimiter(stored: StoredBytes, form: CSVForm, start: str) -> str:
    by_name = DELIMITERS_BY_NAME.get(os.fsdecode(ending_of(os.fsencode(stored.name))))
    return form.delimiter or by_name or told_delimiter(start) or ","


def told_delimiter(start: str) -> str | None:
    """Return what divides each of the first lines into as many values, if anything does."""
    best, most = None, 1
    for delimiter in DELIMITERS:
        rows = csv.reader(io.StringIO(start, newline=""), delimiter=delimiter)
        first = [row for row in islice(rows, 20) if row]
        counts = {len(row) for row in first[:-1] or first}  # the last one may be cut
        if len(counts) == 1 and (count := counts.pop()) > most:
            best, most = delimiter, count
    return best


def is_text(start: bytes) -> bool:
    """Whether bytes are UTF-8, which may be cut at the end, without control characters."""
    try:
        text = start.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(start) - 3:
            return False
        text = start[: error.start].decode("utf-8")
    return bool(text.strip()) and all(c.isprintable() or c in "\ufeff\t\r\n" for c in text)


def _rows(start: str, delimiter: str) -> Iterator[list[str]]:
    return csv.reader(io.StringIO(start.removeprefix("\ufeff"), newline=""), delimiter=delimiter)


def _names(start: str, delimiter: str, *, has_header: bool) -> list[str]:
    first = next(_rows(start, delimiter), [])
    if not has_header:
        return [f"column{i}" for i in range(len(first))]
    if len(set(first)) < len(first):
        raise DamagedBytesError("its first line names a column twice")
    return first


def _has_header(stored: StoredBytes, form: CSVForm) -> bool:
    """Return True where the first line can only be names.

    Raises:
        DataError: it may be names or values.
    """
    start = _start(stored)
    try:
        delimiter = _delimiter(stored, form, start)
        first, *below = [row for row in islice(_rows(start, delimiter), 20) if row] or [[]]
    except csv.Error as error:
        raise DataError(f"{stored.name} cannot be read as CSV: {error}") from error
    columns = zip(*below[:-1] or below, strict=False)  # the last one may be cut
    if any(map(_is_value, first)):
        why = "there are numbers or missing values in it"
    elif not any(all(map(_is_value, column)) and "".join(column) for column in columns):
        why = "no column below it has numbers alone"
    else:
        return True
    raise DataError(
        f"{stored.name}: it cannot be told whether its first line names the columns: {why}: "
        f"{delimiter.join(first)[:80]!r}",
        hint="Say it: --format csv_with_header or --format csv_without_header; in Python header=.",
    )


def _is_value(text: str) -> bool:
    """Whether a text is a number, or says that a value is missing."""
    try:
        float(text)
    except ValueError:
        return text in arrow_csv.ConvertOptions().null_values
    return True
