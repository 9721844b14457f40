"""Makes the report of a search for parameters: the best, the frontier, the parameters, the runs.

In: a `SeekAnswer`. Out: blocks, and the line on a run that has ended.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from steptime.core.units import format_percent, format_seconds, format_speedup
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
from steptime.seek.values.seek_values import (
    EffectGroup,
    Role,
    SeekAnswer,
    SeekEnd,
    SeekRun,
    SoughtCandidate,
)

REASONS: Mapping[str, str] = {
    "target_not_reached": "no run reached the target within the budget",
    "no_new_seeds": "the budget ended before a run with a new seed",
    "too_few_new_seeds": "the budget ended before three runs of each with new seeds",
    "seeds_change_nothing": (
        "runs with different seeds gave the same numbers, so the command does not use the seed; "
        "write {seed} into it, or name --seed-flag"
    ),
    "winner_missed_target": "with new seeds, most runs did not reach the target in time",
    "winner_missed_once": "with new seeds, not every run reached the target in time",
    "too_close_to_tell": "with new seeds, the other candidate may be as fast or faster",
}
"""Why the best does not hold, or why that cannot be told."""

ENDS: Mapping[SeekEnd, str] = {
    SeekEnd.REACHED: "reached the target",
    SeekEnd.FINISHED: "ended without the target",
    SeekEnd.PRUNED: "was stopped, as it could not win,",
    SeekEnd.DIVERGED: "diverged",
    SeekEnd.FAILED: "failed",
    SeekEnd.TIMED_OUT: "had to end with the budget",
}
"""How a run ended, before `after 12 s`."""

ROLES: Mapping[Role, str] = {
    Role.EXPLORE: "",
    Role.REPEAT: ", again with another seed",
    Role.NEW_SEED: ", with a new seed",
}
"""Why a run was made."""


def describe_values(values: Mapping[str, str]) -> str:
    """Return `lr=0.003, bs=32`."""
    return ", ".join(f"{name}={value}" for name, value in values.items())


def describe_best(found: SeekAnswer) -> str:
    """Say what the search found."""
    if found.best is None:
        return f"nothing: {REASONS['target_not_reached']}"
    took = "" if found.time_to_target_s is None else f" in {format_seconds(found.time_to_target_s)}"
    return f"{describe_values(found.best)}: reaches {found.target:g}{took}"


def describe_holds(found: SeekAnswer) -> str:
    """Say whether the best holds with seeds that took no part in the choice."""
    if found.best is None:
        return "there is nothing to hold"
    word = {True: "yes", False: "no", None: "it cannot be told"}[found.holds]
    check = found.new_seeds
    if found.reason is not None:
        return f"{word}: {REASONS.get(found.reason, found.reason)}"
    if check is None:
        return word
    runs = f"{check.num_reached} of {check.num_runs} runs with new seeds reached the target"
    return f"{word}: {runs}"


def describe_beside(found: SeekAnswer) -> str | None:
    """Say how the best stands beside its rival with new seeds; None where there is none."""
    check = found.new_seeds
    if check is None or check.rival is None:
        return None
    values = next((one.parameters for one in found.candidates if one.candidate == check.rival), {})
    who = "the default" if check.is_rival_default else "the other candidate"
    name = f"{who} ({describe_values(values)})"
    if check.speedup is None or check.low is None or check.high is None:
        counts = f"{check.num_rival_reached} of its {check.num_runs} runs reached the target"
        if not check.num_rival_reached:
            counts = "none of its runs reached the target"
        return f"{name}: {counts}"
    ends = f"{format_speedup(check.low)} to {format_speedup(check.high)}"
    text = f"{format_speedup(check.speedup)} as fast ({ends}) as {name}"
    if check.are_replaced:
        text += ", which had won the search and lost with new seeds"
    return text


def describe_runs(found: SeekAnswer) -> str:
    """Say how many candidates and runs there were, and what became of them."""
    parts = [f"{found.num_trials} candidates in {found.num_runs} runs"]
    others = found.num_censored - found.num_pruned - found.num_failed
    counts = (
        (found.num_pruned, "stopped because they could not win"),
        (others, "without the target"),
        (found.num_failed, "failed"),
    )
    parts += [f"{count} {word}" for count, word in counts if count > 0]
    return ", ".join(parts)


def describe_spent(found: SeekAnswer) -> str:
    """Say what of the budget was spent."""
    text = f"{format_seconds(found.spent_s)} of {format_seconds(found.budget_s)}"
    if len(found.machines) > 1:
        text += f", on each of {len(found.machines)} machines"
    return text


def describe_noise(found: SeekAnswer) -> str | None:
    """Say how far times lie apart from seed to seed; None where nothing was repeated."""
    if found.noise_fraction is None:
        return None
    return f"times of equal parameters differ by {format_percent(found.noise_fraction)} (SD)"


def describe_progress(
    run: SeekRun, runs: Sequence[SeekRun], *, budget_s: float, num_machines: int = 1
) -> str:
    """Say how a run ended, what is best so far, and how much time is left."""
    took = format_seconds(run.seconds)
    text = f"run {run.number}, {describe_values(run.parameters)}{ROLES[run.role]}: "
    text += f"{ENDS[run.end]} after {took}"
    times = [one.time_to_target_s for one in runs if one.time_to_target_s is not None]
    if times:
        text += f" · best {format_seconds(min(times))}"
    left_s = budget_s - math.fsum(one.seconds for one in runs) / num_machines
    return f"{text} · {format_seconds(max(left_s, 0.0))} left"


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
        Headline("best", describe_best(found), severity=tones.get(found.holds, "warning")),
        *labeled(
            ("holds", describe_holds(found)),
            ("beside", describe_beside(found)),
            ("runs", describe_runs(found)),
            ("noise", describe_noise(found)),
            ("spent", describe_spent(found)),
        ),
    ]


def _frontier(found: SeekAnswer) -> list[Block]:
    """Draw the best quality that any run had after a time, as steps, and the target."""
    names = {one.candidate: describe_values(one.parameters) for one in found.candidates}
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
        describe_values(one.parameters),
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
    few = "too few candidates"
    cells = [(n, span, few if share is None else format_percent(share)) for n, span, share in rows]
    heading = ("parameter", "best at", "of the spread of times, explains")
    return [TableBlock(heading, cells, left=2, name="What each parameter explains")] if rows else []


def _span(group: EffectGroup) -> str:
    return group.low if group.low == group.high else f"{group.low} to {group.high}"
