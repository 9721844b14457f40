"""Chooses the steps that count: the steady window.

In: the steps of one rank, or of several ranks of one run. Out: a `StepWindow` and a `SteadyWindow`.
`measure.steps.phases` divides the window's time into phases.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress, zip_longest

from steptime.core.stats import (
    MSER5_RULE,
    bounded_mean,
    find_period,
    median_interval,
    warmup_length,
)
from steptime.measure.steps.loops_apart import loops_apart
from steptime.measure.steps.step_blocks import StepBlock
from steptime.measure.steps.step_fold import RankSteps
from steptime.measure.steps.step_table import Numbers, StepTable
from steptime.measure.values.measurement import SteadyWindow

WINDOW_RULE = (
    "the first step, steps that compile, steps that a probe of ours made longer and steps in which "
    "the run stood still do not count, nor do steps beside other programs that took cores which "
    "the run wanted, provided that 20 other steps and a fifth of all remain, nor steps of other "
    "loops of the process than the longest, nor steps whose phases were watched, where most were "
    "only timed; "
    "nothing counts before a step of the first half that compiles; then "
    f"{MSER5_RULE}; the window begins at a whole period"
)
"""The rule of this module in one sentence; every measurement shows it."""

MIN_TIMED, MIN_TIMED_FRACTION = 20, 0.2
"""Where so many steps were only timed, they alone say how long a step takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Times of the steps one by one.

    `disturbed` holds the indices that never count. `restarts` holds those of them that, if early,
    exclude everything before them: the first step, and steps that compile. `beside_neighbor` holds
    those that are left out because of other programs alone, `other_loops` those of other loops of
    the same process than the one that took most of the time. `watched` holds those that are left
    out because their phases were watched, which made them longer than most, which were only timed.
    """

    times_s: Numbers
    cpu_times_s: Numbers
    restarts: frozenset[int]
    disturbed: frozenset[int]
    beside_neighbor: frozenset[int] = frozenset()
    other_loops: frozenset[int] = frozenset()
    watched: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWindow:
    """The steps of one rank that count.

    A block counts as a whole. If the window begins inside a block, the phases leave the block out,
    but its steps' times count. `start_s` and `end_s` are on the clock of the rank's head.
    `is_sample` says that its phases are of other steps than those whose times count.
    """

    steady: SteadyWindow
    period: int | None
    steps: StepTable
    blocks: tuple[StepBlock, ...]
    is_sample: bool = False

    @property
    def start_s(self) -> float:
        """Return when its first step began."""
        return self.steps.begin_s(0) if self.steps else self.blocks[0].start_s

    @property
    def end_s(self) -> float:
        """Return when its last step ended."""
        return self.blocks[-1].end_s if self.blocks else self.steps.end_s[-1]

    @property
    def num_steps(self) -> int:
        """Return the number of steps whose phases are known."""
        return len(self.steps) + sum(block.num_steps for block in self.blocks)

    def times_s(self) -> Numbers:
        """Return the time of each step, and of each block as a whole."""
        whole = (sum(block.wall_s.values()) for block in self.blocks)
        return array("d", chain(self.steps.times_s, whole))

    def spans_s(self) -> Numbers:
        """Return the time of spans in each step, and in each block as a whole."""
        whole = (sum(block.spans_s.values()) for block in self.blocks)
        return array("d", chain(self.steps.sum_of_spans(), whole))

    def counted(self) -> list[str]:
        """Return the names of the guest's counts that are not zero in all steps."""
        return [*self.steps.counts, *(name for block in self.blocks for name in block.counts)]

    def total(self, name: str) -> int:
        """Return the sum of one of the guest's counts over its steps."""
        return sum(self.steps.count(name)) + sum(block.count(name) for block in self.blocks)


def step_period(rank: RankSteps) -> int | None:
    """After how many steps their kinds repeat: optimizers and number of backward calls."""
    steps = rank.steps
    kinds = list(zip(steps.optimizers, steps.count("backwards"), strict=True))
    return find_period(kinds[1:])  # the first step has no recorded beginning


def series_of(rank: RankSteps) -> StepTimes:
    """Return the times of all steps of a rank."""
    steps = rank.steps
    restarts = {0} if steps else set()
    restarts.update(index for index, value_s in enumerate(steps.span("compile")) if value_s > 0)
    probed = {index for index, flag in enumerate(steps.is_disturbed) if flag}
    for block in rank.blocks:
        if block.spans_s["compile"] > 0:
            restarts.update(range(block.first_index, block.first_index + block.num_steps))
        probed.update(block.first_index + place for place in block.disturbed)
    blocks = rank.blocks
    loops = loops_apart(rank)
    other_loops = frozenset(index for loop in loops[1:] for index in loop.steps)
    if loops:
        probed.add(loops[0].steps[0])  # what lies between two loops is in the step that follows
    watched = _watched(rank) - restarts - probed - other_loops
    return StepTimes(
        times_s=array("d", chain(steps.times_s, *(block.times_s for block in blocks))),
        cpu_times_s=array("d", chain(steps.cpu_times_s, *(block.cpu_times_s for block in blocks))),
        restarts=frozenset(restarts),
        disturbed=frozenset(restarts | probed) | other_loops | watched,
        other_loops=other_loops,
        watched=watched,
    )


def _watched(rank: RankSteps) -> frozenset[int]:
    """Return the steps whose phases were watched, where enough others were only timed."""
    num_rested = rank.num_steps - rank.num_watched
    if not rank.has_rested or num_rested < max(MIN_TIMED, MIN_TIMED_FRACTION * rank.num_steps):
        return frozenset()
    singles = (index for index, flag in enumerate(rank.steps.is_rested) if not flag)
    blocks = (
        range(block.first_index, block.first_index + block.num_steps)
        for block in rank.blocks
        if block.has_phases
    )
    return frozenset(chain(singles, *blocks))


def combine(ranks: Sequence[StepTimes]) -> StepTimes:
    """Return the run's times: step k takes as long as the slowest rank's, in wall and CPU time."""
    return StepTimes(
        times_s=_slowest([rank.times_s for rank in ranks]),
        cpu_times_s=_slowest([rank.cpu_times_s for rank in ranks]),
        restarts=frozenset().union(*(rank.restarts for rank in ranks)),
        disturbed=frozenset().union(*(rank.disturbed for rank in ranks)),
        beside_neighbor=frozenset().union(*(rank.beside_neighbor for rank in ranks)),
        other_loops=frozenset().union(*(rank.other_loops for rank in ranks)),
        watched=frozenset().union(*(rank.watched for rank in ranks)),
    )


def _slowest(ranks: Sequence[Numbers]) -> Numbers:
    """Return the longest time of each step among the ranks that made it."""
    return array("d", map(max, zip_longest(*ranks, fillvalue=-math.inf)))


def choose_first_step(series: StepTimes, *, period: int) -> int:
    """Return the index of the first step that counts, by `WINDOW_RULE`."""
    num_steps = len(series.times_s)
    early = [index for index in series.restarts if 2 * index < num_steps]
    first_group = math.ceil((max(early, default=0) + 1) / period)
    groups = range(first_group, num_steps // period)
    if period == 1:
        usable = [(one, series.times_s[one]) for one in groups if one not in series.disturbed]
    else:
        means = {group: _group_mean(series, group, period) for group in groups}
        usable = [(group, mean) for group, mean in means.items() if mean is not None]
    cut = warmup_length([mean for _, mean in usable])
    return (usable[cut][0] if usable else first_group) * period


def _group_mean(series: StepTimes, group: int, period: int) -> float | None:
    """Return the mean time of those steps of a period that count."""
    times_s = [
        series.times_s[i]
        for i in range(group * period, (group + 1) * period)
        if i not in series.disturbed
    ]
    return math.fsum(times_s) / len(times_s) if times_s else None


def steady_window(series: StepTimes, *, period: int | None) -> SteadyWindow:
    """Return the steady window of a series of steps."""
    first = choose_first_step(series, period=period or 1)
    kept = [index not in series.disturbed for index in range(first, len(series.times_s))]
    times_s, cpu_times_s = (
        list(compress(times[first:], kept)) for times in (series.times_s, series.cpu_times_s)
    )
    # A step of another loop may have been beside a neighbor, too: it is told once.
    beside = series.beside_neighbor - series.other_loops
    num_early = sum(index < first for index in beside | series.other_loops | series.watched)
    return SteadyWindow(
        first_step=first,
        num_steps=len(times_s),
        num_warmup_steps=min(first, len(series.times_s)) - num_early,
        num_beside_neighbor=len(beside),
        num_other_loops=len(series.other_loops),
        mean_of_all_s=_mean_of_all(series) if beside else None,
        rule=WINDOW_RULE,
        step_time_s=median_interval(times_s) if times_s else None,
        step_cpu_s=median_interval(cpu_times_s) if times_s else None,
        mean_s=bounded_mean(times_s) if times_s else None,
    )


def _mean_of_all(series: StepTimes) -> float:
    """Return the mean time of the steps that count and of those beside a busy neighbor."""
    never = series.disturbed - series.beside_neighbor
    return bounded_mean([t for index, t in enumerate(series.times_s) if index not in never])


def window_of(rank: RankSteps, series: StepTimes) -> StepWindow:
    """Return the steady window of one rank, with the steps in it."""
    period = 1 if series.other_loops else step_period(rank)
    steady = steady_window(series, period=period)
    first, apart = steady.first_step, series.disturbed - series.watched
    if series.watched:  # their own warmup, as the others begin later
        timed = frozenset(range(len(series.times_s))) - series.watched
        own = choose_first_step(replace(series, disturbed=timed), period=period or 1)
        first = min(first, own)
    kept = [
        index >= first and index not in apart and not is_rested
        for index, is_rested in zip(rank.steps.index, rank.steps.is_rested, strict=True)
    ]
    return StepWindow(
        steady=steady,
        period=period,
        is_sample=bool(series.watched),
        steps=rank.steps.take(kept),
        blocks=tuple(
            block
            for block in rank.blocks
            if block.has_phases
            and block.first_index >= first
            and apart.isdisjoint(range(block.first_index, block.first_index + block.num_steps))
        ),
    )
