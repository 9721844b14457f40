"""Makes the report of `steptime compare`, on one screen.

In: a Comparison. Out: blocks. The sections are a visible list; words come from `compare_words`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from steptime.compare.values import (
    ComparedRun,
    CompareOutcome,
    Comparison,
    Effect,
    Estimate,
    FirstDifference,
    GateOutcome,
    Obstacle,
    TraitChange,
)
from steptime.core.printable import printable
from steptime.core.units import format_percent, format_seconds
from steptime.report.blocks.phrasing import joined, labeled, listed, sections, shortened
from steptime.report.blocks.values import (
    Blank,
    Block,
    CommandLine,
    Labeled,
    Section,
    Sheet,
    TableBlock,
)
from steptime.report.words.run import compare_words as words
from steptime.report.words.run.compare_words import wanted_of
from steptime.report.words.run.run_words import describe_phase, describe_span
from steptime.report.words.run.show_words import is_cell, show_command

USUAL_RUNS = 3
"""With this many runs on each side, no stored runs are needed beside them."""

_CLAIMS = (CompareOutcome.SLOWER, CompareOutcome.FASTER)


def describe_reach(found: Comparison) -> str | None:
    """Say how large a difference may still be where none was found."""
    change = None if found.step is None else found.step.change
    if found.outcome is not CompareOutcome.NO_DIFFERENCE or change is None:
        return None
    if change.low is None or change.high is None:
        return None
    if _is_within(change, wanted_of(found)):
        return f"B is at most {format_percent(max(change.high, 0.0))} slower."
    return (
        f"This does not show that they are equal: B may be up to {format_percent(change.high)} "
        f"slower, or up to {format_percent(-change.low)} faster."
    )


def _is_within(change: Estimate, limit: float) -> bool:
    ends = (change.low, change.high)
    return all(end is not None and abs(end) <= limit for end in ends)


def next_step(found: Comparison, asked: ComparisonRequest) -> tuple[str, str | None] | None:
    """Return a sentence and a command, or None if nothing is left to do."""
    if not _is_judged(found, asked):
        failed = [obstacle for obstacle in found.obstacles if obstacle.code == "failed"]
        return _past((*failed, *found.obstacles)[0], asked.stores)
    change = None if found.step is None else found.step.change
    if found.outcome in _CLAIMS:
        if found.gate is not None and found.gate.outcome.value == "undecided":
            return _more_runs(found)
        last = found.b[-1]
        store = asked.stores.get(last.run_id)
        return "Look at a run of B:", show_command(last.run_id, training=last.training, store=store)
    if change is not None and _is_within(change, wanted_of(found)):
        return None
    return _more_runs(found)


def _past(obstacle: Obstacle, stores: Mapping[str, str]) -> tuple[str, str | None]:
    """Say what to do about an obstacle."""
    run = str(obstacle.facts.get("run", ""))
    show = show_command(run, store=stores.get(run))
    if obstacle.code == "failed":
        return "See why it failed:", show
    if obstacle.code == "too_few_steps":
        return "Let each run train longer, or see what was measured:", show
    if obstacle.code == "named_twice":
        return (
            "Name each run once, those of A before the `--`, those of B after it. This lists them:",
            "steptime list",
        )
    return "Make the runs of B as those of A were made, except for what is to be judged.", None


def _more_runs(found: Comparison) -> tuple[str, str | None]:
    """Ask for more runs: how many, and on which machine."""
    words = found.b[-1].command
    command = shlex.join(words if is_cell(words) else ["steptime", "run", "--", *words])
    num = max(len(found.a), len(found.b))
    needed = found.needed_runs
    if found.outcome is CompareOutcome.TOO_NOISY and num < USUAL_RUNS:
        sentence = f"Make at least {USUAL_RUNS} runs on each side, in turns"
    elif found.spread is None:
        sentence = "Make more runs, in turns"
    elif needed is None:
        sentence = "More runs would not help much, because equal runs differ too much"
    elif needed > num:
        wanted = format_percent(wanted_of(found))
        sentence = (
            f"Make about {needed} runs on each side, in turns, to tell a difference of {wanted}"
        )
    else:
        sentence = "Make a few more runs, in turns"
    is_busy = any(remark.code == "contended" for remark in found.remarks)
    return f"{sentence}{'; fewer are enough on a quiet machine' if is_busy else ''}:", command


MAX_CHANGES = 12
"""People change few things on purpose; more changes mean another environment, and are only counted.
"""

_SHOWN_VALUE = 29
"""Columns of a value that changed."""

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
    first_difference: FirstDifference | None = None


def comparison_report(found: Comparison, *, asked: ComparisonRequest) -> Sheet:
    """Return the report of a comparison."""
    sides = labeled(
        *((name, _side(runs, found)) for name, runs in (("A", found.a), ("B", found.b)))
    )
    parts = (
        ("", sides),
        ("Where they part", _parting(asked.first_difference)),
        ("The answer", [*_obstacles(found), *_answer(found, asked)]),
        ("What changed", listed("changed", _changes(found.changes))),
        ("Where the time goes", _tables(found)),
        ("Noise", labeled(("noise", _noise(found)), *(("note", one) for one in _remarks(found)))),
    )
    return Sheet(kind="comparison", parts=[*sections(parts), *_next(found, asked)])


_PARTS = {
    "before": "the weights at the beginning",
    "batch": "the batch that the model gets",
    "outputs": "what a module returns",
    "loss": "the loss",
    "gradients": "the gradients",
    "weights": "the weights after the update",
}


def _parting(found: FirstDifference | None) -> list[Block]:
    """Say where two runs with checksums part, or up to which step they are the same."""
    if found is None:
        return []
    if found.step is None:
        text = f"the runs have the same checksums in steps {_listed(found.steps)}"
        return labeled(("parting", text))
    name = f" ({printable(found.module)})" if found.module else ""
    text = (
        f"step {found.step} of rank {found.rank} differs first in {_PARTS[found.what or '']}{name}"
    )
    last = found.same_until
    since = "" if last is None else f"; step {last} is the same"
    if last is not None and found.step > last + 1:
        since += f". Steps {last + 1} to {found.step - 1} were not kept"
        if found.what == "before":
            since += ", and the runs part in one of them: `steptime run --checksums 3` keeps each"
    return labeled(("parting", f"{text}{since}"))


def _listed(steps: Sequence[int]) -> str:
    return ", ".join(map(str, steps))


def previous_blocks(found: Comparison) -> list[Block]:
    """Return what a run says beside the one before it of the same command, which is A."""
    before = found.a[0].run_id
    return [
        *labeled(("before", _side(found.a, found)), ("this run", _side(found.b, found))),
        *listed("changed", _changes(found.changes)),
        *_tables(found),
        *labeled(("", words.describe_outcome(found))),
        CommandLine(
            f"steptime compare {before} -- {found.b[0].run_id}",
            lead="One run of each says little; several of each, in turns, decide it:",
            is_below=True,
        ),
    ]


def _id_of(run: ComparedRun) -> str:
    return run.run_id if run.training is None else f"{run.run_id} (training {run.training})"


def _side(runs: Sequence[ComparedRun], found: Comparison) -> str:
    times = [run.step_s for run in runs if run.step_s is not None]
    ids = [_id_of(run) for run in runs]
    shown = ids if len(ids) <= 3 else [*ids[:2], f"{len(ids) - 2} more"]
    parts = [f"{len(runs)} runs" if len(runs) > 1 else "1 run", *map(printable, shown)]
    if times:
        low, high = format_seconds(min(times)), format_seconds(max(times))
        takes = f"a step takes {low}" if low == high else f"a step takes {low} to {high}"
        parts.append(takes + words.clock_of(found))
    return joined(parts)


def _obstacles(found: Comparison) -> list[Block]:
    told = [words.describe_obstacle(obstacle) for obstacle in found.obstacles]
    return [*(Labeled("", text, style="yellow") for text in told), *([Blank()] if told else [])]


def _answer(found: Comparison, asked: ComparisonRequest) -> list[Block]:
    color = _COLORS.get(found.outcome, "yellow" if found.reason else "")
    answer = Text(words.describe_outcome(found), style=f"bold {color}".strip())
    is_open = found.outcome is CompareOutcome.TOO_NOISY and found.reason is not None
    phase, finish = main_phase(found), None
    if found.finish is not None and found.num_steps is not None:
        finish = words.describe_finish(found.finish, found.num_steps)
    cost = None
    if finish and found.finish is not None and asked.price is not None:
        cost = words.describe_cost(found.finish, asked.price)
    return labeled(
        ("step", answer),
        ("", words.describe_reason(found.reason or "") if is_open else None),
        ("", describe_reach(found)),
        ("gate", _gate(found, asked)),
        ("where", None if phase is None else words.describe_where(phase)),
        ("finish", finish),
        ("cost", cost),
    )


def _gate(found: Comparison, asked: ComparisonRequest) -> Text | None:
    if found.gate is None:
        return None
    color = _GATE_COLORS.get(found.gate.outcome) if _is_judged(found, asked) else None
    text = words.describe_gate(found, is_forced=asked.is_forced)
    return Text(text, style=color or "yellow")


def _is_judged(found: Comparison, asked: ComparisonRequest) -> bool:
    return not found.obstacles or asked.is_forced


def main_phase(found: Comparison) -> Effect | None:
    """Return the phase with most of a claimed difference, if that phase surely changed."""
    if found.step is None or found.outcome not in _CLAIMS:
        return None
    sign = 1 if found.outcome is CompareOutcome.SLOWER else -1
    largest = max(found.phases, key=lambda effect: sign * effect.difference_s.value, default=None)
    if largest is None:
        return None
    near = largest.difference_s.low if sign > 0 else largest.difference_s.high
    return largest if near is not None and sign * near > 0 else None


def _changes(changes: Sequence[TraitChange]) -> list[str]:
    ordered = sorted(changes, key=lambda change: change.what in _MINOR)
    told = []
    for change in ordered[:MAX_CHANGES]:
        a, b = (shortened(value, _SHOWN_VALUE) for value in words.describe_values(change))
        told.append(f"{words.describe_trait(change)}: {a} -> {b}")
    more = len(ordered) - MAX_CHANGES
    if more > 0:
        told.append(f"and {more} more; --json lists them all")
    return told or ["nothing that was recorded"]


def _tables(found: Comparison) -> list[Block]:
    step = found.step
    if step is None:
        return []
    least_s = _WORTH_A_LINE * max(step.a_s, step.b_s)
    phases = [e for e in found.phases if max(e.a_s, e.b_s) >= least_s]
    rows = [*(_row(describe_phase(one.name), one) for one in phases), _row("all", step)]
    spans = [_row(describe_span(one.name), one) for one in found.spans]
    heading = ("A", "B", "difference", "95 % interval")
    title = "CPU time per step" if found.by_cpu else "time per step"
    name = title[0].upper() + title[1:]
    blocks: list[Block] = [TableBlock((title, *heading), rows, name=name)]
    if spans:
        name = "Beside the steps"
        blocks += [Blank(), TableBlock((name.lower(), *heading), spans, name=name)]
    return blocks


def _row(title: str, effect: Effect) -> list[str]:
    found = effect.difference_s
    ends = "-"
    if found.low is not None and found.high is not None:
        ends = f"{words.signed_seconds(found.low)} to {words.signed_seconds(found.high)}"
    times = [format_seconds(effect.a_s), format_seconds(effect.b_s)]
    return [title, *times, words.signed_seconds(found.value), ends]


def _noise(found: Comparison) -> str | None:
    if found.spread is None:
        return None
    text = words.describe_spread(found.spread)
    if found.needed_runs is not None:
        wanted = format_percent(words.wanted_of(found))
        text += f" About {found.needed_runs} runs on each side can tell a difference of {wanted}."
    return text


def _remarks(found: Comparison) -> list[str]:
    told = [
        one for one in found.remarks if found.outcome in _CLAIMS or one.code != "not_interleaved"
    ]
    return [words.describe_remark(one) for one in told]


def _next(found: Comparison, asked: ComparisonRequest) -> list[Section]:
    """Say what to do: look at what is slower, make more runs, or remove what stands in the way."""
    act = next_step(found, asked)
    if act is None:
        return []
    sentence, command = act
    if command is None:
        return [Section("", labeled(("next", sentence)))]
    return [Section("", [CommandLine(command, "next", sentence, is_below=True)])]
