"""Draws the ladder of metrics: what stands for what, from acceptance to KPI.

In: a `ReleaseVerdict`. Out: a picture for the page; a terminal has the rungs in words.
"""

from __future__ import annotations

from collections.abc import Iterator

from steptime.core.printable import printable
from steptime.report.blocks.values import Markup
from steptime.report.html.html_tags import Html, tag
from steptime.verify.values import Outcome
from steptime.verify.values.release_verdict import Color, MetricKind, ReleaseVerdict, Rung

_WIDE, _ROW, _BOX_WIDE, _BOX_HIGH, _TOP = 904, 62, 230, 40, 24
_PLACES = {MetricKind.ACCEPTANCE: 0, MetricKind.TEAM: 335, MetricKind.KPI: 670}
_LINES = {Outcome.PASS: "--gain", Outcome.FAIL: "--loss", Outcome.INCONCLUSIVE: "--dim"}
_BOXES = {Color.GREEN: "--gain", Color.RED: "--loss"}
_MOST = 28
"""Characters of a name that fit a box."""

Spot = tuple[float, float]


def ladder_drawing(found: ReleaseVerdict) -> Markup:
    """Return the picture: a box for each metric, colored as it is, and a line for each rung."""
    places, num = dict[str, Spot](), dict.fromkeys(_PLACES, 0)
    for one in found.metrics:
        places[one.metric] = (_PLACES[one.kind], _TOP + num[one.kind] * _ROW)
        num[one.kind] += 1
    high = _TOP + max(num.values(), default=0) * _ROW
    heads = [_text(kind.value, x, 14, "--dim") for kind, x in _PLACES.items()]
    lines = [shape for rung in found.ladder for shape in _line(rung, places)]
    boxes = [
        shape
        for one in found.metrics
        for shape in _box(one.metric, one.team, places[one.metric], _BOXES.get(one.color, "--dim"))
    ]
    drawn = tag(
        "svg",
        *heads,
        *lines,
        *boxes,
        viewBox=f"0 0 {_WIDE} {high}",
        width="100%",
        role="img",
        aria_label="The ladder: which metric stands for which; the lines below say it in words",
    )
    return Markup(tag("figure", drawn).text)


def _box(name: str, team: str | None, place: Spot, color: str) -> Iterator[Html]:
    x, y = place
    style = f"fill:none;stroke:var({color});stroke-width:2"
    size = {"width": _BOX_WIDE, "height": _BOX_HIGH}
    yield tag("rect", x=x + 1, y=y, rx=5, style=style, **size)
    yield _text(_short(name), x + 10, y + 17, "--ink")
    yield _text(_short(team or "all teams"), x + 10, y + 33, "--dim")


def _line(rung: Rung, places: dict[str, Spot]) -> Iterator[Html]:
    if rung.metric not in places or rung.target not in places:
        return
    (x1, y1), (x2, y2) = places[rung.metric], places[rung.target]
    begin, end = (x1 + _BOX_WIDE + 2, y1 + _BOX_HIGH / 2), (x2, y2 + _BOX_HIGH / 2)
    dash = "" if rung.outcome is Outcome.PASS else ";stroke-dasharray:6 4"
    style = f"stroke:var({_LINES[rung.outcome]});stroke-width:2{dash}"
    yield tag("line", x1=begin[0], y1=begin[1], x2=end[0], y2=end[1], style=style)
    if rung.correlation is not None:
        middle = ((begin[0] + end[0]) / 2 - 24, (begin[1] + end[1]) / 2 - 6)
        yield _text(f"r {rung.correlation.estimate:.2f}", *middle, _LINES[rung.outcome])


def _text(words: str, x: float, y: float, color: str) -> Html:
    return tag("text", words, x=x, y=y, style=f"fill:var({color});font-size:13px")


def _short(name: str) -> str:
    name = printable(name)
    return name if len(name) <= _MOST else f"{name[: _MOST - 3]}..."
