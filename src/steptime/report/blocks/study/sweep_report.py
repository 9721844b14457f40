"""Makes the report of a search for parameters: the best, the frontier, the parameters, the runs.

In: a `SeekAnswer`. Out: blocks. Words come from `search_words`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from steptime.core.units import format_seconds
from steptime.report.blocks.phrasing import labeled, sections
from steptime.report.blocks.values import (
    Block,
    CommandLine,
    Curve,
    Fold,
    Headline,
    LinePlot,
    Section,
    Severity,
    Sheet,
    TableBlock,
)
from steptime.report.words.study import search_words as words
from steptime.seek.values.seek_values import (
    EffectGroup,
    SeekAnswer,
    SoughtCandidate,
)

_ABSENT = "–"
_MOST_ROWS = 8


def sweep_report(found: SeekAnswer, *, command: Sequence[str], next_command: str) -> Sheet:
    """Return the answer, what it rests on, and the command to run next."""
    parts = (
        ("", _answer(found)),
        ("Time against quality", _frontier(found)),
        ("The candidates", _candidates(found)),
        ("What each parameter explains", _effects(found)),
    )
    told = sections(parts, pages=("Time against quality",))
    following = Section("", [CommandLine(next_command, "next")])
    return Sheet(kind="search", command=command, parts=[*told, following])


def _answer(found: SeekAnswer) -> list[Block]:
    tones: dict[bool | None, Severity] = {True: "info", False: "critical"}
    return [
        Headline("best", words.describe_best(found), severity=tones.get(found.holds, "warning")),
        *labeled(
            ("holds", words.describe_holds(found)),
            ("beside", words.describe_beside(found)),
            ("runs", words.describe_runs(found)),
            ("noise", words.describe_noise(found)),
            ("spent", words.describe_spent(found)),
        ),
    ]


def _frontier(found: SeekAnswer) -> list[Block]:
    """Draw the best quality that any run had after a time, as steps, and the target."""
    names = {one.candidate: words.describe_values(one.parameters) for one in found.candidates}
    points = [(one.at_s, one.value) for one in found.frontier]
    rows = [
        (format_seconds(one.at_s), f"{one.value:.5g}", names.get(one.candidate, _ABSENT))
        for one in found.frontier
    ]
    if len(points) < 2:
        return []
    plot = LinePlot(
        "The best metric that any run had by then",
        [Curve("", points, has_marks=True, is_stepped=True)],
        levels=[(f"the target, {found.target:g}", found.target)],
        x_name="time of the run",
        x_unit="s",
    )
    table = TableBlock(("after", "metric", "candidate"), rows, left=3, name=plot.title)
    return [plot, Fold("the points", [table])]


def _candidates(found: SeekAnswer) -> list[Block]:
    heading = ("candidate", "time to target", "reached", "best metric")
    rows = [_row(one) for one in found.candidates]
    name = "The candidates"
    return [TableBlock(heading, rows, name=name, most=_MOST_ROWS)] if rows else []


def _row(one: SoughtCandidate) -> tuple[str, ...]:
    time_s = one.time_to_target_s
    return (
        words.describe_values(one.parameters),
        _ABSENT if time_s is None or not math.isfinite(time_s) else format_seconds(time_s),
        f"{one.num_reached} of {one.num_runs}",
        _ABSENT if one.best_value is None else f"{one.best_value:.5g}",
    )


def _effects(found: SeekAnswer) -> list[Block]:
    """List what each parameter explains, and its best values."""
    rows = [
        (one.name, _span(min(one.groups, key=lambda group: group.time_s)), one.share)
        for one in found.effects
        if one.groups
    ]
    cells = [(name, span, words.describe_share(share)) for name, span, share in rows]
    heading = ("parameter", "best at", "of the spread of times, explains")
    return [TableBlock(heading, cells, left=2, name="What each parameter explains")] if rows else []


def _span(group: EffectGroup) -> str:
    return group.low if group.low == group.high else f"{group.low} to {group.high}"
