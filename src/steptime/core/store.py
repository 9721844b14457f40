"""The door to the disk: the `.steptime` store with one folder per run.

In: values and texts. Out: files, each written whole or not at all, and the values read back from
them. `docs/internals/run-folder.md` lists the files. Other modules know what a measurement holds.
"""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from steptime.core.codec import decode, encode, parse_document
from steptime.core.fallback_store import find_fallback, make_fallback
from steptime.errors import NotFoundError, StoreError
from steptime.record.regular_file import read_regular

NAME = ".steptime"
_ELSEWHERE = "Name a folder that you can write: --store DIR"
_NUM_TRIES = 100  # one second has 65,536 run ids
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run's folder [absolute].

    `instead_of` is the wanted store if that was not writable, and `because` says why it was not.
    """

    run_id: str
    folder: Path
    instead_of: Path | None = None
    because: str | None = None

    @property
    def store(self) -> Path:
        """Return the store that holds the run."""
        return self.folder.parent.parent


def store_in(folder: Path) -> Path:
    """Return the store of a folder [absolute]; a folder with the store's name is the store.

    It stays relative where the current folder was deleted.
    """
    with suppress(FileNotFoundError):
        folder = folder.absolute()
    return folder if folder.name == NAME else folder / NAME


def create_run(folder: Path, *, started_unix_s: float, kind: str = "runs") -> Run:
    """Return a new, empty run folder; below the temporary folder where `folder` cannot be written.

    Args:
        folder: the folder that holds the store, or the store itself.
        started_unix_s: when the run started; it becomes a part of the id.
        kind: `runs`, or `studies` for the folder of a study.

    Raises:
        StoreError: neither can be written.
    """
    wanted = store_in(folder)
    try:
        return _create_run(wanted, started_unix_s, kind)
    except OSError as error:
        because = reason_of(error)
    try:
        run = _create_run(make_fallback() / NAME, started_unix_s, kind)
    except (OSError, StoreError) as error:
        raise _nowhere(wanted, because, error) from error
    return Run(run_id=run.run_id, folder=run.folder, instead_of=wanted, because=because)


def reason_of(error: OSError) -> str:
    """Return why a file could not be used: `Permission denied`."""
    return error.strerror or str(error)


def _nowhere(wanted: Path, because: str, error: Exception) -> StoreError:
    """Return what to raise where neither the wanted store nor the last one can be written."""
    if isinstance(error, OSError):
        why = f"the store of last resort cannot be made: {reason_of(error)}."
    else:
        why = str(error)
    return StoreError(f"{wanted} cannot be written ({because}), and {why}", hint=_ELSEWHERE)


def make_folder(folder: Path, *, kind: str) -> Path:
    """Return the store's folder for one `kind` of thing, in the temporary folder if necessary.

    Args:
        folder: the folder that holds the store, or the store itself.
        kind: the folder's name.

    Raises:
        StoreError: neither can be written.
    """
    wanted = store_in(folder)
    try:
        return _make_folder(wanted, kind)
    except OSError as error:
        because = reason_of(error)
    try:
        return _make_folder(make_fallback() / NAME, kind)
    except (OSError, StoreError) as error:
        raise _nowhere(wanted, because, error) from error


def _make_folder(store: Path, kind: str) -> Path:
    with suppress(FileExistsError):
        store.mkdir(mode=0o700, parents=True)  # commands and their output are in it
    (store / kind).mkdir(exist_ok=True)
    # This keeps the store out of the user's git. An existing file is the user's decision.
    with suppress(FileExistsError), (store / ".gitignore").open("x") as file:
        file.write("*\n")
    return store / kind


def _create_run(store: Path, started_unix_s: float, kind: str) -> Run:
    _make_folder(store, kind)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(started_unix_s))
    for _ in range(_NUM_TRIES):
        run_id = f"{stamp}-{secrets.token_hex(2)}"
        with suppress(FileExistsError):
            (store / kind / run_id).mkdir()
            return Run(run_id=run_id, folder=store / kind / run_id)
    raise FileExistsError(f"{_NUM_TRIES} run ids of {stamp} are taken")


def find_store(folder: Path | None = None, *, kind: str = "runs") -> Path:
    """Return the store that holds the runs (or `studies`) that were started in a folder.

    Args:
        folder: the folder that holds the store, or the store itself; no other store will do. With
            None it is the current folder, or the store of last resort if that one cannot be
            written.
        kind: the name of the folder in the store.

    Raises:
        NotFoundError: there is no such store, or it cannot be read.
    """
    wanted = store_in(folder or Path())
    try:
        if _is_folder(wanted / kind):
            return wanted
    except OSError as error:
        message = f"the {kind} in {wanted} cannot be read: {reason_of(error)}."
        raise NotFoundError(message, hint=_hint(wanted, kind)) from error
    if folder is not None:
        raise NotFoundError(_describe_lack(folder, kind), hint=_hint(wanted, kind))
    if why_unwritable(wanted, kind=kind) is not None:
        try:
            fallback = find_fallback()
        except StoreError as error:
            message = f"there are no {kind} in {wanted}, and {error}"
            raise NotFoundError(message, hint=_ELSEWHERE) from error
        if fallback is not None and _is_folder(fallback / NAME / kind):
            return fallback / NAME
    raise NotFoundError(_describe_lack(Path(), kind), hint=_hint(wanted, kind))


def store_to_name(store: Path) -> str | None:
    """Return the folder that `--store` must name for this store; None where it is found without."""
    with suppress(NotFoundError):
        if os.path.realpath(find_store()) == os.path.realpath(store):
            return None
    return str(store.parent if store.name == NAME else store)


def why_unwritable(store: Path, *, kind: str = "runs") -> str | None:
    """Return why nothing can be written to a store, or None; nothing is written to find out."""
    places = (store / kind, store, store.parent)
    place = next((one for one in places if os.path.lexists(one)), store.parent)
    try:
        if not stat.S_ISDIR(place.stat().st_mode):
            return "a file has its name"
        if not os.access(place, os.W_OK | os.X_OK):
            is_read_only = os.statvfs(place).f_flag & os.ST_RDONLY
            return "Read-only file system" if is_read_only else "Permission denied"
        space = os.statvfs(place)
    except OSError as error:
        return reason_of(error)
    is_full = space.f_bavail == 0 or (space.f_files > 0 and space.f_favail == 0)
    return "No space left on device" if is_full and space.f_blocks > 0 else None


def other_store(store: Path, *, kind: str = "runs") -> Path | None:
    """Return the store of last resort if what is new goes there, because `store` is not writable.

    A store that was writable once may hold older runs.
    """
    if why_unwritable(store, kind=kind) is None:
        return None
    with suppress(StoreError, OSError):
        fallback = find_fallback()
        if fallback is not None and _is_folder(fallback / NAME / kind):
            return fallback / NAME
    return None


def _is_folder(path: Path) -> bool:
    """Return whether there is such a folder.

    Raises:
        OSError: it cannot be known, because a folder above it cannot be entered.
    """
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _describe_lack(folder: Path, kind: str) -> str:
    """Say what is there instead of a store with such things in it."""
    store = store_in(folder)
    if not os.path.lexists(folder):
        return f"there is no folder `{folder}`, so there are no {kind} in it."
    for path in (folder, store):
        if os.path.lexists(path) and not os.path.isdir(path):
            return f"`{path}` is not a folder, so it is no store."
    if not os.path.isdir(store) and store != store_in(Path()):
        return f"`{folder}` holds no store: there is no folder {NAME} in it."
    return f"there are no {kind} in {store}."


def _hint(wanted: Path, kind: str) -> str:
    """Say which store has what was looked for: near the one that was named, here, or the last."""
    here = store_in(Path())
    expected = "" if wanted == here else f"Name the folder that holds {NAME}. "
    if wanted == here and os.path.lexists(here) and not os.path.isdir(here):
        expected = "Move it away, or name another folder with --store. "
    above = (wanted.parent, *wanted.parent.parents)[:-1]  # nobody works in the root
    near = (store_in(one) for one in (*above, Path()))
    found = next((one for one in near if one != wanted and os.path.isdir(one / kind)), None)
    if found == here:
        return f"{expected}Leave --store out to use the store of this folder, {found}."
    if found is not None:
        return f"{expected}The nearest with {kind} is {found.parent}: --store {found.parent}"
    with suppress(StoreError):
        last = find_fallback()
        if last is not None and os.path.isdir(last / NAME / kind):
            return f"{expected}What could not be kept elsewhere is in {last}: --store {last}"
    verb = "tune" if kind == "studies" else "run"
    return f"{expected}Make one: steptime {verb} -- python train.py"


def write_text(path: Path, text: str) -> None:
    """Write a file of the store, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


def write_value(run: Run, name: str, value: object, *, is_durable: bool = False) -> None:
    """Write a value of the chain, a dataclass, as a file of the run.

    Args:
        run: whose folder it goes to.
        name: of the file.
        value: what is written.
        is_durable: return only when it would survive a loss of power; that may take a second where
            the training has just written much.
    """
    write_text(run.folder / name, encode(value) + "\n")
    if is_durable:
        # The file is in its place before it is forced to the disk: while a slow disk writes what a
        # training has left in the cache, somebody may kill this process.
        _force_to_disk(run.folder / name)
        _force_to_disk(run.folder)


def _force_to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk; some disks cannot be asked."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_value(run: Run, name: str, cls: type[T]) -> T:
    """Return the value in a file of the run.

    Raises:
        OSError: the file cannot be read.
        DamagedRunError: the file is damaged, foreign or of another schema.
    """
    return decode(cls, read_regular(run.folder / name), where=name)


def read_document(path: Path, *, checks_numbers: bool = True) -> Mapping[str, Any]:
    """Return the object in a JSON file; it is empty where there is none of our schema."""
    try:
        return parse_document(read_regular(path), checks_numbers=checks_numbers)
    except (OSError, ValueError):
        return {}
