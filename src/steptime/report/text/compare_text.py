"""Prints the report of `steptime compare` on a terminal, on one screen.

In: a Comparison. Out: lines on a console. The sections are a visible list; words come from
`compare_words`, layout from `page`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.text import Text

from steptime.compare.values import (
    ComparedRun,
    CompareOutcome,
    Comparison,
    Effect,
    GateOutcome,
    TraitChange,
)
from steptime.core.printable import printable
from steptime.core.units import format_percent, format_seconds
from steptime.report.blocks.phrasing import joined, shortened
from steptime.report.text.compare_next import describe_reach, next_step
from steptime.report.text.page import LABEL_WIDTH, Page, columns, page_of
from steptime.report.words import compare_words as words
from steptime.report.words.run_words import describe_phase, describe_span
from steptime.report.words.show_words import SHOW

MAX_CHANGES = 12
"""People change few things on purpose; more changes mean another environment, and are only counted.
"""

_MINOR = ("variable", "folder", "revision", "place")
"""These are shown last, because they seldom decide how long a step takes."""

_WORTH_A_LINE = 0.01
"""A phase below this share of the step on both sides has no line."""

_GATE_COLORS = {GateOutcome.PASSED: "green", GateOutcome.FAILED: "red"}
_COLORS = {CompareOutcome.SLOWER: "red", CompareOutcome.FASTER: "green"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRequest:
    """What the user asked for beside the runs; `price` is the price of an hour.

    `stores` has the folder that `--store` must name, by the id of a run in another store.
    """

    price: float | None = None
    is_forced: bool = False
    stores: Mapping[str, str] = field(default_factory=dict)


def render_comparison(found: Comparison, *, asked: ComparisonRequest, console: Console) -> None:
    """Print the report of a comparison."""
    page = page_of(console)
    gap = [Text()]
    lines = [*_noise(found, page), *_remarks(found, page)]
    page.write(
        [
            *_side("A", found.a, page),
            *_side("B", found.b, page),
            *gap,
            *_obstacles(found, page),
            *_answer(found, asked, page),
            *gap,
            *_changes(found.changes, page),
            *_table(found, page),
            *([Text(), *lines] if lines else []),
            *_next(found, asked, page),
        ]
    )


def _id_of(run: ComparedRun) -> str:
    return run.run_id if run.training is None else f"{run.run_id} (training {run.training})"


def _side(label: str, runs: Sequence[ComparedRun], page: Page) -> list[Text]:
    times = [run.step_s for run in runs if run.step_s is not None]
    ids = [_id_of(run) for run in runs]
    shown = ids if len(ids) <= 3 else [*ids[:2], f"{len(ids) - 2} more"]
    parts = [f"{len(runs)} runs" if len(runs) > 1 else "1 run", *map(printable, shown)]
    if times:
        low, high = format_seconds(min(times)), format_seconds(max(times))
        parts.append(f"a step takes {low}" if low == high else f"a step takes {low} to {high}")
    return page.block(label, joined(parts))


def _obstacles(found: Comparison, page: Page) -> list[Text]:
    lines = []
    for obstacle in found.obstacles:
        text = Text(printable(words.describe_obstacle(obstacle)), style="yellow")
        lines += page.block("", text)
    return [*lines, Text()] if lines else []


def _answer(found: Comparison, asked: ComparisonRequest, page: Page) -> list[Text]:
    color = _COLORS.get(found.outcome, "yellow" if found.reason else "")
    lines = page.block("step", Text(words.describe_outcome(found), style=f"bold {color}".strip()))
    if found.outcome is CompareOutcome.TOO_NOISY and found.reason is not None:
        lines += page.block("", words.describe_reason(found.reason))
    if (reach := describe_reach(found)) is not None:
        lines += page.block("", reach)
    lines += _gate(found, asked, page)
    if (phase := main_phase(found)) is not None:
        lines += page.block("where", words.describe_where(phase))
    if found.finish is not None and found.num_steps is not None:
        lines += page.block("finish", words.describe_finish(found.finish, found.num_steps))
        if asked.price is not None:
            lines += page.block("cost", words.describe_cost(found.finish, asked.price))
    return lines


def _gate(found: Comparison, asked: ComparisonRequest, page: Page) -> list[Text]:
    if found.gate is None:
        return []
    color = _GATE_COLORS.get(found.gate.outcome) if _is_judged(found, asked) else None
    text = words.describe_gate(found, is_forced=asked.is_forced)
    return page.block("gate", Text(text, style=color or "yellow"))


def _is_judged(found: Comparison, asked: ComparisonRequest) -> bool:
    return not found.obstacles or asked.is_forced


def main_phase(found: Comparison) -> Effect | None:
    """Return the phase with most of a claimed difference, if that phase surely changed."""
    if found.step is None or found.outcome not in (CompareOutcome.SLOWER, CompareOutcome.FASTER):
        return None
    sign = 1 if found.outcome is CompareOutcome.SLOWER else -1
    largest = max(found.phases, key=lambda effect: sign * effect.difference_s.value, default=None)
    if largest is None:
        return None
    near = largest.difference_s.low if sign > 0 else largest.difference_s.high
    return largest if near is not None and sign * near > 0 else None


def _changes(changes: Sequence[TraitChange], page: Page) -> list[Text]:
    if not changes:
        return page.block("changed", "nothing that was recorded")
    ordered = sorted(changes, key=lambda change: change.what in _MINOR)
    lines: list[Text] = []
    for number, change in enumerate(ordered[:MAX_CHANGES]):
        a, b = words.describe_values(change)
        width = max(8, (page.width - LABEL_WIDTH) // 3)
        name = shortened(words.describe_trait(change), page.width - LABEL_WIDTH - 2)
        text = f"{name}: {shortened(a, width)} -> {shortened(b, width)}"
        lines += page.block("" if number else "changed", text)
    if len(ordered) > MAX_CHANGES:
        rest = len(ordered) - MAX_CHANGES
        lines += page.block("", f"and {rest} more; --json lists them all")
    return lines


def _table(found: Comparison, page: Page) -> list[Text]:
    step = found.step
    if step is None:
        return []
    least_s = _WORTH_A_LINE * max(step.a_s, step.b_s)
    phases = [e for e in found.phases if max(e.a_s, e.b_s) >= least_s]
    rows = [
        ["a step's time", "A", "B", "difference", "95 % interval"],
        *(_row(describe_phase(effect.name), effect) for effect in phases),
        _row("all", step),
    ]
    lines = [Text(), *columns(rows)]
    spans = [_row(describe_span(effect.name), effect) for effect in found.spans]
    if spans:
        heading = ["beside the steps", "A", "B", "difference", "95 % interval"]
        lines += [Text(), *columns([heading, *spans])]
    return lines


def _row(title: str, effect: Effect) -> list[str]:
    found = effect.difference_s
    ends = "-"
    if found.low is not None and found.high is not None:
        ends = f"{words.signed_seconds(found.low)} to {words.signed_seconds(found.high)}"
    times = [format_seconds(effect.a_s), format_seconds(effect.b_s)]
    return [title, *times, words.signed_seconds(found.value), ends]


def _noise(found: Comparison, page: Page) -> list[Text]:
    if found.spread is None:
        return []
    text = words.describe_spread(found.spread)
    if found.needed_runs is not None:
        wanted = format_percent(words.wanted_of(found))
        text += f" About {found.needed_runs} runs on each side can tell a difference of {wanted}."
    return page.block("noise", text)


def _remarks(found: Comparison, page: Page) -> list[Text]:
    is_claim = found.outcome in (CompareOutcome.SLOWER, CompareOutcome.FASTER)
    lines: list[Text] = []
    for remark in found.remarks:
        if remark.code == "not_interleaved" and not is_claim:
            continue
        lines += page.block("note", printable(words.describe_remark(remark)))
    return lines


def _next(found: Comparison, asked: ComparisonRequest, page: Page) -> list[Text]:
    """Say what to do: look at what is slower, make more runs, or remove what stands in the way."""
    act = next_step(found, is_judged=_is_judged(found, asked), stores=asked.stores)
    if act is None:
        return []
    sentence, command = act
    lines = [Text(), *page.block("next", printable(sentence))]
    if command is not None:
        room = page.width - LABEL_WIDTH
        if not command.startswith(SHOW):  # ours is short, but for the path of a store
            command = shortened(command, room)
        lines.append(Text(" " * LABEL_WIDTH + command, style="bold"))
    return lines
