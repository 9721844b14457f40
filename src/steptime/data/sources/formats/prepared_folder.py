"""Prepared data (`steptime data convert`), as one of the formats that `open_source` knows."""

from __future__ import annotations

from steptime.data.prepared.layout import FORMAT, INDEX, MAX_INDEX_BYTES
from steptime.data.prepared.prepared_source import PreparedSource, open_prepared
from steptime.data.stored_bytes import StoredPlace
from steptime.errors import DataError

_MARK = f'"format": "{FORMAT}"'.encode("ascii")


def open_prepared_folder(place: StoredPlace, index: None) -> PreparedSource:
    """Open a prepared folder of this machine.

    Args:
        place: the folder.
        index: nothing; opening again is quick.
    """
    path = place.files.path_of(place.where)
    if path is None:
        raise DataError(
            f"{place.where} lies in a store, and prepared data is mapped: copy it to a disk first."
        )
    return open_prepared(path)


def is_prepared(place: StoredPlace) -> bool:
    """Whether a folder's index is that of prepared data."""
    index = place.inside(INDEX)
    if index.files.is_folder(index.where) is not False:
        return False
    try:
        stored = index.stored()
    except OSError:
        return False
    try:
        return _MARK in stored.read_at(0, min(stored.size, MAX_INDEX_BYTES))
    finally:
        stored.close()
