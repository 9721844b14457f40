"""Writes the page of a judgement over seeds: the curves, the gains against the margin, the runs.

In: a `TrainingVerdict`. Out: the text of one file that needs no network and no script. Words come
from `verify_words`.
"""

from __future__ import annotations

from collections.abc import Sequence

from steptime.core.units import format_percent
from steptime.report.html.html_frame import frame, section
from steptime.report.html.html_tags import Html, table, tag
from steptime.report.words import verify_words as words
from steptime.verify.values.seed_runs import (
    CANDIDATE,
    REFERENCE,
    PowerPlan,
    SummaryDifference,
    TrainingVerdict,
)

_COLORS = {REFERENCE: "#0072b2", CANDIDATE: "#d55e00"}
_WIDTH, _HEIGHT, _ROW = 1000, 320, 34
_FROM = 0.25
"""Of the training: the scale of the curves is that of the rest."""
_OUTSIDE = (-0.02, 1.02)
"""Where a curve is kept that lies outside the scale, in heights of the drawing."""
_ALLOWED, _ZERO = "#e0393e", "#9aa0a6"


def render_verify_page(
    found: TrainingVerdict, *, title: str, version: str = "", power: PowerPlan | None = None
) -> str:
    """Return the whole page.

    Args:
        found: the verdict.
        power: what numbers of runs decide with the spread that was seen.
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
    text = words.describe_to_target(found)
    parts = [
        header,
        section("The metric over the training", _curves(found)),
        section("The gains against the margin", _gains(found), _table(found)),
        section("How many runs decide", _power_table(found, power)),
        section(
            "What it saves",
            _paragraph(words.describe_speed(found)),
            _paragraph(words.describe_price(found)),
            None if text is None else tag("p", "To the target: ", text),
        ),
        section("Runs that diverged", _paragraph(words.describe_diverged(found))),
    ]
    return frame(title, [part for part in parts if part is not None])


def seeds_part(found: TrainingVerdict | None) -> Html | None:
    """Return what trainings over seeds said of a recipe, for the page of a study."""
    if found is None:
        return None
    parts = [
        tag("p", tag("strong", words.describe_verdict(found))),
        _paragraph(f"The margin: {words.describe_margin(found)}."),
        _curves(found),
        _gains(found),
        _table(found),
        _paragraph(words.describe_price(found)),
    ]
    return tag("div", *(part for part in parts if part is not None))


def _paragraph(text: str | None) -> Html | None:
    return None if text is None else tag("p", text)


def _curves(found: TrainingVerdict) -> Html | None:
    """Draw both arms, the mean of the runs as a line and their range as a band, and the margin.

    The scale is that of the last three quarters, where the arms are judged.
    """
    curves = found.curves or {}
    spots = [one for points in curves.values() for one in points]
    if len(spots) < 2:
        return None
    first, last = min(one.point for one in spots), max(one.point for one in spots)
    allowed = _allowed(found)
    late = [one for one in spots if one.point >= first + _FROM * (last - first)] or spots
    values = [v for one in late for v in (one.low, one.high)] + [v for _, v in allowed[-2:]]
    least, most = min(values), max(values)

    def x(at: float) -> float:
        return (at - first) / ((last - first) or 1.0) * _WIDTH

    def y(value: float) -> float:
        share = 1 - (value - least) / ((most - least) or 1.0)
        return min(max(share, _OUTSIDE[0]), _OUTSIDE[1]) * _HEIGHT

    shapes: list[Html] = []
    for arm, points in curves.items():
        color = _COLORS[arm]
        edge = [(one.point, one.high) for one in points]
        edge += [(one.point, one.low) for one in reversed(points)]
        band = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in edge)
        line = " ".join(f"{x(one.point):.1f},{y(one.mean):.1f}" for one in points)
        shapes.append(tag("polygon", points=band, fill=color, fill_opacity=0.2))
        shapes.append(tag("polyline", points=line, fill="none", stroke=color, stroke_width=2))
    if allowed:
        line = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in allowed)
        drawn = tag(
            "polyline",
            points=line,
            fill="none",
            stroke=_ALLOWED,
            stroke_dasharray="6 4",
            stroke_width=2,
        )
        shapes.append(drawn)
    drawing = tag(
        "svg",
        *shapes,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        width="100%",
        role="img",
        aria_label="The metric over the training",
    )
    caption = (
        f"The mean of the runs and their range, from {least:.4g} (bottom) to {most:.4g} (top), the "
        f"range of the last three quarters; at points {first:g} to {last:g}."
    )
    more = " Dashed: the reference, worse by the margin." if allowed else ""
    return tag("figure", tag("figcaption", caption, more, _legend(list(curves))), drawing)


def _allowed(found: TrainingVerdict) -> list[tuple[float, float]]:
    """Return the reference's curve, worse by the margin; nothing without a margin."""
    if found.margin is None:
        return []
    points = (found.curves or {}).get(REFERENCE, ())
    toward = 1.0 if found.is_better_down else -1.0
    return [(one.point, one.mean + toward * found.margin) for one in points]


def _legend(arms: Sequence[str]) -> Html:
    items = [tag("span", tag("i", class_="dot", style=f"background:{_COLORS[a]}"), a) for a in arms]
    return tag("div", *items, class_="legend")


def _named(found: TrainingVerdict) -> list[tuple[str, SummaryDifference]]:
    """Return what was compared, the reference with itself behind the final metric."""
    named = [(words.SUMMARIES[one.name], one) for one in found.differences]
    if named and found.same is not None and words.describe_same(found):
        named.insert(1, (words.SAME, found.same))
    return named


def _gains(found: TrainingVerdict) -> Html | None:
    """Draw each gain with its interval, in margins: what lies right of the line is not worse."""
    named = _named(found)
    if not named:
        return None
    differences = [one for _, one in named]
    ends = [end / one.margin for one in differences for end in (one.low, one.high)]
    least, most = min(-1.5, *ends), max(1.5, *ends)

    def x(value: float) -> str:
        return f"{(value - least) / (most - least) * _WIDTH:.1f}"

    height = _ROW * len(differences)
    shapes = [
        tag("line", x1=x(0), x2=x(0), y1=0, y2=height, stroke=_ZERO),
        tag("line", x1=x(-1), x2=x(-1), y1=0, y2=height, stroke=_ALLOWED, stroke_dasharray="4 4"),
    ]
    for number, (name, one) in enumerate(named):
        color = _COLORS[REFERENCE if one is found.same else CANDIDATE]
        at = (number + 0.5) * _ROW
        low, middle, high = (x(v / one.margin) for v in (one.low, one.estimate, one.high))
        said = tag("title", f"{name}: {one.outcome.value}")
        shapes.append(tag("line", x1=low, x2=high, y1=at, y2=at, stroke="#333", stroke_width=2))
        shapes.append(tag("circle", said, cx=middle, cy=at, r=6, fill=color))
    drawing = tag(
        "svg",
        *shapes,
        viewBox=f"0 0 {_WIDTH} {height}",
        width="100%",
        role="img",
        aria_label="The gains against the margin",
    )
    names = ", ".join(name for name, _ in named)
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
            name,
            one.outcome.value,
            f"{one.estimate:+.4g}",
            f"{one.low:+.4g} to {one.high:+.4g}",
            f"{one.margin:.4g}",
            f"{one.p_not_worse:.3f}",
            f"{one.reference_sd:.3g}, {one.candidate_sd:.3g}",
        ]
        for name, one in _named(found)
    ]
    heading = ["by", "outcome", "gain", "interval", "margin", "p", "SD of the runs"]
    return table(heading, rows, left=2, name="The gains")


def _power_table(found: TrainingVerdict, power: PowerPlan | None) -> Html | None:
    """List which margins numbers of runs decide, in the metric and in percent of training."""
    if power is None:
        return None
    share = None
    if found.training_fraction is not None and found.margin:
        share = found.training_fraction / found.margin
    shares = [format_percent(one) for one in power.powers]
    rows = [
        [str(one.num_runs), *(_margin_cell(margin, share) for margin in one.not_worse)]
        for one in power.rows
    ]
    heading = ["runs of each arm", *(f"smallest margin decided in {one}" for one in shares)]
    needed = ", ".join(
        f"{'more than 10,000' if number is None else number} in {one}"
        for number, one in zip(power.num_runs_not_worse, shares, strict=True)
    )
    told = f"This margin takes {needed} of the cases without a true difference, by a spread of "
    spread = f"{power.sd:.3g} from seed to seed at most."
    return tag("div", tag("p", told, spread), table(heading, rows, left=1, name="Power"))


def _margin_cell(margin: float, share: float | None) -> str:
    told = "" if share is None else f" ({format_percent(margin * share)} of training)"
    return f"{margin:.3g}{told}"
