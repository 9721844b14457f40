"""One of several training loops of a process, such as a pretraining before a finetuning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from steptime.core.interval import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingLoop:
    """The steps of one loop. Each loop has optimizers of its own.

    Attributes:
        number: of the loop, from 1, in the order of first steps.
        num_steps: its steps.
        first_step: index of its first step.
        last_step: index of its last step.
        total_s: wall time of its steps, without spans [s].
        step_time_s: wall time of one of its steps [s].
        phases: share of its time by phase.
        optimizers: classes of the optimizers that step in it.
        where: the line that steps them, as `train.py:31`; null where it is not known.
        called_at: the line of the script that calls the function of that line; null where it is in
            none.
        is_shown: whether the rest of the measurement is about this loop.
    """

    number: int
    num_steps: int
    first_step: int
    last_step: int
    total_s: float
    step_time_s: Interval | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    optimizers: tuple[str, ...] = ()
    where: str | None = None
    called_at: str | None = None
    is_shown: bool = False
