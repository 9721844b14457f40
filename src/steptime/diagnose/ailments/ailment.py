"""What an ailment is made of: one row holds its rule, its thresholds, its words and its remedy.

The rows lie beside their rules, one file a family; `all_ailments` gathers them. No part has a
default: who adds an ailment must say all of it, or say None on purpose. The words are templates,
in whose braces stands the evidence of that name; `report` fills them in and owns no others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from steptime.diagnose.ailments.scale import Threshold
from steptime.diagnose.values.finding import BottleneckKind, Finding

Rule = Callable[..., Finding | None]
"""Takes a Measurement; those asked `APART` take what `diagnose` gives them."""


class Asked(Enum):
    """When a rule is asked."""

    ALWAYS = "always"
    """Of every run: it needs no steady window."""

    ENOUGH_STEPS = "enough_steps"
    """If the steady window has enough steps."""

    DOUBT = "doubt"
    """When no rule gave a warning; the first that fires is the verdict."""

    APART = "apart"
    """By `diagnose` itself, which gives the rule more than the measurement, or concludes by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What the headroom of a finding takes away, as the first half of a sentence.

    Attributes:
        condition: `Without the wait`; the sentence goes on "a step would take at least …".
        parts: what else belongs to the condition, by the evidence that says so; each is said only
            where the finding holds that evidence.
        is_of_run: the time lies beside the steps, so that the run becomes shorter, not a step.
    """

    condition: str
    parts: Mapping[str, str]
    is_of_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ailment:
    """One thing that holds a run back, or that its owner should know.

    Attributes:
        kind: bottleneck kind; None where it is no bottleneck of the step.
        cause: machine word for what lies under it; None where the kind says all.
        what: the ailment in a few words, for the table of the documentation.
        needs: what must have been observed, for the same table.
        rule: finds it; several rows may share one.
        asked: when the rule is asked.
        thresholds: what the rule compares with.
        title: the heading of a report, where the kind gives none.
        sentence: what was found. It follows a colon, so it begins with a small letter.
        explanation: what lies under it; None where the sentence says so already.
        removal: what the headroom takes away; None where the rule gives no headroom.
        remedy: what to do about it, as a sentence; None where nothing is to be done.
        levers: names of the levers that relieve it, the likeliest first.
    """

    kind: BottleneckKind | None
    cause: str | None
    what: str
    needs: str
    rule: Rule
    asked: Asked
    thresholds: tuple[Threshold, ...]
    title: str | None
    sentence: str
    explanation: str | None
    removal: Removal | None
    remedy: str | None
    levers: tuple[str, ...]


def without(what: str) -> Removal:
    """A step without something that nobody needs."""
    return Removal(condition=f"Without {what}", parts={}, is_of_run=False)


def run_without(what: str) -> Removal:
    """The same of time that lies beside the steps."""
    return Removal(condition=f"Without {what}", parts={}, is_of_run=True)
