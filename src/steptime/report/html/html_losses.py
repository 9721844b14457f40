"""Draws the losses of whole runs over each other, and the envelope in which they must stay.

In: a `LossComparison`. Out: charts as SVG, which need no script: the lines are stretched to the
width of the page, and all words stand beside them as text of the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from steptime.core.units import format_count
from steptime.report.html.html_tags import Html, joined_html, tag
from steptime.verify.values import LossComparison, LossOverlay

_WIDE, _HIGH = 1000.0, 300.0
_ROOM = 0.05
"""Free part of the height above and below the lines."""

Values = Sequence[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axes:
    """Maps updates and values to places in the drawing; `scale` is the identity or a logarithm."""

    first: float
    last: float
    low: float
    high: float
    scale: Callable[[float], float] = float

    def x(self, update: float) -> float:
        return _WIDE * (update - self.first) / max(self.last - self.first, 1.0)

    def y(self, value: float) -> float:
        return _HIGH * (1 - (self.scale(value) - self.low) / ((self.high - self.low) or 1.0))


def losses_part(comparison: LossComparison) -> Html | None:
    """Show the losses with the levers and as written, then how far they went from each other."""
    many = len(comparison.curves) > 1
    charts = [
        _losses(curve, comparison, name=f" of optimizer {i + 1}" if many else "")
        for i, curve in enumerate(comparison.curves)
    ]
    return joined_html([*charts, _distance(comparison)])


def _losses(curve: LossOverlay, comparison: LossComparison, *, name: str) -> Html | None:
    known = [v for lane in (curve.baseline, curve.candidate, curve.low, curve.high) for v in lane]
    axes = _axes(curve.updates, known)
    if axes is None:
        return None
    x = curve.updates
    drawn = [
        _band(axes, x, curve.low, curve.high),
        _line("written", axes, x, curve.baseline),
        _line("tuned", axes, x, curve.candidate),
    ]
    legend = [("written", "as written"), ("tuned", "with the levers")]
    if comparison.num_runs:
        num = comparison.num_runs
        runs = "a run" if num == 1 else f"{num} runs"
        how = "with other random draws" if comparison.are_redrawn else "with the last bits changed"
        legend.append(("envelope", f"range of {runs} as written, {how}"))
    return _chart(f"Loss{name}", axes, drawn, legend, of_y=_number)


def _distance(comparison: LossComparison) -> Html | None:
    """Draw the distance up to each update below the limit, on a logarithmic scale."""
    shown = [v for v in (*comparison.distance, *comparison.limit) if v > 0]
    if not shown:
        return None
    floor = min(shown)
    axes = _axes(comparison.updates, shown, scale=lambda value: math.log10(max(value, floor)))
    if axes is None:
        return None
    drawn = [_line("tuned", axes, comparison.updates, comparison.distance)]
    legend = [("tuned", "with the levers")]
    if comparison.limit:
        drawn.insert(0, _line("limit", axes, comparison.updates, comparison.limit))
        legend.append(("limit", "the most that passes"))
    title = "Distance from the losses as written, up to each update"
    return _chart(title, axes, drawn, legend, of_y=lambda value: f"{10**value:.1g}")


def _axes(
    updates: Sequence[int], values: Values, *, scale: Callable[[float], float] = float
) -> _Axes | None:
    known = [scale(value) for value in values if value is not None]
    if not known or not updates:
        return None
    low, high = min(known), max(known)
    room = _ROOM * (high - low) or abs(high) * _ROOM or 1.0
    return _Axes(first=updates[0], last=updates[-1], low=low - room, high=high + room, scale=scale)


def _line(kind: str, axes: _Axes, updates: Sequence[int], values: Values) -> Html:
    """Return a line that is broken where nothing is known."""
    parts: list[str] = []
    is_down = False
    for update, value in zip(updates, values, strict=False):
        if value is None:
            is_down = False
            continue
        parts.append(f"{'L' if is_down else 'M'}{axes.x(update):.1f} {axes.y(value):.1f}")
        is_down = True
    return tag("path", class_=kind, d="".join(parts), vector_effect="non-scaling-stroke")


def _band(axes: _Axes, updates: Sequence[int], low: Values, high: Values) -> Html | None:
    """Return the area between two lines, without the places where one is not known."""
    ends = [
        (axes.x(n), axes.y(a), axes.y(b))
        for n, a, b in zip(updates, low, high, strict=False)
        if a is not None and b is not None
    ]
    if not ends:
        return None
    above = "L".join(f"{x:.1f} {top:.1f}" for x, _, top in ends)
    below = "L".join(f"{x:.1f} {bottom:.1f}" for x, bottom, _ in reversed(ends))
    return tag("path", class_="envelope", d=f"M{above}L{below}Z")


def _chart(
    title: str,
    axes: _Axes,
    drawn: Sequence[Html | None],
    legend: Sequence[tuple[str, str]],
    *,
    of_y: Callable[[float], str],
) -> Html:
    """Return a figure: its title with the legend, the lines, and the words along its edges."""
    items = [tag("span", tag("i", class_=f"key {kind}"), name) for kind, name in legend]
    view = {"viewBox": f"0 0 {_WIDE:g} {_HIGH:g}", "preserveAspectRatio": "none"}
    lines = tag("svg", *drawn, aria_hidden="true", **view)
    marks = [
        (share, axes.low + share * (axes.high - axes.low)) for share in (0.05, 0.35, 0.65, 0.95)
    ]
    ys = [tag("i", of_y(y), class_="y", style=f"bottom:{100 * share:.0f}%") for share, y in marks]
    ends = dict.fromkeys((axes.first, axes.last))
    xs = [
        tag("i", format_count(n), class_="x", style=f"left:{axes.x(n) / _WIDE:.0%}") for n in ends
    ]
    caption = tag("figcaption", title, tag("div", *items, class_="legend"))
    under = tag("i", "update", class_="x", style="left:50%")
    return tag("figure", caption, tag("div", lines, *ys, *xs, under, class_="chart"))


def _number(value: float) -> str:
    return f"{value:.3g}"
