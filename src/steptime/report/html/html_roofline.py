"""Draws the roofline plot: rates over arithmetic intensity, both logarithmic, under measured roofs.

In: a `Roofline`. Out: a figure of Bokeh, which is an extra. Classes are circles whose area is
their share of the time; a class without arithmetic has no place on a logarithmic axis.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from bokeh.models import ColumnDataSource, HoverTool, Label, LabelSet, Range1d
from bokeh.plotting import figure

from steptime.core.units import format_percent, format_rate, format_seconds
from steptime.diagnose.values.reach_values import Roofline, RooflinePoint, Roofs
from steptime.report.blocks.colors import CLASS_COLORS, ROOF_COLORS
from steptime.report.blocks.work.waterfall_blocks import describe_headroom
from steptime.report.html.html_canvas import Drawing, bare_figure

_SMALLEST, _LARGEST = 10.0, 46.0  # diameters of circles [pixels]
_MARGIN = 3.0  # the axes extend this many times beyond what is drawn
_GREY = "#9aa0a6"


def draw_roofline(roofline: Roofline) -> Drawing | None:
    """Draw the plot; return None without roofs, or without a class that was timed."""
    roofs = roofline.roofs
    timed = [point for point in roofline.points if point.flops_per_s and point.intensity]
    if roofs is None or not timed:
        return None
    made = _figure(timed, roofs)
    used = {point.dtype for point in timed}
    top = max(roofs.run_flops_per_s.values())
    rates = {n: r for n, r in roofs.run_flops_per_s.items() if n in used or r == top}
    legend = _draw_roofs(made, rates, roofs)
    _draw_points(made, timed)
    without = [p.name for p in roofline.points if p.time_s and not p.intensity]
    note = f"without a place, for they compute nothing: {', '.join(without)}" if without else None
    return Drawing(title="Roofline", figure=made, legend=legend, note=note)


def _figure(points: list[RooflinePoint], roofs: Roofs) -> figure:
    xs = [point.intensity or 1.0 for point in points]
    rates = [point.flops_per_s or 1.0 for point in points]
    top = max([*rates, *roofs.run_flops_per_s.values()])
    if roofs.bytes_per_s:
        xs.append(max(roofs.run_flops_per_s.values()) / roofs.bytes_per_s)  # the furthest ridge
    return bare_figure(
        height=360,
        x_axis_type="log",
        y_axis_type="log",
        x_range=Range1d(min(xs) / _MARGIN, max(xs) * _MARGIN),
        y_range=Range1d(min(rates) / _MARGIN, top * _MARGIN),
        x_axis_label="arithmetic intensity [FLOP a byte]",
        y_axis_label="reached [FLOP/s]",
        tools="box_zoom,pan,wheel_zoom,reset",
        active_drag=None,
    )


def _draw_roofs(
    made: figure, rates: Mapping[str, float], roofs: Roofs
) -> tuple[tuple[str, str], ...]:
    """Draw a line for memory, up to the highest ceiling, and one per type from where they meet.

    Provisional ones are dashed.
    """
    bandwidth = roofs.bytes_per_s

    def dash(name: str) -> str:
        return "dashed" if name in roofs.doubts else "solid"

    def note(name: str) -> str:
        return " (provisional)" if name in roofs.doubts else ""

    low, high = made.x_range.start, made.x_range.end
    legend = []
    top = max(rates.values())
    if bandwidth:
        ridge = min(high, top / bandwidth)
        made.line(
            [low, ridge],
            [low * bandwidth, ridge * bandwidth],
            line_color=_GREY,
            line_width=2,
            line_dash=dash("memory"),
        )
        told = f"memory {format_rate(bandwidth, 'bytes_per_s')}{note('memory')}"
        legend.append((_GREY, told))
    for name, rate in sorted(rates.items(), key=lambda item: -item[1]):
        begin = rate / bandwidth if bandwidth else low
        color = ROOF_COLORS.get(name, _GREY)
        made.line([begin, high], [rate, rate], line_color=color, line_width=2, line_dash=dash(name))
        legend.append((color, f"{name} {format_rate(rate, 'flops_per_s')}{note(name)}"))
        made.add_layout(
            Label(
                x=high,
                y=rate,
                text=name,
                text_align="right",
                text_baseline="bottom" if rate == top else "top",
                text_font_size="12px",
                text_color=color,
                x_offset=-4,
            )
        )
    return tuple(legend)


def _draw_points(made: figure, points: list[RooflinePoint]) -> None:
    sizes = [max(_SMALLEST, _LARGEST * math.sqrt(point.fraction or 0.0)) for point in points]
    source = ColumnDataSource(
        {
            "x": [point.intensity for point in points],
            "y": [point.flops_per_s for point in points],
            "size": sizes,
            "below": [-size / 2 - 14 for size in sizes],
            "color": [CLASS_COLORS.get(point.name, _GREY) for point in points],
            "name": [point.name for point in points],
            "time": [_time(point) for point in points],
            "rate": [format_rate(point.flops_per_s or 0.0, "flops_per_s") for point in points],
            "moved": [format_rate(point.bytes_per_s or 0.0, "bytes_per_s") for point in points],
            "of": [_position(point) for point in points],
            "room": [describe_headroom(point) for point in points],
        }
    )
    circles = made.scatter("x", "y", size="size", source=source, color="color", alpha=0.7)
    made.add_layout(
        LabelSet(
            x="x",
            y="y",
            y_offset="below",
            text="name",
            source=source,
            text_align="center",
            text_font_size="12px",
            text_color=_GREY,
        )
    )
    tips = [
        ("class", "@name"),
        ("time", "@time"),
        ("reached", "@rate, @moved"),
        ("roof", "@of"),
        ("headroom", "@room"),
    ]
    made.add_tools(HoverTool(renderers=[circles], tooltips=tips))


def _time(point: RooflinePoint) -> str:
    share = "" if point.fraction is None else f", {format_percent(point.fraction)} of operators"
    return f"{format_seconds(point.time_s or 0.0)} per step{share}"


def _position(point: RooflinePoint) -> str:
    if point.position is None or point.roof is None:
        return "not known"
    return f"{format_percent(point.position)} of {point.roof}'s"
