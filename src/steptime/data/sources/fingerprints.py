"""A text that changes when files change: names, sizes and times of what lies at a place."""

from __future__ import annotations

import hashlib
import os
from itertools import islice

from steptime.data.stored_bytes import StoredPlace

MAX_FILES = 20_000
"""Files that are asked; of a folder with more, the first ones and the folder's own time."""


def fingerprint_of(place: StoredPlace) -> str:
    """Return a hash of names, sizes and times; where nothing can be asked, of the names alone."""
    found = hashlib.sha256(os.fsencode(place.where))
    names = [b""]
    if place.files.is_folder(place.where):
        names += sorted(name for name, _ in islice(place.files.walk(place.where), MAX_FILES))
    for name in names:
        inner = place.inside(os.fsdecode(name)) if name else place
        path = place.files.path_of(inner.where)
        found.update(name + b"\0")
        if path is not None:
            status = os.stat(path)
            found.update(f"{status.st_size} {status.st_mtime_ns}\0".encode("ascii"))
        elif not place.files.is_folder(inner.where):
            found.update(f"{inner.stored().size}\0".encode("ascii"))
    return found.hexdigest()[:20]
