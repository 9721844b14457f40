"""Tells somebody who must decide what a comparison leaves open, and what to do next.

In: a Comparison. Out: sentences, and a command. `comparison_report` does the layout.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from steptime.compare.values import CompareOutcome, Comparison, Estimate, Obstacle
from steptime.core.units import format_percent
from steptime.report.words.run.compare_words import wanted_of
from steptime.report.words.run.show_words import is_cell, show_command

USUAL_RUNS = 3
"""With this many runs on each side, no stored runs are needed beside them."""

_HERE: Mapping[str, str] = {}
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


def next_step(
    found: Comparison, *, is_judged: bool, stores: Mapping[str, str] = _HERE
) -> tuple[str, str | None] | None:
    """Return a sentence and a command, or None if nothing is left to do.

    `stores` has the folder that holds the store of a run, by its id, if that is another one.
    """
    if found.obstacles and not is_judged:
        failed = [obstacle for obstacle in found.obstacles if obstacle.code == "failed"]
        return _past((*failed, *found.obstacles)[0], stores)
    change = None if found.step is None else found.step.change
    if found.outcome in _CLAIMS:
        if found.gate is not None and found.gate.outcome.value == "undecided":
            return _more_runs(found)
        last = found.b[-1]
        store = stores.get(last.run_id)
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
