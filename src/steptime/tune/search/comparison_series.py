"""What is known so far about one comparison. The lab keeps one series for each, and adds to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from steptime.tune.search.bench import ArmResult
from steptime.tune.values.study_values import WELL, Ending, State


@dataclass(slots=True, kw_only=True)
class ComparisonSeries:
    """What all answers said about one comparison; `asked` counts its rounds or pairs."""

    state: State
    reference: State
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    asked: int = 0
    ending: Ending = WELL
    others_cores: float | None = None
    compile_s: float = 0.0
    reference_step_s: float | None = None
    candidate_step_s: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether the candidate failed: nothing more is asked of it."""
        return not self.ending.is_well

    def add(self, wall: Sequence[float], cpu: Sequence[float], others: float | None) -> None:
        """Take in rounds or pairs; the most that others took counts."""
        self.wall += wall
        self.cpu += cpu
        if others is not None:
            self.others_cores = max(others, self.others_cores or 0.0)

    def take(self, arm: ArmResult, others: float | None) -> None:
        """Take in an answer."""
        self.add(arm.log_ratios, arm.cpu_log_ratios, others)
        self.ending = arm.ending
        self.compile_s = max(self.compile_s, arm.compile_s)
        self.candidate_step_s = arm.step_s or self.candidate_step_s
