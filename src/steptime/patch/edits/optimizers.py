"""Edits of the calls that make optimizers."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from steptime.patch.arguments import rename_argument, set_arguments
from steptime.patch.changes import CallChange
from steptime.patch.edits.placing import NotPlaced, Placed, Settings, at_each, take
from steptime.patch.ground import FoundSite, Ground


def leave_foreach(settings: Settings, ground: Ground) -> Sequence[Placed | NotPlaced]:
    """`foreach=False`."""
    take(settings)

    def act(call: cst.Call) -> cst.Call:
        return set_arguments(call, {"foreach": "False"})

    def place(spot: FoundSite) -> tuple[CallChange, ...]:
        act(spot.call)
        return (CallChange(source=spot.source, call=spot.call, act=act),)

    return at_each(ground, ground.sites("optimizer"), place)


def set_implementation(settings: Settings, ground: Ground) -> Sequence[Placed | NotPlaced]:
    """`fused=True` or `foreach=True`; the other one of the two is taken out."""
    take(settings, "implementation")
    name = str(settings["implementation"])
    other = "foreach" if name == "fused" else "fused"

    def act(call: cst.Call) -> cst.Call:
        has_own = any(arg.keyword is not None and arg.keyword.value == name for arg in call.args)
        renamed = None if has_own else rename_argument(call, other, to=name, value="True")
        return renamed or set_arguments(call, {name: "True"}, dropped=(other,))

    def place(spot: FoundSite) -> tuple[CallChange, ...]:
        act(spot.call)  # what cannot be done is known now
        return (CallChange(source=spot.source, call=spot.call, act=act),)

    return at_each(ground, ground.sites("optimizer"), place)
