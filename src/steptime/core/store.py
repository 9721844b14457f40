"""The door to the disk: the `.steptime` store with one folder per run.

In: values and texts. Out: files, each written whole or not at all, and the values read back from
them. `docs/reference/run-folder.md` lists the files. Other modules know what a measurement holds.
"""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from steptime.core.codec import decode, encode
from steptime.errors import NotFoundError, StoreError

NAME = ".steptime"
_NUM_TRIES = 100  # one second has 65,536 run ids
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run's folder [absolute]; `instead_of` is the wanted store, if that was not writable."""

    run_id: str
    folder: Path
    instead_of: Path | None = None

    @property
    def store(self) -> Path:
        """Return the store that holds the run."""
        return self.folder.parent.parent


def store_in(folder: Path) -> Path:
    """Return the store of a folder [absolute]; a folder with the store's name is the store."""
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
    try:
        return _create_run(store_in(folder), started_unix_s, kind)
    except OSError as error:
        reason = str(error)
    try:
        fallback = fallback_store()
        run = _create_run(fallback, started_unix_s, kind)
    except OSError as error:
        raise StoreError(f"no run folder can be made: {reason}; {error}") from error
    return Run(run_id=run.run_id, folder=run.folder, instead_of=folder / NAME)


def fallback_store() -> Path:
    """Return the store below the temporary folder, which is ours alone.

    Raises:
        OSError: it cannot be made, or its folder belongs to somebody else.
    """
    fallback = _fallback_folder()
    fallback.mkdir(mode=0o700, exist_ok=True)
    _check_owner(fallback)
    return fallback / NAME


def make_folder(folder: Path, *, kind: str) -> Path:
    """Return the store's folder for one `kind` of thing, in the temporary folder if necessary.

    Args:
        folder: the folder that holds the store, or the store itself.
        kind: the folder's name.

    Raises:
        StoreError: neither can be written.
    """
    try:
        return _make_folder(store_in(folder), kind)
    except OSError as error:
        reason = str(error)
    try:
        return _make_folder(fallback_store(), kind)
    except OSError as error:
        raise StoreError(f"no folder can be made: {reason}; {error}") from error


def _make_folder(store: Path, kind: str) -> Path:
    (store / kind).mkdir(parents=True, exist_ok=True)
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


def _fallback_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"steptime-{os.getuid()}"


def _check_owner(folder: Path) -> None:
    """Refuse a folder that somebody else made: others may write to the temporary folder too."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to somebody else")


def find_store(folder: Path, *, kind: str = "runs") -> Path:
    """Return the store that holds the runs (or `studies`) that were started in `folder`.

    Raises:
        NotFoundError: there is no store.
    """
    try:
        wanted = store_in(folder)
        if (wanted / kind).is_dir():
            return wanted
        fallback = _fallback_folder()
        if (fallback / NAME / kind).is_dir():
            _check_owner(fallback)
            return fallback / NAME
    except OSError as error:
        raise NotFoundError(f"no {kind} were found: {error}") from error
    verb = "tune" if kind == "studies" else "run"
    raise NotFoundError(
        f"there are no {kind} in {wanted}.", hint=f"Make one: steptime {verb} -- python train.py"
    )


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


def write_value(run: Run, name: str, value: object) -> None:
    """Write a value of the chain, a dataclass, as a file of the run."""
    write_text(run.folder / name, encode(value) + "\n")


def read_value(run: Run, name: str, cls: type[T]) -> T:
    """Return the value in a file of the run.

    Raises:
        OSError: the file cannot be read.
        DamagedRunError: the file is damaged, foreign or of another schema.
    """
    return decode(cls, (run.folder / name).read_bytes(), where=name)
