"""The shards of a folder: which files are data, in which order, and the few that are open."""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

from steptime.data.stored_bytes import StoredBytes, StoredPlace
from steptime.errors import DataError

MAX_OPEN = 64
"""Files open at once: a process may often have 1,024, and several sources may be open."""
MAX_SHARDS = 1 << 20
"""Names of shards are held one by one; a folder with more files is one of samples."""

_NO_DATA = re.compile(
    rb"(?i)(?:^|/)(?:_[^/]*|readme[^/]*|license[^/]*|[^/]*\.(?:json|md|txt|ya?ml|crc|html|py))$"
)
_SPLIT = re.compile(r"(?i)(?:^|/|[-_.])(train|test|validation|valid|val|dev|eval)(?=[-_./]|$)")
_SAME = {"valid": "validation", "val": "validation", "dev": "validation"}


def is_data_name(name: bytes) -> bool:
    """Whether a name is not that of a note, an index or a checksum beside the data."""
    return _NO_DATA.search(name) is None


def ending_of(name: bytes) -> bytes:
    """Return what a name ends with, shards of one set alike: `x.tfrecord-00001-of-00004`."""
    return os.path.splitext(re.sub(rb"-\d+-of-\d+$", b"", name))[1].lower()


def find_shards(
    place: StoredPlace, split: str | None, suffixes: tuple[str, ...]
) -> list[StoredPlace]:
    """Return the shards of a file or folder, sorted by name.

    Args:
        place: one shard, or a folder of them.
        split: the one to take (`train`) where names tell several apart.
        suffixes: what names of shards end with; any data where there is none of those.

    Raises:
        DataError: there are none, or several splits and none was named.
    """
    if not place.files.is_folder(place.where):
        return [place]
    names = []
    for name, _ in place.files.walk(place.where):
        if is_data_name(name):
            names.append(os.fsdecode(name))
        if len(names) > MAX_SHARDS:
            raise DataError(f"{place.where} has more than {MAX_SHARDS:,} files: too many shards")
    endings = {os.fsencode(suffix) for suffix in suffixes}
    fitting = [name for name in names if ending_of(os.fsencode(name)) in endings] or names
    chosen = _of_split(place, sorted(fitting, key=os.fsencode), split)
    if not chosen:
        raise DataError(f"{place.where} has no shard that ends with {' or '.join(suffixes)}")
    return [place.inside(name) for name in chosen]


def name_of_set(name: str, shards: Sequence[object]) -> str:
    """Return a format's name; of several files it says that they are read as one."""
    return name if len(shards) == 1 else f"{name} ({len(shards):,} files as one set)"


def _of_split(place: StoredPlace, names: list[str], split: str | None) -> list[str]:
    splits = {name: split_of(name) for name in names}
    found = sorted({known for known in splits.values() if known})
    if split is not None:
        wanted = _SAME.get(split, split)
        if wanted not in found:
            have = f"its names tell {', '.join(found)}" if found else "its names tell no split"
            raise DataError(f"{place.where} has no split {split}: {have}")
        return [name for name in names if splits[name] == wanted]
    if len(found) > 1:
        raise DataError(
            f"{place.where} has several splits: {', '.join(found)}",
            hint=f"Name one: split={found[-1]!r}, or a folder that has one alone.",
        )
    return names


def split_of(name: str) -> str | None:
    """Return the split that a shard's name tells: `data/train-00000-of-00002.parquet`."""
    found = _SPLIT.search(name)
    return _SAME.get(found[1].lower(), found[1].lower()) if found else None


class OpenShards:
    """Files opened when they are read; the ones read longest ago are let go of.

    Whoever reads a file that is let go of meanwhile keeps it: it closes with its last reader.
    """

    def __init__(self, places: Sequence[StoredPlace]) -> None:
        self.places = places
        self._open: OrderedDict[int, StoredBytes] = OrderedDict()
        self._lock = Lock()

    def __getitem__(self, shard: int) -> StoredBytes:
        """Return an open shard."""
        with self._lock:
            if shard in self._open:
                self._open.move_to_end(shard)
                return self._open[shard]
            stored = self.places[shard].stored()
            self._open[shard] = stored
            if len(self._open) > MAX_OPEN:
                self._open.popitem(last=False)
            return stored

    def name(self, shard: int) -> str:
        """Return where a shard lies, for a person."""
        return self.places[shard].where

    def close(self) -> None:
        """Let go of all."""
        with self._lock:
            while self._open:
                self._open.popitem()[1].close()
