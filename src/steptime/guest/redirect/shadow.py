"""Where a redirected write goes: a shadow of the user's folders, copied on the first write.

All state is on the disk, so every process of a trial sees the same: files are under `files/` by
their path, and the file `gone` lists what was removed. A path is looked up in the shadow first.
Standard library only; it uses the original functions of `os`.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
from types import SimpleNamespace
from typing import Any

SHADOW = "shadow"  # the launcher knows these names too
LOG = "tried-writes"

_MAX_COPIED_BYTES = 2 << 30  # a data set that is opened for changes must not fill the disk
_MAX_NOTED = 2000
_MAX_LOG_BYTES = 1 << 20
_MAX_LINKS = 40  # as in the kernel
_KERNELS_OWN = ("/dev", "/proc", "/sys")
_SHARED_MEMORY = "/dev/shm"  # in the shadow, the launcher's link to a folder in memory

# Bound before anything is replaced.
real = SimpleNamespace(
    **{name: getattr(os, name) for name in dir(os) if callable(getattr(os, name))}
)


class Shadow:
    """The redirected files of one trial.

    Args:
        folder: of the trial.
        free: other folders that are really writable.
    """

    def __init__(self, folder: str, free: tuple[str, ...]) -> None:
        self.files = f"{folder}/{SHADOW}/files"
        self._gone_file = f"{folder}/{SHADOW}/gone"
        self._log = f"{folder}/{LOG}"
        self._free = tuple(f"{place.rstrip('/')}/" for place in (folder, *free, *_KERNELS_OWN))
        self._gone: set[str] = set()
        self._gone_size = 0
        self._parents: dict[str, str] = {}
        self._noted: set[str] = set()
        self.busy = threading.local()
        self.busy.seen = None
        real.makedirs(self.files, exist_ok=True)
        real.close(real.open(self._gone_file, os.O_WRONLY | os.O_CREAT, 0o644))
        self.is_away = real.getcwd().startswith(self.files)
        """Whether the working folder is in the shadow: relative paths then mean another place."""

    # --- which path is meant ----------------------------------------------------------

    def place(self, path: Any, *, dir_fd: int | None = None, follows: bool = True) -> str | None:
        """Return the user's absolute path that is meant; None if it is really writable."""
        self.busy.seen = None
        name = os.fsdecode(path)
        if dir_fd is not None and not name.startswith("/"):
            name = os.path.join(real.readlink(f"/proc/self/fd/{dir_fd}"), name)
        whole = self.user_path(os.path.abspath(name))
        if self.is_free(whole):
            return None
        for _ in range(_MAX_LINKS):
            parent, last = os.path.split(whole)
            whole = os.path.join(self._real_parent(parent), last)
            if self.is_free(whole):
                return None
            if not follows:
                return whole
            seen = self.resolve(whole)
            if not is_link(seen) or seen == self.files + _SHARED_MEMORY:
                self.busy.seen = whole, seen  # it will be asked for next
                return whole
            leads_to = self.user_path(real.readlink(seen))
            whole = os.path.normpath(os.path.join(os.path.dirname(whole), leads_to))
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)

    def user_path(self, whole: str) -> str:
        """Return the path that the user knows for one in the shadow."""
        return whole[len(self.files) :] or "/" if whole.startswith(self.files) else whole

    def is_free(self, whole: str) -> bool:
        """Return whether it is really writable, or the kernel's own."""
        place = f"{whole}/"
        return place.startswith(self._free) and not place.startswith(f"{_SHARED_MEMORY}/")

    def _real_parent(self, parent: str) -> str:
        found = self._parents.get(parent)
        if found is None:
            if len(self._parents) > 10_000:
                self._parents.clear()
            found = self._parents[parent] = os.path.realpath(parent)
        return found

    # --- what is seen -----------------------------------------------------------------

    def resolve(self, place: str) -> str:
        """Return the path at which the current content is found."""
        known = getattr(self.busy, "seen", None)
        if known is not None:
            self.busy.seen = None
            if known[0] == place:
                return str(known[1])
        shadow = self.files + place
        return shadow if exists(shadow) or self.is_gone(place) else place

    def is_gone(self, place: str) -> bool:
        """Return whether the original of a path, or of a folder above it, was removed."""
        try:
            size = real.stat(self._gone_file).st_size
        except OSError:
            return False
        if size != self._gone_size:
            with open(real.open(self._gone_file, os.O_RDONLY), errors="surrogateescape") as file:
                self._gone = {line.replace("\\n", "\n") for line in file.read().split("\n")}
            self._gone_size = size
        if not self._gone:
            return False
        while place != "/":
            if place in self._gone:
                return True
            place = os.path.dirname(place)
        return False

    def names(self, place: str) -> list[str] | None:
        """Return what a folder holds now; None where the original folder itself shows it."""
        shadow = self.files + place
        has_original = not self.is_gone(place) and is_folder(place)
        if not exists(shadow):
            if not has_original or not self._gone:
                return None
            found = set()
        else:
            found = set(real.listdir(shadow))
        if has_original:
            names = real.listdir(place)
            found |= {name for name in names if not self.is_gone(os.path.join(place, name))}
        return sorted(found)

    # --- what is changed --------------------------------------------------------------

    def write(self, place: str, *, keeps: bool) -> str:
        """Return the path to write to; with `keeps`, what was there is copied first.

        Raises:
            OSError: what the disk itself would raise.
        """
        self.note(place)
        shadow = self.files + place
        if exists(shadow):
            return shadow
        self._need_parent(place)
        original = not self.is_gone(place) and exists(place)
        if original and not is_link(place) and not real.access(place, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), place)
        if original and is_folder(place):
            real.makedirs(shadow, exist_ok=True)
        elif original and keeps:
            self._copy(place, [_MAX_COPIED_BYTES])
        return shadow

    def _need_parent(self, place: str) -> None:
        parent = os.path.dirname(place)
        seen = self.resolve(parent)
        mode = real.stat(seen).st_mode  # raises if there is none
        if not stat.S_ISDIR(mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), parent)
        if not real.access(seen, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), parent)
        real.makedirs(self.files + parent, exist_ok=True)

    def _copy(self, place: str, left: list[int]) -> None:
        """Copy what is found there into the shadow, a folder with everything in it."""
        seen, shadow = self.resolve(place), self.files + place
        facts = real.lstat(seen)
        if stat.S_ISDIR(facts.st_mode):
            names = self.names(place)
            real.makedirs(shadow, exist_ok=True)
            for name in real.listdir(seen) if names is None else names:
                self._copy(os.path.join(place, name), left)
        elif seen != shadow:
            left[0] -= facts.st_size
            if left[0] < 0:
                raise OSError(errno.ENOSPC, "too large to be copied for a trial", place)
            shutil.copy2(seen, shadow, follow_symlinks=False)

    def bring(self, place: str) -> str:
        """Copy what is found there into the shadow, and return the path of the copy."""
        self.note(place)
        self._need_parent(place)
        self._copy(place, [_MAX_COPIED_BYTES])
        return self.files + place

    def same(self, path: Any, place: str) -> Any:
        """Return the path to pass on if it is not redirected: as it was given, if that works."""
        return place if self.is_away else path

    def remove(self, place: str) -> None:
        """Hide the original from everybody."""
        self.note(place)
        if exists(place) and not self.is_gone(place):
            self._append(self._gone_file, place)

    def check_removable(self, place: str) -> None:
        """Raise what the disk would raise if a path is not there or cannot be removed."""
        real.lstat(self.resolve(place))
        parent = self.resolve(os.path.dirname(place))
        if not real.access(parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), place)

    # --- what is told -----------------------------------------------------------------

    def note(self, place: str) -> None:
        """Add a path to the list of attempted writes."""
        if place in self._noted or len(self._noted) > _MAX_NOTED:
            return
        self._noted.add(place)
        try:
            if real.stat(self._log).st_size > _MAX_LOG_BYTES:
                return
        except OSError:
            pass
        self._append(self._log, place)

    def _append(self, path: str, line: str) -> None:
        descriptor = real.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            real.write(descriptor, os.fsencode(line.replace("\n", "\\n") + "\n"))
        finally:
            real.close(descriptor)


def exists(path: str) -> bool:
    """Return whether something is there, even a link that leads nowhere."""
    # Not lstat: its exception costs more than the call.
    return bool(real.access(path, os.F_OK, follow_symlinks=False))


def is_folder(path: str) -> bool:
    """Return whether it is a folder, or a link that leads to one."""
    try:
        return stat.S_ISDIR(real.stat(path).st_mode)
    except OSError:
        return False


def is_link(path: str) -> bool:
    """Return whether it is a symbolic link."""
    try:
        return stat.S_ISLNK(real.lstat(path).st_mode)
    except OSError:
        return False
