"""Edits at the beginning of the script: one statement, or a function and its call."""

from __future__ import annotations

from collections.abc import Sequence

from steptime.levers.matmuls.matmul_library import function_lines
from steptime.patch.changes import Beginning, need_torch
from steptime.patch.edits.placing import NotPlaced, Placed, Settings, take
from steptime.patch.ground import Ground


def set_matmul_precision(settings: Settings, ground: Ground) -> Sequence[Placed | NotPlaced]:
    """`torch.set_float32_matmul_precision("medium")` behind the imports."""
    take(settings, "precision")
    return _begin(ground, f'set_float32_matmul_precision("{settings["precision"]}")')


def try_algorithms(settings: Settings, ground: Ground) -> Sequence[Placed | NotPlaced]:
    """`torch.backends.cudnn.benchmark = True` behind the imports."""
    take(settings)
    return _begin(ground, "backends.cudnn.benchmark = True")


def multiply_by_onednn(settings: Settings, ground: Ground) -> Sequence[Placed | NotPlaced]:
    """The function that puts oneDNN's matmuls in the place of MKL's, and its call."""
    take(settings)
    source = ground.main_source()
    torch, needed = need_torch(source)
    function, library = map(source.fresh_name, ("multiply_by_onednn", "onednn_matmuls"))
    text = function_lines().replace("multiply_by_onednn", function)
    changes = (
        Beginning(source=source, text=text, num_blank=2),
        Beginning(source=source, text=f"{library} = {function}({torch})", num_blank=2),
    )
    return [Placed(source.name, (*needed, *changes))]


def _begin(ground: Ground, what: str) -> list[Placed | NotPlaced]:
    """A statement on torch behind the imports."""
    source = ground.main_source()
    torch, needed = need_torch(source)
    beginning = Beginning(source=source, text=f"{torch}.{what}")
    return [Placed(source.name, (*needed, beginning))]
