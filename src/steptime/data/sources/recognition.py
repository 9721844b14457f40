"""Which format data at a place has, told by what is in it and not by its suffix alone."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice

from steptime.data.sources.shards import is_data_name
from steptime.data.stored_bytes import StoredPlace
from steptime.errors import DataError

STARTS = {
    b"PAR1": "parquet",
    b"ARROW1\0\0": "arrow",
    b"\x93NUMPY": "npy",
    b"PK\x03\x04": "npz",
}
"""The first bytes of a file, by the descriptions of the formats."""

FOLDER_STARTS = ("parquet", "arrow", "npy")
"""Formats of which a folder holds shards."""

MAX_NAMES = 1000
"""Names of a folder that are looked at."""


def recognize(place: StoredPlace, is_folder: bool) -> str:  # noqa: FBT001
    """Return the name of the format.

    Raises:
        DataError: it cannot be told.
        OSError: what has to be read cannot be.
    """
    found = _of_folder(place) if is_folder else _of_file(place)
    if found is None:
        what = "the names in it" if is_folder else "its first bytes"
        raise DataError(
            f"it cannot be told what data {place.where} is, by {what}: {_shown(place, is_folder)}",
            hint="Name it: format='csv', for instance.",
        )
    return found


def _of_file(place: StoredPlace) -> str | None:
    stored = place.stored()
    try:
        start = stored.read_at(0, min(stored.size, 1024))
    finally:
        stored.close()
    for first, name in STARTS.items():
        if start.startswith(first):
            return name
    if start.startswith(b"\xff\xff\xff\xff"):
        return "arrow"
    return None


def _of_folder(place: StoredPlace) -> str | None:
    names = list(islice(_data_names(place), MAX_NAMES))
    if not names:
        return None
    suffixes = Counter(os.path.splitext(name)[1].lower() for name in names)
    usual, count = suffixes.most_common(1)[0]
    if count * 2 > len(names):
        first = next(name for name in names if os.path.splitext(name)[1].lower() == usual)
        found = _of_file(place.inside(os.fsdecode(first)))
        is_of_arrays = found == "npy" and all(b"/" not in name for name in names)
        if found in FOLDER_STARTS and (found != "npy" or is_of_arrays):
            return found
    return "folder"


def _data_names(place: StoredPlace) -> Iterator[bytes]:
    return (name for name, _ in place.files.walk(place.where) if is_data_name(name))


def _shown(place: StoredPlace, is_folder: bool) -> str:  # noqa: FBT001
    if is_folder:
        names = [os.fsdecode(name) for name, _ in islice(place.files.walk(place.where), 3)]
        return ", ".join(names) if names else "there are none"
    stored = place.stored()
    try:
        start = stored.read_at(0, min(stored.size, 16))
    finally:
        stored.close()
    if not start:
        return "it is empty"
    text = re.sub(rb"[^\x20-\x7e]", b"?", start).decode("ascii")
    return f"{start.hex(' ')} ({text})"
