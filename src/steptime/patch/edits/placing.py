"""What an edit is, and the loop that all of them share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from steptime.patch.changes import Change
from steptime.patch.ground import FoundSite, Ground
from steptime.patch.values import CannotPlaceError
from steptime.tune.values.site_values import EditSite

Settings = Mapping[str, "str | int | float | bool"]


@dataclass(frozen=True, slots=True)
class NotPlaced:
    """A place where the edit could not be made, and why.

    `lines` are what to write there, where that is known better than by the lever.
    """

    reason: str
    place: str | None = None
    lines: str | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    """A place where the edit is made, by these changes."""

    place: str
    changes: tuple[Change, ...]
    note: str | None = None


Edit = Callable[[Settings, Ground], Sequence["Placed | NotPlaced"]]
"""Places a lever with its settings.

Raises CannotPlaceError where it has no place at all.
"""


def at_each(
    ground: Ground,
    sites: Iterable[EditSite],
    place: Callable[[FoundSite], tuple[Change, ...]],
    *,
    note: str | None = None,
    write: Callable[[EditSite], str] | None = None,
) -> list[Placed | NotPlaced]:
    """Make an edit at each site where that is possible.

    Args:
        ground: the places.
        sites: of one kind.
        place: makes the changes at one; raises CannotPlaceError.
        note: what else the edit changes.
        write: what a person writes for a site where it cannot be made; None, or CannotPlaceError,
            for the lever's own lines.
    """
    found: list[Placed | NotPlaced] = []
    for site in sites:
        try:
            spot = ground.spot(site)
            found.append(Placed(spot.where, place(spot), note))
        except CannotPlaceError as error:
            where, lines = ground.label(site.place), _written(site, write)
            found.append(NotPlaced(str(error), where, lines))
    return found


def _written(site: EditSite, write: Callable[[EditSite], str] | None) -> str | None:
    with suppress(CannotPlaceError):
        return None if write is None else write(site)
    return None


def take(settings: Settings, *names: str) -> None:
    """Check that an edit knows all settings of its lever.

    Raises:
        CannotPlaceError: it does not.
    """
    unknown = sorted(set(settings) - set(names))
    if unknown:
        raise CannotPlaceError(f"There is no edit yet for its setting `{unknown[0]}`.")
