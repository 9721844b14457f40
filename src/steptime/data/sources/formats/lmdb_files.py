"""LMDB: the values of a store, by the order of their keys, read by its own library.

It is opened in a child (`reader_child`): a damaged page ends a process that maps it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from steptime.data.source import Column, Values
from steptime.data.sources.file_object import local_path
from steptime.data.sources.reader_child import ReaderInChild
from steptime.data.stored_bytes import DamagedBytesError, StoredPlace

MAGIC = 0xBEEFC0DE
FIRST_KEYS = 100
"""Where names of stores in a store would be."""
STORE_BYTES = 48
"""Of what LMDB notes of a store, under its name (MDB_db)."""


class LMDBReader:
    """See the module; it lives in the child."""

    name = "LMDB"

    def __init__(self, path: str, with_names: bool) -> None:  # noqa: FBT001
        import lmdb

        self._path = path
        self._with_names = with_names
        name = (Column("name", "bytes"),) if with_names else ()
        self.columns = (Column("data", "bytes"), *name)
        try:
            store = lmdb.open(path, subdir=False, readonly=True, lock=False, max_dbs=1)
            self._values = store.begin()
            self._keys: list[bytes] = list(self._values.cursor().iternext_nodup())
            stat = store.stat()
            if stat["entries"] != len(self._keys):
                what = f"{len(self._keys):,} keys of {stat['entries']:,} values"
                raise DamagedBytesError(f"it has {what}: it is damaged, or has several under one")
            self._errors = lmdb.Error
            if any(_is_store(store, key, self._values) for key in self._keys[:FIRST_KEYS]):
                raise DamagedBytesError("it has stores in it, which are not read")
        except lmdb.Error as error:
            raise DamagedBytesError(str(error)) from error
        pages = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
        self.num_bytes = stat["psize"] * pages

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self._keys)

    def read(self, indices: NDArray[np.int64]) -> dict[str, Values]:
        """Read values as they are; most stores hold what only their writer can decode."""
        keys = [self._keys[row] for row in indices.tolist()]
        try:
            found = [self._values.get(key) for key in keys]
        except self._errors as error:
            raise DamagedBytesError(str(error)) from error
        if None in found:
            raise DamagedBytesError("its pages are damaged: a key leads to no value")
        return {"data": found, **({"name": keys} if self._with_names else {})}

    def place_of(self, index: int) -> str:
        """Return file, row and key."""
        key = self._keys[index]
        shown = key.decode("ascii") if key.isascii() and key.decode().isprintable() else key.hex()
        return f"{self._path}, row {index} (key {shown})"


def _is_store(store: Any, key: bytes, values: Any) -> bool:
    import lmdb

    if b"\0" in key or len(values.get(key) or b"") != STORE_BYTES:
        return False
    try:
        store.open_db(key, values, create=False)
    except lmdb.Error:
        return False
    return True


def open_lmdb(place: StoredPlace, index: None, *, names: bool = False) -> ReaderInChild:
    """Open a store: its file, or the folder with `data.mdb`.

    Args:
        place: the file or folder, on a local disk.
        index: always None.
        names: whether each value's key is a column as well.
    """
    del index
    file = place.inside("data.mdb") if place.files.is_folder(place.where) else place
    return ReaderInChild(LMDBReader, local_path(file, "LMDB"), names)


def is_lmdb(start: bytes) -> bool:
    """Whether bytes begin with the first page of a store."""
    return len(start) >= 20 and int.from_bytes(start[16:20], "little") == MAGIC
