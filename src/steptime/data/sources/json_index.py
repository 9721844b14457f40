"""Index files of formats, in JSON: read whole, bounded, and checked for what a reader needs."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from steptime.data.stored_bytes import StoredPlace, read_exactly
from steptime.errors import DataError

MAX_INDEX_BYTES = 256 << 20
"""Some 200 bytes a shard: a million shards."""

Value = TypeVar("Value")


def read_index(place: StoredPlace, kind: type[Value]) -> Value:
    """Return an index file as a value of `kind`, whatever else it has.

    Raises:
        DataError: it cannot be read, or lacks something.
    """
    try:
        stored = place.stored()
        try:
            if stored.size > MAX_INDEX_BYTES:
                raise DataError(f"{place.where} has {stored.size:,} bytes: no index is as large")
            data = read_exactly(stored, 0, stored.size)
        finally:
            stored.close()
        return msgspec.json.decode(data, type=kind)
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"the index {place.where} cannot be read: {error}") from error


def shard_in(place: StoredPlace, name: str, index_name: str) -> StoredPlace:
    """Return the place of a shard that an index names: inside its folder, and nowhere else.

    Raises:
        DataError: the name leads elsewhere.
    """
    parts = name.split("/")
    if not name or name.startswith("/") or "\0" in name or ".." in parts:
        raise DataError(f"{place.inside(index_name).where} names the shard {name!r}: not inside it")
    return place.inside(name)
