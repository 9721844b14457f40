"""Draws the losses of whole runs over each other: as written, and with the levers."""

from __future__ import annotations

from collections.abc import Sequence

from steptime.report.blocks.values import Block, Curve, LinePlot
from steptime.verify.values import LossOverlay

_WRITTEN, _TUNED = "#56b4e9", "#d55e00"


def loss_plots(overlays: Sequence[LossOverlay]) -> list[Block]:
    """Show the losses of each optimizer with the levers and as written."""
    return [
        LinePlot(
            f"Loss of optimizer {i + 1}" if len(overlays) > 1 else "Loss",
            [
                Curve("as written", _points(one, one.baseline), color=_WRITTEN, width=5),
                Curve("with the levers", _points(one, one.candidate), color=_TUNED),
            ],
            x_name="update",
        )
        for i, one in enumerate(overlays)
    ]


def _points(one: LossOverlay, losses: Sequence[float | None]) -> list[tuple[float, float | None]]:
    return list(zip(one.updates, losses, strict=True))
