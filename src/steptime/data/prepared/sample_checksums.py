"""The CRC-32 of each sample: the same from the source's values and from what was written.

The checksum of a sample runs over its columns, in their order. A value of fixed shape is its bytes
in C order, little-endian. One that varies has its length in front, 8 bytes, and, if it is an array,
its shape before that, 8 bytes a dimension.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from steptime.data.prepared.layout import PreparedColumn
from steptime.data.source import Values
from steptime.errors import DataError


class VaryingShapeError(DataError):
    """A value has another shape than all before it; `column` is where."""

    def __init__(self, column: str) -> None:
        super().__init__(f"the values of column {column} have several shapes")
        self.column = column


_MISSING = b"\xff" * 8
"""In place of the length, where there is no value."""


def sample_checksums(
    columns: Sequence[PreparedColumn], values: Mapping[str, Values]
) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return the CRC-32 of each of B samples, shape (B,)."""
    crcs: list[int] | None = None
    for column in columns:
        parts = parts_of(column, values[column.name])
        before = [0] * len(parts) if crcs is None else crcs
        crcs = list(map(zlib.crc32, parts, before))
    return np.array(crcs or (), np.uint32)


def parts_of(column: PreparedColumn, values: Values) -> list[Any]:
    """Return the bytes of each value that its checksum runs over."""
    if column.file is not None:
        rows = fixed_rows(column, values)
        size = rows[:1].nbytes
        data = rows.reshape(-1).view(np.uint8).data
        return [data[at : at + size] for at in range(0, size * len(rows), max(size, 1))] or [
            b""
        ] * len(rows)
    return [_length_and_bytes(column, value) for value in values]


def fixed_rows(column: PreparedColumn, values: Values) -> np.ndarray[Any, Any]:
    """Return the values of a column of fixed shape as they are stored, shape (B, *shape).

    Raises:
        VaryingShapeError: a value has another shape.
        DataError: a value is missing, or is none of the column's.
    """
    dtype = np.dtype(column.dtype).newbyteorder("<")
    if not isinstance(values, np.ndarray) and any(np.shape(v) != column.shape for v in values):
        raise VaryingShapeError(column.name)
    try:
        rows = np.ascontiguousarray(values, dtype).reshape(np.shape(values))
    except (TypeError, ValueError) as error:
        raise DataError(
            f"column {column.name} has a value that is no {column.dtype}: {error}"
        ) from error
    if rows.shape[1:] != column.shape:
        raise VaryingShapeError(column.name)
    return rows


def _length_and_bytes(column: PreparedColumn, value: Any) -> bytes:
    if value is None:
        return _MISSING
    if column.dtype is not None:
        array = np.ascontiguousarray(value, np.dtype(column.dtype).newbyteorder("<"))
        shape = struct.pack(f"<{np.ndim(value)}q", *np.shape(value))
        return shape + struct.pack("<q", array.nbytes) + array.tobytes()
    data = to_bytes(value)
    return struct.pack("<q", len(data)) + data


def to_bytes(value: Any) -> bytes:
    """Return text or bytes as they are stored; file names of any encoding survive."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    return bytes(value)
