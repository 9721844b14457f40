"""JSON Lines: one JSON object a line, as text for language models is kept; read line by line.

All lines are looked at once, when the data is opened: for where they lie, and for the one type that
all values of a name have. Values of several types, and objects, are text that holds their JSON.
Source: jsonlines.org.
"""

from __future__ import annotations

import io
import json
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from steptime.data.source import Column, Values
from steptime.data.sources.file_object import OffsetFile
from steptime.data.sources.record_shards import RecordIndex, join_index, read_records, stack
from steptime.data.sources.shards import OpenShards, find_shards, name_of_set
from steptime.data.stored_bytes import DamagedBytesError, StoredPlace
from steptime.errors import DataError

JSONL_NAMES = (".jsonl", ".ndjson", ".jsonlines")
BOM = b"\xef\xbb\xbf"
BLOCK_BYTES = 1 << 20
MAX_LINE_BYTES = 1 << 30
"""A longer line is not a sample."""
EXACT_INT = 1 << 53
"""float64 holds all integers up to it."""

NUMBERS = (({bool}, "bool"), ({int, np.int64}, "int64"), ({int, float}, "float64"))
"""Types of values, and the one that holds them all; `np.int64` stands for an integer that float64
does not hold."""

Offsets = tuple[NDArray[np.int64], NDArray[np.int64]]


class JSONLIndex(NamedTuple):
    """Where the lines lie, and what they hold."""

    records: RecordIndex
    columns: tuple[Column, ...]
    as_json: frozenset[str]
    """The columns that hold JSON as text."""


class JSONLReader:
    """See the module."""

    def __init__(self, index: JSONLIndex, wanted: tuple[str, ...] | None) -> None:
        have = [column.name for column in index.columns]
        missing = [name for name in wanted or () if name not in have]
        shards = index.records.shards
        if missing:
            what = f"has no column {', '.join(missing)}: it has {', '.join(have)}"
            raise DataError(f"{shards[0].where} {what}")
        self._index = index
        self._shards = OpenShards(shards)
        self.name = name_of_set("JSON Lines", shards)
        self.columns = tuple(c for c in index.columns if wanted is None or c.name in wanted)
        self.num_bytes = int(index.records.sizes.sum())

    def __len__(self) -> int:
        """Return the number of lines that are not blank."""
        return len(self._index.records.offsets)

    def read(self, indices: NDArray[np.int64]) -> dict[str, Values]:
        """Read lines."""
        lines = read_records(self._shards, self._index.records, indices)
        rows = [parse_line(bytes(line)) for line in lines]
        return {
            column.name: stack([self._value(row.get(column.name), column) for row in rows], column)
            for column in self.columns
        }

    def _value(self, value: Any, column: Column) -> Any:
        if value is None:
            return None
        if column.name in self._index.as_json:
            return json.dumps(value, ensure_ascii=False)
        if column.kind == "number":
            return float(value) if column.dtype == "float64" else value
        return np.array(value, column.dtype) if column.dtype not in (None, "object") else value

    def place_of(self, index: int) -> str:
        """Return file and row; blank lines are not counted."""
        return self._index.records.place_of(index)

    def index(self) -> JSONLIndex:
        """Return where the lines lie."""
        return self._index

    def close(self) -> None:
        """Close the files."""
        self._shards.close()


def open_jsonl(
    place: StoredPlace,
    index: JSONLIndex | None,
    *,
    split: str | None = None,
    columns: tuple[str, ...] | None = None,
) -> JSONLReader:
    """Open a file or a folder of shards.

    Args:
        place: the file or folder.
        index: where the lines lie, if that is known.
        split: the split to take, where names of shards tell several.
        columns: the names to read; None for all.
    """
    if index is None:
        shards = find_shards(place, split, JSONL_NAMES)
        types: dict[str, set[Any]] = {}
        records = join_index(shards, [_walk(shard, types) for shard in shards])
        if not types:
            raise DataError(f"no line of {place.where} is a JSON object")
        told = [_column(name, held - {type(None)}) for name, held in types.items()]
        as_json = frozenset(column.name for column, is_json in told if is_json)
        index = JSONLIndex(records, tuple(column for column, _ in told), as_json)
    return JSONLReader(index, None if columns is None else tuple(columns))


def parse_line(line: bytes) -> dict[str, Any]:
    """Return what a line holds.

    Raises:
        DamagedBytesError: it is no JSON object.
    """
    line = line.removeprefix(BOM)
    try:
        found = msgspec.json.decode(line)
    except msgspec.DecodeError:  # or it holds NaN, or a lone surrogate, as Python writes them
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            is_long = "integer string conversion" in str(error)
            why = "a number has more digits than Python reads" if is_long else str(error)
            raise DamagedBytesError(f"it is not JSON: {why}") from error
    if not isinstance(found, dict):
        raise DamagedBytesError("it is JSON, and not an object: {…}")
    return found


def is_jsonl(start: bytes, *, is_named: bool) -> bool:
    """Whether bytes begin with lines that hold an object each: two, where no name says so."""
    first, _, rest = start.removeprefix(BOM).lstrip().partition(b"\n")
    if is_named and not rest and first.startswith(b"{"):
        return True  # one long line may be cut here
    try:
        parse_line(first)
    except DamagedBytesError:
        return False
    return is_named or rest.lstrip().startswith(b"{")


def _walk(place: StoredPlace, types: dict[str, set[Any]]) -> Offsets:
    """Find the lines of one file, and add the types of what they hold."""
    stored, at = place.stored(), 0
    file = io.BufferedReader(OffsetFile(stored), BLOCK_BYTES)
    offsets, sizes = list[int](), list[int]()
    while line := file.readline(MAX_LINE_BYTES):
        if line.strip():
            offsets.append(at)
            sizes.append(len(line))
            with suppress(DamagedBytesError):  # whoever reads it is told
                for name, value in parse_line(line).items():
                    types.setdefault(name, set()).add(_type_of(value))
        at += len(line)
    stored.close()
    return np.array(offsets, np.int64), np.array(sizes, np.int64)


def _type_of(value: Any) -> Any:
    """Return a type, or that of a list's values; `object` where columns have none for it."""
    if isinstance(value, list):
        inner = {_type_of(one) for one in value}
        is_flat = inner <= {int, float, np.int64} or inner <= {str} or inner <= {bool}
        return tuple(sorted(inner, key=str)) if is_flat else object
    if type(value) is int and abs(value) > EXACT_INT:
        return np.int64 if -(1 << 63) <= value < 1 << 63 else object
    return object if isinstance(value, dict) else type(value)


def _column(name: str, types: set[Any]) -> tuple[Column, bool]:
    """Return the column for values of these types, and whether it holds their JSON."""
    is_list = bool(types) and all(isinstance(one, tuple) for one in types)
    inner = {kind for one in types for kind in one} if is_list else types
    for fitting, dtype in NUMBERS:
        if inner and inner <= fitting:
            kind, shape = ("array", None) if is_list else ("number", ())
            return Column(name, kind, dtype, shape), False
    if is_list and inner <= {str}:
        return Column(name, "array", "object"), False
    return Column(name, "text"), not inner <= {str}
