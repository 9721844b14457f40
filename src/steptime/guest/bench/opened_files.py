"""The files that a data set reads from, and how they leave the page cache.

Python tells of each file that it opens; what a library in C opened is seen only while it is open or
mapped. A decoder that is given a path says so itself.
"""

from __future__ import annotations

import os
import stat
import sys
from typing import Any

MAX_FILES = 100_000
NOT_DATA = (".py", ".pyc", ".so", ".pth")
SYSTEM = ("/proc/", "/dev/", "/sys/", "/usr/", "/lib", "/etc/", sys.prefix, sys.base_prefix)
STREAMS = ("0", "1", "2")


class OpenedFiles:
    """The files that this process opens to read, from now on; for a process that soon ends."""

    def __init__(self) -> None:
        self.paths: set[str] = set()
        sys.addaudithook(self.see)

    def see(self, event: str, args: Any) -> None:
        """Note a file that Python opens; nothing that is wrong here may reach the opener."""
        if event != "open" or not args:
            return
        try:
            flags = args[2] if len(args) > 2 and isinstance(args[2], int) else 0
            if not flags & (os.O_WRONLY | os.O_RDWR):
                self.add(args[0])
        except Exception:
            return

    def add(self, path: Any) -> None:
        """Note a path, if it is one."""
        if isinstance(path, (str, bytes, os.PathLike)) and len(self.paths) < MAX_FILES:
            self.paths.add(os.path.abspath(os.fsdecode(path)))

    def found(self) -> list[str]:
        """Return the files of data: those that were opened, are open or are mapped."""
        paths = self.paths | set(open_files()) | set(mapped_files())
        return sorted(path for path in paths if is_data(path))


def is_data(path: str) -> bool:
    """Return whether a path may hold data: no program, and nothing of the system's."""
    is_program = path.endswith(NOT_DATA) or ".so." in os.path.basename(path)
    return not is_program and not path.startswith(SYSTEM) and os.path.isfile(path)


def open_files() -> list[str]:
    """Return the files that this process has open to read and not to write."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        if name in STREAMS:
            continue
        try:
            if not os.lstat(f"/proc/self/fd/{name}").st_mode & stat.S_IWUSR:
                found.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue  # the listing's own
    return found


def mapped_files() -> list[str]:
    """Return the files that are mapped into this process."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        parts = [line.rstrip("\n").split(None, 5) for line in file]
    return [part[5] for part in parts if len(part) == 6 and part[5].startswith("/")]


def drop_from_cache(paths: list[str]) -> int:
    """Drop the pages of files from the page cache; return of how many files that was asked.

    The kernel keeps pages that are mapped, or not yet written.
    """
    num = 0
    for path in paths:
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            num += 1
        except OSError:
            continue
        finally:
            os.close(file)
    return num


def num_read_bytes() -> int | None:
    """Return what this process has read from a disk [bytes]; None where the kernel does not say."""
    try:
        with open("/proc/self/io", encoding="ascii") as file:
            numbers = dict(line.split(": ") for line in file)
        return int(numbers["read_bytes"])
    except (OSError, KeyError, ValueError):
        return None
