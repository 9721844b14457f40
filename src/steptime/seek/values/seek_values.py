"""What a search for parameters is asked, the runs that it makes, and what it answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True, kw_only=True)
class SoughtParameter:
    """One parameter of the training that is searched.

    Attributes:
        name: as in the placeholder `{name}` of the command.
        choices: the values as they are typed; empty where there is a range.
        low: lower end of the range.
        high: upper end.
        is_log: it is searched on a logarithmic scale.
        is_whole: whole numbers alone.
    """

    name: str
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    is_log: bool = False
    is_whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekQuestion:
    """What is asked.

    Attributes:
        parameters: what is searched.
        target: the quality that a training must reach.
        budget_s: time for the whole search on one machine [s]; the new seeds come out of it.
        is_better_down: smaller values of the metric are better, as of a loss.
        default: candidate 0, which the winner is compared with over new seeds; empty: the
            candidate that came second.
    """

    parameters: tuple[SoughtParameter, ...]
    target: float
    budget_s: float
    is_better_down: bool = True
    default: Mapping[str, str] | None = None


class Role(str, Enum):
    """Why a run was made."""

    EXPLORE = "explore"
    REPEAT = "repeat"
    NEW_SEED = "new_seed"


class SeekEnd(str, Enum):
    """How a run ended."""

    REACHED = "reached"
    """It reached the target, and was ended then."""
    FINISHED = "finished"
    """It came to its own end without the target."""
    PRUNED = "pruned"
    """It was stopped, because it could not win."""
    DIVERGED = "diverged"
    """Its metric stopped being a number."""
    FAILED = "failed"
    """It failed."""
    TIMED_OUT = "timed_out"
    """The rest of the budget ended first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekRun:
    """One run of one candidate.

    Attributes:
        number: 1 for the first.
        candidate: 0 for the first candidate; runs of the same candidate have the same parameters.
        parameters: value of each parameter, as it stands in the command.
        seed: what its draws began with, where the command takes a seed.
        role: `explore`: the first run of a candidate; `repeat`: another seed, because noise decides
            between candidates; `new_seed`: a seed that took no part in the choice.
        end: how it ended.
        seconds: how long it took [s].
        at_s: when each evaluation came, since the start of the run (num_points,) [s].
        values: the metric there (num_points,).
        time_to_target_s: when the target was reached [s]; None where it was not: censored.
        said: its last words, where it failed.
        machine: where it ran.
    """

    number: int
    candidate: int
    parameters: Mapping[str, str]
    seed: int
    role: Role
    end: SeekEnd
    seconds: float
    at_s: tuple[float, ...] = ()
    values: tuple[float, ...] = ()
    time_to_target_s: float | None = None
    said: str | None = None
    machine: str | None = None

    @property
    def is_censored(self) -> bool:
        """Whether its time to the target is not known, only that it is longer than it ran."""
        return self.time_to_target_s is None

    def best_value(self, *, is_better_down: bool) -> float | None:
        """Return the best value it had; None where it had none."""
        finite = [value for value in self.values if math.isfinite(value)]
        if not finite:
            return None
        return min(finite) if is_better_down else max(finite)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoughtCandidate:
    """One set of parameters and what its runs gave.

    Attributes:
        candidate: its number.
        parameters: value of each parameter.
        num_runs: runs of it, those over new seeds too.
        num_reached: runs that reached the target.
        time_to_target_s: geometric mean of its runs [s]; None where a run did not reach the target,
            as a censored time is never averaged.
        best_value: the best value of the metric.
    """

    candidate: int
    parameters: Mapping[str, str]
    num_runs: int
    num_reached: int
    time_to_target_s: float | None
    best_value: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityPoint:
    """A point of the frontier: nothing was as good sooner.

    Attributes:
        at_s: seconds since the start of a run [s].
        value: the metric.
        candidate: whose run it was.
    """

    at_s: float
    value: float
    candidate: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterEffect:
    """What one parameter has to do with the time to the target.

    Attributes:
        name: of the parameter.
        share: share of the spread of the log times that groups of its values explain, from 0 to 1;
            the shares of several parameters need not sum to 1. None where too few runs say so.
        groups: the values and geometric mean time of each group.
    """

    name: str
    share: float | None
    groups: tuple[EffectGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectGroup:
    """Candidates whose values of one parameter lie beside each other.

    Attributes:
        low: the least of the values, as typed.
        high: the largest of them.
        time_s: geometric mean of the times to the target [s]; for censored runs with what they
            would have taken at the pace they had.
        n: candidates in it.
    """

    low: str
    high: str
    time_s: float
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSeedCheck:
    """The winner beside its rival over seeds that took no part in the choice.

    Attributes:
        candidate: the winner.
        rival: whom it was compared with; None where there was no other candidate.
        is_rival_default: the rival is the default, and not the candidate that came second.
        num_runs: runs of each, with new seeds.
        num_reached: runs of the winner that reached the target.
        num_rival_reached: runs of the rival that did.
        speedup: rival's time to the target over the winner's, by their logs; None where a run did
            not reach the target.
        low: lower end of its interval.
        high: upper end.
        are_replaced: the rival was better over the new seeds and took the winner's place; then
            `candidate` is that former rival.
    """

    candidate: int
    rival: int | None
    is_rival_default: bool
    num_runs: int
    num_reached: int
    num_rival_reached: int
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    are_replaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekAnswer:
    """What a search found.

    Attributes:
        best: the parameters that reach the target soonest; null where none did.
        time_to_target_s: their time over the new seeds, else over all their runs [s]; null where a
            run of theirs did not reach the target.
        holds: whether that is so with new seeds: true, false, or null where it cannot be told.
        reason: machine word for why `holds` is not true, or why there is no best.
        target: the quality asked for.
        is_better_down: smaller values are better.
        num_trials: candidates that were tried.
        num_runs: runs in all.
        num_pruned: runs that were stopped because they could not win.
        num_censored: runs that did not reach the target, the pruned ones among them.
        num_failed: runs that failed.
        spent_s: what the search took, on one machine [s].
        budget_s: what it could take [s].
        noise_fraction: standard deviation of a candidate's log time from seed to seed; null where
            no candidate has two runs.
        new_seeds: the comparison over new seeds; null where there was none.
        candidates: all of them, the best first.
        frontier: the best quality over time, of all runs.
        effects: what each parameter does.
        machines: where the runs were made.
    """

    best: Mapping[str, str] | None
    time_to_target_s: float | None
    holds: bool | None
    reason: str | None
    target: float
    is_better_down: bool
    num_trials: int
    num_runs: int
    num_pruned: int
    num_censored: int
    num_failed: int
    spent_s: float
    budget_s: float
    noise_fraction: float | None
    new_seeds: NewSeedCheck | None
    candidates: tuple[SoughtCandidate, ...]
    frontier: tuple[QualityPoint, ...]
    effects: tuple[ParameterEffect, ...]
    machines: tuple[str, ...] = ()
