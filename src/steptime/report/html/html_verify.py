"""Writes the page of a judgement over seeds: the curves, the gains against the margin, the runs.

In: a `TrainingVerdict`. Out: the text of one file that needs no network and no script. Words come
from `verify_words`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steptime.report.html.html_frame import frame, section
from steptime.report.html.html_tags import Html, table, tag
from steptime.report.words import verify_words as words
from steptime.verify.values.seed_runs import (
    CANDIDATE,
    REFERENCE,
    CurvePoint,
    SummaryDifference,
    TrainingVerdict,
)

_COLORS = {REFERENCE: "#0072b2", CANDIDATE: "#d55e00"}
_WIDTH, _HEIGHT, _ROW = 1000, 320, 34
_ALLOWED, _ZERO = "#e0393e", "#9aa0a6"


def render_verify_page(found: TrainingVerdict, *, title: str, version: str = "") -> str:
    """Return the whole page.

    Args:
        found: the verdict.
        title: what was judged.
        version: of Steptime.
    """
    header = tag(
        "header",
        tag("h1", title),
        tag("p", f"Steptime {version}".strip()),
        tag("p", tag("strong", words.describe_verdict(found))),
        tag(
            "p", f"The margin: {words.describe_margin(found)}. Runs: {words.describe_runs(found)}."
        ),
    )
    parts = [
        header,
        section("The metric over the training", _curves(found.curves or {})),
        section("The gains against the margin", _gains(found.differences), _table(found)),
        section("What it saves", _paragraph(words.describe_speed(found))),
        section("Runs that diverged", _paragraph(words.describe_diverged(found))),
    ]
    return frame(title, [part for part in parts if part is not None])


def _paragraph(text: str | None) -> Html | None:
    return None if text is None else tag("p", text)


def _curves(curves: Mapping[str, Sequence[CurvePoint]]) -> Html | None:
    """Draw both arms: the mean of the runs as a line, their range as a band."""
    spots = [one for points in curves.values() for one in points]
    if len(spots) < 2:
        return None
    least, most = min(one.low for one in spots), max(one.high for one in spots)
    first, last = min(one.point for one in spots), max(one.point for one in spots)

    def x(at: float) -> float:
        return (at - first) / ((last - first) or 1.0) * _WIDTH

    def y(value: float) -> float:
        return (1 - (value - least) / ((most - least) or 1.0)) * _HEIGHT

    shapes: list[Html] = []
    for arm, points in curves.items():
        color = _COLORS[arm]
        edge = [(one.point, one.high) for one in points]
        edge += [(one.point, one.low) for one in reversed(points)]
        band = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in edge)
        line = " ".join(f"{x(one.point):.1f},{y(one.mean):.1f}" for one in points)
        shapes.append(tag("polygon", points=band, fill=color, fill_opacity=0.2))
        shapes.append(tag("polyline", points=line, fill="none", stroke=color, stroke_width=2))
    drawing = tag(
        "svg",
        *shapes,
        viewBox=f"0 -4 {_WIDTH} {_HEIGHT + 8}",
        width="100%",
        role="img",
        aria_label="The metric over the training",
    )
    caption = f"The mean of the runs and their range, from {least:.4g} to {most:.4g}."
    return tag("figure", tag("figcaption", caption, _legend(list(curves))), drawing)


def _legend(arms: Sequence[str]) -> Html:
    items = [tag("span", tag("i", class_="dot", style=f"background:{_COLORS[a]}"), a) for a in arms]
    return tag("div", *items, class_="legend")


def _gains(differences: Sequence[SummaryDifference]) -> Html | None:
    """Draw each gain with its interval, in margins: what lies right of the line is not worse."""
    if not differences:
        return None
    ends = [end / one.margin for one in differences for end in (one.low, one.high)]
    least, most = min(-1.5, *ends), max(1.5, *ends)

    def x(value: float) -> str:
        return f"{(value - least) / (most - least) * _WIDTH:.1f}"

    height = _ROW * len(differences)
    shapes = [
        tag("line", x1=x(0), x2=x(0), y1=0, y2=height, stroke=_ZERO),
        tag("line", x1=x(-1), x2=x(-1), y1=0, y2=height, stroke=_ALLOWED, stroke_dasharray="4 4"),
    ]
    for number, one in enumerate(differences):
        at = (number + 0.5) * _ROW
        low, middle, high = (x(v / one.margin) for v in (one.low, one.estimate, one.high))
        said = tag("title", f"{words.SUMMARIES[one.name]}: {one.outcome.value}")
        shapes.append(tag("line", x1=low, x2=high, y1=at, y2=at, stroke="#333", stroke_width=2))
        shapes.append(tag("circle", said, cx=middle, cy=at, r=6, fill=_COLORS[CANDIDATE]))
    drawing = tag(
        "svg",
        *shapes,
        viewBox=f"0 0 {_WIDTH} {height}",
        width="100%",
        role="img",
        aria_label="The gains against the margin",
    )
    names = ", ".join(words.SUMMARIES[one.name] for one in differences)
    caption = (
        f"From top to bottom: {names}. The gray line is no difference, the dashed one the margin; "
        "an interval to the right of the dashed line is not worse."
    )
    return tag("figure", tag("figcaption", caption), drawing)


def _table(found: TrainingVerdict) -> Html | None:
    if not found.differences:
        return None
    rows = [
        [
            words.SUMMARIES[one.name],
            one.outcome.value,
            f"{one.estimate:+.4g}",
            f"{one.low:+.4g} to {one.high:+.4g}",
            f"{one.margin:.4g}",
            f"{one.p_not_worse:.3f}",
            f"{one.reference_sd:.3g}, {one.candidate_sd:.3g}",
        ]
        for one in found.differences
    ]
    heading = ["by", "outcome", "gain", "interval", "margin", "p", "SD of the runs"]
    return table(heading, rows, left=2, name="The gains")
