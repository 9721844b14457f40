"""Makes the part of the page on who holds the memory: a drawing of one step, and the parts.

In: an Anatomy. Out: markup; the drawing is plain SVG, which needs no script.
"""

from __future__ import annotations

from collections.abc import Sequence

from steptime.core.units import format_bytes, format_percent
from steptime.measure.values.model.anatomy import (
    PARTS,
    Anatomy,
    Instant,
    MemoryPart,
    MemoryTimeline,
)
from steptime.plan.values import MemoryFit
from steptime.report.blocks.colors import HOLDER_COLORS
from steptime.report.html.html_tags import Html, joined_html, table, tag
from steptime.report.text.memory_lines import MISSING, NAMES

_WIDTH, _HEIGHT = 1000, 220
_MAX_MODULES = 8


def anatomy_part(found: Anatomy | None, fit: MemoryFit | None) -> Html | None:
    """Return one step over time, the parts with their bytes, and what other ways to train need."""
    if found is None or fit is None:
        return None
    peak = {} if found.timeline is None else found.timeline.peak.by_part
    rows = [_part_cells(part, peak.get(part.name)) for part in found.parts]
    heading = ["part", "types", "bytes", "at the peak"]
    pieces = [
        None if found.timeline is None else _drawing(found.timeline),
        table(heading, rows, left=2, name="Who holds the memory"),
        _modules_table(found),
        _modes_table(found, fit),
    ]
    return joined_html(piece for piece in pieces if piece is not None)


def _drawing(timeline: MemoryTimeline) -> Html:
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
    return tag("figure", caption, drawing)


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


def _part_cells(part: MemoryPart, at_peak: int | None) -> list[str]:
    name = NAMES.get(part.name, part.name) + (", this rank's part" if part.is_sharded else "")
    if part.bytes is None:
        reason = MISSING.get(part.missing or "", part.missing or "")
        return [name, f"not measured: {reason}", "–", "–"]
    by_dtype = part.by_dtype or {}
    ordered = sorted(by_dtype.items(), key=lambda item: -item[1])
    types = ", ".join(f"{dtype} {format_bytes(size)}" for dtype, size in ordered)
    peak = "–" if at_peak is None else format_bytes(at_peak)
    return [name, types, format_bytes(part.bytes), peak]


def _modules_table(found: Anatomy) -> Html | None:
    if not found.by_module:
        return None
    rows = [
        [kept.name, kept.kind or "", format_bytes(kept.bytes)]
        for kept in found.by_module[:_MAX_MODULES]
    ]
    heading = ["module", "class", "kept for the backward"]
    return table(heading, rows, left=2, name="Saved activations by module")


def _modes_table(found: Anatomy, fit: MemoryFit) -> Html | None:
    now = fit.bytes_per_parameter
    if now is None:
        return None
    rows = [["now", f"{now:.1f}", format_bytes(now * found.num_parameters)]]
    rows += [
        [mode.name, f"{mode.bytes_per_parameter:g}", format_bytes(mode.bytes)]
        for mode in fit.would_take
    ]
    heading = ["precision and optimizer", "bytes a parameter", "weights, gradients and states"]
    return table(heading, rows, name="Other ways to train")
