"""The folder of a study: makes it, finds it again, locks it, and writes its `study.json`.

In: a store, and a key that says what must be equal to resume a study. Out: a `StudyFolder`.
docs/internals/study-folder.md lists the files.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steptime.core.codec import to_json
from steptime.core.fallback_store import find_fallback
from steptime.core.folder_lock import working_in
from steptime.core.schema import SCHEMA
from steptime.core.store import (
    NAME,
    create_run,
    read_document,
    store_in,
    why_unwritable,
    write_text,
)
from steptime.errors import StoreError
from steptime.isolate.surroundings import SHADOW
from steptime.record.hidden_words import hide_words
from steptime.tune.values.study_values import Study, StudyOutcome

MAX_STDIN_BYTES = 64 << 20
"""What is kept of the input for the trials; a script that reads more is not fed by hand."""

_STDIN_WAIT_S = 2.0  # an input that stays open and silent belongs to whoever started us
_LOCK_WAIT_S = 2.0  # the last trial of a study that was killed may take a moment to go


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFolder:
    """A study's folder [absolute]; `key` says what must be equal to resume it.

    `family` is the same for all studies of one script on one machine (`earlier_studies`).
    `budgets_s` are the budgets of its calls that granted more than those before, in order.
    `instead_of` is the wanted store if that cannot be written, and `because` says why.
    """

    study_id: str
    folder: Path
    key: str
    started_unix_s: float
    budgets_s: tuple[float, ...]
    is_resumed: bool = False
    instead_of: Path | None = None
    because: str | None = None
    family: str = ""

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
        own = {"key": self.key, "family": self.family, "budgets_s": self.budgets_s}
        told = replace(study, command=hide_words(study.command))
        document = {**to_json(told), **own}
        write_text(self.folder / "study.json", json.dumps(document) + "\n")


def open_study(
    store: Path, key: str, *, budget_s: float, is_fresh: bool = False, family: str = ""
) -> StudyFolder:
    """The newest study with this key that can continue, else a new one.

    Args:
        store: the folder that holds the store, or the store itself.
        key: what `make_key` returned.
        budget_s: all the time that the study may take, that of earlier calls included [s].
        is_fresh: make a new one in any case.
        family: what all studies of one script on one machine share.

    Raises:
        StoreError: no folder can be made.
    """
    found = None if is_fresh else find_unfinished(store, key, budget_s=budget_s)
    return replace(found or _create(store, key, budget_s), family=family)


def _create(store: Path, key: str, budget_s: float) -> StudyFolder:
    started_unix_s = time.time()
    run = create_run(store, started_unix_s=started_unix_s, kind="studies")
    study = StudyFolder(
        study_id=run.run_id,
        folder=run.folder,
        key=key,
        started_unix_s=started_unix_s,
        budgets_s=(budget_s,),
        instead_of=run.instead_of,
        because=run.because,
    )
    try:
        study.answers.mkdir()
        (study.folder / "trials").mkdir()
        # Found again by its key even where it is killed before its first answer.
        document = {"schema": SCHEMA, "key": key, "started_unix_s": started_unix_s}
        document["budgets_s"] = [budget_s]
        write_text(study.folder / "study.json", json.dumps(document) + "\n")
    except OSError as error:
        raise StoreError(f"the study's folder cannot be written: {error}") from error
    return study


def find_unfinished(store: Path, key: str, *, budget_s: float) -> StudyFolder | None:
    """The newest study with this key that can continue with this budget.

    It has no outcome yet and was granted no more; or its time did not suffice, and this is more.
    """
    wanted = store_in(store)
    because = why_unwritable(wanted, kind="studies")
    for parent in _study_parents(wanted, because):
        is_ours = parent.parent == wanted
        for folder in sorted(parent.iterdir(), reverse=True):
            document = read_document(folder / "study.json")
            budgets_s = _budgets_s(document) if document.get("key") == key else ()
            if budgets_s and _can_continue(document.get("outcome"), budgets_s[-1], budget_s):
                more_s = (budget_s,) if budget_s > budgets_s[-1] else ()
                return StudyFolder(
                    study_id=folder.name,
                    folder=folder,
                    key=key,
                    started_unix_s=float(document.get("started_unix_s") or time.time()),
                    budgets_s=(*budgets_s, *more_s),
                    is_resumed=True,
                    instead_of=None if is_ours else wanted,
                    because=None if is_ours else because,
                )
    return None


def _can_continue(outcome: object, granted_s: float, budget_s: float) -> bool:
    if outcome is None:
        return budget_s >= granted_s
    return outcome == StudyOutcome.TOO_NOISY.value and budget_s > granted_s


def _budgets_s(document: Mapping[str, Any]) -> tuple[float, ...]:
    """The budgets of its calls; none where the file does not say them as it should."""
    found = document.get("budgets_s")
    if not isinstance(found, list):
        return ()
    known = [one for one in found if type(one) in (int, float) and 0 < one < float("inf")]
    return tuple(map(float, known)) if known == found == sorted(known) else ()


def _study_parents(wanted: Path, because: str | None) -> list[Path]:
    """The folders to search: the store of last resort only where the wanted one is not writable."""
    stores = [wanted]
    with suppress(OSError, StoreError):
        if because is not None and (fallback := find_fallback()) is not None:
            stores.append(fallback / NAME)
    return [place / "studies" for place in stores if (place / "studies").is_dir()]


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
        with working_in(study.folder):
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


def left_shadows(studies: Path) -> Iterator[str]:
    """Yield the folders that killed trials of earlier studies may have left, newest first."""
    for study in sorted(studies.iterdir(), reverse=True):
        for pattern in ("trials/*", "quality/*", "probe-*/trial"):
            yield from (str(path) for path in study.glob(f"{pattern}/{SHADOW}"))


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
