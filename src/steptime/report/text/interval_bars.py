"""Draws intervals of speedups as text, on one scale around 1.00x.

In: speedups. Out: one line of columns for each. The scale is logarithmic, so that twice as fast
and half as fast are equally far from the middle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from steptime.core.interval import Interval

_LEAST = math.log(1.05)
"""The scale shows at least 5 % on both sides, so that small differences appear small."""
_MOST = math.log(4.0)
"""Larger speedups are drawn at the edge, so that one wild interval does not squeeze all others."""

_GLYPHS = {False: ("├", "─", "┤", "●", "│"), True: ("|", "-", "|", "o", ":")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Maps logarithms of speedups to columns."""

    low: float
    high: float
    width: int

    def column(self, speedup: float) -> int:
        """Return the column of a speedup, or the edge if it lies beyond the scale."""
        value = math.log(speedup) if speedup > 0 else self.low
        share = (value - self.low) / (self.high - self.low)
        return round(max(0.0, min(1.0, share)) * (self.width - 1))


def scale_for(speedups: Sequence[Interval], width: int) -> Scale:
    """Return the scale on which all speedups have room."""
    lows = [math.log(one.low) if one.low > 0 else -_MOST for one in speedups]
    highs = [math.log(one.high) for one in speedups if one.high > 0]
    return Scale(
        low=max(-_MOST, min([-_LEAST, *lows])),
        high=min(_MOST, max([_LEAST, *highs])),
        width=width,
    )


def draw(speedup: Interval | None, scale: Scale, *, ascii_only: bool) -> str:
    """Draw an interval with its estimate and the mark of 1.00x; None gives the mark alone."""
    start, line, end, dot, one = _GLYPHS[ascii_only]
    cells = [" "] * scale.width
    cells[scale.column(1.0)] = one
    if speedup is not None:
        low, high = scale.column(speedup.low), scale.column(speedup.high)
        cells[low : high + 1] = [line] * (high - low + 1)
        cells[low], cells[high] = start, end
        cells[scale.column(speedup.estimate)] = dot
    return "".join(cells)


def heading(scale: Scale) -> str:
    """Return the heading: `1.00x` above its mark."""
    label = "1.00x"
    start = max(0, min(scale.width - len(label), scale.column(1.0) - 1))
    return (" " * start + label).ljust(scale.width)
