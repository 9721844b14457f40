"""What an edit is, and the loop that all of them share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from steptime.patch.changes import Change
from steptime.patch.ground import FoundSite, Ground
from steptime.patch.values import CannotPlaceError
from steptime.tune.values.site_values import EditSite

Settings = Mapping[str, "str | int | float | bool"]


@dataclass(frozen=True, slots=True)
class NotPlaced:
    """A place where the edit could not be made, and why."""

    reason: str
    place: str | None = None


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
) -> list[Placed | NotPlaced]:
    """Make an edit at each site where that is possible; `note` says what else it changes."""
    found: list[Placed | NotPlaced] = []
    for site in sites:
        try:
            spot = ground.spot(site)
            found.append(Placed(spot.where, place(spot), note))
        except CannotPlaceError as error:
            found.append(NotPlaced(str(error), f"{site.place.file}:{site.place.line}"))
    return found


def take(settings: Settings, *names: str) -> None:
    """Check that an edit knows all settings of its lever.

    Raises:
        CannotPlaceError: it does not.
    """
    unknown = sorted(set(settings) - set(names))
    if unknown:
        raise CannotPlaceError(f"There is no edit yet for its setting `{unknown[0]}`.")
