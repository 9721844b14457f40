"""Renames across the layers of an isolated trial, which the kernel refuses.

An overlay without privileges cannot rename a folder that was there before, and what is one disk for
the user is several layers in a trial: both give "Invalid cross-device link" (EXDEV). Such a rename
becomes a copy and a removal, as `mv` does it; only a trial is that slow.
Source: https://docs.kernel.org/filesystems/overlayfs.html#renaming-directories
"""

from __future__ import annotations

import errno
import functools
import os
import sys
from collections.abc import Callable
from typing import Any

OWN_LOG = "own-writes"  # the launcher knows this name too


def mend_renames(folder: str) -> None:
    """Make os.rename and os.replace work wherever they would work without layers.

    Copies of ours, which a kill may leave behind, are noted in the trial's folder.
    """
    # The pathlib of Python 3.10 keeps them on a class.
    accessor = getattr(sys.modules.get("pathlib"), "_NormalAccessor", None)
    for name in ("rename", "replace"):
        mended = _mended(getattr(os, name), f"{folder}/{OWN_LOG}")
        setattr(os, name, mended)
        if accessor is not None:
            setattr(accessor, name, staticmethod(mended))


def _mended(original: Callable[..., None], log: str) -> Callable[..., None]:
    @functools.wraps(original)
    def call(src: Any, dst: Any, **folders: Any) -> None:
        try:
            original(src, dst, **folders)
        except OSError as error:
            if error.errno != errno.EXDEV or any(v is not None for v in folders.values()):
                raise
            _move(original, src, dst, log)

    return call


def _move(original: Callable[..., None], src: Any, dst: Any, log: str) -> None:
    import shutil  # slow to import, and few scripts need it

    between = os.fsdecode(dst) + f".steptime-{os.getpid()}"
    _note(log, os.path.abspath(between))
    is_folder = os.path.isdir(src) and not os.path.islink(src)
    if is_folder:
        shutil.copytree(src, between, symlinks=True)
    else:
        shutil.copy2(src, between, follow_symlinks=False)
    try:
        original(between, dst)  # in one piece, and with the errors of a rename
    except OSError as error:
        (shutil.rmtree if is_folder else os.unlink)(between)
        error.filename, error.filename2 = src, dst
        raise
    (shutil.rmtree if is_folder else os.unlink)(src)


def _note(log: str, path: str) -> None:
    """Add a path to the list of what is not the script's doing."""
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        return  # the list may then hold one path too many
    try:
        os.write(descriptor, os.fsencode(path.replace("\n", "\\n") + "\n"))
    finally:
        os.close(descriptor)
