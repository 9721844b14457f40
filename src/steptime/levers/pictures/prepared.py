"""Reads the pixels of a prepared copy (`steptime data convert FOLDER COPY --decode`).

This is no lever, as it has no `LEVER`. It reads the copy's files with the standard library alone:
the process of a training may have neither numpy nor Arrow. docs/libraries/data.md says what
lies in them.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Any

INDEX = "index.json"
FORMAT, VERSION = "steptime-prepared", 1
TREATMENT = "decoded to RGB"
"""Pixels as they were, of the size they had; any other copy would change the training."""

MAX_FILES = 2_000_000
"""Of a folder, each of which takes some 150 bytes of each process' memory."""

FAILURES = (OSError, ValueError, LookupError, TypeError, struct.error, RecursionError)
"""What a copy that is missing, damaged or foreign makes the standard library raise."""


def find_copy(dataset_root: Any) -> str:
    """Return the prepared copy that lies beside a folder, `FOLDER.prepared`; empty if none."""
    if not isinstance(dataset_root, (str, os.PathLike)):
        return ""
    folder = os.path.abspath(os.fsdecode(dataset_root)) + ".prepared"
    return folder if os.path.isfile(os.path.join(folder, INDEX)) else ""


class PreparedCopy:
    """The copy of a folder of pictures.

    Args:
        folder: of the copy.

    Raises:
        OSError, ValueError, LookupError, TypeError: it is missing, damaged, or no copy that has
            the pixels of the folder's files.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        with open(os.path.join(folder, INDEX), encoding="ascii") as file:
            index = json.load(file)
        if (index["format"], index["treatment"]) != (FORMAT, TREATMENT):
            raise ValueError("its pixels are not those of the files")
        if index["version"] > VERSION:
            raise ValueError(f"its version is {index['version']}")
        columns = [c for c in index["columns"] if c["kind"] == "array" and c["dtype"] == "uint8"]
        (self.column,) = columns
        self.num_samples, self.shards = index["num_samples"], index["shards"]
        self.firsts = [shard["first"] for shard in self.shards]
        self.maps: dict[str, memoryview] = {}
        self.starts_at = self._check_files()
        self._read_list(index["origin"])

    def _check_files(self) -> int:
        """Compare the sizes of all files; return where the array begins in its file."""
        name = self.column["file"]
        if name is None:
            for shard in self.shards:
                size = os.path.getsize(os.path.join(self.folder, shard["arrow"]))
                if size != shard["sizes"][shard["arrow"]]:
                    raise ValueError(f"{shard['arrow']} was cut")
            return 0
        path = os.path.join(self.folder, name)
        with open(path, "rb") as file:
            start = file.read(10)
        if start[:8] != b"\x93NUMPY\x01\x00":
            raise ValueError(f"{name} is no array")
        starts_at = 10 + int.from_bytes(start[8:], "little")
        height, width, bands = self.column["shape"]
        if os.path.getsize(path) != starts_at + self.num_samples * height * width * bands:
            raise ValueError(f"{name} was cut")
        return starts_at

    def _read_list(self, origin: Mapping[str, Any]) -> None:
        """Read names, sizes and times of the files that the samples were made from."""
        if self.num_samples > MAX_FILES:
            raise ValueError(f"it has more than {MAX_FILES} files")
        self.root = os.path.join(origin["place"], "")
        self.rows: dict[str, int] = {}
        self.sizes, self.times_ns = array("q"), array("q")
        with open(os.path.join(self.folder, origin["files"]), encoding="ascii") as file:
            for row, line in enumerate(file):
                name, size, time_ns = json.loads(line)
                self.rows[name] = row
                self.sizes.append(size)
                self.times_ns.append(time_ns)
        if len(self.rows) != self.num_samples:
            raise ValueError("its list of files is not whole")

    def row_of(self, path: Any, descriptor: int) -> int | None:
        """Return the sample of an open file; None if it has none, or the file was changed."""
        whole = os.path.abspath(os.fsdecode(path))
        row = self.rows.get(whole[len(self.root) :]) if whole.startswith(self.root) else None
        if row is None:
            return None
        status = os.fstat(descriptor)
        is_same = (status.st_size, status.st_mtime_ns) == (self.sizes[row], self.times_ns[row])
        return row if is_same else None

    def pixels(self, row: int) -> tuple[int, int, memoryview]:
        """Return width, height, and RGB bytes of a sample."""
        if self.column["file"] is not None:
            height, width, _ = self.column["shape"]
            at = self.starts_at + row * height * width * 3
            return width, height, self._map(self.column["file"])[at : at + height * width * 3]
        shard = self.shards[bisect_right(self.firsts, row) - 1]
        mapped, inner = self._map(shard["arrow"]), row - shard["first"]
        at = shard["buffers"][self.column["name"]]
        height, width, bands = struct.unpack_from("<3q", mapped, at["shapes_at"] + 24 * inner)
        begin, end = struct.unpack_from("<2q", mapped, at["offsets_at"] + 8 * inner)
        if bands != 3 or end - begin != height * width * 3 or at["ndim"] != 3:
            raise ValueError(f"sample {row} is damaged")
        return width, height, mapped[at["values_at"] + begin : at["values_at"] + end]

    def _map(self, name: str) -> memoryview:
        found = self.maps.get(name)
        if found is None:
            with open(os.path.join(self.folder, name), "rb") as file:
                found = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
            self.maps[name] = found
        return found


def find_pixels(copy: PreparedCopy, image_module: Any, image: Any) -> Callable[[], Any] | None:
    """Return what makes the pixels of an opened image; None where Pillow must decode.

    The file is at its end afterwards, where Pillow leaves it, unless that returns None.
    """
    path, file = image.filename or getattr(image.fp, "name", None), image.fp
    if image.mode != "RGB" or not isinstance(path, (str, bytes, os.PathLike)):
        return None
    try:
        row = copy.row_of(path, file.fileno())
        if row is None:
            return None
        file.seek(0, os.SEEK_END)
    except FAILURES:
        return None
    size = image.size

    def make() -> Any:
        try:
            width, height, data = copy.pixels(row)
            if (width, height) != size or len(data) != 3 * width * height:
                return None
            return image_module.frombytes("RGB", size, data).im
        except FAILURES:
            return None

    return make
