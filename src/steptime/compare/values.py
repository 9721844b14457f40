"""The values of a comparison: runs with what they were made with, and what differs between sets.

Frozen, made of plain fields. Sets are called A and B; a change is B over A less one, so that
0.05 is 5 % slower. None means "not observed", or for an interval "not known".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from steptime.core.note import Fact, Note
from steptime.core.process_end import ProcessEnd


class CompareOutcome(str, Enum):
    """What two sets of runs say about the step time."""

    SLOWER = "slower"
    FASTER = "faster"
    NO_DIFFERENCE = "no_difference"
    """The interval holds no change."""
    TOO_NOISY = "too_noisy"
    """How much equal runs differ is not known, so nothing can be said."""
    NOT_COMPARABLE = "not_comparable"


class GateOutcome(str, Enum):
    """What `--fail-if-slower` says."""

    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trait:
    """One thing that a run was made with.

    Attributes:
        what: the kind of thing: `version`, `argument`, `environment` and others.
        name: which of its kind: `torch`, `--lr`.
        value: its value, as text.
    """

    what: str
    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """One run as it is compared.

    Attributes:
        run_id: name of its folder.
        place: path of its folder.
        command: the command that was measured.
        started_unix_s: when it was started [s since 1970].
        duration_s: wall time to its end [s].
        end: how it ended.
        num_steps: steps of the run.
        num_counted: steps of its steady window.
        step_s: mean time of a step; None where no step counted.
        error_fraction: standard error of the step time from within the run, of the step time.
        phases_s: the step's time by phase, adding up to `step_s`.
        spans_s: totals of what is kept apart from the steps.
        others_cores: cores that others kept busy meanwhile.
        host: the machine's name, hashed.
        traits: what it was made with.
    """

    run_id: str
    place: str
    command: tuple[str, ...]
    started_unix_s: float
    duration_s: float | None
    end: ProcessEnd
    num_steps: int
    num_counted: int
    step_s: float | None
    error_fraction: float
    phases_s: Mapping[str, float]
    spans_s: Mapping[str, float]
    others_cores: float | None
    host: str
    traits: tuple[Trait, ...]

    def trait(self, what: str, name: str) -> str | None:
        """The value of one trait."""
        found = (t.value for t in self.traits if t.what == what and t.name == name)
        return next(found, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A difference with its 95 % interval.

    It is no `Interval`, whose ends are always known: two single runs have a difference, and nobody
    can say how sure it is. Each run is one value here, and `Comparison` holds the runs.

    Attributes:
        value: the number.
        low: lower end; None where the spread of runs is not known.
        high: upper end; None where the spread of runs is not known.
    """

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """A time of A and of B [s], and how they differ: by seconds, and as a fraction of A's.

    Attributes:
        name: the phase or span; `step` and `finish` for those two.
        a_s: of A [s].
        b_s: of B [s].
        difference_s: time of B less that of A [s].
        change: the same as a fraction of A's time; None for phases and spans.
    """

    name: str
    a_s: float
    b_s: float
    difference_s: Estimate
    change: Estimate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How much equal runs differ: the standard deviation of log step times, and its source.

    Attributes:
        fraction: the standard deviation.
        degrees: degrees of freedom behind it.
        num_stored: runs of the store that it was taken from as well.
        is_of_other_code: some of those had other code, so that it may be too large.
    """

    fraction: float
    degrees: int
    num_stored: int = 0
    is_of_other_code: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TraitChange:
    """A trait that is not the same in A and in B.

    Attributes:
        what: the kind of thing: `argument`, `version`, `environment`, `variable`, `code`,
            `revision`, `folder`, `place`, `machine`, `device`, `ranks`, `threads`,
            `loader`, `input`, `lever` or `script`.
        name: which of its kind; empty where there is only one.
        a: values in A; empty where absent.
        b: values in B; empty where absent.
    """

    what: str
    name: str
    a: tuple[str, ...]
    b: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why the sets cannot be judged, or only if the user insists.

    Attributes:
        code: a stable word: `too_few_steps`, `named_twice`, `failed`, `other_script`,
            `other_machine`, `other_device`, `other_ranks`, `other_input`.
        facts: the numbers and names that belong to it.
        is_final: `--anyway` does not help.
    """

    code: str
    facts: Mapping[str, Fact]
    is_final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The limit that was set with `--fail-if-slower`, and what came of it.

    Attributes:
        limit: a fraction of the step time.
        outcome: what the interval alone says; the exit code heeds obstacles as well.
    """

    limit: float
    outcome: GateOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sets of runs, and what differs.

    Attributes:
        a, b: the runs.
        outcome: what the runs say about the step time.
        reason: machine word: why it is too noisy or cannot be compared.
        step: the step time; None where a run has none.
        phases: the step's phases; their differences add up to the step's.
        spans: totals of a run kept apart from the steps.
        finish: the time of a whole run of `num_steps` steps.
        num_steps: steps of the whole run that `finish` is about.
        spread: how much equal runs differ; None where that is not known.
        changes: what the runs of B were made with that those of A were not.
        obstacles: why the sets should not be judged.
        remarks: what else a reader must know.
        needed_runs: about so many runs a side tell a difference of the limit, of 5 % where there
            is none; None where the spread is not known.
        gate: None where no limit was set.
    """

    a: tuple[ComparedRun, ...]
    b: tuple[ComparedRun, ...]
    outcome: CompareOutcome
    reason: str | None
    step: Effect | None
    phases: tuple[Effect, ...]
    spans: tuple[Effect, ...]
    finish: Effect | None
    num_steps: int | None
    spread: Spread | None
    changes: tuple[TraitChange, ...]
    obstacles: tuple[Obstacle, ...]
    remarks: tuple[Note, ...]
    needed_runs: int | None = None
    gate: Gate | None = None
