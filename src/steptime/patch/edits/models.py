"""Edits behind the statement that gives a model its name."""

from __future__ import annotations

from collections.abc import Sequence

from steptime.levers.compile import WAYS, arguments
from steptime.patch.bindings import find_binding
from steptime.patch.changes import After
from steptime.patch.edits.placing import NotPlaced, Placed, Settings, at_each, take
from steptime.patch.ground import FoundSite, Ground
from steptime.patch.values import CannotPlaceError


def compile_models(settings: Settings, ground: Ground) -> Sequence[Placed | NotPlaced]:
    """`model.compile(...)`, which leaves the names of its state as they are."""
    take(settings, "mode")
    mode = str(settings["mode"])
    if mode not in WAYS:
        raise CannotPlaceError(f"There is no edit yet for its mode `{mode}`.")

    def place(spot: FoundSite) -> tuple[After, ...]:
        binding = find_binding(ground, spot)
        line = f"{binding.expression}.compile({arguments(mode)})"
        return (After(source=binding.source, statement=binding.statement, line=line),)

    return at_each(ground, ground.sites("model_call"), place)
