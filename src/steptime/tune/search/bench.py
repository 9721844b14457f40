"""What the search asks of the world, as values: observe, compare, judge.

`search` is a function of a `Bench`; the real one starts contained trials, a scripted one answers
from a table. Every answer is on disk before the search sees it, so that the same search over
the same answers takes the same way: that is how a study resumes and explains itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from steptime.core.note import Fact
from steptime.diagnose.values.finding import Diagnosis
from steptime.levers.base import Facts
from steptime.measure.values.measurement import Measurement
from steptime.tune.values.study_values import State, TrialEnd
from steptime.verify.values import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The command as written: one trial, measured and diagnosed.

    `startup_s` is the time until the first step ended; `sample_unit` is samples, tokens or None
    where batches have no size that was seen; `samples_per_step` is over all ranks. `reason` of a
    baseline that finished is `shared_network` where it could not do without the machine's network.
    Here and below `details` are the numbers and words for the sentence of a reason.
    """

    end: TrialEnd
    measurement: Measurement
    diagnosis: Diagnosis
    facts: Facts
    startup_s: float
    sample_unit: str | None
    reason: str | None = None
    details: Mapping[str, Fact] | None = None
    samples_per_step: float | None = None
    longest_gap_s: float = 0.0
    """Between two updates [s], whatever happened in it."""
    process_s: float | None = None
    """What one process of a comparison is going to take, its start included [s]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRequest:
    """Compare states inside one process in alternating short blocks.

    `fixed` is on in all of them (start-up and environment levers); `states[0]` is the reference.
    Each round runs each state once, in random order. `is_fresh`: in a process started for it;
    else one that runs with the same `fixed` may go on.
    """

    fixed: State
    states: tuple[State, ...]
    num_rounds: int
    is_fresh: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveArm:
    """One state against the reference: log(reference time per sample / its own), a value a round.

    `end` is not FINISHED where the state ended the process, hung or made the loss NaN.
    """

    state: State
    log_ratios: tuple[float, ...]
    cpu_log_ratios: tuple[float, ...]
    end: TrialEnd
    reason: str | None = None
    details: Mapping[str, Fact] | None = None
    compile_s: float = 0.0
    """One-off time spent compiling for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveResult:
    """What came of a live comparison; `arms` in the order of `states[1:]`."""

    end: TrialEnd
    reference_step_s: float | None
    arms: tuple[LiveArm, ...]
    num_void: int = 0
    others_cores: float | None = None
    reason: str | None = None
    details: Mapping[str, Fact] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRequest:
    """Compare two states in processes of their own, in turns (ABBA), `num_pairs` of them."""

    reference: State
    candidate: State
    num_pairs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessResult:
    """log(reference / candidate) of the median time per sample, a value a pair.

    `end` is the candidate's, or the reference's where that failed.
    """

    end: TrialEnd
    log_ratios: tuple[float, ...]
    cpu_log_ratios: tuple[float, ...]
    reference_step_s: float | None = None
    candidate_step_s: float | None = None
    others_cores: float | None = None
    reason: str | None = None
    details: Mapping[str, Fact] | None = None


class Bench(Protocol):
    """The world of a study."""

    def observe(self) -> Baseline:
        """Run the command as written for a window."""

    def compare_live(self, request: LiveRequest) -> LiveResult:
        """Compare states in one process."""

    def compare_processes(self, request: ProcessRequest) -> ProcessResult:
        """Compare two states in interleaved processes."""

    def judge(self, state: State) -> Verdict:
        """Whether whole runs with `state` train as the command as written does."""

    def time_left_s(self) -> float:
        """Of the budget [s]; below zero when it is spent.

        The search asks once after each answer, so that it can be kept beside the answer.
        """
