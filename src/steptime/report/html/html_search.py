"""Writes the page of a search: the frontier of time against quality, the parameters, the runs.

In: a `SeekAnswer`. Out: the text of one file that needs no network and no script. Words come from
`search_words`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from steptime.core.units import format_seconds
from steptime.report.html.html_frame import frame, section
from steptime.report.html.html_tags import Html, table, tag
from steptime.report.words import search_words as words
from steptime.seek.values.seek_values import EffectGroup, ParameterEffect, SeekAnswer

_WIDTH, _HEIGHT, _LEFT, _BELOW = 1000, 320, 70, 30
_ROW, _NAMES = 30, 220
_LINE, _BEST, _TARGET, _BAR = "#0072b2", "#d55e00", "#e0393e", "#56b4e9"
_TICKS = 5


def render_search_page(found: SeekAnswer, *, title: str, version: str = "") -> str:
    """Return the whole page.

    Args:
        found: the answer.
        title: the command that was searched.
        version: of Steptime.
    """
    header = tag(
        "header",
        tag("h1", title),
        tag("p", f"Steptime {version}".strip()),
        tag("p", tag("strong", words.describe_best(found))),
        tag("p", f"Does it hold with new seeds? {words.describe_holds(found)}."),
    )
    parts = [
        header,
        section("Time against quality", _frontier(found)),
        section("Beside the other candidate", _paragraph(words.describe_beside(found))),
        section("What each parameter does", *(_effect(one) for one in found.effects)),
        section(
            "The candidates",
            _paragraph(f"{words.describe_runs(found)}. Spent: {words.describe_spent(found)}."),
            _paragraph(words.describe_noise(found)),
            _table(found),
        ),
    ]
    return frame(title, [part for part in parts if part is not None])


def _paragraph(text: str | None) -> Html | None:
    return None if text is None else tag("p", text[:1].upper() + text[1:])


def _frontier(found: SeekAnswer) -> Html | None:
    """Draw the best quality that any run had after a time, as steps, and the target."""
    points = found.frontier
    if len(points) < 2:
        return None
    values = [one.value for one in points] + [found.target]
    least, most = min(values), max(values)
    last_s = max(one.at_s for one in points)
    best = next((one.candidate for one in found.candidates if one.num_reached), None)

    def x(at_s: float) -> float:
        return _LEFT + at_s / (last_s or 1.0) * (_WIDTH - _LEFT - 10)

    def y(value: float) -> float:
        return (1 - (value - least) / ((most - least) or 1.0)) * _HEIGHT

    corners = [(points[0].at_s, points[0].value)]
    for one, other in pairwise(points):
        corners += [(other.at_s, one.value), (other.at_s, other.value)]
    line = " ".join(f"{x(at_s):.1f},{y(value):.1f}" for at_s, value in corners)
    level = f"{y(found.target):.1f}"
    names = {one.candidate: words.describe_values(one.parameters) for one in found.candidates}
    shapes = [
        tag(
            "line", x1=_LEFT, x2=_WIDTH, y1=level, y2=level, stroke=_TARGET, stroke_dasharray="4 4"
        ),
        tag("polyline", points=line, fill="none", stroke=_LINE, stroke_width=2),
    ]
    for one in points:
        told = f"{one.value:.5g} after {format_seconds(one.at_s)}: {names.get(one.candidate, '')}"
        shapes.append(
            tag(
                "circle",
                tag("title", told),
                cx=f"{x(one.at_s):.1f}",
                cy=f"{y(one.value):.1f}",
                r=5,
                fill=_BEST if one.candidate == best else _LINE,
            )
        )
    for number in range(_TICKS):
        share = number / (_TICKS - 1)
        value, at_s = least + share * (most - least), share * last_s
        shapes.append(_label(f"{value:.4g}", x=_LEFT - 8, y=y(value) + 4, anchor="end"))
        anchor = "end" if number == _TICKS - 1 else "middle"
        shapes.append(_label(format_seconds(at_s), x=x(at_s), y=_HEIGHT + 24, anchor=anchor))
    caption = (
        "The best metric that any run had after so many seconds; nothing was as good sooner. "
        f"The dashed line is the target, {found.target:g}; points of the best candidate are orange."
    )
    drawing = _drawing(shapes, height=_HEIGHT + _BELOW, label="Time against quality")
    return tag("figure", tag("figcaption", caption), drawing)


def _label(text: str, *, x: float, y: float, anchor: str) -> Html:
    return tag(
        "text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, font_size=13, fill="#777"
    )


def _drawing(shapes: Sequence[Html], *, height: float, label: str) -> Html:
    return tag(
        "svg",
        *shapes,
        viewBox=f"0 -8 {_WIDTH} {height + 12}",
        width="100%",
        role="img",
        aria_label=label,
    )


def _effect(effect: ParameterEffect) -> Html | None:
    """Draw the time of each group of one parameter's values, as bars from zero."""
    groups = effect.groups
    if not groups:
        return None
    longest = max(group.time_s for group in groups)
    best = min(groups, key=lambda group: group.time_s)
    shapes: list[Html] = []
    for number, group in enumerate(groups):
        middle = (number + 0.5) * _ROW
        length = group.time_s / (longest or 1.0) * (_WIDTH - _NAMES - 170)
        shapes.append(_label(_span(group), x=_NAMES - 10, y=middle + 5, anchor="end"))
        shapes.append(
            tag(
                "rect",
                x=_NAMES,
                y=middle - 9,
                width=f"{max(length, 1.0):.1f}",
                height=18,
                fill=_BEST if group is best else _BAR,
            )
        )
        told = f"{format_seconds(group.time_s)} ({group.n})"
        shapes.append(_label(told, x=_NAMES + length + 8, y=middle + 5, anchor="start"))
    share = words.describe_share(effect.share)
    caption = (
        f"{effect.name}: the mean time to the target of candidates with such values, and how many "
        f"they are. Of the spread of the times, it explains: {share}."
    )
    label = f"Time to the target by {effect.name}"
    drawing = _drawing(shapes, height=_ROW * len(groups), label=label)
    return tag("figure", tag("figcaption", caption), drawing)


def _span(group: EffectGroup) -> str:
    return group.low if group.low == group.high else f"{group.low} to {group.high}"


def _table(found: SeekAnswer) -> Html | None:
    if not found.candidates:
        return None
    rows = []
    for one in found.candidates:
        known = one.time_to_target_s is not None and math.isfinite(one.time_to_target_s)
        rows.append(
            [
                words.describe_values(one.parameters),
                format_seconds(one.time_to_target_s or 0.0) if known else "–",
                f"{one.num_reached} of {one.num_runs}",
                "–" if one.best_value is None else f"{one.best_value:.5g}",
            ]
        )
    return table(
        ["candidate", "time to target", "reached", "best metric"], rows, name="The candidates"
    )
