"""The studies of a store: read and listed, newest first.

In: a store or a folder. Out: `Study` values as `study.json` holds them. A study that
was killed before its first answer has no such file yet, and is left out.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from steptime.app.kept.kept import list_kept
from steptime.core.codec import decode
from steptime.errors import DamagedRunError, StoreError
from steptime.record.regular_file import read_regular
from steptime.report.document.study_documents import StudyDocument
from steptime.tune.recipe.recipe_file import RECIPE
from steptime.tune.values.study_values import Study

FILE = "study.json"
PAGE = "report.html"


def list_studies(store: Path) -> tuple[Study, ...]:
    """Return all studies that can be read, newest first."""
    found = []
    for one in list_kept(store, ["studies"]):
        with suppress(DamagedRunError, StoreError):
            found.append(read_study(one.folder))
    return tuple(sorted(found, key=lambda s: (s.started_unix_s, s.study_id), reverse=True))


def read_study(folder: Path) -> Study:
    """Return the study in a folder.

    Raises:
        DamagedRunError: it cannot be understood.
        StoreError: it cannot be read.
    """
    try:
        return decode(Study, read_regular(folder / FILE), where=str(folder / FILE))
    except OSError as error:
        raise StoreError(f"the study {folder.name} cannot be read: {error}") from error


def describe_stored(folder: Path) -> StudyDocument:
    """Return the study in a folder, with its recipe and its page where these are.

    Raises:
        DamagedRunError, StoreError: as for `read_study`.
    """
    recipe, page = (
        str(folder / name) if os.path.isfile(folder / name) else None for name in (RECIPE, PAGE)
    )
    return StudyDocument(study=read_study(folder), recipe_file=recipe, page=page)
