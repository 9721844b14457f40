"""Edits behind the statement that gives a model its name."""

from __future__ import annotations

from collections.abc import Sequence

from steptime.levers.compile import OPTIONS
from steptime.patch.bindings import find_binding
from steptime.patch.changes import After
from steptime.patch.edits.placing import NotPlaced, Placed, Settings, at_each, take
from steptime.patch.ground import FoundSite, Ground
from steptime.patch.values import CannotPlaceError


def compile_models(settings: Settings, ground: Ground) -> Sequence[Placed | NotPlaced]:
    """`model.compile(...)`, which leaves the names of its state as they are."""
    take(settings, "mode")
    mode = str(settings["mode"])
    if mode not in OPTIONS:
        raise CannotPlaceError(f"There is no edit yet for its mode `{mode}`.")
    options = str(OPTIONS[mode]).replace("'", '"')

    def place(spot: FoundSite) -> tuple[After, ...]:
        binding = find_binding(ground, spot)
        line = f"{binding.expression}.compile(options={options})"
        return (After(source=binding.source, statement=binding.statement, line=line),)

    return at_each(ground, ground.sites("model_call"), place)
