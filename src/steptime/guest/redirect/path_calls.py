"""The functions that replace Python's own writers and readers of paths.

Each finds the path that is meant, asks the shadow where that is now, and calls the original. A path
that is really writable, a descriptor, and every call that the shadow itself makes pass straight
through.
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

from .shadow import Shadow, exists, is_folder, is_link, real

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

Call = Callable[..., Any]


def quietly(
    shadow: Shadow, original: Call, *, has_two_paths: bool = False
) -> Callable[[Call], Call]:
    """Make a replacement that is off while the shadow works, with the user's paths in errors."""

    def make(replacement: Call) -> Call:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if getattr(shadow.busy, "is_on", False):
                return original(*args, **kwargs)
            shadow.busy.is_on = True
            try:
                return replacement(*args, **kwargs)
            except OSError as error:
                if args:
                    error.filename = args[0]
                if has_two_paths and len(args) > 1:
                    error.filename2 = args[1]
                raise
            finally:
                shadow.busy.is_on = False

        return call

    return make


def reads(shadow: Shadow, original: Call, *, follows: bool = True) -> Call:
    """Replace a function that reads about a path, its first argument."""

    @quietly(shadow, original)
    def call(path: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(path, int):
            return original(path, *args, **kwargs)
        goes_on = follows and kwargs.get("follow_symlinks", True)
        place = shadow.place(path, dir_fd=kwargs.get("dir_fd"), follows=goes_on)
        if place is None:
            return original(path, *args, **kwargs)
        seen = shadow.resolve(place)
        if seen == place:
            return original(shadow.same(path, place), *args, **kwargs)
        kwargs.pop("dir_fd", None)
        return original(seen, *args, **kwargs)

    return call


def changes(shadow: Shadow, original: Call, *, follows: bool = True) -> Call:
    """Replace a function that changes what is at its first argument: rights, times, length."""

    @quietly(shadow, original)
    def call(path: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(path, int):
            return original(path, *args, **kwargs)
        goes_on = follows and kwargs.get("follow_symlinks", True)
        place = shadow.place(path, dir_fd=kwargs.pop("dir_fd", None), follows=goes_on)
        if place is None:
            return original(path, *args, **kwargs)
        real.lstat(shadow.resolve(place))
        return original(shadow.write(place, keeps=True), *args, **kwargs)

    return call


def makes(shadow: Shadow, original: Call) -> Call:
    """Replace a function that makes something new at a path, its first argument."""

    @quietly(shadow, original)
    def call(path: Any, *args: Any, **kwargs: Any) -> Any:
        place = shadow.place(path, dir_fd=kwargs.pop("dir_fd", None), follows=False)
        if place is None:
            return original(path, *args, **kwargs)
        _need_absence(shadow, place)
        return original(shadow.write(place, keeps=False), *args, **kwargs)

    return call


def links(shadow: Shadow, original: Call, *, is_symbolic: bool) -> Call:
    """Replace os.symlink and os.link."""

    @quietly(shadow, original, has_two_paths=True)
    def call(src: Any, dst: Any, *args: Any, **kwargs: Any) -> Any:
        target_fd = kwargs.pop("dir_fd", kwargs.pop("dst_dir_fd", None))
        place = shadow.place(dst, dir_fd=target_fd, follows=False)
        if is_symbolic:
            if place is None:
                return original(src, dst, *args, **kwargs)
            _need_absence(shadow, place)
            if os.path.isabs(src):
                meant = shadow.place(src)
                src = src if meant is None else shadow.resolve(meant)
            return original(src, shadow.write(place, keeps=False), *args, **kwargs)
        origin = shadow.place(src, dir_fd=kwargs.pop("src_dir_fd", None), follows=False)
        if origin is not None:
            real.lstat(shadow.resolve(origin))
            src = shadow.bring(origin)
        if place is not None:
            _need_absence(shadow, place)
            dst = shadow.write(place, keeps=False)
        return original(src, dst, *args, **kwargs)

    return call


def _need_absence(shadow: Shadow, place: str) -> None:
    if exists(shadow.resolve(place)):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), place)


def removes(shadow: Shadow, original: Call, *, takes_folder: bool) -> Call:
    """Replace os.remove, os.unlink and os.rmdir."""

    @quietly(shadow, original)
    def call(path: Any, *, dir_fd: int | None = None) -> None:
        place = shadow.place(path, dir_fd=dir_fd, follows=False)
        if place is None:
            original(path, dir_fd=dir_fd)
            return
        shadow.check_removable(place)
        seen = shadow.resolve(place)
        if takes_folder != (is_folder(seen) and not is_link(seen)):
            number = errno.ENOTDIR if takes_folder else errno.EISDIR
            raise OSError(number, os.strerror(number), place)
        if takes_folder and _has_entries(shadow, place, seen):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), place)
        if seen != place:
            original(seen)
        shadow.remove(place)

    return call


def renames(shadow: Shadow, original: Call) -> Call:
    """Replace os.rename and os.replace."""

    @quietly(shadow, original, has_two_paths=True)
    def call(
        src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        origin = shadow.place(src, dir_fd=src_dir_fd, follows=False)
        place = shadow.place(dst, dir_fd=dst_dir_fd, follows=False)
        if origin is None and place is None:
            original(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            return
        if origin is not None:
            shadow.check_removable(origin)
            src = shadow.bring(origin)
        if place is not None:
            _check_target(shadow, src, place)
            dst = shadow.write(place, keeps=False)
        _move(original, src, dst)
        if origin is not None:
            shadow.remove(origin)

    return call


def _check_target(shadow: Shadow, source: str, place: str) -> None:
    seen = shadow.resolve(place)
    if not exists(seen) or is_link(seen):
        return
    if is_folder(seen) != is_folder(source):
        number = errno.EISDIR if is_folder(seen) else errno.ENOTDIR
        raise OSError(number, os.strerror(number), place)
    if is_folder(seen) and _has_entries(shadow, place, seen):
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), place)


def _has_entries(shadow: Shadow, place: str, seen: str) -> bool:
    names = shadow.names(place)
    return bool(real.listdir(seen) if names is None else names)


def _move(original: Call, source: str, target: str) -> None:
    try:
        original(source, target)
    except OSError as error:
        # The shadow and the temporary folder may be on two disks where the user has one.
        if error.errno != errno.EXDEV or is_folder(source):
            raise
        import shutil

        shutil.copy2(source, target)
        real.unlink(source)


def opens(shadow: Shadow, original: Call) -> Call:
    """Replace the built-in `open`."""

    @quietly(shadow, original)
    def call(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if isinstance(file, int) or kwargs.get("opener") is not None or len(args) > 5:
            shadow.busy.is_on = False  # the opener is the user's, and calls what is redirected
            return original(file, mode, *args, **kwargs)
        place = shadow.place(file)
        if place is None:
            return original(file, mode, *args, **kwargs)
        if not set(mode) & set("wax+"):
            seen = shadow.resolve(place)
            path = shadow.same(file, place) if seen == place else seen
            return original(path, mode, *args, **kwargs)
        if "x" in mode:
            _need_absence(shadow, place)
        if "r" in mode:
            real.stat(shadow.resolve(place))
        path = shadow.write(place, keeps="w" not in mode)
        return original(path, mode, *args, **kwargs)

    return call


def opens_descriptor(shadow: Shadow, original: Call) -> Call:
    """Replace os.open."""

    @quietly(shadow, original)
    def call(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        place = shadow.place(path, dir_fd=dir_fd, follows=not flags & os.O_NOFOLLOW)
        if place is None:
            return int(original(path, flags, mode, dir_fd=dir_fd))
        seen = shadow.resolve(place)
        if not flags & _WRITES:
            if seen == place:
                return int(original(shadow.same(path, place), flags, mode, dir_fd=dir_fd))
            return int(original(seen, flags, mode))
        if flags & os.O_CREAT and flags & os.O_EXCL:
            _need_absence(shadow, place)
        elif not flags & os.O_CREAT:
            real.stat(seen)
            flags |= os.O_CREAT  # the shadow holds no file yet when the file is only truncated
        return int(original(shadow.write(place, keeps=not flags & os.O_TRUNC), flags, mode))

    return call


def lists(shadow: Shadow, original: Call) -> Call:
    """Replace os.listdir."""

    @quietly(shadow, original)
    def call(path: Any = ".") -> Any:
        place = None if isinstance(path, int) or path is None else shadow.place(path)
        names = None if place is None else shadow.names(place)
        if place is None or names is None:
            return original(path if place is None else shadow.same(path, place))
        return [os.fsencode(name) for name in names] if isinstance(path, bytes) else names

    return call


class Entry:
    """One entry of a folder that is partly in the shadow; like os.DirEntry."""

    def __init__(self, folder: Any, name: Any) -> None:
        self.name = name
        self.path = os.path.join(folder, name)

    def __fspath__(self) -> Any:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def inode(self) -> int:
        """Return its number on the disk."""
        return os.lstat(self.path).st_ino

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether it is a folder."""
        return os.path.isdir(self.path) and (follow_symlinks or not self.is_symlink())

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether it is a file."""
        return os.path.isfile(self.path) and (follow_symlinks or not self.is_symlink())

    def is_symlink(self) -> bool:
        """Return whether it is a symbolic link."""
        return os.path.islink(self.path)

    def is_junction(self) -> bool:
        """Return False: junctions exist on Windows only."""
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return what os.stat returns."""
        return os.stat(self.path, follow_symlinks=follow_symlinks)


class Entries:
    """Stands for what os.scandir returns, over entries made before."""

    def __init__(self, entries: list[Entry]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Iterator[Entry]:
        return self

    def __next__(self) -> Entry:
        return next(self._entries)

    def __enter__(self) -> Entries:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Do nothing: nothing is open."""


def scans(shadow: Shadow, original: Call) -> Call:
    """Replace os.scandir."""

    @quietly(shadow, original)
    def call(path: Any = ".") -> Any:
        folder = "." if path is None else path
        place = None if isinstance(folder, int) else shadow.place(folder)
        names = None if place is None else shadow.names(place)
        if place is None or names is None:
            return original(folder if place is None else shadow.same(folder, place))
        is_bytes = isinstance(folder, bytes)
        return Entries([Entry(folder, os.fsencode(n) if is_bytes else n) for n in names])

    return call


def argument(
    shadow: Shadow, original: Call, *, index: int, name: str, writes: bool, keeps: bool = False
) -> Call:
    """Replace any function that takes a path as an argument and opens it in its own way."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        path = args[index] if len(args) > index else kwargs.get(name)
        if isinstance(path, (str, bytes, os.PathLike)):
            seen = find(path)
            if len(args) > index:
                args = (*args[:index], seen, *args[index + 1 :])
            else:
                kwargs[name] = seen
        return original(*args, **kwargs)

    @quietly(shadow, original)
    def find(path: Any) -> Any:
        place = shadow.place(path)
        if place is None:
            return path
        if writes:
            return shadow.write(place, keeps=keeps)
        seen = shadow.resolve(place)
        return shadow.same(path, place) if seen == place else seen

    return call


def enters(shadow: Shadow, original: Call) -> Call:
    """Replace os.chdir: it enters the real folder if there is one, for programs started there."""

    @quietly(shadow, original)
    def call(path: Any) -> None:
        place = None if isinstance(path, int) else shadow.place(path)
        if place is None:
            original(path)
        elif is_folder(place) and not shadow.is_gone(place):
            original(place)
        else:
            original(shadow.resolve(place))
        shadow.is_away = real.getcwd().startswith(shadow.files)

    return call


def database(shadow: Shadow, original: Call) -> Call:
    """Replace sqlite3.connect: it gets a copy to write to, or the file if that is too large.

    SQLite opens a file that it may not write for reading only.
    """
    to_write = argument(shadow, original, index=0, name="database", writes=True, keeps=True)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        path = args[0] if args else kwargs.get("database")
        if isinstance(path, (str, bytes, os.PathLike)):
            name = os.fsdecode(path)
            if name in ("", ":memory:") or name.startswith("file:"):
                return original(*args, **kwargs)
            try:
                return to_write(*args, **kwargs)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EACCES):
                    raise
        return original(*args, **kwargs)

    return call
