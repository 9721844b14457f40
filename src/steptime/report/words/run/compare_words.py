"""The wording of a comparison's machine words, in one place: typed values in, text out.

docs/explanation/how-we-compare.md lists the words. A word that is not in the tables is shown
as it is. `comparison_report` does the layout.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from steptime.compare.values import (
    CompareOutcome,
    Comparison,
    Effect,
    Estimate,
    GateOutcome,
    Obstacle,
    Spread,
    TraitChange,
)
from steptime.core.note import Fact, Note, Numbers
from steptime.core.units import format_count, format_percent, format_seconds
from steptime.report.words.run.run_words import describe_phase
from steptime.report.words.study.fact_words import describe_facts, fill, listed
from steptime.report.words.study.study_words import describe_lever

OUTCOMES: Mapping[CompareOutcome, str] = {
    CompareOutcome.SLOWER: "B is slower",
    CompareOutcome.FASTER: "B is faster",
    CompareOutcome.NO_DIFFERENCE: "no difference beyond the noise",
    CompareOutcome.TOO_NOISY: "too noisy to tell",
    CompareOutcome.NOT_COMPARABLE: "these runs cannot be compared",
}

GATES: Mapping[GateOutcome, str] = {
    GateOutcome.PASSED: "passed: the whole interval is within the limit of {limit}.",
    GateOutcome.FAILED: (
        "failed: B is slower by more than the limit of {limit}, and the whole interval lies above "
        "no change."
    ),
    GateOutcome.UNDECIDED: (
        "too noisy to tell: the interval reaches beyond the limit of {limit}, but it is not "
        "certain that B is slower by more than that."
    ),
}
UNKNOWN_GATE = "too noisy to tell: there is no interval to compare with the limit of {limit}."
UNJUDGED = "not judged: see above. `--force` also judges runs that were not made alike."
UNJUDGED_FOR_GOOD = "not judged: see above."

# Why there is no interval.
REASONS: Mapping[str, str] = {
    "single_runs": (
        "With one run on each side, other runs must show how much equal runs differ. The store has "
        "no repeats of this script on this machine."
    ),
    "few_stored": (
        "With one run on each side, other runs must show how much equal runs differ. The store has "
        "too few repeats of this script on this machine: fifteen are needed."
    ),
    "two_runs": (
        "Two runs on each side say too little about how much equal runs differ, and the store has "
        "no repeats of this script on this machine."
    ),
    "few_pairs": "Fewer than four pairs say too little about how much equal runs differ.",
    "hosts_differ": (
        "The runs of A and B come from different machines, and it is not known how much such "
        "machines differ. Make runs of both on one machine, or several runs of each on several."
    ),
}

OBSTACLES: Mapping[str, str] = {
    "too_few_steps": (
        "The run {run} has {counted} steps that count, out of {steps}; a comparison needs {needed}."
    ),
    "named_twice": "The run {run} is named more than once.",
    "failed": "The run {run} failed ({end}). What it measured before that is shown.",
    "other_script": "A trains `{a}` and B trains `{b}`, so their steps may not do the same work.",
    "other_machine": "The machines differ: {a}; {b}.",
    "other_device": "The devices differ: {a}; {b}.",
    "other_ranks": "A has {a} ranks and B has {b}, so their steps do not do the same work.",
    "other_input": (
        "The models get {a} in A and {b} in B, so their steps do not do the same work."
    ),
}

REMARKS: Mapping[str, str] = {
    "other_lengths": "A has {a} steps and B has {b}. The comparison is about the time of one step.",
    "mixed": "The runs of {side} differ among themselves: {names}.",
    "unfinished": "The run {run} has no recorded end. It is compared as far as it got.",
    "not_interleaved": (
        "All runs of one side were made before those of the other. A machine that changed in "
        "between would look the same. Runs made in turns (A B A B) rule that out."
    ),
    "other_hosts": "A and B were made on different machines of one kind.",
    "contended": (
        "In {count} of {of} runs other programs kept more than half a core busy, up to {cores} "
        "cores."
    ),
}

# What a trait is called; its name follows.
TRAITS: Mapping[str, str] = {
    "script": "script",
    "code": "code",
    "revision": "git revision",
    "folder": "folder",
    "argument": "argument",
    "place": "file system of",
    "version": "version of",
    "ranks": "ranks",
    "device": "device",
    "threads": "threads",
    "input": "models'",
    "environment": "variable",
    "variable": "variable",
    "lever": "lever",
}
USUAL_LIMIT = 0.05
"""The difference that a comparison without a limit is asked for, as in `compare.judge`."""

FEW_DEGREES = 4
"""With three, the spread may well be 3.7 times what was seen (95 % interval of chi squared)."""

_HIDDEN = ("code", "revision")
_ABSENT = {"environment": "not set", "lever": "off"}
_SHOWN_HASH = 8


def describe_outcome(found: Comparison) -> str:
    """Return the answer in a sentence, with its interval."""
    step = found.step
    if step is None or step.change is None:
        return f"{OUTCOMES[found.outcome]}."
    change = describe_change(step.change)
    return f"{OUTCOMES[found.outcome]}: a step takes {_both(step)}{clock_of(found)}, {change}."


def clock_of(found: Comparison) -> str:
    """Say of a step's time that it is CPU time; nothing where it is wall time."""
    return " (CPU time)" if found.by_cpu else ""


def _both(effect: Effect) -> str:
    """Return the times of A and of B."""
    return f"{format_seconds(effect.a_s)} in A and {format_seconds(effect.b_s)} in B"


def describe_change(change: Estimate) -> str:
    """Return text such as `+6.3 % (95 % interval +3.9 % to +8.8 %)`."""
    text = signed_percent(change.value)
    if change.low is None or change.high is None:
        return f"{text} (its interval is not known)"
    return f"{text} (95 % interval {signed_percent(change.low)} to {signed_percent(change.high)})"


def signed_percent(fraction: float) -> str:
    """Return a percentage with its sign; a value that rounds to zero has no sign."""
    if abs(fraction) < 0.0005:
        return "0.0 %"
    return f"{'-' if fraction < 0 else '+'}{format_percent(abs(fraction))}"


def signed_seconds(value_s: float) -> str:
    """Return a time with its sign."""
    return format_seconds(value_s) if value_s <= 0 else f"+{format_seconds(value_s)}"


def describe_where(phase: Effect) -> str:
    """Name the phase that has most of the difference."""
    difference = signed_seconds(phase.difference_s.value)
    return f"most of it is in {describe_phase(phase.name)}: {_both(phase)} ({difference})"


def describe_finish(effect: Effect, num_steps: int) -> str:
    """Say what it means for a whole run."""
    gain = signed_seconds(effect.difference_s.value)
    low, high = effect.difference_s.low, effect.difference_s.high
    ends = (
        "" if low is None or high is None else f", {signed_seconds(low)} to {signed_seconds(high)}"
    )
    return f"a run of {format_count(num_steps)} steps takes {_both(effect)} ({gain}{ends})"


def describe_cost(effect: Effect, price: float) -> str:
    """Say what a whole run costs at `price` per hour."""
    a, b = effect.a_s / 3600 * price, effect.b_s / 3600 * price
    low, high = effect.difference_s.low, effect.difference_s.high
    ends = ""
    if low is not None and high is not None:
        ends = f", {low / 3600 * price:+.3g} to {high / 3600 * price:+.3g}"
    return f"{a:.3g} in A and {b:.3g} in B ({b - a:+.3g}{ends}) at {price:g} per hour"


def describe_gate(found: Comparison, *, is_forced: bool) -> str:
    """Say whether the limit was kept."""
    gate = found.gate
    if gate is None:
        return ""
    limit = format_percent(gate.limit)
    if found.outcome is CompareOutcome.NOT_COMPARABLE:
        return UNJUDGED_FOR_GOOD
    if found.obstacles and not is_forced:
        is_unlike = any(obstacle.code != "failed" for obstacle in found.obstacles)
        return UNJUDGED if is_unlike else UNJUDGED_FOR_GOOD
    if any(obstacle.code == "failed" for obstacle in found.obstacles):
        return UNJUDGED_FOR_GOOD
    if found.outcome is CompareOutcome.TOO_NOISY:
        return UNKNOWN_GATE.format(limit=limit)
    return GATES[gate.outcome].format(limit=limit)


def describe_reason(reason: str) -> str:
    """Say why there is no answer."""
    return REASONS.get(reason, reason)


def describe_obstacle(obstacle: Obstacle) -> str:
    """Say what stands in the way."""
    return _fill(OBSTACLES, obstacle.code, obstacle.facts)


def describe_remark(remark: Note) -> str:
    """Say what else the reader needs to know."""
    return _fill(REMARKS, remark.code, remark.facts or {})


def _fill(table: Mapping[str, str], code: str, facts: Mapping[str, Fact | Numbers]) -> str:
    told = describe_facts(facts)
    return fill(table.get(code), told) or f"{code} {listed(told)}".rstrip()


def describe_trait(change: TraitChange) -> str:
    """Say what was changed, such as `argument --workers`."""
    title = TRAITS.get(change.what, change.what)
    if change.what == "argument" and not change.name.startswith("-"):
        return f"{change.name} of the command"
    if (change.what, change.name) == ("place", "."):
        return "file system of the working folder"
    if change.what == "loader":
        dataset, _, setting = change.name.rpartition(" ")
        return f"{setting} of the loader of {dataset}"
    if change.what == "machine":
        return f"{change.name} of the machine"
    return f"{title} {change.name}".strip() or change.what


def describe_values(change: TraitChange) -> tuple[str, str]:
    """Return the values of A and of B."""
    if change.what == "variable":
        return ("set" if change.a else "not set", "set" if change.b else "not set")
    a, b = (_values(change.what, values) for values in (change.a, change.b))
    return a, b


def _values(what: str, values: tuple[str, ...]) -> str:
    if not values:
        return _ABSENT.get(what, "absent")
    return ", ".join(_value(what, value) or "given" for value in values)


def _value(what: str, value: str) -> str:
    if what in _HIDDEN:
        return value.removeprefix("sha256:")[:_SHOWN_HASH]
    if what != "lever":
        return value
    try:
        return describe_lever("", json.loads(value)).strip() or "on"
    except (ValueError, AttributeError):
        return value  # the reason why it is off


def wanted_of(found: Comparison) -> float:
    """Return the difference that `needed_runs` is about, as a fraction."""
    return found.gate.limit if found.gate is not None and found.gate.limit > 0 else USUAL_LIMIT


def describe_spread(spread: Spread) -> str:
    """Say how much equal runs differ, and how we know."""
    runs = "equal runs of a pair" if spread.is_paired else "equal runs"
    text = f"{runs} differ by {format_percent(spread.fraction)} (one standard deviation"
    if spread.degrees < FEW_DEGREES:
        text += ", as far as so few runs can tell"
    if spread.num_stored:
        other = ", some of them of other code" if spread.is_of_other_code else ""
        text += f", with {format_count(spread.num_stored)} stored runs{other}"
    return text + ")."
