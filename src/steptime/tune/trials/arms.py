"""A live request while it is being answered: its arms, their results so far, and who is to blame.

In: the result of each experiment. Out: which arms take part in the next experiment, and in the end
the answer. Nothing here starts a process or reads a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from steptime.measure.tried.trial_lines import BlockTime, TaggedUpdate, log_ratios
from steptime.tune.search.bench import ArmResult, ComparisonResult
from steptime.tune.trials.trial_process import TIME_LIMIT, TrialEnded
from steptime.tune.values.study_values import WELL, Ending, State, TrialEnd

TOO_SLOW = "too_slow"
NS = 1e-9
_MAX_STARTS_BEYOND = 3  # processes more than there are arms that bring nothing new
_MAX_STARTS = 60  # of a request, for a script that ends after a few rounds


TOO_SHORT = Ending(end=TrialEnd.FAILED, reason="ends_too_soon")
NOT_FINITE = Ending(end=TrialEnd.DIVERGED, reason="not_finite")
NO_BLOCK = Ending(end=TrialEnd.FAILED, reason="no_valid_block")


def cause_of(ended: TrialEnded) -> Ending:
    """Why the trial ended, for the arm that is to blame."""
    found = ended.ending
    return replace(found, reason=TOO_SLOW) if found.reason == TIME_LIMIT else found


@dataclass(slots=True, kw_only=True)
class Arm:
    """What is known so far about one state of the request."""

    number: int
    state: State
    need: int
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    loop: list[float] = field(default_factory=list)
    ending: Ending = WELL
    compile_s: float = 0.0
    is_checked: bool = True

    @property
    def is_open(self) -> bool:
        """Whether it takes part in the next experiment."""
        return self.ending.is_well and (self.need > 0 or not self.is_checked)

    def blame(self, cause: Ending) -> None:
        """It ended the process."""
        self.ending = cause

    def freeze(self) -> ArmResult:
        """The answer on it."""
        return ArmResult(
            state=self.state,
            log_ratios=tuple(self.wall),
            cpu_log_ratios=tuple(self.cpu),
            loop_log_ratios=tuple(self.loop),
            ending=self.ending,
            compile_s=self.compile_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentResult:
    """What one experiment of the guest showed."""

    ended: TrialEnded | None
    blocks: tuple[BlockTime, ...]
    updates: tuple[TaggedUpdate, ...]
    num_steps: int
    updates_a_step: float
    is_finite: bool
    failed_states: Mapping[int, str]
    others_cores: float | None
    between_s: float | None = None
    loop_blocks: tuple[BlockTime, ...] = ()

    def compile_s(self, state: int) -> float:
        """Time spent compiling in a state, while settling too."""
        return sum(one.compile_ns for one in self.updates if one.state == state) * NS

    def wall_s(self, state: int) -> float:
        """Time spent in a state."""
        return (
            sum((one.wall_ns or 0) + one.compile_ns for one in self.updates if one.state == state)
            * NS
        )


class OpenRequest:
    """A request while it is being answered: its arms, and how the whole of it ended."""

    def __init__(self, *, arms: list[Arm]) -> None:
        self.arms = arms
        self.is_solo = False
        self._starts_left = _MAX_STARTS
        self._vain_left = len(arms) + _MAX_STARTS_BEYOND
        self._void_left = 2  # experiments that only fill up rounds that were void
        self._reference_s: list[float] = []
        self._others: list[float] = []
        self._ending = WELL

    @property
    def is_open(self) -> bool:
        """Whether something is still missing."""
        return self._ending.is_well and any(arm.is_open for arm in self.arms)

    def may_start(self) -> bool:
        """Whether one more process may be started for this request."""
        self._starts_left -= 1
        self._vain_left -= 1
        return min(self._starts_left, self._vain_left) >= 0

    def next_arms(self) -> list[Arm]:
        """All that are open, or the first of them where each goes alone."""
        is_open = [arm for arm in self.arms if arm.is_open]
        return is_open[:1] if self.is_solo else is_open

    def give_up(self, cause: Ending) -> None:
        """No process can be started for it."""
        self._ending = cause

    def go_on_alone(self, arms: Sequence[Arm]) -> None:
        """One of these arms ended the process, and nobody knows which."""
        self.is_solo = True
        for arm in arms:
            arm.is_checked = False

    def take(self, arms: Sequence[Arm], seen: ExperimentResult) -> None:
        """Take in the blocks of an experiment."""
        self._reference_s += [
            block.wall_s / block.num_updates * seen.updates_a_step
            for block in seen.blocks
            if block.state == 0 and block.void is None
        ]
        for number, arm in enumerate(arms, start=1):
            ratios = log_ratios(seen.blocks, state=number)
            arm.wall += ratios.wall
            arm.cpu += ratios.cpu
            arm.loop += log_ratios(seen.loop_blocks, state=number, between_s=seen.between_s).loop
            arm.need -= len(ratios.wall)
            self._vain_left += 1 if ratios.wall and number == 1 else 0
            arm.compile_s += seen.compile_s(number)
        if seen.others_cores is not None:
            self._others.append(seen.others_cores)
        if seen.ended is None:
            self._stop_filling(arms)

    def _stop_filling(self, arms: Sequence[Arm]) -> None:
        """Void rounds are repeated a few times only: a script that always compiles has no other."""
        if all(arm.need <= 0 for arm in arms):
            return
        self._void_left -= 1
        for arm in arms:
            if self._void_left < 0 or not arm.wall:
                arm.need = 0
                if not arm.wall:
                    arm.blame(NO_BLOCK)

    def freeze(self) -> ComparisonResult:
        """The answer."""
        return ComparisonResult(
            ending=self._ending,
            reference_step_s=median(self._reference_s) if self._reference_s else None,
            arms=tuple(arm.freeze() for arm in self.arms),
            others_cores=max(self._others, default=None),
        )
