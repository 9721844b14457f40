"""Which format data at a place has, told by what is in it and not by its suffix alone."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

from steptime.data.sources.formats.csv_files import DELIMITERS_BY_NAME, is_text
from steptime.data.sources.formats.jsonl_files import JSONL_NAMES, is_jsonl
from steptime.data.sources.formats.prepared_folder import is_prepared
from steptime.data.sources.formats.tar_files import is_tar
from steptime.data.sources.formats.tfrecord_files import is_tfrecord
from steptime.data.sources.json_index import read_index
from steptime.data.sources.shards import ending_of, is_data_name
from steptime.data.stored_bytes import StoredPlace
from steptime.errors import DataError

STARTS = {
    b"PAR1": "parquet",
    b"ARROW1\0\0": "arrow",
    b"\x93NUMPY": "npy",
    b"PK\x03\x04": "npz",
    b"\x89HDF\r\n\x1a\n": "hdf5",
    b"SQLite format 3\0": "sqlite",
}
"""The first bytes of a file, by the descriptions of the formats."""

INDEXES = {
    "dataset_dict.json": "huggingface",
    "state.json": "huggingface",
    "data.mdb": "lmdb",
}
"""Files that only the folders of one format have."""
SHARED_INDEX = "index.json"
"""Folders of MDS and of LitData have it, and others may."""

UNREAD = {
    "mds": "MosaicML Streaming (MDS)",
    "litdata": "LitData",
    "lmdb": "LMDB",
    "sqlite": "SQLite",
}
"""Formats that are known, so that whoever has them learns what to do, and not read."""

FOLDER_STARTS = ("parquet", "arrow", "npy", "tfrecord", "tar", "csv", "jsonl")
"""Formats of which a folder holds shards."""

FIRST_BYTES = 4096
"""Of a file that are looked at."""
MAX_NAMES = 1000
"""Names of a folder that are looked at."""


def recognize(place: StoredPlace, is_folder: bool) -> str:  # noqa: FBT001
    """Return the name of the format.

    Raises:
        DataError: it cannot be told.
        OSError: what has to be read cannot be.
    """
    found = _of_folder(place) if is_folder else _of_file(place)
    if found in UNREAD:
        raise DataError(
            f"{place.where} is data of {UNREAD[found]}, which Steptime does not read",
            hint="Read it by its own library, and write it as Parquet or as WebDataset shards.",
        )
    if found is None:
        what = "the names in it" if is_folder else "its name and its first bytes"
        raise DataError(
            f"it cannot be told what data {place.where} is, by {what}: {_shown(place, is_folder)}",
            hint="CSV has a name that ends with .csv or .tsv, JSON Lines an object {…} a line. "
            "Or name the format: --format jsonl (in Python format='jsonl').",
        )
    return found


def _of_file(place: StoredPlace) -> str | None:
    stored = place.stored()
    try:
        start = stored.read_at(0, min(stored.size, FIRST_BYTES))
        if is_tfrecord(stored):
            return "tfrecord"
    finally:
        stored.close()
    for first, name in STARTS.items():
        if start.startswith(first):
            return name
    if start.startswith(b"\xff\xff\xff\xff"):
        return "arrow"
    if is_tar(start):
        return "tar"
    return _of_text(start, os.fsdecode(ending_of(os.fsencode(place.where))))


def _of_text(start: bytes, ending: str) -> str | None:
    """The format of text, which has no mark: what is in it and its name must agree."""
    if not is_text(start):
        return None
    is_lines = is_jsonl(start, is_named=ending in JSONL_NAMES)
    if ending in DELIMITERS_BY_NAME:
        return None if is_lines else "csv"
    return "jsonl" if is_lines else None


def _of_index(place: StoredPlace) -> str | None:
    """The format of which a folder has the index."""
    if place.files.is_folder(place.inside(SHARED_INDEX).where) is False:
        try:
            index = read_index(place.inside(SHARED_INDEX), dict[str, Any])
        except DataError:  # it may be of something else: the names of the shards tell
            index = {}
        if "shards" in index or "chunks" in index:
            return "mds" if "shards" in index else "litdata"
    for name, found in INDEXES.items():
        if place.files.is_folder(place.inside(name).where) is False:
            return found
    return None


def _of_folder(place: StoredPlace) -> str | None:
    if is_prepared(place):
        return "prepared"
    if indexed := _of_index(place):
        return indexed
    names = list(islice(_data_names(place), MAX_NAMES))
    if not names:
        return None
    for name in names:  # whose index is damaged or gone
        if re.search(rb"\.mds(?:\.\w+)?$|(?:^|/)chunk-\d+-\d+(?:\.\w+)?\.bin$", name):
            return "mds" if b".mds" in name else "litdata"
    endings = Counter(ending_of(name) for name in names)
    for ending, count in endings.most_common(3):
        first = next(name for name in names if ending_of(name) == ending)
        found = _of_file(place.inside(os.fsdecode(first)))
        is_of_samples = found == "npy" and any(b"/" in name for name in names)
        if 3 * count >= len(names) and found in FOLDER_STARTS and not is_of_samples:
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
        start = stored.read_at(0, min(stored.size, 60))
    finally:
        stored.close()
    if not start:
        return "it is empty"
    if is_text(start):
        return f"text that begins with {start.decode('utf-8', 'ignore').splitlines()[0]!r}"
    start = start[:16]
    text = re.sub(rb"[^\x20-\x7e]", b"?", start).decode("ascii")
    return f"{start.hex(' ')} ({text})"
