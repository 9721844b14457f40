"""The folder of a study: makes it, finds it again, locks it, and writes its `study.json`.

In: a store, and a key that says what must be equal to resume a study. Out: a `StudyFolder`.
docs/reference/study-folder.md lists the files.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptime.core.codec import to_json
from steptime.core.schema import SCHEMA
from steptime.core.store import create_run, fallback_store, store_in, write_text
from steptime.errors import StoreError
from steptime.tune.values.study_values import Study

MAX_STDIN_BYTES = 64 << 20
"""What is kept of the input for the trials; a script that reads more is not fed by hand."""

_STDIN_WAIT_S = 2.0  # an input that stays open and silent belongs to whoever started us
_LOCK_WAIT_S = 2.0  # the last trial of a study that was killed may take a moment to go


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFolder:
    """A study's folder [absolute]; `key` says what must be equal to resume it."""

    study_id: str
    folder: Path
    key: str
    started_unix_s: float
    is_resumed: bool = False
    instead_of: Path | None = None

    @property
    def answers(self) -> Path:
        """The folder of the answers."""
        return self.folder / "answers"

    def new_trial(self, kind: str = "trials") -> Path:
        """Where the next trial goes, not made yet; a number is never used again."""
        parent = self.folder / kind
        parent.mkdir(exist_ok=True)
        numbers = [int(path.name) for path in parent.iterdir() if path.name.isdigit()]
        return parent / f"{max(numbers, default=-1) + 1:03d}"

    def find_compiled(self, name: str) -> Path | None:
        """The folder of that name in the trial that had it last."""
        return next(iter(sorted(self.folder.glob(f"*/*/{name}"), reverse=True)), None)

    def save(self, study: Study) -> None:
        """Write `study.json`."""
        document = {**to_json(study), "key": self.key}
        write_text(self.folder / "study.json", json.dumps(document) + "\n")


def open_study(store: Path, key: str, *, is_fresh: bool = False) -> StudyFolder:
    """The newest unfinished study with this key, else a new one.

    Args:
        store: the folder that holds the store, or the store itself.
        key: what `make_key` returned.
        is_fresh: make a new one in any case.

    Raises:
        StoreError: no folder can be made.
    """
    found = None if is_fresh else find_unfinished(store, key)
    return found or _create(store, key)


def _create(store: Path, key: str) -> StudyFolder:
    started_unix_s = time.time()
    run = create_run(store, started_unix_s=started_unix_s, kind="studies")
    study = StudyFolder(
        study_id=run.run_id,
        folder=run.folder,
        key=key,
        started_unix_s=started_unix_s,
        instead_of=run.instead_of,
    )
    try:
        study.answers.mkdir()
        (study.folder / "trials").mkdir()
        # Found again by its key even where it is killed before its first answer.
        document = {"schema": SCHEMA, "key": key, "started_unix_s": started_unix_s}
        write_text(study.folder / "study.json", json.dumps(document) + "\n")
    except OSError as error:
        raise StoreError(f"the study's folder cannot be written: {error}") from error
    return study


def find_unfinished(store: Path, key: str) -> StudyFolder | None:
    """The newest study with this key that has no outcome yet."""
    for parent in _study_parents(store):
        for folder in sorted(parent.iterdir(), reverse=True):
            document = _read(folder / "study.json")
            if document.get("key") == key and document.get("outcome") is None:
                return StudyFolder(
                    study_id=folder.name,
                    folder=folder,
                    key=key,
                    started_unix_s=float(document.get("started_unix_s") or time.time()),
                    is_resumed=True,
                )
    return None


def _study_parents(store: Path) -> list[Path]:
    stores = [store_in(store)]
    with suppress(OSError):
        stores.append(fallback_store())
    return [place / "studies" for place in stores if (place / "studies").is_dir()]


def _read(path: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    is_ours = isinstance(document, dict) and document.get("schema") == SCHEMA
    return document if is_ours else {}


@contextmanager
def hold_lock(study: StudyFolder) -> Iterator[None]:
    """Keep other studies of this store from starting trials meanwhile.

    Raises:
        StoreError: another study holds it.
    """
    path = study.folder.parent / ".lock"
    with path.open("a+", encoding="utf-8") as file:
        if not _lock(file.fileno()):
            file.seek(0)
            holder = file.read().strip() or "another study"
            raise StoreError(
                f"{holder} runs in {study.folder.parent}; two at once would measure each other.",
                hint="Wait for it, or end it: Ctrl-C keeps what it has found.",
            )
        file.truncate(0)
        file.write(f"study {study.study_id} (process {os.getpid()})\n")
        file.flush()
        yield


def _lock(descriptor: int) -> bool:
    """Whether the lock is ours; it goes when this process does. Where there are none: yes."""
    until = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(0.1)
        except OSError:
            return True  # a network disk without locks
        else:
            return True


def read_input(descriptor: int = 0) -> bytes | None:
    """What the standard input holds; None for a terminal, or for an input that stays silent.

    At most `MAX_STDIN_BYTES` of it.
    """
    chunks: list[bytes] = []
    size = 0
    try:
        if os.isatty(descriptor):
            return None
        while size < MAX_STDIN_BYTES:
            ready, _, _ = select.select([descriptor], [], [], _STDIN_WAIT_S)
            if not ready:
                return None
            chunk = os.read(descriptor, min(1 << 20, MAX_STDIN_BYTES - size))
            if not chunk:
                break
            chunks.append(chunk)
            size += len(chunk)
    except (OSError, ValueError):
        return None  # closed
    return b"".join(chunks) or None
