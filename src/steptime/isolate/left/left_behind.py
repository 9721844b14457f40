"""What a command leaves behind when its first process ends: a training in the background, mostly.

It runs inside the walls, before everything that is left is killed. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

MAX_LISTED = 8
_NAME_LENGTH = 60
# Python's own helpers end by themselves a moment after the process that they served.
_HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "compile_worker")


def list_left(pids: Iterable[int]) -> list[tuple[int, str]]:
    """Return those of the processes that still run, with the words of their commands."""
    found = []
    for pid in sorted(pids):
        with contextlib.suppress(OSError, IndexError):
            folder = Path(f"/proc/{pid}")
            state = (folder / "stat").read_bytes().rpartition(b")")[2].split()[0]
            words = os.fsdecode((folder / "cmdline").read_bytes()).rstrip("\0").split("\0")
            is_helper = any(name in word for name in _HELPERS for word in words)
            if state not in (b"Z", b"X") and words[0] and not is_helper:
                name = " ".join([os.path.basename(words[0]), *words[1:]])
                found.append((pid, name[:_NAME_LENGTH]))
    return found[:MAX_LISTED]


def others_in_namespace(*known: int) -> list[int]:
    """Return the processes of this namespace other than those that are known."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) not in known]
