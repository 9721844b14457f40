"""Edits that are one statement at the beginning of the script."""

from __future__ import annotations

from collections.abc import Sequence

from steptime.patch.changes import Beginning, need_torch
from steptime.patch.edits.placing import NotPlaced, Placed, Settings, take
from steptime.patch.ground import Ground


def set_matmul_precision(settings: Settings, ground: Ground) -> Sequence[Placed | NotPlaced]:
    """`torch.set_float32_matmul_precision("medium")` behind the imports."""
    take(settings, "precision")
    source = ground.main_source()
    torch, needed = need_torch(source)
    text = f'{torch}.set_float32_matmul_precision("{settings["precision"]}")'
    return [Placed(source.name, (*needed, Beginning(source=source, text=text)))]
