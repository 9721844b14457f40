"""A folder of files, one sample each; pictures in a folder for each class are labelled by it.

The names of all files are one run of packed bytes, sorted by numpy's and Arrow's means, so that
ten million of them take some 40 bytes each and no Python object. The order is that of
torchvision's ImageFolder: by folder, then by name, by bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from steptime.data.source import Column, Values
from steptime.data.stored_bytes import DamagedBytesError, StoredPlace
from steptime.errors import DataError

MAX_SAMPLE_BYTES = 2 << 30
"""One file is read as a whole; a sample of more than this is not one."""
COUNTED_FILES = 100_000
"""Sizes are asked for one by one; of more files that would take longer than it is worth."""

IMAGE_NAME = r"(?i)\.(jpe?g|png|ppm|bmp|pgm|tiff?|webp)$"
"""torchvision's IMG_EXTENSIONS (torchvision.datasets.folder)."""


class PackedNames(NamedTuple):
    """Names of files, sorted: parts separated by a zero byte, which sorts before all others."""

    offsets: NDArray[np.int64]
    """(num_files + 1,) where each begins in `data`."""
    data: NDArray[np.uint8]
    are_images: bool = False
    """Whether all have a picture's suffix."""

    def name(self, row: int) -> bytes:
        """Return a name with `/` between its parts."""
        begin, end = self.offsets[row : row + 2].tolist()
        return self.data[begin:end].tobytes().replace(b"\0", b"/")


class FolderReader:
    """See the module."""

    def __init__(self, place: StoredPlace, names: PackedNames, *, with_names: bool) -> None:
        self._place = place
        self._names = names
        self._with_names = with_names
        self._bytes: int | None = None
        self.name = "folder of files"
        self.classes, self._labels = _labels(names)
        label = Column("label", "number", "int64", (), self.classes)
        self.columns = (
            Column("data", "image" if names.are_images else "bytes"),
            *((label,) if self._labels is not None else ()),
            *((Column("name", "bytes"),) if with_names else ()),
        )

    @property
    def num_bytes(self) -> int | None:
        """Bytes of all files; None of more files than it takes a moment to ask."""
        if self._bytes is None and len(self) <= COUNTED_FILES:
            paths = [self._place.files.path_of(self.place_of(row)) for row in range(len(self))]
            if None in paths:
                return None
            self._bytes = sum(os.stat(path).st_size for path in paths if path is not None)
        return self._bytes

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self._names.offsets) - 1

    def read(self, indices: NDArray[np.int64]) -> dict[str, Values]:
        """Read files as they are."""
        rows = indices.tolist()
        values: dict[str, Values] = {"data": [self._contents(row) for row in rows]}
        if self._labels is not None:
            values["label"] = self._labels[indices]
        if self._with_names:
            values["name"] = [self._names.name(row) for row in rows]
        return values

    def _contents(self, row: int) -> bytes:
        stored = self._place.files.open_bytes(self.place_of(row))
        try:
            if stored.size > MAX_SAMPLE_BYTES:
                raise DamagedBytesError(f"a sample of {stored.size:,} bytes is too large to be one")
            return stored.read_at(0, stored.size)
        finally:
            stored.close()

    def place_of(self, index: int) -> str:
        """Return the file."""
        return self._place.inside(os.fsdecode(self._names.name(index))).where

    def index(self) -> PackedNames:
        """Return the names, so that a folder that grows does not change the order elsewhere."""
        return self._names

    def close(self) -> None:
        """Nothing stays open."""


def open_folder(
    place: StoredPlace, index: PackedNames | None, *, kind: str | None = None, names: bool = False
) -> FolderReader:
    """Open a folder of files.

    Args:
        place: the folder.
        index: the names, where they are known.
        kind: `images` takes the files with a picture's suffix alone, `files` takes all; None
            takes the pictures where more than half of the files are some.
        names: whether each file's name is a column as well.
    """
    if kind not in (None, "images", "files"):
        raise ValueError(f"`kind` is 'images', 'files' or None, got {kind!r}")
    found = pack_names(place, kind) if index is None else index
    if len(found.offsets) < 2:
        raise DataError(f"{place.where} has no files{' of pictures' if kind == 'images' else ''}")
    return FolderReader(place, found, with_names=names)


def pack_names(place: StoredPlace, kind: str | None) -> PackedNames:
    """Read the names of a folder's files, sorted, without a Python object for each."""
    packed = pa.chunked_array(list(_chunks(place)), pa.large_binary())
    are_images = False
    if kind != "files":
        is_image = pc.match_substring_regex(packed, IMAGE_NAME)
        num_images = pc.sum(is_image).as_py() or 0
        are_images = kind == "images" or 2 * num_images > len(packed)
        if are_images and num_images < len(packed):
            packed = packed.filter(is_image)
    packed = packed.combine_chunks() if len(packed) else pa.array([], pa.large_binary())
    if isinstance(packed, pa.ChunkedArray):
        packed = packed.chunk(0)
    ordered = packed.take(pc.array_sort_indices(packed))
    _, offsets, data = ordered.buffers()
    begins = np.frombuffer(offsets, np.int64)[ordered.offset : ordered.offset + len(ordered) + 1]
    contents = np.frombuffer(data or b"", np.uint8)[begins[0] :]
    return PackedNames(begins - begins[0], contents, are_images)


CHUNK_NAMES = 1 << 16


def _chunks(place: StoredPlace) -> Iterator[pa.Array]:
    waiting: list[bytes] = []
    for name, _ in place.files.walk(place.where):
        waiting.append(name.replace(b"/", b"\0"))
        if len(waiting) == CHUNK_NAMES:
            yield pa.array(waiting, pa.large_binary())
            waiting = []
    yield pa.array(waiting, pa.large_binary())


def _labels(names: PackedNames) -> tuple[tuple[str, ...] | None, NDArray[np.int64] | None]:
    """The classes by which all files lie in folders, and the number of each file's."""
    data, offsets = names.data, names.offsets
    ends = np.flatnonzero(data == 0)
    if not len(ends):
        return None, None
    nearest = np.searchsorted(ends, offsets[:-1])
    if nearest[-1] >= len(ends) or (ends[nearest] >= offsets[1:]).any():
        return None, None  # some file lies beside the folders
    # The names are sorted, so that a class is a run: its end is found by halves.
    classes: list[str] = []
    begins: list[int] = []
    row, num = 0, len(offsets) - 1
    while row < num:
        head = data[offsets[row] : ends[nearest[row]] + 1].tobytes()
        begins.append(row)
        classes.append(os.fsdecode(head[:-1]))
        low, high = row + 1, num
        while low < high:
            middle = (low + high) // 2
            begin = offsets[middle]
            if data[begin : begin + len(head)].tobytes() == head:
                low = middle + 1
            else:
                high = middle
        row = low
    return tuple(classes), np.repeat(np.arange(len(classes)), np.diff([*begins, num]))
