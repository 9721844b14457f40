"""The store of last resort: it lies below the temporary folder and is ours alone.

Everybody may write to the temporary folder, so whatever has our name there may have been made by
somebody else. The folder is made with its mode in one call, opened without following a link, and
judged by what was opened. Below a folder that only we may enter, paths are safe again.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from steptime.errors import StoreError

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def fallback_folder() -> Path:
    """Return where the folder is, whether it exists or not."""
    return Path(tempfile.gettempdir()) / f"steptime-{os.getuid()}"


def make_fallback() -> Path:
    """Return the folder, made if it was not there.

    Raises:
        OSError: it cannot be made.
        StoreError: what is there was not made by us, or is open to others.
    """
    folder = fallback_folder()
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    check_fallback(folder)
    return folder


def find_fallback() -> Path | None:
    """Return the folder if it exists; nothing is made.

    Raises:
        StoreError: what is there was not made by us, or is open to others.
    """
    folder = fallback_folder()
    if not os.path.lexists(folder):
        return None
    check_fallback(folder)
    return folder


def check_fallback(folder: Path) -> None:
    """Refuse a folder that others made, or may change.

    Whoever owns the temporary folder itself is trusted, as the superuser is.

    Raises:
        StoreError: it is not ours alone.
    """
    with _opened(folder) as status, _opened(folder.parent, follow=True) as parent:
        mode = stat.S_IMODE(status.st_mode)
        if status.st_uid != os.geteuid():
            raise _refusal(folder, f"it belongs to another user (number {status.st_uid})")
        if mode & 0o077:
            way_out = f"chmod 700 {folder}"
            raise _refusal(folder, f"other users may enter it (its mode is {mode:o}; {way_out})")
        if parent.st_mode & 0o022 and not parent.st_mode & stat.S_ISVTX:
            why = f"other users may replace it, because {folder.parent} has no sticky bit"
            raise _refusal(folder, why)


@contextmanager
def _opened(folder: Path, *, follow: bool = False) -> Iterator[os.stat_result]:
    """Yield the state of an open folder; while it is open, the folder cannot become another."""
    try:
        descriptor = os.open(folder, _OPEN & ~os.O_NOFOLLOW if follow else _OPEN)
    except NotADirectoryError as error:  # what Linux says of a link, too
        what = "a link" if folder.is_symlink() else "a file"
        raise _refusal(folder, f"it is {what} and not a folder") from error
    except PermissionError as error:
        owner = folder.lstat().st_uid
        why = "it cannot be opened" if owner == os.geteuid() else "it belongs to another user"
        raise _refusal(folder, why) from error
    try:
        yield os.fstat(descriptor)
    finally:
        os.close(descriptor)


def _refusal(folder: Path, why: str) -> StoreError:
    return StoreError(f"the store of last resort, {folder}, is refused: {why}.")
