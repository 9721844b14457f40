"""HDF5: all arrays of a file whose first axis counts the samples, read by h5py.

Links to other files and values in other files are refused. It is opened in a child
(`reader_child`): HDF5 takes whatever memory a damaged length asks for, and may loop for ever.
"""

from __future__ import annotations

import math
import os
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from steptime.data.source import Column, Values
from steptime.data.sources.decoded_groups import MAX_GROUP_BYTES
from steptime.data.sources.file_object import local_path
from steptime.data.sources.reader_child import ReaderInChild
from steptime.data.stored_bytes import DamagedBytesError, StoredPlace
from steptime.errors import DataError

MAX_ARRAYS = 1000
NEAR_ROWS = 16
"""Rows this close are read at once where the file has no chunks."""


class HDF5Array(NamedTuple):
    """One array of a file."""

    path: str
    column: Column


class HDF5Reader:
    """See the module; it lives in the child."""

    name = "HDF5"

    def __init__(self, path: str, columns: tuple[str, ...] | None) -> None:
        import h5py

        self._path = path
        self._file = h5py.File(path, "r")
        arrays = _arrays(self._file, path)
        self._arrays = [a for a in arrays if columns is None or a.column.name in columns]
        missing = set(columns or ()) - {array.column.name for array in self._arrays}
        if missing or not self._arrays:
            have = ", ".join(array.column.name for array in arrays) or "none"
            what = f"has no array {', '.join(sorted(missing))}" if missing else "has no arrays"
            raise DataError(f"{path} {what}: it has {have}")
        counts = {a.column.name: len(self._file[a.path]) for a in self._arrays}
        if len(set(counts.values())) > 1:
            said = ", ".join(f"{name} has {count:,}" for name, count in counts.items())
            hint = "Name those of the samples: columns=[…]."
            what = f"the arrays of {path} have different numbers of samples"
            raise DataError(f"{what}: {said}", hint=hint)
        self._count = next(iter(counts.values()))
        self.columns = tuple(array.column for array in self._arrays)
        self.num_bytes = os.stat(path).st_size

    def __len__(self) -> int:
        """Return the number of samples."""
        return self._count

    def read(self, indices: NDArray[np.int64]) -> dict[str, Values]:
        """Read rows of all arrays; rows of one chunk come in one read."""
        rows, back = np.unique(indices, return_inverse=True)
        return {a.column.name: self._values(a, rows, back) for a in self._arrays}

    def _values(self, array: HDF5Array, rows: NDArray[np.int64], back: NDArray[np.int64]) -> Values:
        data, kind = self._file[array.path], array.column.kind
        row_bytes = math.prod(data.shape[1:]) * data.dtype.itemsize
        if row_bytes * len(rows) > MAX_GROUP_BYTES:
            raise DamagedBytesError(f"a batch of {array.path} has {row_bytes * len(rows):,} bytes")
        chunk_rows = data.chunks[0] if data.chunks else NEAR_ROWS
        runs = np.split(rows, np.flatnonzero(np.diff(rows // chunk_rows)) + 1)
        rising = data.asstr() if kind == "text" else data
        values = np.concatenate([rising[run[0] : run[-1] + 1][run - run[0]] for run in runs])[back]
        if kind == "bytes":
            return [value.tobytes() for value in values]
        return list(values) if array.column.shape is None else values

    def place_of(self, index: int) -> str:
        """Return file and row."""
        return f"{self._path}, row {index}"


def open_hdf5(
    place: StoredPlace, index: None, *, columns: tuple[str, ...] | None = None
) -> ReaderInChild:
    """Open a local file.

    Args:
        place: the file.
        index: always None.
        columns: the arrays to read, by path with dots; None for all.
    """
    del index
    wanted = None if columns is None else tuple(columns)
    return ReaderInChild(HDF5Reader, local_path(place, "HDF5"), wanted)


def _arrays(file: Any, where: str) -> list[HDF5Array]:
    import h5py

    found: list[HDF5Array] = []
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
                found.append(HDF5Array(path, _column(path, member, where)))
            if len(found) > MAX_ARRAYS:
                raise DataError(f"{where} has more than {MAX_ARRAYS} arrays: name them by columns=")
    return sorted(found)


def _column(path: str, data: Any, where: str) -> Column:
    import h5py

    if data.external or data.is_virtual:
        raise DataError(f"{where}: the values of {path} lie in other files, which are not read")
    name, shape = path.strip("/").replace("/", "."), data.shape[1:]
    if h5py.check_string_dtype(data.dtype) is not None and not shape:
        return Column(name, "text")
    inner = h5py.check_vlen_dtype(data.dtype)
    if inner is not None and not shape and np.dtype(inner).kind in "iufb":
        if np.dtype(inner) == np.uint8:
            return Column(name, "bytes")
        return Column(name, "array", np.dtype(inner).str.lstrip("|=<"))
    if data.dtype.kind not in "iufbc":
        hint = "Name the arrays to read: columns=[…]."
        raise DataError(f"{where}: {path} has the type {data.dtype}, not numbers", hint=hint)
    return Column(name, "array" if shape else "number", data.dtype.str.lstrip("|=<"), shape)
