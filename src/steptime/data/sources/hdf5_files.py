"""HDF5: all arrays of a file whose first axis counts the samples, read by h5py.

Links to other files and values in other files are refused. A file is opened again in each process.
"""

from __future__ import annotations

import math
import os
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from steptime.data.source import Column, Values
from steptime.data.sources.decoded_groups import MAX_GROUP_BYTES
from steptime.data.sources.hdf5_heap import Heaps
from steptime.data.stored_bytes import DamagedBytesError, StoredPlace
from steptime.errors import DataError

MAX_ARRAYS = 1000
NEAR_ROWS = 16
"""Rows this close are read at once where the file has no chunks."""


class HDF5Array(NamedTuple):
    """One array of a file."""

    path: str
    column: Column
    chunk_rows: int
    item_bytes: int = 0
    """Of a value whose length varies; 0 where all have one length."""


class HDF5Reader:
    """See the module."""

    name = "HDF5"

    def __init__(self, place: StoredPlace, wanted: tuple[str, ...] | None) -> None:
        self._place = place
        self._path = local_path(place, "HDF5")
        self._stored = place.stored()
        self._lock = Lock()
        self._file: Any = None
        self._process = 0
        with self._lock:
            file = self._opened()
            arrays, counts = _arrays(file, place.where)
            self._heaps = Heaps(self._stored, file.userblock_size)
        chosen = [a for a in arrays if wanted is None or a.column.name in wanted]
        missing = set(wanted or ()) - {array.column.name for array in chosen}
        if missing or not chosen:
            have = ", ".join(array.column.name for array in arrays) or "none"
            what = f"has no array {', '.join(sorted(missing))}" if missing else "has no arrays"
            raise DataError(f"{place.where} {what}: it has {have}")
        lengths = {counts[array.path] for array in chosen}
        if len(lengths) > 1:
            said = ", ".join(f"{a.column.name} has {counts[a.path]:,}" for a in chosen)
            hint = "Name those of the samples: columns=[…]."
            what = f"the arrays of {place.where} have different numbers of samples"
            raise DataError(f"{what}: {said}", hint=hint)
        self._arrays = chosen
        self._count = lengths.pop()
        self.columns = tuple(array.column for array in chosen)
        self.num_bytes = os.stat(self._path).st_size

    def _opened(self) -> Any:
        """The file, opened by this process; the caller has the lock."""
        import h5py

        if self._process != os.getpid():
            self._file = h5py.File(self._path, "r")
            self._process = os.getpid()
        return self._file

    def __len__(self) -> int:
        """Return the number of samples."""
        return int(self._count)

    def read(self, indices: NDArray[np.int64]) -> dict[str, Values]:
        """Read rows of all arrays; rows of one chunk come in one read."""
        with self._lock:  # HDF5 has one lock for all it does, too
            file = self._opened()
            return {
                array.column.name: self._values(file[array.path], array, indices)
                for array in self._arrays
            }

    def _values(self, data: Any, array: HDF5Array, indices: NDArray[np.int64]) -> Values:
        if data.shape is None or len(data) <= indices.max():
            raise DamagedBytesError(f"{array.path} has become shorter")
        if not array.item_bytes:
            return _rows(data, array, indices)
        parts = self._heaps.read(data, indices, array.item_bytes)
        if array.column.kind == "text":
            return [str(part, "utf-8") for part in parts]
        if array.column.kind == "bytes":
            return [bytes(part) for part in parts]
        return [np.frombuffer(part, array.column.dtype) for part in parts]

    def place_of(self, index: int) -> str:
        """Return file and row."""
        return f"{self._place.where}, row {index}"

    def index(self) -> None:
        """HDF5 has its own."""

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file is not None and self._process == os.getpid():
                self._file.close()
            self._file, self._process = None, 0
            self._stored.close()


def open_hdf5(
    place: StoredPlace, index: None, *, columns: tuple[str, ...] | None = None
) -> HDF5Reader:
    """Open a local file.

    Args:
        place: the file.
        index: always None.
        columns: the arrays to read, by path with dots; None for all.
    """
    del index
    return HDF5Reader(place, None if columns is None else tuple(columns))


def local_path(place: StoredPlace, name: str) -> str:
    """Return the path of a file that a library must open itself.

    Raises:
        DataError: it is in a store, or no regular file.
    """
    path = place.files.path_of(place.where)
    if path is None:
        raise DataError(f"{place.where}: {name} can be read from a local disk alone")
    place.stored().close()  # refuses pipes and devices
    return path


def _arrays(file: Any, where: str) -> tuple[list[HDF5Array], dict[str, int]]:
    import h5py

    found: list[HDF5Array] = []
    counts: dict[str, int] = {}
    pending, seen = [("", file)], set()
    while pending:
        prefix, group = pending.pop()
        for name in group:
            path = f"{prefix}/{name}"
            if isinstance(group.get(name, getlink=True), h5py.ExternalLink):
                raise DataError(f"{where}: {path} leads to another file, which is not followed")
            member = group[name]
            address = h5py.h5o.get_info(member.id).addr
            if address in seen:
                continue
            seen.add(address)
            if isinstance(member, h5py.Group):
                pending.append((path, member))
            elif isinstance(member, h5py.Dataset) and member.shape:
                found.append(_array(path, member, where))
                counts[path] = member.shape[0]
            if len(found) > MAX_ARRAYS:
                raise DataError(f"{where} has more than {MAX_ARRAYS} arrays: name them by columns=")
    return sorted(found), counts


def _array(path: str, data: Any, where: str) -> HDF5Array:
    import h5py

    if data.external or data.is_virtual:
        raise DataError(f"{where}: the values of {path} lie in other files, which are not read")
    is_varying = h5py.check_vlen_dtype(data.dtype) is not None or data.dtype.hasobject
    if is_varying and data.id.get_create_plist().get_nfilters():
        raise DataError(f"{where}: {path} has compressed references to values, which are not read")
    name, shape = path.strip("/").replace("/", "."), data.shape[1:]
    chunk_rows = data.chunks[0] if data.chunks else NEAR_ROWS
    text = h5py.check_string_dtype(data.dtype)
    inner = h5py.check_vlen_dtype(data.dtype)
    if text is not None and not shape:
        column = Column(name, "text")
        return HDF5Array(path, column, chunk_rows, 1 if text.length is None else 0)
    if inner is not None and not shape and np.dtype(inner).kind in "iufb":
        kind = "bytes" if np.dtype(inner) == np.uint8 else "array"
        column = Column(name, kind, None if kind == "bytes" else np.dtype(inner).str.lstrip("|=<"))
        return HDF5Array(path, column, chunk_rows, np.dtype(inner).itemsize)
    if data.dtype.kind not in "iufbc":
        hint = "Name the arrays to read: columns=[…]."
        raise DataError(f"{where}: {path} has the type {data.dtype}, not numbers", hint=hint)
    if math.prod(shape) * data.dtype.itemsize > MAX_GROUP_BYTES:
        raise DataError(f"{where}: a sample of {path} has the shape {shape}")
    kind = "array" if shape else "number"
    column = Column(name, kind, data.dtype.str.lstrip("|=<"), shape)
    return HDF5Array(path, column, chunk_rows)


def _rows(data: Any, array: HDF5Array, indices: NDArray[np.int64]) -> Values:
    row_bytes = math.prod(data.shape[1:]) * data.dtype.itemsize
    if row_bytes * len(indices) > MAX_GROUP_BYTES:
        raise DamagedBytesError(f"a batch of {array.path} has {row_bytes * len(indices):,} bytes")
    values = np.empty((len(indices), *data.shape[1:]), data.dtype)
    order = np.argsort(indices, kind="stable")
    ordered = indices[order]
    cuts = np.flatnonzero(np.diff(ordered // max(array.chunk_rows, 1))) + 1
    for positions, rows in zip(np.split(order, cuts), np.split(ordered, cuts), strict=True):
        block = data[int(rows[0]) : int(rows[-1]) + 1]
        values[positions] = block[rows - rows[0]]
    if array.column.kind == "text":
        return [value.decode("utf-8") for value in values.tolist()]
    return values
