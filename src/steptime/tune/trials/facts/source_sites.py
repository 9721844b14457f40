"""Reads the places that the guest told, and hashes the files they stand in.

In: the field `edit_sites` of the line `facts`, and the folder of the command. Out: an `EditSites`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from steptime.launch.script_files import named_files
from steptime.record.regular_file import read_regular
from steptime.tune.values.site_values import EditSite, EditSites, SourcePlace

_KINDS = ("optimizer", "loader", "model_call")


def read_sites(
    told: Any, command: tuple[str, ...], *, folder: Path, others: Iterable[str] = ()
) -> EditSites | None:
    """The places; None where the guest told none.

    Args:
        told: what the guest wrote; a row of another shape is left out.
        command: whose Python files are hashed, too: some edits stand at their beginning.
        folder: of the command; absolute.
        others: more files that an edit may change.
    """
    if not isinstance(told, list):
        return None
    sites = []
    for row in told:
        with suppress(KeyError, TypeError, ValueError):
            sites.append(_read_site(row, folder))
    scripts = (name_in(folder, word) for word in named_files(command) if word.endswith(".py"))
    names = (*scripts, *(name_in(folder, file) for file in others))
    return EditSites(files=_hash_files(sites, names, folder), sites=tuple(sites))


def _read_site(row: Any, folder: Path) -> EditSite:
    if row["what"] not in _KINDS:
        raise ValueError(f"a kind of place is needed, got {row['what']!r}")
    return EditSite(
        what=row["what"],
        name=str(row["name"]),
        place=_read_place(row["place"], folder),
        callers=tuple(_read_place(place, folder) for place in row["callers"]),
        traits=tuple(str(word) for word in row["traits"]),
    )


def _read_place(told: Any, folder: Path) -> SourcePlace:
    file, line, end_line, column, end_column = told
    where = None if column is None else (int(column), int(end_line), int(end_column))
    place = SourcePlace(file=name_in(folder, str(file)), line=int(line))
    if where is None:
        return place
    return SourcePlace(
        file=place.file, line=place.line, column=where[0], end_line=where[1], end_column=where[2]
    )


def name_in(folder: Path, file: str) -> str:
    """The file as seen from the folder, where it lies in it."""
    if file.startswith("<"):
        return file
    path = folder / file
    for base in (folder, folder.resolve()):
        with suppress(ValueError):
            return path.relative_to(base).as_posix()
    return str(path)


def hash_file(path: Path) -> str | None:
    """The hash of a file's bytes; None where it cannot be read."""
    with suppress(OSError, ValueError):
        return f"sha256:{hashlib.sha256(read_regular(path)).hexdigest()}"
    return None


def _hash_files(sites: list[EditSite], scripts: Iterable[str], folder: Path) -> dict[str, str]:
    places = [place for site in sites for place in (site.place, *site.callers)]
    names = dict.fromkeys((*scripts, *(place.file for place in places)))
    found = {name: hash_file(folder / name) for name in names if not name.startswith("<")}
    return {name: value for name, value in found.items() if value is not None}
