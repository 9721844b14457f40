"""What is known so far about one comparison. The lab keeps one series for each, and adds to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from steptime.core.stats import ERROR
from steptime.tune.search.bench import ArmResult, ComparisonResult, PairLoad
from steptime.tune.values.study_values import WELL, Ending, State

TAKEN_CORES = 0.1
"""Where others had as much less beside the candidate, it may have gained at their cost. What it can
gain from less than that is a tenth, for a training keeps a core busy: the floor is no smaller."""

ONE_START = 0.02
"""How far two processes with one state may be apart: the floor of a comparison of two alone."""


@dataclass(slots=True, kw_only=True)
class ComparisonSeries:
    """What all answers said about one comparison; `asked` counts its rounds or pairs.

    `is_between` processes, where a pair is two of them; else in one. Where it `is_kept`, all pairs
    are of the same two: how they differ by chance is in each. `error` is how often its
    interval may miss the truth.
    """

    state: State
    reference: State
    is_between: bool = False
    is_kept: bool = False
    error: float = ERROR
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    loads: list[PairLoad] = field(default_factory=list)
    loop: list[float] = field(default_factory=list)
    asked: int = 0
    ending: Ending = WELL
    others_cores: float | None = None
    compile_s: float = 0.0
    reference_step_s: float | None = None
    candidate_step_s: float | None = None
    start_s: float = 0.0
    reference_loop_s: list[float] = field(default_factory=list)

    @property
    def added(self) -> State:
        """What the candidate has and the reference has not."""
        return tuple(one for one in self.state if one not in self.reference)

    @property
    def is_over(self) -> bool:
        """Whether the candidate failed: nothing more is asked of it."""
        return not self.ending.is_well

    def take(self, arm: ArmResult, result: ComparisonResult) -> None:
        """Take in an answer; the most that others took counts."""
        self.wall += arm.log_ratios
        self.cpu += arm.cpu_log_ratios
        self.loop += arm.loop_log_ratios
        self.loads += arm.loads
        self.reference_loop_s += result.reference_loop_s
        if result.others_cores is not None:
            self.others_cores = max(result.others_cores, self.others_cores or 0.0)
        self.ending = arm.ending
        self.compile_s = max(self.compile_s, arm.compile_s)
        self.reference_step_s = result.reference_step_s or self.reference_step_s
        self.candidate_step_s = arm.step_s or self.candidate_step_s
        self.start_s = self.start_s if arm.start_s is None else arm.start_s

    def take_off(self, log_ratio: float) -> None:
        """Take off all ratios what is no gain."""
        for values in (self.wall, self.cpu, self.loop):
            values[:] = [one - log_ratio for one in values]

    def join(self, part: ComparisonSeries) -> None:
        """Take in another series of the same comparison."""
        self.wall += part.wall
        self.cpu += part.cpu
        self.loop += part.loop
        self.loads += part.loads
        self.reference_loop_s += part.reference_loop_s
        if part.others_cores is not None:
            self.others_cores = max(part.others_cores, self.others_cores or 0.0)
        self.asked += part.asked
        self.ending = part.ending
        self.compile_s = max(self.compile_s, part.compile_s)
        self.reference_step_s = part.reference_step_s or self.reference_step_s
        self.candidate_step_s = part.candidate_step_s or self.candidate_step_s
        self.start_s = part.start_s or self.start_s

    def quiet(self, limit: float) -> list[float]:
        """Wall time in the pairs beside which others took at most `limit` cores."""
        return self._where([_is_quiet(load, limit) for load in self.loads])

    def fair(self, limit: float) -> list[float]:
        """Wall time in the quiet pairs, and where others had no less beside the candidate.

        Such a pair can only understate the candidate: it shared the machine with as much or more.
        """
        return self._where([_is_quiet(one, limit) or _is_fair(one) for one in self.loads])

    def _where(self, wanted: Sequence[bool]) -> list[float]:
        return [value for value, is_in in zip(self.wall, wanted, strict=False) if is_in]


@dataclass(slots=True, kw_only=True)
class Confirmation:
    """The fresh repeats of one state, added to look by look.

    Of its `num_starts` processes, `num_against` showed no gain, each by itself. Its looks have this
    `share` of the errors that a first state has. It `is_second` where repeats of another kind have
    proven more than the noise floor already.
    """

    series: ComparisonSeries
    share: float = 1.0
    num_looks: int = 0
    num_starts: int = 0
    num_against: int = 0
    is_second: bool = False


def is_left_out(series: ComparisonSeries) -> bool:
    """Whether it compares a state with a part of it: what is left out is what is told."""
    rest = list(series.state)
    return len(rest) < len(series.reference) and all(one in series.reference for one in rest)


def _is_quiet(load: PairLoad, limit: float) -> bool:
    """Whether others left both processes alone; not where that was not observed."""
    known = [one for one in (load.reference, load.candidate) if one is not None]
    return len(known) == 2 and max(known) <= limit


def _is_fair(load: PairLoad) -> bool:
    """Whether others had as much of the machine beside the candidate as beside the reference."""
    if load.reference is None or load.candidate is None:
        return False
    return load.candidate >= load.reference - TAKEN_CORES
