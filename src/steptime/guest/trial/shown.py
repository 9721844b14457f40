"""What the parent shows a running trial: a file, or memory that the guest can only read.

The memory is mapped by `inject/site/sitecustomize.py`; nothing of it is held open, and forked
children have it, too. Its first number says how many texts were shown, the newest is in one of two
halves.
"""

from __future__ import annotations

import os
from typing import Any

from ...record.regular_file import read_regular

SHOWN_BYTES = 1 << 21  # as in isolate/plan_door.py
_SLOT_BYTES = SHOWN_BYTES // 2


class ShownFile:
    """A file that the parent replaces."""

    def __init__(self, path: str) -> None:
        self.path = path

    def mark(self) -> Any:
        """Return what changes with each text; None before the first."""
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size

    def read(self) -> bytes:
        """Return the newest text."""
        return read_regular(self.path)


class ShownMemory:
    """Memory at an address of this process."""

    def __init__(self, address: int) -> None:
        from ctypes import string_at

        self.address, self.string_at = address, string_at

    def _number(self, place: int) -> int:
        return int.from_bytes(self.string_at(self.address + place, 8), "little")

    def mark(self) -> Any:
        """Return what changes with each text; None before the first."""
        return self._number(0) or None

    def read(self) -> bytes:
        """Return the newest text."""
        slot = 8 + self._number(0) % 2 * _SLOT_BYTES
        return bytes(self.string_at(self.address + slot + 8, self._number(slot)))
