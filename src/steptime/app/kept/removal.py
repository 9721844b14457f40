"""Removes what a store keeps: by id, or whatever is older than a time.

In: a store. Out: what can go, and why the rest cannot. Nothing outside the store is touched: a
folder is removed without following a link, and the index of the runs forgets it.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from steptime.app.kept.kept import KINDS, Stored, list_kept
from steptime.app.run.run_end import read_end
from steptime.app.stored import run_index
from steptime.app.stored.run_listing import match_id
from steptime.core.folder_lock import is_worked_in
from steptime.core.process_end import RunState
from steptime.core.store import Run, read_document
from steptime.errors import StoreError

_SILENT_S = 600.0
"""A run writes once a second. One without an end may go on at another machine; after so long
a silence it does not."""


def find_to_remove(store: Path, wanted: Sequence[str]) -> tuple[Stored, ...]:
    """Return what has these ids, or begins like them, whatever its kind.

    Raises:
        NotFoundError: there is none of one of them, or several begin like it.
    """
    kept = {one.id: one for one in list_kept(store)}
    what, names = "run, study or other folder", sorted(kept)
    ids = [match_id(store, one, names, what=what, words=()) for one in wanted]
    return tuple(kept[name] for name in dict.fromkeys(ids))


def older_than(store: Path, age_s: float) -> tuple[Stored, ...]:
    """Return what has been without a write for so long [s]; a study stays while its runs do."""
    until_s = time.time() - age_s
    kept = list_kept(store)
    old = [one for one in kept if _changed_s(one.folder) < until_s]
    used = {_recipe_of(one) for one in kept if one.kind == "runs" and one not in old}
    return tuple(one for one in old if one.id not in used)


def why_kept(one: Stored) -> str | None:
    """Return why something must not be removed now; None where it may be."""
    if not os.path.realpath(one.folder).startswith(os.path.realpath(one.store) + os.sep):
        return "it lies outside the store"
    if is_worked_in(one.folder):
        return "a command works in it"
    if one.kind == "runs":
        return "the run goes on" if _goes_on(one) else None
    others = (run for run in list_kept(one.store, ["runs"]) if _recipe_of(run) == one.id)
    user = next((run.id for run in others if _goes_on(run)), None)
    return None if user is None else f"run {user} trains with its recipe"


def remove(kept: Sequence[Stored]) -> None:
    """Remove folders, and the rows of runs in the index.

    Raises:
        StoreError: one cannot be removed.
    """
    for one in kept:
        try:
            shutil.rmtree(one.folder, onerror=_open_and_retry)
        except OSError as error:
            raise StoreError(f"{KINDS[one.kind]} {one.id} cannot be removed: {error}") from error
        if one.kind == "runs":
            run_index.delete_rows(one.store / "index.sqlite", [one.id])


def _open_and_retry(action: Callable[[str], Any], path: str, _: object) -> None:
    """Remove what a trial left in a folder that nobody may enter."""
    for place in (os.path.dirname(path), path):
        if not os.path.islink(place):
            os.chmod(place, 0o700)
    if action in (os.unlink, os.rmdir):
        action(path)
    else:
        shutil.rmtree(path)


def _goes_on(one: Stored) -> bool:
    state = read_end(Run(run_id=one.id, folder=one.folder)).state
    if state is RunState.UNKNOWN:
        return time.time() - _changed_s(one.folder) < _SILENT_S
    return state in (RunState.RUNNING, RunState.STILL_TRAINING)


def _changed_s(folder: Path) -> float:
    """Return when something was last written into a folder, seconds since 1970."""
    names = [folder, *folder.iterdir()]
    return max(os.lstat(name).st_mtime for name in names)


def _recipe_of(run: Stored) -> str | None:
    """Return the id of the study whose recipe a run trained with."""
    recipe = read_document(run.folder / "command.json", checks_numbers=False).get("recipe")
    return recipe.get("study_id") if isinstance(recipe, dict) else None
