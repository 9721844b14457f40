"""Says what differs between what a recipe was proven for and what it is used with."""

from __future__ import annotations

import json
from typing import Any

from steptime.core.devices.machine_identity import MachineIdentity
from steptime.measure.values.observations import Difference
from steptime.tune.recipe.recipe_file import storable
from steptime.tune.values.recipe_values import Recipe, Script


def find_differences(
    recipe: Recipe, *, script: Script, machine: MachineIdentity
) -> tuple[Difference, ...]:
    """What is not as in the proof; what was not observed there or here is no difference."""
    proven = recipe.script
    command = tuple(map(storable, script.command))
    found = []
    if proven.command != command:
        before, now = json.dumps(proven.command), json.dumps(command)
        found.append(Difference(what="command", proven=before, here=now))
    if proven.hash is not None and proven.hash != script.hash:
        files = ", ".join(proven.files)
        found.append(Difference(what="script", proven=files, here=", ".join(script.files)))
    for name in ("cpu", "num_cores", "memory_bytes"):
        before, now = getattr(recipe.machine, name), getattr(machine, name)
        if before is not None and now is not None and not _is_same(name, before, now):
            found.append(Difference(what=name, proven=before, here=now))
    return tuple(found)


def _is_same(name: str, before: Any, now: Any) -> bool:
    if name == "memory_bytes":  # what the kernel keeps for itself varies
        return bool(abs(before - now) <= 0.1 * max(before, now))
    return bool(before == now)
