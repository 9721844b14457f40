"""The groups of rows that were decoded last: formats that store many rows together read them so.

A group stays until the byte budget is full, and the one used longest ago goes first. The group in
use always fits, whatever the budget: the least that such a format can be read with.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

Key = tuple[int, int]
Group = TypeVar("Group")

CACHE_BYTES = 256 << 20
"""Two row groups of Parquet's usual 128 MB."""
MAX_GROUP_BYTES = 4 << 30
"""What says that it unpacks to more is damaged, or was never meant for random access."""


class DecodedGroups(Generic[Group]):
    """Decoded groups by (shard, group)."""

    def __init__(self, budget_bytes: int = CACHE_BYTES) -> None:
        self._budget = budget_bytes
        self._kept: OrderedDict[Key, tuple[Group, int]] = OrderedDict()
        self._lock = Lock()
        self._bytes = 0

    def get(self, key: Key, decode: Callable[[], tuple[Group, int]]) -> Group:
        """Return a group, decoded where it is not there; `decode` gives its bytes with it."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key][0]
        group, size = decode()  # outside, so that threads decode beside each other
        with self._lock:
            if key not in self._kept:
                self._kept[key] = group, size
                self._bytes += size
            while self._bytes > self._budget and len(self._kept) > 1:
                self._bytes -= self._kept.popitem(last=False)[1][1]
        return group

    def clear(self) -> None:
        """Let go of all."""
        with self._lock:
            self._kept.clear()
            self._bytes = 0
