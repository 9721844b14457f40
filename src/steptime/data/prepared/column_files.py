"""Writes the files of a prepared folder: `.npy` files in place, one Arrow file a shard.

In: a folder, columns, and samples shard by shard. Out: the files, each part with its CRC-32. What
is written is on the disk when a function returns, and no longer in the page cache, so that
reading it back reads the disk.
"""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.lib import format as npy_format
from pyarrow import ipc

from steptime.data.prepared.layout import Buffers, PreparedColumn
from steptime.data.prepared.sample_checksums import to_bytes
from steptime.data.stored_bytes import MAX_FILE_BYTES
from steptime.record.regular_file import open_regular

SHAPES = "{name}.shape"
"""The Arrow field beside a varying array."""


class ArrayFile:
    """One `.npy` file with a row for each sample, written range by range in any order.

    Args:
        path: the file; made with room for all rows where it is not there.
        dtype: of the numbers.
        shape: (num_samples, *shape of a sample).
    """

    def __init__(self, path: Path, dtype: str, shape: tuple[int, ...]) -> None:
        self.path, self.shape = path, shape
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self.row_bytes = self.dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
        header = _npy_header(self.dtype, shape)
        self.starts_at = len(header)
        size = self.starts_at + self.row_bytes * shape[0]
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        if os.fstat(self._file).st_size != size:
            os.truncate(self._file, 0)
            if hasattr(os, "posix_fallocate"):  # not on macOS
                os.posix_fallocate(self._file, 0, size)  # a disk that is too small says so now
            os.truncate(self._file, size)
            os.pwrite(self._file, header, 0)

    def write(self, first: int, rows: np.ndarray[Any, Any]) -> None:
        """Write rows from number `first` on."""
        data, at = rows.reshape(-1).view(np.uint8).data, self._at(first)
        while data:
            written = os.pwrite(self._file, data, at)
            data, at = data[written:], at + written

    def checksum(self, first: int, num_rows: int) -> tuple[str, int]:
        """Return CRC-32 and bytes of some rows, as they are in the file."""
        at, end, crc = self._at(first), self._at(first + num_rows), 0
        size = end - at
        while at < end and (data := os.pread(self._file, min(end - at, 4 << 20), at)):
            crc, at = zlib.crc32(data, crc), at + len(data)
        return in_hexadecimal(crc), size

    def to_disk(self, first: int, num_rows: int) -> None:
        """Force what was written to the disk, and some rows out of the page cache."""
        force_to_disk(self._file, self._at(first), num_rows * self.row_bytes)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _at(self, row: int) -> int:
        at: int = self.starts_at + row * self.row_bytes
        return at


def write_arrow(
    path: Path, columns: Sequence[PreparedColumn], values: Mapping[str, list[Any]]
) -> dict[str, Buffers]:
    """Write the varying columns of one shard; return where their values lie in the file.

    Args:
        path: the file; it appears whole or not at all.
        columns: the varying ones.
        values: by column, one for each sample of the shard; None where there is none.
    """
    arrays, fields = [], []
    for column in columns:
        for name, array in _arrow_arrays(column, values[column.name]):
            arrays.append(array)
            fields.append(pa.field(name, array.type, metadata=_described(column)))
    batch = pa.record_batch(arrays, schema=pa.schema(fields))
    half = path.with_name(path.name + ".half")
    with open(half, "wb") as file:
        with ipc.new_file(file, batch.schema) as writer:
            writer.write_batch(batch)
        flush_to_disk(file)
    os.replace(half, path)
    return {column.name: _buffers_of(path, column) for column in columns}


def _arrow_arrays(column: PreparedColumn, values: list[Any]) -> list[tuple[str, Any]]:
    if column.dtype is None:
        data = [None if value is None else to_bytes(value) for value in values]
        return [(column.name, pa.array(data, pa.large_binary()))]
    dtype = np.dtype(column.dtype).newbyteorder("<")
    rows = [np.ascontiguousarray(value, dtype) for value in values]
    shapes = np.array([np.shape(value) for value in values], np.int64)
    flat = pa.array(shapes.reshape(-1))
    return [
        (column.name, pa.array([row.tobytes() for row in rows], pa.large_binary())),
        (SHAPES.format(name=column.name), pa.FixedSizeListArray.from_arrays(flat, shapes.shape[1])),
    ]


def _described(column: PreparedColumn) -> dict[str, str]:
    return {"kind": column.kind, **({"dtype": column.dtype} if column.dtype else {})}


def _buffers_of(path: Path, column: PreparedColumn) -> Buffers:
    with pa.memory_map(os.fspath(path)) as mapped:
        start = mapped.read_buffer(1).address
        batch = ipc.open_file(mapped).get_batch(0)
        _, offsets, data = batch.column(column.name).buffers()
        offsets_at = offsets.address - start
        values_at = 0 if data is None else data.address - start
        if column.dtype is None:
            return Buffers(offsets_at=offsets_at, values_at=values_at)
        shapes = batch.column(SHAPES.format(name=column.name))
        return Buffers(
            offsets_at=offsets_at,
            values_at=values_at,
            shapes_at=shapes.values.buffers()[1].address - start,
            ndim=shapes.type.list_size,
        )


def file_checksum(path: Path) -> tuple[str, int]:
    """Return CRC-32 and bytes of a file."""
    crc = size = 0
    with open_regular(path, max_bytes=MAX_FILE_BYTES) as file:
        while data := file.read(4 << 20):
            crc, size = zlib.crc32(data, crc), size + len(data)
    return in_hexadecimal(crc), size


def in_hexadecimal(crc: int) -> str:
    """Return a checksum as the index has it."""
    return f"{crc:08x}"


def flush_to_disk(file: BinaryIO) -> None:
    """Force a file that was written to the disk, and out of the page cache."""
    file.flush()
    force_to_disk(file.fileno(), 0, 0)


def force_to_disk(descriptor: int, at: int, size: int) -> None:
    """Force a file to the disk, and a range of it out of the page cache; size 0 is the rest."""
    os.fsync(descriptor)
    with suppress(OSError, AttributeError):  # a file system or machine without it
        os.posix_fadvise(descriptor, at, size, os.POSIX_FADV_DONTNEED)


def _npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    file = io.BytesIO()
    described = {
        "descr": npy_format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": shape,
    }
    npy_format.write_array_header_1_0(file, described)
    return file.getvalue()
