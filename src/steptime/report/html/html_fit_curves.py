"""Draws the peak of a training over the size of its micro-batch and over the length of its rows.

In: points and the limit. Out: a figure with its table; None where there is nothing to draw.
"""

from __future__ import annotations

from collections.abc import Sequence

from steptime.core.units import format_bytes
from steptime.report.html.html_tags import Html, table, tag
from steptime.tune.values.fit_values import BatchPoint, LengthPoint

_WIDTH, _HEIGHT = 1000, 220
_BLUE, _RED = "#0072b2", "#e0393e"

Spots = Sequence[tuple[float, float]]


def draw_by_batch(points: Sequence[BatchPoint], limit_bytes: int) -> Html | None:
    """Draw the peak over the size of the micro-batch, with the limit."""
    if len(points) < 2:
        return None
    plane = _Plane(points[-1].factor, max(points[-1].bytes, limit_bytes))
    spots = [plane.spot(one.factor, one.bytes) for one in points]
    shapes = [_line(spots)]
    for spot, one in zip(spots, points, strict=True):
        shapes.append(_circle(spot, f"{one.factor:g} times: {format_bytes(one.bytes)}"))
    caption = (
        "The peak as written over the size of the micro-batch, as a multiple of today's, by what "
        "grows with it. The dashed line is the limit."
    )
    rows = [[f"{one.factor:g} times", format_bytes(one.bytes)] for one in points]
    listed = table(["micro-batch", "peak, estimated"], rows, name="The peak by micro-batch")
    drawing = plane.draw(shapes, limit_bytes, "The peak by the size of the micro-batch")
    return tag("div", tag("figure", tag("figcaption", caption), drawing), listed)


def draw_by_length(points: Sequence[LengthPoint], limit_bytes: int) -> Html | None:
    """Draw both bounds of the peak over the length of rows, with the limit."""
    if len(points) < 2:
        return None
    plane = _Plane(points[-1].factor, max(points[-1].high, limit_bytes))
    low = [plane.spot(one.factor, one.low) for one in points]
    high = [plane.spot(one.factor, one.high) for one in points]
    shapes = [
        tag("polygon", points=_pairs([*high, *reversed(low)]), fill=_BLUE, fill_opacity=0.15),
        _line(low),
        _line(high),
    ]
    for spots, which in ((low, "low"), (high, "high")):
        for spot, one in zip(spots, points, strict=True):
            said = f"{one.factor:g} times: {format_bytes(getattr(one, which))}"
            shapes.append(_circle(spot, said))
    caption = (
        "The peak as written over the length of the rows, as a multiple of those that were seen. "
        "One bound takes all that grows to go with the elements, the other with the square of a "
        "row, as an attention matrix that is kept does. The dashed line is the limit."
    )
    rows = [
        [f"{one.factor:g} times", f"{format_bytes(one.low)} to {format_bytes(one.high)}"]
        for one in points
    ]
    listed = table(["rows", "peak, between"], rows, name="The peak by the length of rows")
    drawing = plane.draw(shapes, limit_bytes, "The peak by the length of rows")
    return tag("div", tag("figure", tag("figcaption", caption), drawing), listed)


class _Plane:
    """Where factors and bytes lie on the drawing."""

    def __init__(self, most: float, largest: float) -> None:
        self._most, self._whole = most, largest * 1.05

    def spot(self, factor: float, size: float) -> tuple[float, float]:
        return factor / self._most * _WIDTH, self._level(size)

    def _level(self, size: float) -> float:
        return (1 - size / self._whole) * _HEIGHT

    def draw(self, shapes: Sequence[Html], limit_bytes: int, name: str) -> Html:
        at = self._level(limit_bytes)
        limit = tag("line", x1=0, x2=_WIDTH, y1=at, y2=at, stroke=_RED, stroke_dasharray="4 4")
        return tag(
            "svg",
            limit,
            *shapes,
            viewBox=f"0 -6 {_WIDTH + 6} {_HEIGHT + 6}",
            width="100%",
            role="img",
            aria_label=name,
        )


def _line(spots: Spots) -> Html:
    return tag("polyline", points=_pairs(spots), fill="none", stroke=_BLUE, stroke_width=2)


def _pairs(spots: Spots) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)


def _circle(spot: tuple[float, float], said: str) -> Html:
    x, y = spot
    return tag("circle", tag("title", said), cx=f"{x:.1f}", cy=f"{y:.1f}", r=5, fill=_BLUE)
