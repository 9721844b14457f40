"""Draws the losses of whole runs over each other, and the envelope in which they must stay.

In: a `LossComparison`. Out: plots of the losses, then of how far they went from each other.
"""

from __future__ import annotations

from steptime.report.blocks.values import Block, Curve, LinePlot
from steptime.verify.values import LossComparison, LossOverlay

_WRITTEN, _TUNED, _ENVELOPE, _LIMIT = "#56b4e9", "#d55e00", "#9aa0a6", "#e0393e"


def loss_plots(comparison: LossComparison) -> list[Block]:
    """Show the losses with the levers and as written, then how far they went from each other."""
    many = len(comparison.curves) > 1
    return [
        *(
            _losses(curve, comparison, f" of optimizer {i + 1}" if many else "")
            for i, curve in enumerate(comparison.curves)
            if curve.updates
        ),
        *_distance(comparison),
    ]


def _losses(curve: LossOverlay, comparison: LossComparison, name: str) -> Block:
    x = curve.updates
    curves = [
        Curve("as written", list(zip(x, curve.baseline, strict=False)), color=_WRITTEN, width=5),
        Curve("with the levers", list(zip(x, curve.candidate, strict=False)), color=_TUNED),
    ]
    if comparison.num_runs:
        num = comparison.num_runs
        runs = "a run" if num == 1 else f"{num} runs"
        how = "with other random draws" if comparison.are_redrawn else "with the last bits changed"
        known = [
            (at, low, high)
            for at, low, high in zip(x, curve.low, curve.high, strict=False)
            if low is not None and high is not None
        ]
        spread = [(low, high) for _, low, high in known]
        points = [(float(at), None) for at, _, _ in known]
        title = f"range of {runs} as written, {how}"
        curves.insert(0, Curve(title, points, spread, color=_ENVELOPE))
    return LinePlot(f"Loss{name}", curves, x_name="update")


def _distance(comparison: LossComparison) -> list[Block]:
    """Draw the distance up to each update below the limit, on a logarithmic scale."""
    if not any(v > 0 for v in (*comparison.distance, *comparison.limit)):
        return []
    x = comparison.updates
    points = list(zip(x, comparison.distance, strict=False))
    curves = [Curve("with the levers", points, color=_TUNED)]
    if comparison.limit:
        limit = list(zip(x, comparison.limit, strict=False))
        curves.insert(0, Curve("the most that passes", limit, color=_LIMIT, is_dashed=True))
    title = "Distance from the losses as written, up to each update"
    return [LinePlot(title, curves, x_name="update", is_log=True)]
