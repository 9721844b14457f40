"""Folders that a child had, and that nobody removed because its launcher was killed.

A launcher holds a lock in each folder that it will remove. A folder whose lock is free was left.
The removal follows no link, and ends after so many entries and seconds; the rest waits for the
next time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterable, Iterator

PREFIX = "steptime-trial-"
_MARK = ".held"
_PLACES = ("/tmp", "/dev/shm")
_MAX_S = 5.0  # a start must not wait longer than this
_MAX_ENTRIES = 200_000


def hold(folder: str) -> None:
    """Lock a folder for as long as this process lives."""
    path = os.path.join(folder, _MARK)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    mark = os.open(f"{path}.new", flags, 0o600)
    with contextlib.suppress(OSError):  # a network disk without locks
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.rename(f"{path}.new", path)  # nobody sees it without its lock


def temporary_folders() -> Iterator[str]:
    """Yield the folders in memory and below /tmp that a launcher of this user made."""
    for place in _PLACES:
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                if entry.name.startswith(PREFIX):
                    yield entry.path


def remove_left(folders: Iterable[str]) -> int:
    """Remove those of these folders that were left; return how many are gone."""
    sweeper, num_gone = _Sweeper(), 0
    for folder in folders:
        if sweeper.is_done:
            break
        num_gone += sweeper.remove(folder)
    return num_gone


class _Sweeper:
    """Removes folders until its time or its number of entries is used up."""

    def __init__(self) -> None:
        self._until_s = time.monotonic() + _MAX_S
        self._left = _MAX_ENTRIES

    @property
    def is_done(self) -> bool:
        """Whether the rest must wait for the next time."""
        return self._left < 0 or time.monotonic() > self._until_s

    def remove(self, folder: str) -> bool:
        """Remove a folder if it was left; return whether it is gone."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(folder, flags)
        except OSError:
            return False
        try:
            if not _was_left(descriptor):
                return False
            self._empty(descriptor)
        finally:
            os.close(descriptor)
        with contextlib.suppress(OSError):  # not empty: the rest waits for the next time
            os.rmdir(folder)
            return True
        return False

    def _empty(self, folder: int) -> None:
        with contextlib.suppress(OSError):
            os.fchmod(folder, 0o700)
        with os.scandir(folder) as entries:
            # The mark goes last: what is left then can be found again.
            found = sorted(entries, key=lambda entry: entry.name == _MARK)
        for entry in found:
            self._left -= 1
            if self.is_done:
                return
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    self._remove_folder(folder, entry.name)
                else:
                    os.unlink(entry.name, dir_fd=folder)

    def _remove_folder(self, parent: int, name: str) -> None:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            folder = os.open(name, flags, dir_fd=parent)
        except PermissionError:
            os.chmod(name, 0o700, dir_fd=parent)
            folder = os.open(name, flags, dir_fd=parent)
        try:
            self._empty(folder)
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=parent)


def _was_left(folder: int) -> bool:
    """Return whether a folder is this user's, and no launcher holds it."""
    if os.fstat(folder).st_uid != os.geteuid():
        return False
    try:
        mark = os.open(_MARK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return False
    try:
        if not stat.S_ISREG(os.fstat(mark).st_mode):
            return False
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(mark)
