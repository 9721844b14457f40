"""The studies of a store: read and listed, newest first.

In: a store or a folder. Out: `Study` values as `study.json` holds them. A study that
was killed before its first answer has no such file yet, and is left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from steptime.app.kept.kept import list_kept
from steptime.core.codec import decode
from steptime.errors import DamagedRunError, StoreError
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


def read_study(folder: Path) -> Study:
    """Return the study in a folder.

    Raises:
        DamagedRunError: it cannot be understood.
        StoreError: it cannot be read.
    """
    try:
        return _read(folder)
    except OSError as error:
        raise StoreError(f"the study {folder.name} cannot be read: {error}") from error


def recipe_of(folder: Path) -> str | None:
    """Return the path of the recipe that is in a study's folder."""
    return str(folder / RECIPE) if os.path.isfile(folder / RECIPE) else None


def page_of(folder: Path) -> str | None:
    """Return the path of the page that is in a study's folder."""
    return str(folder / PAGE) if os.path.isfile(folder / PAGE) else None


def _folders(store: Path) -> Iterator[Path]:
    return (
        one.folder for one in list_kept(store, ["studies"]) if os.path.isfile(one.folder / FILE)
    )


def _read(folder: Path) -> Study:
    return decode(Study, read_regular(folder / FILE), where=str(folder / FILE))
