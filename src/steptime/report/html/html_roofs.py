"""Shows the waterfall and the roofline on the page, as tables that are readable without any script.

In: a `Picture`. Out: markup, or None if there is nothing to show. A bar of the waterfall starts
where its part begins; the part's arithmetic is beside it and in its tooltip.
"""

from __future__ import annotations

from steptime.core.units import format_percent, format_seconds
from steptime.diagnose.values.reach_values import (
    Roofline,
    RooflinePoint,
    Waterfall,
    WaterfallPart,
)
from steptime.report.html.html_colors import PART_COLORS
from steptime.report.html.html_tags import Html, joined_html, table, tag
from steptime.report.text.waterfall_text import (
    describe_arithmetic,
    describe_doubt,
    describe_exceeded,
    describe_gain,
    describe_lacking,
    describe_missing,
    describe_part,
    describe_reached,
    describe_roofs,
    describe_start,
    describe_step,
    format_intensity,
)
from steptime.report.words.machine_words import AGAIN

_ABSENT = "–"
_UNMEASURED = ("no_ceilings", "no_ceilings_of_device")


def waterfall_part(found: Waterfall | None) -> Html | None:
    """Say where the time of a step went, or how to find out if only the ceilings are missing."""
    if found is None:
        return None
    if found.missing in _UNMEASURED:
        reason = f"Not drawn: {describe_missing(found.missing)}."
        act = tag("p", "Measure it, and this page shows it: ", tag("code", "steptime machine"))
        return joined_html([tag("p", reason, class_="dim"), act])
    if found.missing is not None or not found.step_time_s:
        return None
    step_s, begun_s, rows = found.step_time_s, 0.0, []
    for part in found.parts:
        rows.append(_row(part, begun_s, step_s))
        begun_s += part.time_s
    head = f"{describe_step(found).capitalize()}; from {describe_start(found)}."
    shown = table(["part", "", "time", "share"], rows, left=2, name="Waterfall of a step")
    return joined_html([tag("p", head), tag("div", shown, class_="waterfall"), *_doubts(found)])


def _row(part: WaterfallPart, begun_s: float, step_s: float) -> list[Html | str]:
    arithmetic = describe_arithmetic(part)
    told = [arithmetic, describe_gain(part)]
    name = joined_html(
        [
            tag("b", describe_part(part.name)),
            *(tag("span", text, class_="arithmetic dim") for text in told if text),
        ]
    )
    left, width = 100 * begun_s / step_s, max(0.4, 100 * part.time_s / step_s)
    style = f"margin-left:{min(left, 99.6):.2f}%;width:{width:.2f}%"
    style += f";background:{PART_COLORS.get(part.name, '#9aa0a6')}"
    fall = tag("span", tag("i", style=style), class_="fall", title=arithmetic)
    return [name, fall, format_seconds(part.time_s), format_percent(part.time_s / step_s)]


def _doubts(found: Waterfall) -> list[Html]:
    """Return the reasons to doubt the picture."""
    said: list[Html] = []
    if found.provisional:
        text = f"Provisional: {', '.join(found.provisional)}. {AGAIN}"
        said.append(tag("p", text, class_="bad"))
    said += [
        tag(
            "p",
            f"{describe_exceeded(one)}: ",
            tag("code", "steptime machine --fresh"),
            class_="bad",
        )
        for one in found.exceeded[:3]
    ]
    if not found.is_conclusive:
        named = ", ".join(describe_lacking(word) for word in found.lacking)
        text = f"Inconclusive: {describe_doubt(found)}"
        said.append(tag("p", text + (f" Lacking: {named}." if named else ""), class_="bad"))
    return said


def roofline_part(found: Roofline | None) -> Html | None:
    """Return each class of operators under the roofs, or None if no operator was counted."""
    if found is None or not found.points or found.roofs is None:
        return None
    heading = ["class", "roof", "time", "share", "FLOP a byte", "reached", "of the roof"]
    rows = [_cells(point) for point in found.points]
    shown = table(heading, rows, left=2, name="Operators under the roofs")
    return joined_html([tag("p", f"Roofs: {describe_roofs(found)}.", class_="dim"), shown])


def _cells(point: RooflinePoint) -> list[str]:
    return [
        point.name,
        point.roof or _ABSENT,
        _ABSENT if point.time_s is None else format_seconds(point.time_s),
        _ABSENT if point.fraction is None else format_percent(point.fraction),
        _ABSENT if point.intensity is None else format_intensity(point.intensity),
        describe_reached(point),
        _ABSENT if point.position is None else format_percent(point.position),
    ]
