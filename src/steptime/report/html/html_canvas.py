"""Makes empty plots of the page and lines on them, all with one time axis and one hover style.

In: values over the time of a run. Out: figures of Bokeh, which is an extra: only this file and
those that draw with it import Bokeh. Hovering shows only numbers and our own texts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bokeh.models import ColumnDataSource, HoverTool, Range1d, Span
from bokeh.plotting import figure

from steptime.core.units import scale_of, scale_of_elapsed

NAN = float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a plot; a value is None where nothing was observed."""

    name: str
    color: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A figure with the words around it; each entry of `legend` is a color and a name."""

    title: str
    figure: figure
    legend: tuple[tuple[str, str], ...] = ()
    note: str | None = None


def bare_figure(*, height: int, **options: Any) -> figure:
    """Return an empty figure as wide as the page, with the colors of the page."""
    made = figure(
        height=height,
        sizing_mode="stretch_width",
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        **options,
    )
    made.toolbar.logo = None
    made.toolbar.autohide = True
    made.axis.axis_label_text_font_style = "normal"
    made.min_border_right = 12
    return made


class Canvas:
    """Makes figures that share the axis of time since the start of the run."""

    def __init__(self, *, started_unix_s: float, ended_unix_s: float) -> None:
        self.started_unix_s = started_unix_s
        self.longest_s = max(ended_unix_s - started_unix_s, 1e-3)
        self._scale, self.unit = scale_of_elapsed(self.longest_s)
        end = self.longest_s / self._scale
        self._range = Range1d(-0.01 * end, 1.01 * end, bounds=(-0.05 * end, 1.05 * end))

    @property
    def least(self) -> float:
        """Return the shortest time that is about two pixels wide on the axis."""
        return 0.003 * self.longest_s / self._scale

    def x(self, t_unix_s: float) -> float:
        """Return the place of a time of day on the axis."""
        return round((t_unix_s - self.started_unix_s) / self._scale, 5)

    @property
    def tip_of_x(self) -> str:
        """Return what Bokeh shows on hovering for a time on the axis."""
        return f"@x{{0.[00]}} {self.unit}"

    def figure(
        self, *, height: int, label: str, top: float | None = None, rows: Sequence[str] = ()
    ) -> figure:
        """Return an empty figure from zero to `top`, or with named rows."""
        vertical = list(rows) if rows else Range1d(0, top or 1)
        made = bare_figure(
            height=height,
            x_range=self._range,
            y_range=vertical,
            x_axis_label=f"since the start [{self.unit}]",
            y_axis_label=label or None,
            tools="xbox_zoom,xpan,xwheel_zoom,reset",
            active_drag="xbox_zoom",
        )
        made.xaxis.axis_label_standoff = 4
        made.min_border_left = 84 if rows or height > 200 else 64  # so that the axes line up
        return made

    def lines(
        self,
        title: str,
        xs: Sequence[float],
        lines: Sequence[Line],
        *,
        unit: str,
        height: int = 190,
        ceiling: float | None = None,
        is_stacked: bool = False,
    ) -> Drawing | None:
        """Draw lines, or stacked areas, over the times `xs`; None if fewer than two were seen.

        Args:
            title: what the figure shows.
            xs: times of day [s], one for each value of each line.
            lines: those without a value are left out.
            unit: unit of the values, one that `scale_of` knows, or `bytes/s`.
            height: height of the figure [pixels].
            ceiling: the most that there is; it gets a line of its own.
            is_stacked: each line is drawn on top of the one before.
        """
        seen = [line for line in lines if any(v is not None for v in line.values)]
        if not seen or len(xs) < 2:
            return None
        largest = max(_top(seen, is_stacked=is_stacked), ceiling or 0.0)
        scale, shown = scale_of(largest, unit.removesuffix("/s"))
        shown += "/s" if unit.endswith("/s") else ""
        made = self.figure(height=height, label=f"[{shown}]", top=1.08 * largest / scale or 1)
        gap = 0.0 if is_stacked else NAN
        names = [f"y{i}" for i in range(len(seen))]
        columns = {"x": packed([self.x(x) for x in xs]), "foot": packed([0.0] * len(xs))}
        for name, line in zip(names, seen, strict=True):
            columns[name] = packed([gap if v is None else v / scale for v in line.values])
        source = ColumnDataSource(columns)
        colors = [line.color for line in seen]
        if is_stacked:
            made.varea_stack(names, x="x", source=source, fill_color=colors, fill_alpha=0.75)
        else:
            for name, color in zip(names, colors, strict=True):
                made.line("x", name, source=source, line_color=color, line_width=1.6)
        if ceiling is not None:
            made.add_layout(_level(ceiling / scale))
        points = made.scatter("x", "foot", source=source, size=1, alpha=0)
        tips = [("at", self.tip_of_x)]
        tips += [(line.name, f"@y{i}{{0.[00]}} {shown}") for i, line in enumerate(seen)]
        made.add_tools(HoverTool(renderers=[points], tooltips=tips, mode="vline"))
        return Drawing(title=title, figure=made, legend=tuple((s.color, s.name) for s in seen))


def _top(lines: Sequence[Line], *, is_stacked: bool) -> float:
    columns = zip(*(line.values for line in lines), strict=True)
    combine = sum if is_stacked else max
    tops = [combine([v or 0.0 for v in column]) for column in columns]
    return max((top for top in tops if math.isfinite(top)), default=0.0)


def _level(y: float) -> Span:
    return Span(location=y, dimension="width", line_color="#9aa0a6", line_dash="dashed")


def packed(values: Sequence[float]) -> Any:
    """Return numbers in Bokeh's shortest form for a page: four bytes each."""
    import numpy  # installed with Bokeh

    return numpy.array(values, dtype=numpy.float32)
