"""What is known of one comparison so far. The lab keeps one for each, and adds to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from steptime.core.note import Fact
from steptime.tune.search.search_notes import TriedEnd
from steptime.tune.values.study_values import State, TrialEnd


@dataclass(slots=True, kw_only=True)
class ComparisonSeries:
    """What is known of one comparison, over all answers; `asked` counts rounds or pairs."""

    state: State
    reference: State
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    asked: int = 0
    end: TrialEnd = TrialEnd.FINISHED
    reason: str | None = None
    details: Mapping[str, Fact] | None = None
    others_cores: float | None = None
    compile_s: float = 0.0
    reference_step_s: float | None = None
    candidate_step_s: float | None = None

    @property
    def ended(self) -> TriedEnd:
        """How it ended, for the notes."""
        return TriedEnd(end=self.end, reason=self.reason, facts=self.details)

    @property
    def is_over(self) -> bool:
        """Whether the candidate failed: nothing more is asked of it."""
        return self.end is not TrialEnd.FINISHED

    def add(self, wall: Sequence[float], cpu: Sequence[float], others: float | None) -> None:
        """Take in an answer's pairs; the most that others took counts."""
        self.wall += wall
        self.cpu += cpu
        if others is not None:
            self.others_cores = max(others, self.others_cores or 0.0)
