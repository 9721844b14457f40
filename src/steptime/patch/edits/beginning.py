"""Edits that are one statement at the beginning of the script."""

from __future__ import annotations

from collections.abc import Sequence

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


def _begin(ground: Ground, what: str) -> list[Placed | NotPlaced]:
    """A statement on torch behind the imports."""
    source = ground.main_source()
    torch, needed = need_torch(source)
    beginning = Beginning(source=source, text=f"{torch}.{what}")
    return [Placed(source.name, (*needed, beginning))]
