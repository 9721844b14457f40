"""Chooses the steps that count: the steady window.

In: the steps of one rank, or of several ranks of one run. Out: a `StepWindow` and a `SteadyWindow`.
How the window's time divides into phases is left to `measure.steps.phases`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from steptime.core.stats import (
    MSER5_RULE,
    bounded_mean,
    find_period,
    median_interval,
    warmup_length,
)
from steptime.measure.steps.step_fold import RankSteps, StepBlock
from steptime.measure.values.measurement import SteadyWindow, Step

WINDOW_RULE = (
    "the first step, steps that compile, steps that a look of ours made longer and steps in which "
    "the run stood still do not count; "
    "nothing counts before a step of the first half that compiles; then "
    f"{MSER5_RULE}; the window begins at a whole period"
)
"""The rule of this module in one sentence; it is shown with every measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Times of the steps one by one.

    `disturbed` holds the indices that never count, `restarts` those among them before which
    nothing counts if they are early: the first step, and steps that compile.
    """

    times_s: tuple[float, ...]
    cpu_times_s: tuple[float, ...]
    restarts: frozenset[int]
    disturbed: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWindow:
    """The steps of one rank that count.

    A block counts as a whole; one that the window begins in is left out of the phases,
    while its steps' times count. `start_s` and `end_s` are on the clock of the rank's head.
    """

    steady: SteadyWindow
    period: int | None
    steps: tuple[Step, ...]
    blocks: tuple[StepBlock, ...]

    @property
    def items(self) -> tuple[Step | StepBlock, ...]:
        """Its steps and blocks, in order."""
        return (*self.steps, *self.blocks)

    @property
    def start_s(self) -> float:
        """When its first step began."""
        if not self.steps:
            return self.blocks[0].start_s
        first = self.steps[0]
        return first.end_s - first.step_time_s - sum(first.spans_s.values())

    @property
    def end_s(self) -> float:
        """When its last step ended."""
        return self.items[-1].end_s

    @property
    def num_steps(self) -> int:
        """Steps whose phases are known."""
        return len(self.steps) + sum(block.num_steps for block in self.blocks)


def step_period(rank: RankSteps) -> int | None:
    """After how many steps their kinds repeat: optimizers and number of backward calls."""
    kinds = [(step.optimizers, step.num_backwards) for step in rank.steps if not step.is_first]
    return find_period(kinds)


def series_of(rank: RankSteps) -> StepTimes:
    """The times of all steps of a rank."""
    times_s = [step.step_time_s for step in rank.steps]
    cpu_s = [step.step_cpu_s for step in rank.steps]
    restarts = {s.index for s in rank.steps if s.is_first or s.spans_s["compile"] > 0}
    looked_at = {s.index for s in rank.steps if s.is_disturbed}
    for block in rank.blocks:
        times_s += block.times_s
        cpu_s += block.cpu_times_s
        if block.spans_s["compile"] > 0:
            restarts.update(range(block.first_index, block.first_index + block.num_steps))
    return StepTimes(
        times_s=tuple(times_s),
        cpu_times_s=tuple(cpu_s),
        restarts=frozenset(restarts),
        disturbed=frozenset(restarts | looked_at),
    )


def combine(ranks: Sequence[StepTimes]) -> StepTimes:
    """Step k of a run takes as long as the slowest rank's step k, in wall and in CPU time."""
    num_steps = max(len(rank.times_s) for rank in ranks)
    present = [[r for r in ranks if k < len(r.times_s)] for k in range(num_steps)]
    return StepTimes(
        times_s=tuple(max(r.times_s[k] for r in there) for k, there in enumerate(present)),
        cpu_times_s=tuple(max(r.cpu_times_s[k] for r in there) for k, there in enumerate(present)),
        restarts=frozenset().union(*(rank.restarts for rank in ranks)),
        disturbed=frozenset().union(*(rank.disturbed for rank in ranks)),
    )


def choose_first_step(series: StepTimes, *, period: int) -> int:
    """Index of the first step that counts, by `WINDOW_RULE`."""
    num_steps = len(series.times_s)
    early = [index for index in series.restarts if 2 * index < num_steps]
    first_group = math.ceil((max(early, default=0) + 1) / period)
    groups = range(first_group, num_steps // period)
    means = {group: _group_mean(series, group, period) for group in groups}
    usable = [(group, mean) for group, mean in means.items() if mean is not None]
    cut = warmup_length([mean for _, mean in usable])
    return (usable[cut][0] if usable else first_group) * period


def _group_mean(series: StepTimes, group: int, period: int) -> float | None:
    """Mean time of a period's steps that count."""
    times_s = [
        series.times_s[i]
        for i in range(group * period, (group + 1) * period)
        if i not in series.disturbed
    ]
    return math.fsum(times_s) / len(times_s) if times_s else None


def steady_window(series: StepTimes, *, period: int | None) -> SteadyWindow:
    """The steady window of a series of steps."""
    first = choose_first_step(series, period=period or 1)
    kept = [i for i in range(first, len(series.times_s)) if i not in series.disturbed]
    return SteadyWindow(
        first_step=first,
        num_steps=len(kept),
        num_warmup_steps=min(first, len(series.times_s)),
        rule=WINDOW_RULE,
        step_time_s=median_interval([series.times_s[i] for i in kept]) if kept else None,
        step_cpu_s=median_interval([series.cpu_times_s[i] for i in kept]) if kept else None,
        mean_s=bounded_mean([series.times_s[i] for i in kept]) if kept else None,
    )


def window_of(rank: RankSteps) -> StepWindow:
    """The steady window of one rank, with the steps in it."""
    series, period = series_of(rank), step_period(rank)
    steady = steady_window(series, period=period)
    return StepWindow(
        steady=steady,
        period=period,
        steps=tuple(
            step for step in rank.steps[steady.first_step :] if step.index not in series.disturbed
        ),
        blocks=tuple(
            block
            for block in rank.blocks
            if block.has_phases
            and block.first_index >= steady.first_step
            and block.first_index not in series.disturbed
        ),
    )
