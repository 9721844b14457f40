"""Reports how the recipe of a run was used.

In: the records of the run. Out: the `RecipeUse` of `command.json`, with the errors of levers and
the differences from the proof that the training process itself saw.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from steptime.measure.values.observations import Difference, LeverUse, RecipeUse

if TYPE_CHECKING:
    from steptime.measure.fold.run_records import RunRecords


def find_recipe(records: RunRecords) -> RecipeUse | None:
    """Return the recipe with all that was seen of it; None if this training had none."""
    use = _recipe_of(records)
    if use is None:
        return None
    errors = _errors(records)
    levers = tuple(replace(one, error=one.error or errors.get(one.name)) for one in use.levers)
    return replace(use, levers=levers, differences=(*use.differences, *_seen_inside(use, records)))


def unseen_levers(records: RunRecords) -> tuple[LeverUse, ...]:
    """Return the guest's levers of which no process that stepped has written a line."""
    use = _recipe_of(records)
    if use is None or not records.streams:
        return ()
    told = {line.name for stream in records.streams for line in stream.signals.levers}
    return tuple(one for one in use.levers if one.is_in_guest and one.name not in told)


def _recipe_of(records: RunRecords) -> RecipeUse | None:
    """Return the recipe of the run, unless it is for another training of the command."""
    use, own = records.command.recipe, records.training
    is_others = (
        use is not None
        and use.training is not None
        and own is not None
        and not own.is_alone
        and own.number != use.training
    )
    return None if is_others else use


def _errors(records: RunRecords) -> dict[str, str]:
    """Return the first error of each lever, in any process."""
    found: dict[str, str] = {}
    for stream in records.streams:
        for line in stream.signals.levers:
            if line.error is not None:
                found.setdefault(line.name, line.error)
    return found


def _seen_inside(use: RecipeUse, records: RunRecords) -> tuple[Difference, ...]:
    """Return differences of device and torch, which only the training process knows."""
    if not records.streams:
        return ()
    head = records.streams[0].head
    pairs = [("device", use.device, head.device)]
    if not any(one.name == "interpreter" for one in use.levers):  # it brings its own torch
        pairs.append(("torch_version", use.torch_version, head.torch))
    return tuple(
        Difference(what=what, proven=proven, here=here)
        for what, proven, here in pairs
        if proven is not None and proven != here
    )
