"""Draws lines over one axis as SVG, which needs no script: words stand beside it as page text.

In: a `LinePlot`. Out: a figure; None where no curve has two points.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from steptime.core.units import format_count, format_rate, format_value
from steptime.report.blocks.values import Curve, LinePlot, Shade
from steptime.report.html.html_tags import Html, tag

_WIDE, _HIGH = 1000.0, 300.0
_ROOM = 0.05
"""Free part of the height above and below the lines."""

_MARKS, _ROUND = (0.05, 0.35, 0.65, 0.95), (0.0, 0.25, 0.5, 0.75, 1.0)
"""Where the scale has words: at round values where the plot says where it begins and ends."""

_THINNEST = 1.5
_PLAIN_UNITS = ("W", "GHz", "°C")
Spot = tuple[float, float]


def draw_plot(plot: LinePlot) -> Html | None:
    """Return the figure: its title with the legend, the lines, and the words along its edges."""
    if not any(len(curve.points) > 1 for curve in plot.curves):
        return None
    axes = _Frame(plot)
    drawn = [_shaded(one, axes) for one in plot.stretches]
    drawn += [axes.level(value) for _, value in plot.levels]
    drawn += [shape for curve in plot.curves for shape in _shapes(curve, axes)]
    view = {"viewBox": f"0 0 {_WIDE:g} {_HIGH:g}", "preserveAspectRatio": "none"}
    lines = tag("svg", *drawn, role="img", aria_label=plot.title, **view)
    ys = [
        tag("i", _worded(axes.value(share), plot.y_unit), class_="y", style=f"bottom:{share:.0%}")
        for share in (_ROUND if plot.y_range and not plot.y_unit else _MARKS)
    ]
    shares = (0.0, 0.25, 0.75, 1.0) if plot.x_range else (0.0, 1.0)
    xs = [
        tag("i", _worded(axes.across(share), plot.x_unit), class_="x", style=f"left:{share:.0%}")
        for share in shares[: 1 if axes.first == axes.last else None]
    ]
    under = tag("i", plot.x_name, class_="x", style="left:50%")
    caption = tag("figcaption", plot.title, _legend(plot))
    note = tag("p", plot.note, class_="dim") if plot.note else None
    return tag("figure", caption, tag("div", lines, *ys, *xs, under, class_="chart"), note)


class _Frame:
    """Maps points to places in the drawing."""

    def __init__(self, plot: LinePlot) -> None:
        self._is_log, self._is_log_x = plot.is_log, plot.is_log_x
        across = [x for curve in plot.curves for x, _ in curve.points]
        self.first, self.last = plot.x_range or (min(across), max(across))
        known = [y for one in plot.curves for _, y in one.points if y is not None]
        known += [y for one in plot.curves for pair in one.spread for y in pair]
        known += [value for _, value in plot.levels]
        self._floor = min((y for y in known if y > 0), default=1.0)
        low, high = plot.y_range or (min(known, default=0.0), max(known, default=1.0))
        self._low, self._high = self._scaled(low), self._scaled(high)
        if plot.y_range is None:
            room = _ROOM * (self._high - self._low) or abs(self._high) * _ROOM or 1.0
            self._low, self._high = self._low - room, self._high + room

    def _scaled(self, value: float) -> float:
        return math.log10(max(value, self._floor)) if self._is_log else value

    def x(self, at: float) -> float:
        if self._is_log_x:
            return _WIDE * math.log(at / self.first) / math.log(self.last / self.first)
        return _WIDE * (at - self.first) / ((self.last - self.first) or 1.0)

    def across(self, share: float) -> float:
        if self._is_log_x:
            return self.first * math.pow(self.last / self.first, share)
        return self.first + share * (self.last - self.first)

    def y(self, value: float) -> float:
        share = (self._scaled(value) - self._low) / ((self._high - self._low) or 1.0)
        return _HIGH * (1 - min(max(share, -_ROOM), 1 + _ROOM))

    def value(self, share: float) -> float:
        found = self._low + share * (self._high - self._low)
        return 10**found if self._is_log else found

    def level(self, value: float) -> Html:
        at = f"{self.y(value):.1f}"
        return tag("path", class_="limit", d=f"M0 {at}H{_WIDE:g}", vector_effect=_THIN)


_THIN = "non-scaling-stroke"


def _shapes(curve: Curve, axes: _Frame) -> Iterator[Html]:
    if curve.spread:
        at = [axes.x(x) for x, _ in curve.points]
        above = [
            f"{x:.1f} {axes.y(high):.1f}" for x, (_, high) in zip(at, curve.spread, strict=True)
        ]
        below = [f"{x:.1f} {axes.y(low):.1f}" for x, (low, _) in zip(at, curve.spread, strict=True)]
        area = f"M{'L'.join([*above, *reversed(below)])}Z"
        style = f"fill:{curve.color};stroke:none;opacity:{0.8 if curve.is_filled else 0.2}"
        told = tag("title", curve.name) if curve.is_filled else None
        yield tag("path", told, d=area, style=style)
    dash = ";stroke-dasharray:6 4" if curve.is_dashed else ""
    for run in _runs(curve, axes) if curve.has_line else ():
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in run)
        yield tag(
            "path",
            d=path,
            style=f"stroke:{curve.color};stroke-width:{curve.width}{dash}",
            vector_effect=_THIN,
        )
    if curve.has_marks:
        yield from _marks(curve, axes)


def _marks(curve: Curve, axes: _Frame) -> Iterator[Html]:
    """Yield the marks of a curve, each with what it says where there is something to say."""
    style = f"stroke:{curve.color};stroke-width:{curve.mark_size:g};stroke-linecap:round"
    known = [(i, x, y) for i, (x, y) in enumerate(curve.points) if y is not None]
    # A line of no length with round ends is a dot however the drawing is stretched.
    dots = [(i, f"M{axes.x(x):.1f} {axes.y(y):.1f}h0") for i, x, y in known]
    if not curve.tips:
        dots = [(0, "".join(dot for _, dot in dots))]
    for number, dot in dots:
        told = tag("title", curve.tips[number]) if curve.tips else None
        yield tag("path", told, d=dot, style=style, vector_effect=_THIN)


def _shaded(one: Shade, axes: _Frame) -> Html:
    left = axes.x(one.low)
    return tag(
        "rect",
        tag("title", one.name),
        x=f"{left:.1f}",
        y=0,
        width=f"{max(_THINNEST, axes.x(one.high) - left):.1f}",
        height=f"{_HIGH:g}",
        style=f"fill:{one.color};opacity:0.25",
    )


def _runs(curve: Curve, axes: _Frame) -> Iterator[list[Spot]]:
    """Yield stretches of the line; it is broken where nothing is known."""
    run: list[Spot] = []
    for x, y in [*curve.points, (0.0, None)]:
        if y is None:
            if run:
                yield _stepped(run) if curve.is_stepped else run
            run = []
        else:
            run.append((axes.x(x), axes.y(y)))


def _stepped(run: Sequence[Spot]) -> list[Spot]:
    corners = [run[0]]
    for one, other in pairwise(run):
        corners += [(other[0], one[1]), other]
    return corners


def _legend(plot: LinePlot) -> Html | None:
    named = [(curve.name, curve.color) for curve in plot.curves if curve.name]
    named += dict.fromkeys((one.name, one.color) for one in plot.stretches)
    named += [(name, "var(--critical)") for name, _ in plot.levels if name]
    if not named:
        return None
    items = [
        tag("span", tag("i", class_="key", style=f"border-color:{color}"), name)
        for name, color in named
    ]
    return tag("div", *items, class_="legend")


def _worded(value: float, unit: str) -> str:
    if unit.endswith("_per_s"):
        return format_rate(max(0.0, value), unit)
    if unit in _PLAIN_UNITS:
        return f"{value:.3g} {unit}"
    if unit:
        return format_value(value, unit)
    return format_count(value) if float(value).is_integer() else f"{value:.3g}"
