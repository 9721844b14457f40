"""Whose code a file holds: the user's, a library's, or torch's, Python's and our own.

Only the file name of a code object is read: no file is opened and no frame is kept.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

USERS, LIBRARYS, NOBODYS = range(3)
"""The user's own code; an installed package's; torch's, Python's, ours, or not from a file."""

TYPED = "<ipython-input-"
"""How the file name of a cell begins that was typed at IPython's prompt."""

_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


class FileOwners:
    """Tells the user's files from others, by the folders of torch, Python and the guest."""

    def __init__(self, torch: Any) -> None:
        self.torch_folder = os.path.join(os.path.dirname(torch.__file__), "")
        self.python_folder = os.path.join(os.path.dirname(os.__file__), "")
        guest = os.path.dirname(os.path.dirname(__file__))
        record = os.path.join(os.path.dirname(guest), "record")
        self.our_folders = (os.path.join(guest, ""), os.path.join(record, ""))
        self.command_folder = os.path.join(os.path.dirname(sys.executable), "")
        self.known: dict[str, int] = {}

    def owner(self, file: str) -> int:
        """Return whose code this is. Code made at run time (`<string>`) is nobody's."""
        if file.startswith("<"):  # torch.fx numbers its own, so they must not be remembered
            return USERS if file.startswith(TYPED) else NOBODYS
        known = self.known.get(file)
        if known is None:
            known = self.known[file] = self._find_owner(file)
        return known

    def _find_owner(self, file: str) -> int:
        if file.startswith((self.torch_folder, *self.our_folders)):
            return NOBODYS
        if any(folder in file for folder in _PACKAGES) or is_generated(file):
            return LIBRARYS
        if file.startswith(self.command_folder):
            return NOBODYS  # a launcher that was installed with a package: two lines that call it
        return NOBODYS if file.startswith(self.python_folder) else USERS

    def innermost(self, frames: Iterable[tuple[str, int | None]]) -> tuple[str, int] | None:
        """Return the innermost (file, line) of the user's; if there is none, of a library's.

        Args:
            frames: file and line of each, outermost first.
        """
        found: tuple[str, int] | None = None
        best = LIBRARYS
        for file, line in frames:
            owner = self.owner(file)
            if owner <= best and line is not None:
                found, best = (file, line), owner
        return found


def is_generated(file: str) -> bool:
    """Return whether a library wrote the file for itself, under the dotted name of a module."""
    package, _, rest = os.path.basename(file).removesuffix(".py").partition(".")
    return bool(rest) and package in sys.modules
