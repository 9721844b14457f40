"""Makes the part of the page on who holds the memory: a drawing of one step, and the parts.

In: an Anatomy. Out: markup; the drawing is plain SVG, which needs no script.
"""

from __future__ import annotations

from collections.abc import Sequence

from steptime.core.units import format_bytes, format_percent
from steptime.measure.values.model.anatomy import (
    PARTS,
    Instant,
    MemoryTimeline,
)
from steptime.report.blocks.colors import HOLDER_COLORS
from steptime.report.blocks.values import Markup
from steptime.report.blocks.work.memory_blocks import NAMES
from steptime.report.html.html_tags import Html, tag

_WIDTH, _HEIGHT = 1000, 220


def draw_timeline(timeline: MemoryTimeline) -> Markup:
    """Draw stacked areas, one band for each part, and mark the peak."""
    top = max(1, timeline.peak.total)
    names = [n for n in PARTS if any(i.by_part.get(n) for i in timeline.instants)]
    bands: list[Html] = []
    below = [0] * len(timeline.instants)
    for name in names:
        above = [b + i.by_part.get(name, 0) for b, i in zip(below, timeline.instants, strict=True)]
        bands.append(_band(name, timeline.instants, below, above, top))
        below = above
    at = timeline.peak.at_fraction * _WIDTH
    mark = tag("line", x1=at, x2=at, y1=0, y2=_HEIGHT, stroke="#e0393e", stroke_dasharray="4 4")
    drawing = tag(
        "svg",
        *bands,
        mark,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        preserveAspectRatio="none",
        width="100%",
        height=_HEIGHT,
        role="img",
        aria_label="Memory over one step",
    )
    title = f"One step: {format_bytes(timeline.peak.total)} at its peak, in {timeline.peak.phase}"
    if timeline.module:
        title += f" of {timeline.module}"
    caption = tag("figcaption", title, _legend(names), _phases(timeline.instants))
    return Markup(tag("figure", caption, drawing).text)


def _band(
    name: str, instants: Sequence[Instant], below: Sequence[int], above: Sequence[int], top: int
) -> Html:
    """Draw a band between two lines; a value holds until the next instant."""
    ends = [*(i.at_fraction for i in instants[1:]), 1.0]
    upper, lower = [], []
    for instant, end, low, high in zip(instants, ends, below, above, strict=True):
        left, right = instant.at_fraction * _WIDTH, max(end, instant.at_fraction) * _WIDTH
        upper += [_point(left, high, top), _point(right, high, top)]
        lower += [_point(left, low, top), _point(right, low, top)]
    points = " ".join([*upper, *reversed(lower)])
    return tag(
        "polygon", tag("title", NAMES.get(name, name)), points=points, fill=HOLDER_COLORS.get(name)
    )


def _point(x: float, size: int, top: int) -> str:
    return f"{x:.1f},{_HEIGHT * (1 - size / top):.1f}"


def _legend(names: Sequence[str]) -> Html:
    items = [
        tag(
            "span",
            tag("i", class_="dot", style=f"background:{HOLDER_COLORS.get(name, '#9aa0a6')}"),
            NAMES.get(name, name),
        )
        for name in names
    ]
    return tag("div", *items, class_="legend")


def _phases(instants: Sequence[Instant]) -> Html:
    """Mark where each phase begins, because the drawing has no time axis."""
    begun: dict[str, float] = {}
    for instant in instants:
        begun.setdefault(instant.phase, instant.at_fraction)
    words = [f"{phase} from {format_percent(at)}" for phase, at in begun.items()]
    note = f"{', '.join(words)} of the step's operators; the dashed line is the peak"
    return tag("div", tag("span", note), class_="legend")
