"""Defines what an ailment is made of: one row holds its rule, thresholds, words and remedy.

The rows are beside their rules, in one file per family; `all_ailments` gathers them. No part has a
default: an author must fill in all of it, or write None on purpose. The words are templates with
the names of evidence in braces; `report` fills them in and has no others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from steptime.diagnose.ailments.scale import Threshold
from steptime.diagnose.values.finding import BottleneckKind, Finding, HeldBy
from steptime.measure.values.measurement import Measurement

Rule = Callable[..., Finding | None]
"""A rule takes a Measurement; a rule asked `APART` takes what `diagnose` gives it."""


class Asked(Enum):
    """When a rule is asked."""

    ALWAYS = "always"
    """For every run: it needs no steady window."""

    ENOUGH_STEPS = "enough_steps"
    """If the steady window has enough steps."""

    DOUBT = "doubt"
    """When no rule gave a warning; the first that fires is the verdict."""

    APART = "apart"
    """By `diagnose` itself, which gives the rule more than the measurement, or ends with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What the headroom of a finding takes away, as the first half of a sentence.

    Attributes:
        condition: such as `Without the wait`; "a step would take at least …" follows it.
        parts: further parts of the condition, by their evidence; each appears only where the
            finding holds that evidence.
        whole: what becomes shorter: a `step`; the `steps`, where they are unlike; the `loop`,
            which is all steps and these times between them; or the `run`.
    """

    condition: str
    parts: Mapping[str, str]
    whole: str


OwnShare = Callable[[Measurement, Finding], float | None]
"""Returns the share of a step that other programs do not explain; None where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhenContended:
    """Whether a finding holds while other programs keep the cores busy, and by what.

    Attributes:
        held_by: what it is judged by then.
        why: the reason, as a sentence.
        own_share: what it is judged by again; None where the rule's own judgement holds as it is.
    """

    held_by: HeldBy
    why: str
    own_share: OwnShare | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ailment:
    """One thing that slows a run down, or that its owner should know.

    Attributes:
        kind: bottleneck kind; None where it is not a bottleneck of the step.
        cause: machine word for the underlying cause; None where the kind says everything.
        what: the ailment in a few words, for the table of the documentation.
        needs: what must have been observed, for the same table.
        rule: the function that finds it; several rows may share one.
        asked: when the rule is asked.
        thresholds: the numbers that the rule compares with.
        title: the heading of a report, where the kind gives none.
        sentence: what was found. It follows a colon, so it begins with a small letter.
        explanation: the underlying cause; None where the sentence says so already.
        suspicion: a cause that is likely but not proven, said where its words are known.
        removal: what the headroom takes away; None where the rule gives no headroom.
        remedy: what to do about it, as a sentence; None where nothing needs to be done.
        levers: names of the levers that relieve it, the likeliest first.
        when_contended: whether it holds while other programs keep the cores busy.
    """

    kind: BottleneckKind | None = None
    cause: str | None = None
    what: str
    needs: str
    rule: Rule
    asked: Asked
    thresholds: tuple[Threshold, ...] = ()
    title: str | None = None
    sentence: str
    explanation: str | None = None
    suspicion: str | None = None
    removal: Removal | None = None
    remedy: str | None
    levers: tuple[str, ...] = ()
    when_contended: WhenContended


def by_facts(why: str) -> WhenContended:
    """Return that a finding holds as it is, because others do not change what it counts."""
    return WhenContended(held_by=HeldBy.FACTS, why=why, own_share=None)


def by_same_load(why: str) -> WhenContended:
    """Return that a finding holds as it is, because the load is in both times that it compares."""
    return WhenContended(held_by=HeldBy.SAME_LOAD, why=why, own_share=None)


def by_cpu_time(why: str, own_share: OwnShare | None = None) -> WhenContended:
    """Return that CPU time decides: by this share, or because the rule itself goes by it."""
    return WhenContended(held_by=HeldBy.CPU_TIME, why=why, own_share=own_share)


def by_nothing(why: str) -> WhenContended:
    """Return that a finding is no more than a hint then."""
    return WhenContended(held_by=HeldBy.NOTHING, why=why, own_share=None)


def without(what: str) -> Removal:
    """Return the removal of something unnecessary from a step."""
    return Removal(condition=f"Without {what}", parts={}, whole="step")


def loop_without(what: str) -> Removal:
    """Return the removal of time that is kept apart from the steps, between them."""
    return Removal(condition=f"Without {what}", parts={}, whole="loop")


def run_without(what: str) -> Removal:
    """Return the removal of time that is outside the steps."""
    return Removal(condition=f"Without {what}", parts={}, whole="run")
