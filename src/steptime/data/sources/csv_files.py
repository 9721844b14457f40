"""CSV: rows of text, found by the ends of their lines and parsed when they are read.

Where the rows begin is noted once (eight bytes a row); a line's end inside quotes is none. Types
are those that Arrow tells from the first rows. Source: RFC 4180.
"""

from __future__ import annotations

import csv
import io
from itertools import islice
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv

from steptime.data.source import Column, Values
from steptime.data.sources.arrow_values import columns_of, values_of
from steptime.data.sources.record_shards import RecordIndex, join_index, read_records
from steptime.data.sources.shards import OpenShards, find_shards
from steptime.data.stored_bytes import DamagedBytesError, StoredBytes, StoredPlace, read_exactly
from steptime.errors import DataError

DELIMITERS = ",\t;|"
CHUNK_BYTES = 8 << 20
TOLD_BYTES = 16 << 20
"""Rows from which the types of the columns are told."""
MAX_LINE_BYTES = 256 << 20


class CSVIndex(NamedTuple):
    """Where the rows lie, and what they have."""

    records: RecordIndex
    schema: pa.Schema
    delimiter: str


class CSVReader:
    """See the module."""

    name = "CSV"

    def __init__(self, index: CSVIndex, wanted: tuple[str, ...] | None) -> None:
        self._index = index
        self._shards = OpenShards(index.records.shards)
        where = index.records.shards[0].where
        self.columns: tuple[Column, ...] = columns_of(index.schema, where, wanted)
        self.num_bytes = int(index.records.sizes.sum())

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._index.records.offsets)

    def read(self, indices: NDArray[np.int64]) -> dict[str, Values]:
        """Read and parse rows."""
        lines = [bytes(r) for r in read_records(self._shards, self._index.records, indices)]
        text = b"".join(line if line.endswith(b"\n") else line + b"\n" for line in lines)
        table = parse_rows(text, self._index.delimiter, self._index.schema)
        wanted = [column.name for column in self.columns]
        return values_of(table.select(wanted), self.columns)

    def place_of(self, index: int) -> str:
        """Return file and row, the first below the header being 0."""
        return self._index.records.place_of(index)

    def index(self) -> CSVIndex:
        """Return where the rows lie."""
        return self._index

    def close(self) -> None:
        """Close the files."""
        self._shards.close()


def open_csv(
    place: StoredPlace,
    index: CSVIndex | None,
    *,
    split: str | None = None,
    columns: tuple[str, ...] | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
) -> CSVReader:
    """Open a file or a folder of shards that have the same columns.

    Args:
        place: the file or folder.
        index: where the rows lie, if that is known.
        split: the split to take, where names of shards tell several.
        columns: the columns to read; None for all.
        delimiter: what separates values; None tells it by the first lines.
        header: whether the first line has the names; None: where none of it is a number.
    """
    if index is None:
        index = _find_rows(find_shards(place, split, (".csv", ".tsv")), delimiter, header=header)
    return CSVReader(index, None if columns is None else tuple(columns))


def parse_rows(text: bytes, delimiter: str, schema: pa.Schema) -> pa.Table:
    """Return rows as columns of the types that the schema has; no header."""
    return arrow_csv.read_csv(
        pa.BufferReader(text),
        arrow_csv.ReadOptions(
            use_threads=False, column_names=schema.names, block_size=max(len(text), 1) + 1
        ),
        arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        arrow_csv.ConvertOptions(column_types={f.name: f.type for f in schema}),
    )


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


def is_csv(start: bytes) -> bool:
    """Whether bytes are text whose lines have as many values each."""
    if not start or b"\0" in start:
        return False
    try:
        text = start.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(start) - 3:
            return False
        text = start[: error.start].decode("utf-8")
    is_text = all(c.isprintable() or c in "\t\r\n" for c in text)
    try:
        return is_text and "\n" in text and told_delimiter(text) is not None
    except csv.Error:
        return False


def _find_rows(
    shards: list[StoredPlace], delimiter: str | None, *, header: bool | None
) -> CSVIndex:
    found, schema = [], None
    for shard in shards:
        try:
            stored = shard.stored()
            begins = line_begins(stored)
            start = read_exactly(stored, 0, min(stored.size, TOLD_BYTES)).decode("utf-8", "replace")
            delimiter = delimiter or told_delimiter(start[: 1 << 16]) or ","
            names, has_header = _names(start, delimiter, header=header)
            rows = begins[int(has_header) :]
            own = _schema(stored, rows, names, delimiter)
            stored.close()
        except (OSError, ValueError, pa.ArrowException, csv.Error) as error:
            raise DataError(f"{shard.where} cannot be read as CSV: {error}") from error
        schema = own if schema is None else schema
        if own.names != schema.names:
            raise DataError(f"{shard.where} has other columns than {shards[0].where}")
        found.append((rows[:-1], np.diff(rows)))
    if schema is None or delimiter is None:
        raise DataError("there are no shards")
    return CSVIndex(join_index(shards, found), schema, delimiter)


def line_begins(stored: StoredBytes) -> NDArray[np.int64]:
    """Return where each row begins, and the end of the file; empty lines are no rows."""
    parts, quotes, at = [np.zeros(1, np.int64)], 0, 0
    while at < stored.size:
        chunk = np.frombuffer(stored.read_at(at, CHUNK_BYTES), np.uint8)
        if not len(chunk):
            raise DamagedBytesError("the file has become shorter")
        ends = np.flatnonzero(chunk == 10)
        marks = np.flatnonzero(chunk == 34)
        before = quotes + np.searchsorted(marks, ends)
        parts.append(ends[before % 2 == 0] + (at + 1))
        quotes += len(marks)
        at += len(chunk)
    if quotes % 2:
        raise DamagedBytesError("a quote is opened and not closed: the file is damaged or cut off")
    begins = np.concatenate([*parts, [stored.size]])
    sizes = np.diff(begins)
    if len(sizes) and sizes.max() > MAX_LINE_BYTES:
        raise DamagedBytesError(f"a row has {sizes.max():,} bytes")
    is_row = sizes > 2
    short = np.flatnonzero(~is_row & (sizes > 0))
    for row in short.tolist():  # an empty line, or a short row
        is_row[row] = bool(stored.read_at(int(begins[row]), int(sizes[row])).strip(b"\r\n"))
    return np.concatenate([begins[:-1][is_row], begins[-1:]])


def _names(start: str, delimiter: str, *, header: bool | None) -> tuple[list[str], bool]:
    first = next(csv.reader(io.StringIO(start.removeprefix("\ufeff")), delimiter=delimiter), [])
    has_header = header if header is not None else not any(_is_number(value) for value in first)
    if not has_header:
        return [f"column{i}" for i in range(len(first))], False
    if len(set(first)) < len(first):
        raise DamagedBytesError("its first line names a column twice")
    return first, True


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _schema(
    stored: StoredBytes, rows: NDArray[np.int64], names: list[str], delimiter: str
) -> pa.Schema:
    if len(rows) < 2:
        return pa.schema([(name, pa.string()) for name in names])
    last = int(np.searchsorted(rows, rows[0] + TOLD_BYTES)) - 1
    end = int(rows[max(min(last, len(rows) - 1), 1)])
    data = read_exactly(stored, int(rows[0]), end - int(rows[0]))
    read = arrow_csv.ReadOptions(
        use_threads=False, column_names=names, block_size=max(len(data), 1) + 1
    )
    parse = arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    schema = arrow_csv.read_csv(pa.BufferReader(data), read, parse).schema
    text = pa.string()  # of a column whose first values are all missing
    return pa.schema([(f.name, text if f.type == pa.null() else f.type) for f in schema])
