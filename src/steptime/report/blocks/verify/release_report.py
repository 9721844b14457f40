"""Makes the report of a release decision.

In: a `ReleaseVerdict`. Out: a Sheet: the answer with all reasons, the metrics by team, the ladder,
the isolation matrix, the checks, and what releases have cost.
"""

from __future__ import annotations

from collections.abc import Sequence

from steptime.core.interval import Interval
from steptime.core.printable import printable
from steptime.report.blocks.phrasing import labeled, listed, sections
from steptime.report.blocks.values import (
    Block,
    Cell,
    Headline,
    Reach,
    Sheet,
    TableBlock,
    Ticks,
)
from steptime.report.blocks.verify.ladder_drawing import ladder_drawing
from steptime.report.words.verify import judged_release as words
from steptime.verify.values import Outcome
from steptime.verify.values.release_verdict import (
    Color,
    IsolationCell,
    MetricResult,
    ReleaseVerdict,
)

_TONES = {Outcome.PASS: "good", Outcome.FAIL: "bad", Outcome.INCONCLUSIVE: "warning"}
_KINDS = {Outcome.PASS: "gain", Outcome.FAIL: "loss", Outcome.INCONCLUSIVE: "even"}
_SPAN = 3.0
"""Margins on each side of a drawn interval; what lies beyond is cut off."""


def release_report(found: ReleaseVerdict) -> Sheet:
    """Return the report of one decision."""
    answer = printable(words.describe_answer(found))
    head = Headline("outcome", words.ANSWERS[found.outcome], answer, severity=_TONES[found.outcome])
    parts = (
        ("", [head, *_reasons(found)]),
        ("The metrics", _metrics(found)),
        ("The ladder", _ladder(found)),
        ("The isolation matrix", _isolation(found)),
        ("The matrix, drawn", _drawn_isolation(found)),
        ("The checks", _checks(found)),
        ("What releases have cost", _erosion(found)),
        ("What was assumed", listed("note", [words.NOTES[note] for note in found.notes])),
    )
    made = sections(parts, pages=["The matrix, drawn"])
    return Sheet(kind="release", title=printable(f"{found.release} of {found.team}"), parts=made)


def _reasons(found: ReleaseVerdict) -> list[Block]:
    needs = [words.describe_need(one, found.currency) for one in found.needs]
    recorded = "this release is written to the ledger" if found.is_recorded else None
    return [
        *listed("why not", [printable(words.describe_reason(one)) for one in found.reasons]),
        *listed("needed", [printable(one) for one in needs]),
        *labeled(("cost", words.describe_cost(found)), ("recorded", recorded)),
    ]


def _metrics(found: ReleaseVerdict) -> list[Block]:
    rows: list[Sequence[Cell]] = [
        (
            printable(one.metric),
            one.kind.value,
            printable(one.team or "all"),
            words.MUSTS[one.role],
            words.describe_metric(one),
            words.describe_gain(one.gain),
            f"{one.margin:g}",
            _drawn(one.gain, one.margin, _kind_of(one)),
        )
        for one in found.metrics
    ]
    heading = ("metric", "kind", "team", "must", "is", "gain", "margin", _scale())
    name = "The metrics of the release"
    return [TableBlock(heading, rows, left=5, name=name)] if rows else []


def _kind_of(one: MetricResult) -> str:
    kinds = {Color.GREEN: "gain", Color.RED: "loss"}
    return kinds.get(one.color, "even")


def _scale() -> Ticks:
    return Ticks([("-m", _place(-1), True), ("0", _place(0), True), ("+m", _place(1), True)])


def _place(margins: float) -> float:
    return (min(max(margins, -_SPAN), _SPAN) + _SPAN) / (2 * _SPAN)


def _drawn(gain: Interval, margin: float, kind: str) -> Reach:
    low, middle, high = (_place(x / margin) for x in (gain.low, gain.estimate, gain.high))
    return Reach((low, middle, high), _place(0), kind, (_place(-1), _place(1)))


def _ladder(found: ReleaseVerdict) -> list[Block]:
    if not found.ladder:
        return []
    told = list[Block]()
    for rung in found.ladder:
        told += labeled(
            (
                rung.outcome.value,
                printable(f"{rung.metric} → {rung.target}: {words.describe_rung(rung)}"),
            ),
            ("", words.describe_evidence(rung)),
            ("PROXIMA", printable(words.describe_proxima(rung) or "")),
        )
    return [ladder_drawing(found), *told]


def _isolation(found: ReleaseVerdict) -> list[Block]:
    """Return the matrix in words: metrics by components, in margins."""
    if not found.isolation:
        return []
    components, metrics, cells = _axes(found)
    rows = [
        (
            f"{printable(metric)} ({printable(team)})",
            *(words.describe_cell(cells.get((component, metric))) for component in components),
        )
        for metric, team in metrics.items()
    ]
    heading = ("degraded:", *(f"{printable(x)} ({printable(t)})" for x, t in components.items()))
    legend = (
        "An own metric must move, those of other teams must stay still. m is the margin of the "
        "metric; a dash is not required, or was not tried."
    )
    table = TableBlock(heading, rows, name="What degrading each component does to each metric")
    return [table, *labeled(("", legend))]


def _drawn_isolation(found: ReleaseVerdict) -> list[Block]:
    if not found.isolation:
        return []
    components, metrics, cells = _axes(found)
    rows: list[Sequence[Cell]] = [
        (
            printable(metric),
            *(
                "–"
                if (cell := cells.get((component, metric))) is None
                else _drawn(cell.gain, cell.margin, _KINDS[cell.outcome])
                for component in components
            ),
        )
        for metric in metrics
    ]
    heading = ("", *(printable(one) for one in components))
    legend = "Band: the margin. Green does what it must, orange does not, gray is undecided."
    return [TableBlock(heading, rows, name="The matrix, drawn"), *labeled(("", legend))]


def _axes(
    found: ReleaseVerdict,
) -> tuple[dict[str, str], dict[str, str], dict[tuple[str, str], IsolationCell]]:
    components = {one.component: one.component_team for one in found.isolation}
    metrics = {one.metric: one.metric_team for one in found.isolation}
    return components, metrics, {(one.component, one.metric): one for one in found.isolation}


def _checks(found: ReleaseVerdict) -> list[Block]:
    rows = [
        (
            one.name,
            one.outcome.value,
            printable(one.detail or ""),
            "" if one.estimate is None else f"p {one.estimate:.3g}",
        )
        for one in found.checks
    ]
    heading = ("check", "outcome", "of", "")
    return [TableBlock(heading, rows, left=3, name="The checks of the data")] if rows else []


def _erosion(found: ReleaseVerdict) -> list[Block]:
    told = [
        (one.outcome.value, printable(f"{one.metric}: {words.describe_erosion(one)}"))
        for one in found.erosion
    ]
    first = found.first_reference
    since = None if first is None else printable(f"measured from {first}")
    return labeled(*told, ("since", since)) if told else []
