"""The values of a comparison: runs, what they were made with, and what differs between the sets.

They are frozen and have plain fields. The sets are called A and B; a change is B over A minus one,
so 0.05 is 5 % slower. None means "not observed", or "not known" for an interval.
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
    """The interval contains no change."""
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
        name: which thing of that kind, such as `torch` or `--lr`.
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
        num_counted: steps in its steady window.
        step_s: mean time of a step [s]; None where no step counts.
        error_fraction: standard error of the step time, from the run's own steps, as a fraction
            of the step time.
        phases_s: the step's time by phase [s]; the phases add up to `step_s`.
        spans_s: total times of what is kept apart from the steps [s].
        others_cores: cores that other processes kept busy during the run.
        host: hash of the machine's name.
        traits: what the run was made with.
        training: number of the training that is compared, if its command had several.
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
    training: int | None = None

    def trait(self, what: str, name: str) -> str | None:
        """Return the value of one trait."""
        found = (t.value for t in self.traits if t.what == what and t.name == name)
        return next(found, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A difference with its 95 % interval.

    It is not an `Interval`, whose ends are always known: two single runs have a difference, but
    its certainty is not known. Each run is one value here, and `Comparison` holds the runs.

    Attributes:
        value: the difference that was found.
        low: lower end; None where the spread of runs is not known.
        high: upper end; None where the spread of runs is not known.
    """

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """A time of A and of B [s], and their difference in seconds and as a fraction of A's time.

    Attributes:
        name: name of the phase or span, or `step` or `finish`.
        a_s: time of A [s].
        b_s: time of B [s].
        difference_s: time of B minus that of A [s].
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
        fraction: the standard deviation of log step times.
        degrees: degrees of freedom behind it.
        num_stored: how many stored runs it was taken from as well.
        is_of_other_code: some of those runs had other code, so it may be too large.
        is_paired: it was taken from the differences within pairs of runs, made side by side.
    """

    fraction: float
    degrees: int
    num_stored: int = 0
    is_of_other_code: bool = False
    is_paired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TraitChange:
    """A trait that is not the same in A and in B.

    Attributes:
        what: the kind of thing: `argument`, `version`, `environment`, `variable`, `code`,
            `revision`, `folder`, `place`, `machine`, `device`, `ranks`, `threads`,
            `loader`, `input`, `lever` or `script`.
        name: which thing of that kind; empty where there is only one.
        a: its values in A; empty where absent.
        b: its values in B; empty where absent.
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
        is_final: `--force` does not help.
    """

    code: str
    facts: Mapping[str, Fact]
    is_final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The limit that was set with `--fail-if-slower`, and its outcome.

    Attributes:
        limit: how much slower B may be, as a fraction of A's step time.
        outcome: what the interval alone says; the exit code depends on obstacles as well.
    """

    limit: float
    outcome: GateOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDifference:
    """Where two runs with checksums part.

    Attributes:
        steps: the steps whose checksums both runs have, up to the first that differs.
        step: the first step of these that differs; null where none does.
        same_until: the step before it that is the same; null where the first one differs.
        what: what differs first in that step: `before` (the weights from which it starts),
            `batch`, `outputs`, `loss`, `gradients` or `weights`.
        module: the module or weight that differs first; empty where the runs keep one checksum of
            all (level 1), and for batch and loss.
        rank: the rank that differs first; null where no step differs.
    """

    steps: tuple[int, ...]
    step: int | None = None
    same_until: int | None = None
    what: str | None = None
    module: str = ""
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sets of runs, and what differs.

    Attributes:
        a, b: the runs.
        outcome: what the runs say about the step time.
        reason: why the runs are too noisy or cannot be compared, as a machine word.
        step: how the step time differs; None where a run has none.
        phases: how the step's phases differ; their differences add up to the step's.
        spans: how the run's total times apart from the steps differ.
        finish: how the time of a whole run of `num_steps` steps differs.
        num_steps: steps of the whole run that `finish` is about.
        spread: how much equal runs differ; None where that is not known.
        changes: which traits differ between the runs of A and of B.
        obstacles: why the sets should not be judged.
        remarks: what else a reader must know.
        needed_runs: about how many runs per side show a difference of the limit, or of 5 % where
            there is no limit; None where the spread is not known.
        gate: the limit and its outcome; None where no limit was set.
        by_cpu: whether times of steps are CPU time.
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
    by_cpu: bool = False
