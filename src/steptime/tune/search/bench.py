"""What the search asks of the world, as values: observe, compare, judge.

`search` is a function of a `Bench`: the real one starts contained trials, a scripted one answers
from a table. Each answer is on disk before the search sees it, and the same answers lead the same
search the same way. That is how a study resumes, and how it explains itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from steptime.core.interval import Interval
from steptime.diagnose.values.finding import Diagnosis
from steptime.levers.base import Facts
from steptime.measure.values.measurement import Measurement
from steptime.tune.values.site_values import EditSites
from steptime.tune.values.study_values import Ending, State, TrainingScope
from steptime.verify.values import Verdict

# -- questions


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserveRequest:
    """Run the command as written for a window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRequest:
    """Compare states inside one process, in short alternating blocks.

    Attributes:
        fixed: on in all states: the levers of start-up and of the environment.
        states: what is switched; the first one is the reference.
        num_rounds: how often each state is run; a round runs each once, in random order.
        is_fresh: in a process that is started for it; else one that runs with the same `fixed`
            may be used.
        most_s: what it may take: the answer has the rounds that fit [s].
    """

    fixed: State
    states: tuple[State, ...]
    num_rounds: int
    is_fresh: bool = False
    most_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRequest:
    """Compare two states in processes of their own, which take turns (ABBA), in `num_pairs`.

    It may take `most_s`: the answer has the pairs that fit, the first one in any case [s]. Where
    `is_kept`, two processes are kept from pair to pair and from request to request, one stopped
    while the other runs: a pair is a stretch of steps of each.
    """

    reference: State
    candidate: State
    num_pairs: int
    most_s: float | None = None
    is_kept: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRequest:
    """Judge whether whole runs with a state train as well."""

    state: State


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeRequest:
    """Run the command to its end, as written and with a state, in turns, so many times each.

    What takes longer than `most_s` together is given up [s].
    """

    state: State
    num_runs: int
    most_s: float


Request = ObserveRequest | LiveRequest | ProcessRequest | JudgeRequest | WholeRequest


# -- answers


@dataclass(frozen=True, slots=True, kw_only=True)
class PairLoad:
    """Cores that others kept busy beside each process of a pair; None where not observed."""

    reference: float | None
    candidate: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochGap:
    """Steps from one long gap between steps to the next, and what such a gap takes beyond a step.

    Evaluation, checkpoint and the start of the next epoch come in it.
    """

    num_steps: float
    gap_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The command as written: one trial, measured and diagnosed.

    Attributes:
        ending: of the trial that ran it.
        startup_s: the time until the first step ended.
        sample_unit: `samples`, `tokens`, or None where no size of a batch was seen.
        samples_per_step: over all ranks.
        loop_step_s: a step of the loop, with what came between steps [s]; None where not seen.
        loops_s: the same, of each further process as written [s].
        epoch: one whose end was seen; None where none was.
        longest_gap_s: between two updates, whatever happened in it.
        process_s: what one process of a comparison is expected to take, its start included.
        may_keep_two: whether two processes of it may be kept at once and run in turns.
        training: which training of the command it is, if one was named.
        sites: where in the source stands what levers change; None where the guest told nothing.
    """

    ending: Ending
    measurement: Measurement
    diagnosis: Diagnosis
    facts: Facts
    startup_s: float
    sample_unit: str | None
    samples_per_step: float | None = None
    loop_step_s: Interval | None = None
    loops_s: tuple[float, ...] = ()
    epoch: EpochGap | None = None
    longest_gap_s: float = 0.0
    process_s: float | None = None
    may_keep_two: bool = False
    training: TrainingScope | None = None
    sites: EditSites | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmResult:
    """One state beside the reference; both kinds of comparison answer with it.

    Attributes:
        log_ratios: log(time of the reference per sample / its own), one a round or pair.
        cpu_log_ratios: the same of CPU time.
        loop_log_ratios: the same of the whole loop: wall time with what lies between the steps;
            empty where that is not known.
        loads: of others, one for each of `log_ratios`; none in a live comparison.
        ending: not well where the state ended the process, hung, or made the loss NaN.
        compile_s: what was spent once on compiling for it.
        step_s: its step; None in a live comparison, where blocks are too short to tell.
        start_s: how much longer its processes took to their first update; None in a live one.
    """

    state: State
    log_ratios: tuple[float, ...]
    cpu_log_ratios: tuple[float, ...]
    ending: Ending
    compile_s: float = 0.0
    step_s: float | None = None
    start_s: float | None = None
    loads: tuple[PairLoad, ...] = ()
    loop_log_ratios: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonResult:
    """What came of a comparison.

    Attributes:
        ending: of the whole. Between processes it is that of the process that failed.
        arms: the states but for the reference, in the order of the request.
        reference_step_s: a step of the reference.
        others_cores: cores that other programs kept busy meanwhile; None where not observed.
        same: log ratios of processes with one state that followed each other: nothing differs
            between them but the moment. Empty in a live comparison.
        same_cpu: the same of CPU time.
        reference_loop_s: a step of the reference's loop, one for each of its processes that shows
            it [s]. Empty in a live comparison.
    """

    ending: Ending
    arms: tuple[ArmResult, ...]
    reference_step_s: float | None = None
    others_cores: float | None = None
    same: tuple[float, ...] = ()
    same_cpu: tuple[float, ...] = ()
    reference_loop_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeResult:
    """How long the command took to its end as written and with the state, each run of them [s].

    Both are empty where one of them did not come to its end.
    """

    written_s: tuple[float, ...] = ()
    tuned_s: tuple[float, ...] = ()


# -- who answers


class UntimedBench(Protocol):
    """The world of a study: it answers questions, and does not know of a budget."""

    def observe(self) -> Baseline:
        """Run the command as written for a window."""

    def compare_live(self, request: LiveRequest) -> ComparisonResult:
        """Compare states in one process."""

    def compare_processes(self, request: ProcessRequest) -> ComparisonResult:
        """Compare two states in interleaved processes."""

    def judge(self, state: State) -> Verdict:
        """Whether whole runs with `state` train as the command as written does."""

    def run_whole(self, request: WholeRequest) -> WholeResult:
        """Run the command to its end, as written and with a state."""


class Bench(UntimedBench, Protocol):
    """The world of a study with its budget: what `search` is a function of."""

    def time_left_s(self) -> float:
        """Of the budget [s]; below zero when it is spent.

        The search asks once after each answer, so that it can be kept beside the answer.
        """
