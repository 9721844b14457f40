"""The tables of a recipe that say where its levers act in the source.

In: an `EditSites`, or the tables `[files]` and `[[places]]` of a document. Out: the other form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from steptime.tune.values.site_values import EditSite, EditSites, parse_place

_KEYS = {"what": str, "name": str, "at": str, "callers": list, "traits": list}


def site_tables(sites: EditSites | None) -> list[tuple[str, Mapping[str, object]]]:
    """The tables, by their titles; none where nothing is known."""
    if sites is None:
        return []
    return [("files", sites.files), *(("[places]", _row(site)) for site in sites.sites)]


def _row(site: EditSite) -> dict[str, object]:
    return {
        "what": site.what,
        "name": site.name,
        "at": str(site.place),
        "callers": tuple(str(place) for place in site.callers),
        "traits": site.traits,
    }


def read_site_tables(document: Mapping[str, Any]) -> EditSites | None:
    """The places in a document; None where it has none.

    Raises:
        ValueError: the tables are damaged; the text says how.
    """
    files, rows = document.get("files"), document.get("places", [])
    if files is None and not rows:
        return None
    is_table = isinstance(files, dict) and all(isinstance(value, str) for value in files.values())
    if not is_table:
        raise ValueError("`files` must be a table of texts")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("`places` must be a list of tables [[places]]")
    return EditSites(files=dict(files or {}), sites=tuple(map(_read_row, rows)))


def _read_row(row: Mapping[str, Any]) -> EditSite:
    for key, kind in _KEYS.items():
        if not isinstance(row.get(key), kind):
            raise ValueError(f"`{key}` in [[places]] must be a {'text' if kind is str else 'list'}")
    return EditSite(
        what=row["what"],
        name=row["name"],
        place=parse_place(row["at"]),
        callers=tuple(parse_place(text) for text in _texts(row, "callers")),
        traits=tuple(_texts(row, "traits")),
    )


def _texts(row: Mapping[str, Any], key: str) -> Sequence[str]:
    found: list[Any] = row[key]
    if not all(isinstance(text, str) for text in found):
        raise ValueError(f"`{key}` in [[places]] must be a list of texts")
    return found
