"""Makes the edit of a recipe: each lever stands in the diff, in the launch line, or by hand.

In: a Recipe, its levers, and the folder of its command. Out: a `Handover`. No file is written.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from steptime.levers.base import Lever, Moment
from steptime.patch.changes import Change, apply_changes
from steptime.patch.edits import EDITS, NO_EDITS, VARIABLES
from steptime.patch.edits.placing import NotPlaced, Placed
from steptime.patch.ground import Ground
from steptime.patch.notebook_cells import replace_texts, text_of
from steptime.patch.source_file import SourceFile
from steptime.patch.unified_diff import diff_file
from steptime.patch.values import ByHand, CannotPlaceError, CellText, Handover, PlacedLever
from steptime.tune.trials.trial_setting import variables_of
from steptime.tune.values.recipe_values import Recipe
from steptime.tune.values.study_values import Applied

NO_EDIT = "There is no mechanical edit for it."


@dataclass(slots=True)
class _Parts:
    """What has been found so far."""

    changes: dict[SourceFile, list[Change]] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    placed: list[PlacedLever] = field(default_factory=list)
    by_hand: list[ByHand] = field(default_factory=list)


def make_patch(
    recipe: Recipe, *, levers: Mapping[str, Lever], folder: Path, libraries: Mapping[str, str]
) -> Handover:
    """The recipe as an edit of the files in a folder.

    Args:
        recipe: what was proven.
        levers: those of the recipe, by name.
        folder: in which its command is given; absolute.
        libraries: `Facts.libraries` of this machine.
    """
    ground, parts = Ground(recipe, folder=folder), _Parts()
    for applied in recipe.levers:
        lever = levers[applied.name]
        if not _set_variables(applied, lever, libraries, parts):
            _edit(applied, lever, ground, parts)
    changed = _apply(recipe, levers, parts)
    files = {one: data for one, data in changed.items() if ground.cell_of(one) is None}
    texts = {
        cell: text_of(data)
        for one, data in changed.items()
        if (cell := ground.cell_of(one)) is not None
    }
    return Handover(
        diff=b"".join(diff_file(one.name, one.data, data) for one, data in files.items()),
        files={one.name: data for one, data in files.items()} | replace_texts(texts, folder=folder),
        variables=parts.variables,
        launch_line=_launch_line(recipe.script.command, parts.variables),
        placed=tuple(parts.placed),
        by_hand=tuple(parts.by_hand),
        cells=tuple(
            CellText(notebook=cell.notebook, number=cell.number, text=text)
            for cell, text in sorted(texts.items(), key=lambda one: one[0].number)
        ),
    )


OTHER_PYTHON = "Another interpreter starts the command, which is no edit of a file."


def _set_variables(
    applied: Applied, lever: Lever, libraries: Mapping[str, str], parts: _Parts
) -> bool:
    """Whether the lever is one of the launch line; it is in `parts` then."""
    names = VARIABLES.get(applied.name)
    if names is not None:
        found = {name: str(applied.settings[key]) for name, key in names.items()}
    elif lever.moment != Moment.ENVIRONMENT:
        return False
    elif applied.name == "interpreter":  # no variable of its own: it is the command's first word
        parts.by_hand.append(_by_hand(applied, lever, OTHER_PYTHON))
        return True
    else:
        try:
            found = variables_of((applied,), {lever.name: lever}, libraries)
        except KeyError as error:
            reason = f"{error.args[0]} is not installed here."
            parts.by_hand.append(_by_hand(applied, lever, reason))
            return True
    for name, value in found.items():
        is_joined = name == "LD_PRELOAD" and name in parts.variables
        parts.variables[name] = f"{value}:{parts.variables[name]}" if is_joined else value
    parts.placed.append(PlacedLever(name=applied.name))
    return True


def _edit(applied: Applied, lever: Lever, ground: Ground, parts: _Parts) -> None:
    edit = EDITS.get(applied.name)
    if edit is None:
        reason = NO_EDITS.get(applied.name, NO_EDIT)
        parts.by_hand.append(_by_hand(applied, lever, reason))
        return
    try:
        found: Sequence[Placed | NotPlaced] = edit(applied.settings, ground)
    except CannotPlaceError as error:
        parts.by_hand.append(_by_hand(applied, lever, str(error)))
        return
    places, notes = [], []
    for one in found:
        if isinstance(one, NotPlaced):
            left = _by_hand(applied, lever, one.reason, place=one.place, lines=one.lines)
            parts.by_hand.append(left)
            continue
        places.append(one.place)
        notes += [] if one.note is None else [one.note]
        for change in one.changes:
            parts.changes.setdefault(change.source, []).append(change)
    if places:
        parts.placed.append(
            PlacedLever(
                name=applied.name,
                places=tuple(dict.fromkeys(places)),
                notes=tuple(dict.fromkeys(notes)),
            )
        )


def _apply(recipe: Recipe, levers: Mapping[str, Lever], parts: _Parts) -> dict[SourceFile, bytes]:
    """The new bytes of each file; one that cannot be changed is left as it is, and said."""
    found = {}
    for source, changes in parts.changes.items():
        try:
            found[source] = apply_changes(source, changes)
        except CannotPlaceError as error:
            _take_back(recipe, levers, source, str(error), parts)
    return found


def _take_back(
    recipe: Recipe, levers: Mapping[str, Lever], source: SourceFile, reason: str, parts: _Parts
) -> None:
    """Say of the levers with a place in a file that they are not done."""
    states = {applied.name: applied for applied in recipe.levers}
    for lever in list(parts.placed):
        if any(place.partition(":")[0] == source.name for place in lever.places):
            parts.placed.remove(lever)
            parts.by_hand.append(_by_hand(states[lever.name], levers[lever.name], reason))


def _by_hand(
    applied: Applied,
    lever: Lever,
    reason: str,
    *,
    place: str | None = None,
    lines: str | None = None,
) -> ByHand:
    lines = lever.edit(applied.settings) if lines is None else lines
    return ByHand(lever=applied.name, reason=reason, lines=lines, place=place)


def _launch_line(command: tuple[str, ...], variables: Mapping[str, str]) -> str | None:
    if not variables:
        return None
    words = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    return " ".join([*words, shlex.join(command)])
