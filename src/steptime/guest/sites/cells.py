"""The cells of a notebook: what IPython compiled from which cell, under which made-up file name.

IPython is asked where the script has it, and never imported. Numbers are those in the brackets of
`In [3]`. The parent names the places in the record by them (`measure.source.scan`).
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from typing import Any

from .file_owners import TYPED, FileOwners

MAX_CELLS = 1_000
MAX_TEXT = 200_000
"""Characters of all cells that are told: a longer cell holds data, not a training."""


def read_numbers() -> dict[str, int]:
    """Return the number of each cell by the file name of its code; empty without IPython.

    The shell that runs in this process has them since IPython 8.0.
    """
    module = sys.modules.get("IPython.core.interactiveshell")
    shell = getattr(getattr(module, "InteractiveShell", None), "_instance", None)
    names = getattr(getattr(shell, "compile", None), "_filename_map", None)
    return dict(names) if isinstance(names, dict) else {}


class CellTeller:
    """Tells the parent which file names are cells, and the text of those where time was spent.

    Args:
        owners: knows the files that were walked through.
        tell: writes rows of file name, number and text, where the text is None if not wanted.
    """

    place = "cells"

    def __init__(self, owners: FileOwners, tell: Callable[[list[list[Any]]], None]) -> None:
        self.owners = owners
        self.tell = tell
        self.reset()

    def reset(self) -> None:
        """Forget what was told: this is a new process."""
        self.told: dict[str, tuple[int, bool]] = {}
        self.room = MAX_TEXT

    def poll(self, bucket: int, *, is_last: bool) -> str:
        """Tell what is new; the recorder's stream gets nothing."""
        self.tell_new()
        return ""

    def tell_new(self) -> None:
        """Tell the cells that are new, ran again, or were walked through for the first time."""
        numbers = read_numbers()
        if not numbers:
            return
        found = {
            name: (number, name in self.owners.known or name.startswith(TYPED))
            for name, number in numbers.items()
        }
        fresh = [name for name in found if found[name] != self.told.get(name)]
        fresh = fresh[: MAX_CELLS - len(self.told)]
        if fresh:
            self.told |= {name: found[name] for name in fresh}
            self.tell([[name, found[name][0], self._text(name, found[name])] for name in fresh])

    def _text(self, name: str, found: tuple[int, bool]) -> str | None:
        """Return the text of a cell as it was compiled, from where tracebacks take it."""
        entry = linecache.cache.get(name) if found[1] else None
        text = "".join(entry[2]) if entry is not None and len(entry) > 2 else None
        if text is None or len(text) > self.room:
            return None
        self.room -= len(text)
        return text
