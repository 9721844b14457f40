"""The studies of a store: found by id and listed, newest first.

In: a store. Out: `Study` values as `study.json` holds them. A study that was killed before its
first answer has no such file yet, and is left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from steptime.app.stored.run_listing import match_id
from steptime.core.codec import decode
from steptime.errors import DamagedRunError, NotFoundError, StoreError
from steptime.record.regular_file import read_regular
from steptime.tune.recipe.recipe_file import RECIPE
from steptime.tune.values.study_values import Study

FILE = "study.json"
PAGE = "report.html"


def list_studies(store: Path) -> tuple[Study, ...]:
    """Return all studies that can be read, newest first."""
    found = []
    for folder in _folders(store):
        with suppress(DamagedRunError, OSError):
            found.append(_read(folder))
    return tuple(sorted(found, key=lambda s: (s.started_unix_s, s.study_id), reverse=True))


def find_study(store: Path, wanted: str) -> Study:
    """Return the study with this id or this beginning of an id, or the `last` one.

    Raises:
        NotFoundError: there is none, or several begin like this.
        DamagedRunError: it cannot be understood.
    """
    ids = sorted(folder.name for folder in _folders(store))
    if wanted == "last":
        studies = list_studies(store)
        if studies:
            return studies[0]
    if not ids or wanted == "last":
        hint = "Make one: steptime tune -- python train.py"
        raise NotFoundError(f"there are no studies in {store}.", hint=hint)
    name = match_id(store, wanted, ids, what="study")
    try:
        return _read(store / "studies" / name)
    except OSError as error:
        raise StoreError(f"the study {name} cannot be read: {error}") from error


def recipe_of(store: Path, study: Study) -> Path | None:
    """Return the recipe that is in a study's folder."""
    return _file_of(store, study, RECIPE)


def page_of(store: Path, study: Study) -> Path | None:
    """Return the page that is in a study's folder."""
    return _file_of(store, study, PAGE)


def _file_of(store: Path, study: Study, name: str) -> Path | None:
    path = store / "studies" / study.study_id / name
    return path if os.path.isfile(path) else None


def _folders(store: Path) -> Iterator[Path]:
    try:
        entries = list((store / "studies").iterdir())
    except OSError as error:
        raise StoreError(f"the store cannot be read: {error}") from error
    return (folder for folder in entries if os.path.isfile(folder / FILE))


def _read(folder: Path) -> Study:
    return decode(Study, read_regular(folder / FILE), where=str(folder / FILE))
