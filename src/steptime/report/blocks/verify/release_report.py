"""Makes the report of a release decision.

In: a `ReleaseVerdict`. Out: a Sheet: the answer with all reasons, the metrics by team, the ladder,
the isolation matrix, the checks, and what releases have cost.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from steptime.core.interval import Interval
from steptime.core.printable import printable
from steptime.report.blocks.phrasing import OUTCOME_TONES, labeled, listed, sections
from steptime.report.blocks.values import Block, Cell, Headline, Reach, Sheet, TableBlock, Ticks
from steptime.report.words.verify import judged_release as words
from steptime.report.words.verify.model_check_words import describe_gain
from steptime.verify.values import Outcome
from steptime.verify.values.release_verdict import Color, ReleaseVerdict

_STYLES = {Outcome.PASS: "green", Outcome.FAIL: "red", Outcome.INCONCLUSIVE: "yellow"}
_KINDS = {Color.GREEN: "gain", Color.RED: "loss", Color.STILL: "even", Color.UNKNOWN: "even"}
_SPAN = 3.0
"""Margins on each side of a drawn interval; what lies beyond is cut off."""

_LEGEND = """\
An own metric must move, those of other teams must stay still. m is the margin of the metric; a \
dash is not required, or was not tried."""
_NO_MATRIX = "No experiment degrades a component of a team, so there is no isolation matrix."


def release_report(found: ReleaseVerdict) -> Sheet:
    """Return the report of one decision."""
    answer = printable(words.describe_answer(found))
    head = Headline(
        "outcome", words.ANSWERS[found.outcome], answer, severity=OUTCOME_TONES[found.outcome]
    )
    reasons = dict.fromkeys(printable(words.describe_reason(one)) for one in found.reasons)
    needs = [printable(words.describe_need(one, found.currency)) for one in found.needs]
    cost = labeled(("cost", words.describe_cost(found)))
    parts = (
        ("", [head, *listed("why not", reasons), *listed("needed", needs), *cost]),
        ("The metrics", _metrics(found)),
        ("The ladder", _ladder(found)),
        ("The isolation matrix", _isolation(found)),
        ("The checks", _checks(found)),
        ("What releases have cost", _erosion(found)),
    )
    title = printable(f"{found.release} of {found.team}")
    return Sheet(kind="release", title=title, parts=sections(parts))


def _metrics(found: ReleaseVerdict) -> list[Block]:
    rows = [
        (
            printable(one.metric),
            one.kind.value,
            printable(one.team or "all"),
            words.describe_metric(one, of=found.team),
            describe_gain(one.gain),
            f"{one.margin:g}",
            _drawn(one.gain, one.margin, _KINDS[one.color]),
        )
        for one in found.metrics
    ]
    scale = Ticks([("-m", _place(-1), True), ("0", _place(0), True), ("+m", _place(1), True)])
    heading = ("metric", "kind", "team", "is", "gain", "margin", scale)
    return [TableBlock(heading, rows, left=4, name="The metrics of the release")] if rows else []


def _place(margins: float) -> float:
    return (min(max(margins, -_SPAN), _SPAN) + _SPAN) / (2 * _SPAN)


def _drawn(gain: Interval, margin: float, kind: str) -> Reach:
    low, middle, high = (_place(x / margin) for x in (gain.low, gain.estimate, gain.high))
    return Reach((low, middle, high), _place(0), kind, (_place(-1), _place(1)))


def _ladder(found: ReleaseVerdict) -> list[Block]:
    owners = {one.metric: one.owner for one in found.metrics}
    rows: list[Sequence[Cell]] = [
        (
            printable(one.metric),
            printable(owners.get(one.metric) or ""),
            printable(one.target),
            Text(words.STANDS[one.outcome], style=_STYLES[one.outcome]),
            *words.describe_evidence(one),
        )
        for one in found.ladder
    ]
    heading = ("metric", "ask", "stands for", "", *words.EVIDENCE)
    notes = [printable(words.describe_rung(one)) for one in found.ladder]
    name = "Whether each metric stands for the one above it"
    return [TableBlock(heading, rows, left=4, name=name, notes=notes)] if rows else []


def _isolation(found: ReleaseVerdict) -> list[Block]:
    """Return the matrix: metrics by components, in margins."""
    if not found.isolation:
        return labeled(("note", _NO_MATRIX))
    components = {one.component: one.component_team for one in found.isolation}
    metrics = {one.metric: one.metric_team for one in found.isolation}
    cells = {
        (one.component, one.metric): Text(words.describe_cell(one), style=_STYLES[one.outcome])
        for one in found.isolation
    }
    rows: list[list[Cell]] = [
        [
            f"{printable(metric)} ({printable(team)})",
            *(cells.get((component, metric), "–") for component in components),
        ]
        for metric, team in metrics.items()
    ]
    heading = ("degraded:", *(f"{printable(x)} ({printable(t)})" for x, t in components.items()))
    table = TableBlock(heading, rows, name="What degrading each component does to each metric")
    return [table, *labeled(("", _LEGEND))]


def _checks(found: ReleaseVerdict) -> list[Block]:
    told = [(one.outcome.value, f"{one.name}: {one.detail}") for one in found.checks]
    return labeled(*((outcome, printable(text)) for outcome, text in told))


def _erosion(found: ReleaseVerdict) -> list[Block]:
    told = [
        (one.outcome.value, printable(f"{one.metric}: {words.describe_erosion(one)}"))
        for one in found.erosion
    ]
    first = found.first_reference
    since = None if first is None else printable(f"measured from {first}")
    return labeled(*told, ("since", since)) if told else []
