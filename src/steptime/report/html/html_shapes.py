"""Writes the page of `steptime plan shapes`: better widths, their gains and their price.

In: a `ShapeAdvice`. Out: the text of one file that needs no network and no script. Words come from
`shape_words`.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from steptime.core.units import format_count, format_seconds
from steptime.plan.values.shape_values import Product, Proposal, ShapeAdvice
from steptime.report.html.html_frame import frame, section
from steptime.report.html.html_tags import Html, table, tag
from steptime.report.words import shape_words as words

_WIDTH, _NAMES, _ROW = 1000, 300, 34
_PREDICTED, _MEASURED, _GREY = "#56b4e9", "#0072b2", "#9aa0a6"
_MOST_PRODUCTS = 20


def render_shapes_page(advice: ShapeAdvice, *, command: Sequence[str], version: str = "") -> str:
    """Return the whole page.

    Args:
        advice: what is shown.
        command: the user's.
        version: of Steptime.
    """
    facts = [
        words.describe_seen(advice.seen),
        words.describe_device(advice.device),
        f"Steptime {version}".strip(),
    ]
    header = tag(
        "header",
        tag("h1", shlex.join(command)),
        tag("p", " · ".join(facts)),
        tag("p", tag("strong", _answer(advice))),
    )
    parts = [
        header,
        section("What a better width gives", _bars(advice.proposals)),
        section("The proposals", _proposals(advice), _notes(advice)),
        section("Where they are", _places(advice.proposals)),
        section("Widths that stay", _kept(advice)),
        section("The products of a step", _products(advice)),
    ]
    return frame("steptime plan shapes", [part for part in parts if part is not None])


def _answer(advice: ShapeAdvice) -> str:
    if advice.rule is None:
        return words.describe_unknown(advice.device)
    num = len({(one.role, one.old) for one in advice.proposals})
    if not num:
        return words.ALL_SUIT
    if num == 1:
        return "one width of which another size suits the device better"
    return f"{num} widths of which another size suits the device better"


def _bars(proposals: Sequence[Proposal]) -> Html | None:
    """Draw each proposal's rate of work over today's: predicted, and measured with its interval."""
    if not proposals:
        return None
    most = max(max(one.predicted_gain, _high(one)) for one in proposals) * 1.05
    shapes: list[Html] = []
    for row, one in enumerate(proposals):
        shapes += _row_of(one, row * _ROW, most)
    height = len(proposals) * _ROW
    at = f"{_at(1.0, most):.1f}"
    shapes.append(tag("line", x1=at, x2=at, y1=0, y2=height, stroke=_GREY, stroke_dasharray="4 4"))
    drawing = tag(
        "svg",
        *shapes,
        viewBox=f"0 0 {_WIDTH} {height}",
        width="100%",
        role="img",
        aria_label="The rate of work with each proposal",
    )
    said = (
        "Work in a second of the operators that change, as a multiple of today's (the dashed "
        "line). Light: predicted. Dark: measured with --measure, the operators alone, old and new "
        "in turns; the line is its interval."
    )
    return tag("figure", tag("figcaption", said), drawing)


def _row_of(one: Proposal, top: float, most: float) -> list[Html]:
    name = f"{words.ROLES[one.role]} {one.old} to {one.new}"
    shapes = [
        tag("text", name, x=0, y=top + 20, font_size=14, fill="currentColor"),
        _bar(one.predicted_gain, most, top + 4, color=_PREDICTED, said=f"{name}, predicted"),
    ]
    gain = None if one.measured is None else one.measured.gain
    if gain is None:
        return shapes
    shapes.append(_bar(gain, most, top + 16, color=_MEASURED, said=f"{name}, measured"))
    ends = _ends(one)
    if ends is not None:
        left, right = (f"{_at(end, most):.1f}" for end in ends)
        y = top + 21
        shapes.append(
            tag("line", x1=left, x2=right, y1=y, y2=y, stroke="currentColor", stroke_width=2)
        )
    return shapes


def _bar(gain: float, most: float, top: float, *, color: str, said: str) -> Html:
    return tag(
        "rect",
        tag("title", f"{said}: {gain:.2f}x"),
        x=_NAMES,
        y=top,
        width=f"{_at(gain, most) - _NAMES:.1f}",
        height=10,
        fill=color,
    )


def _at(gain: float, most: float) -> float:
    return _NAMES + gain / most * (_WIDTH - _NAMES)


def _ends(one: Proposal) -> tuple[float, float] | None:
    """The interval of the measured rate: that of the time, turned over and scaled by the work."""
    found = one.measured
    if found is None or found.gain is None or found.time_ratio is None:
        return None
    ratio = found.time_ratio
    if min(ratio.low, ratio.estimate, ratio.high) <= 0:
        return None
    work = found.gain * ratio.estimate
    return work / ratio.high, work / ratio.low


def _high(one: Proposal) -> float:
    ends = _ends(one)
    return 0.0 if ends is None else ends[1]


def _proposals(advice: ShapeAdvice) -> Html | None:
    if not advice.proposals:
        return None
    rows = [words.describe_proposal(one) for one in advice.proposals]
    return table(words.HEAD, rows, left=4, name="The proposals")


def _notes(advice: ShapeAdvice) -> Html | None:
    if not advice.proposals:
        return None
    notes = words.describe_notes(advice.proposals)
    return tag("ul", *(tag("li", note[:1].upper() + note[1:]) for note in notes))


def _places(proposals: Sequence[Proposal]) -> Html | None:
    if not proposals:
        return None
    rows = []
    for one in proposals:
        size, *rest = words.describe_where(one)
        rows.append([words.ROLES[one.role], size, " · ".join(rest)])
    return table(["width", "from, to", "lines and weights"], rows, left=3, name="Where they are")


def _kept(advice: ShapeAdvice) -> Html | None:
    rows = [tag("li", f"{', '.join(sizes)}: {why}.") for sizes, why in words.describe_kept(advice)]
    return tag("ul", *rows) if rows else None


def _products(advice: ShapeAdvice) -> Html | None:
    """The products that took longest, and how many more there are."""
    seen = advice.seen
    if not seen.products:
        return None
    rows = [_product(one) for one in seen.products[:_MOST_PRODUCTS]]
    heading = ["product", "pass", "module", "sizes", "type", "times", "time"]
    listed = table(heading, rows, left=5, name="The products of a step")
    num = len(seen.products) - len(rows) + seen.num_left_out
    return tag("div", listed, tag("p", f"{format_count(num)} more, shorter ones.") if num else None)


def _product(one: Product) -> list[str]:
    time = "–" if one.time_s is None else format_seconds(one.time_s)
    return [
        one.kind,
        one.which,
        one.module or one.module_kind or "–",
        words.describe_sizes(one),
        one.dtype,
        str(one.num),
        time,
    ]
