"""A lock on a folder of the store: whoever works in it holds it, and it is not removed.

The lock goes with the process that holds it, however that ends; on a disk without locks there is
none.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Hold a folder together with whoever else works in it."""
    descriptor = _open(folder)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def is_worked_in(folder: Path) -> bool:
    """Return whether a process works in a folder."""
    descriptor = _open(folder)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def _open(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
