"""A call of a module that is followed."""

from __future__ import annotations

import sys


class ModuleCall:
    """One call of a module: which module, inside which call, and the graph nodes it made."""

    __slots__ = ("began", "ended", "key", "parent")

    def __init__(self, key: int, parent: ModuleCall | None, began: int) -> None:
        self.key = key
        self.parent = parent
        self.began = began
        self.ended = sys.maxsize
