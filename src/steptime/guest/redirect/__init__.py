"""Redirects what a script writes, for trials that the kernel only guards.

`inject/site/sitecustomize.py` loads it under a private name, before the script starts, when
STEPTIME_REDIRECT names the trial's folder; in any other run it is not loaded. Ordinary scripts then
run to their end although the kernel lets them write nowhere: what they write goes to the trial's
folder, and they read it from there. In an isolated trial only renames are repaired. Standard
library only.

In: calls that take a path. Out: the same calls with the path in the trial's folder, and a list of
what the script tried to write. Start with `shadow.py`, which knows where a path leads;
`path_calls.py` replaces Python's functions.
"""

from __future__ import annotations

import builtins
import io
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from . import path_calls
from .renames import mend_renames
from .shadow import Shadow, real

__all__ = ["start"]

_READS = ("stat", "access", "statvfs", "getxattr", "listxattr")
_READS_LINK = ("lstat", "readlink")
_CHANGES = ("chmod", "chown", "utime", "truncate", "setxattr", "removexattr", "chflags")
_CHANGES_LINK = ("lchown", "lchmod")
_MAKES = ("mkdir", "mkfifo", "mknod")


def start(folders: str, targets: dict[str, Callable[[Any], None]]) -> Callable[[Any], None] | None:
    """Replace the writers of this process; return what must be called once torch is there.

    Args:
        folders: the trial's folder and the temporary one, as in the variable; or `renames` and the
            trial's folder, where the trial is isolated and needs nothing else.
        targets: for each module name, what is called after that module has been executed.
    """
    folder, _, temporary = folders.rpartition(os.pathsep)
    if sys.version_info < (3, 11):
        # Its class takes functions out of `os` and binds those that are not built in, as ours: it
        # must be there before them.
        import pathlib  # noqa: F401
    if folder == "renames":
        mend_renames(temporary)
        return None
    shadow = Shadow(folder, (temporary,))
    table = _replacements(shadow)
    for name, replacement in table.items():
        setattr(os, name, replacement)
    opens = path_calls.opens(shadow, builtins.open)
    by_original = {id(getattr(real, name)): new for name, new in table.items()}
    by_original[id(builtins.open)] = opens
    builtins.open = io.open = opens
    _replace_copies(by_original)
    for known in (os.supports_follow_symlinks, os.supports_fd, os.supports_effective_ids):
        known |= {table[name] for name in table if getattr(real, name) in known}
    sys.addaudithook(_auditor(shadow))
    for name, act in {"sqlite3": _redirect_sqlite, "safetensors": _redirect_safetensors}.items():
        if name in sys.modules:
            act(shadow, sys.modules[name])
        else:
            targets[name] = partial(act, shadow)
    return lambda torch: _redirect_torch(shadow, torch)


def _replacements(shadow: Shadow) -> dict[str, Callable[..., Any]]:
    def has(*names: str) -> list[str]:
        return [name for name in names if hasattr(os, name)]

    def original(name: str) -> Any:
        return getattr(real, name)

    table = {name: path_calls.reads(shadow, original(name)) for name in has(*_READS)}
    for name in has(*_READS_LINK):
        table[name] = path_calls.reads(shadow, original(name), follows=False)
    for name in has(*_CHANGES):
        table[name] = path_calls.changes(shadow, original(name))
    for name in has(*_CHANGES_LINK):
        table[name] = path_calls.changes(shadow, original(name), follows=False)
    for name in has(*_MAKES):
        table[name] = path_calls.makes(shadow, original(name))
    for name in ("remove", "unlink", "rmdir"):
        table[name] = path_calls.removes(shadow, original(name), takes_folder=name == "rmdir")
    for name in ("rename", "replace"):
        table[name] = path_calls.renames(shadow, original(name))
    for name in ("symlink", "link"):
        table[name] = path_calls.links(shadow, original(name), is_symbolic=name == "symlink")
    table["open"] = path_calls.opens_descriptor(shadow, os.open)
    table["chdir"] = path_calls.enters(shadow, os.chdir)
    table["listdir"] = path_calls.lists(shadow, os.listdir)
    table["scandir"] = path_calls.scans(shadow, os.scandir)
    readlink = table["readlink"]
    table["readlink"] = lambda path, **how: _user_target(shadow, readlink(path, **how))
    table["getcwd"] = lambda: shadow.user_path(real.getcwd())
    return table


def _user_target(shadow: Shadow, target: Any) -> Any:
    return shadow.user_path(target) if isinstance(target, str) else target


def _replace_copies(by_original: dict[int, Callable[..., Any]]) -> None:
    """Replace the functions that loaded modules have already taken out of `os` by name."""
    for name, module in list(sys.modules.items()):
        if name in ("posix", "_io", "importlib._bootstrap_external", "_frozen_importlib_external"):
            continue
        if name == __name__ or name.startswith(f"{__name__}."):
            continue
        for key, value in list(getattr(module, "__dict__", {}).items()):
            if id(value) in by_original:
                setattr(module, key, by_original[id(value)])
    # The pathlib of Python 3.10 keeps them on a class.
    accessor = getattr(sys.modules.get("pathlib"), "_NormalAccessor", None)
    for key, value in list(vars(accessor).items()) if accessor else ():
        plain = getattr(value, "__func__", value)
        if id(plain) in by_original:
            setattr(accessor, key, staticmethod(by_original[id(plain)]))
    shutil = sys.modules.get("shutil")
    if shutil is not None:
        shutil._use_fd_functions = False  # type: ignore[attr-defined]


def _auditor(shadow: Shadow) -> Callable[[str, tuple[Any, ...]], None]:
    """Return a hook that notes what is opened for writing in ways that are not redirected."""
    writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

    def audit(event: str, args: tuple[Any, ...]) -> None:
        if event != "open" or not isinstance(args[0], (str, bytes)):
            return
        if not (isinstance(args[2], int) and args[2] & writes):
            return
        if getattr(shadow.busy, "is_on", False):
            return
        shadow.busy.is_on = True
        try:
            place = shadow.place(args[0])
            if place is not None:
                shadow.note(place)
        except Exception:
            pass  # it only reports what was tried, and guards nothing
        finally:
            shadow.busy.is_on = False

    return audit


def _redirect_sqlite(shadow: Shadow, module: Any) -> None:
    for holder in (module, sys.modules.get("sqlite3.dbapi2"), sys.modules.get("_sqlite3")):
        connect = getattr(holder, "connect", None)
        if connect is not None:
            new = path_calls.database(shadow, connect)
            holder.connect = new  # type: ignore[union-attr]


def _redirect_safetensors(shadow: Shadow, module: Any) -> None:
    save = getattr(module, "serialize_file", None)
    if save is not None:
        module.serialize_file = path_calls.argument(
            shadow, save, index=1, name="filename", writes=True
        )
    load = getattr(module, "safe_open", None)
    if isinstance(load, type):
        module.safe_open = path_calls.argument(shadow, load, index=0, name="filename", writes=False)


def _redirect_torch(shadow: Shadow, torch: Any) -> None:
    """Redirect torch's own writers, which are C++ and open files themselves."""

    def redirect(holder: Any, attribute: str, index: int, name: str, **how: bool) -> None:
        original = getattr(holder, attribute, None)
        if original is not None:
            new = path_calls.argument(shadow, original, index=index, name=name, **how)
            setattr(holder, attribute, new)

    for holder in (torch, torch.serialization):
        redirect(holder, "save", 1, "f", writes=True)
        redirect(holder, "load", 0, "f", writes=False)
    _redirect_from_file(shadow, torch)
    redirect(torch.jit, "save", 1, "f", writes=True)
    redirect(torch.jit, "load", 0, "f", writes=False)
    profile = getattr(torch.autograd.profiler, "profile", None)
    redirect(profile, "export_chrome_trace", 1, "path", writes=True)


def _redirect_from_file(shadow: Shadow, torch: Any) -> None:
    original = torch.from_file
    shared = path_calls.argument(
        shadow, original, index=0, name="filename", writes=True, keeps=True
    )
    own = path_calls.argument(shadow, original, index=0, name="filename", writes=False)

    def from_file(*args: Any, **kwargs: Any) -> Any:
        writes = args[1] if len(args) > 1 else kwargs.get("shared")
        return (shared if writes else own)(*args, **kwargs)

    torch.from_file = from_file
