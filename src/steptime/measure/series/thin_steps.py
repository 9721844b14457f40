"""The steps of one rank as points that a page can show: what stands out stays, the rest is means.

In: the steps of a rank and which of them count. Out: `StepPoint`. What happened beside the steps
is left to `measure.series.run_series`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

from steptime.core.stats import median
from steptime.measure.steps.step_fold import RankSteps, StepBlock
from steptime.measure.values.measurement import INNER_PHASES, PHASES, Step
from steptime.measure.values.over_time import StepPoint

MAX_DEVIATIONS = 5.0
"""Median absolute deviations, as standard deviations, above which a step is an outlier: the
identifier of Hampel (1974) with five in the place of three, for step times have long tails."""

MIN_EXCESS = 0.25
"""And at least so much above the median: on a quiet machine five deviations are microseconds."""

NEIGHBORS = 75
"""Steps on either side that one is compared with, so that a lasting change makes no outliers."""

_CHUNK = 50  # steps that share their neighbors: a median each would be quadratic
_MIN_COMPARED = 12  # steps below which none is an outlier
_MAD_TO_DEVIATION = 1.4826  # of a normal distribution
_SPECIAL_FRACTION = 1 / 3  # of the points go to single steps that stand out, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What is said of the steps of a rank: nothing counts before `first`."""

    first: int
    disturbed: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flat:
    """A step by itself; `wall_s` is of the mean step of its block, empty where not known."""

    index: int
    end_s: float
    time_s: float
    wall_s: Mapping[str, float]
    is_mean: bool


def thin_steps(rank: RankSteps, marks: Marks, *, max_points: int) -> tuple[StepPoint, ...]:
    """At most so many points (and one at least), in order of time."""
    flat = list(_flatten(rank))
    counted_s = {step.index: step.time_s for step in flat if step.index >= marks.first}
    outliers = find_outliers(counted_s, marks.disturbed)
    maker = _Maker(rank=rank, marks=marks, outliers=frozenset(outliers))
    if len(flat) <= max_points:
        return tuple(maker.point([step]) for step in flat)
    special = _choose_special(flat, marks, outliers, max(1, int(max_points * _SPECIAL_FRACTION)))
    rest = [step for step in flat if step.index not in special]
    size = math.ceil(len(rest) / max(1, max_points - len(special) - 1))
    early = [step for step in rest if step.index < marks.first]
    groups = [*_groups(early, size), *_groups(rest[len(early) :], size)]
    groups += [[step] for step in flat if step.index in special]
    return tuple(sorted(map(maker.point, groups), key=lambda point: point.end_unix_s))


def find_outliers(times_s: Mapping[int, float], disturbed: frozenset[int]) -> dict[int, float]:
    """The steps that took far longer than their neighbors, each with how many times as long.

    Args:
        times_s: of the steps after warmup, by index, in order.
        disturbed: steps that are compared with nothing.
    """
    kept = [(index, time_s) for index, time_s in times_s.items() if index not in disturbed]
    if len(kept) < _MIN_COMPARED:
        return {}
    found = {}
    for start in range(0, len(kept), _CHUNK):
        around = kept[max(0, start - NEIGHBORS) : start + _CHUNK + NEIGHBORS]
        usual_s = median([time_s for _, time_s in around])
        spread_s = _MAD_TO_DEVIATION * median([abs(time_s - usual_s) for _, time_s in around])
        limit_s = usual_s + max(MAX_DEVIATIONS * spread_s, MIN_EXCESS * usual_s)
        for index, time_s in kept[start : start + _CHUNK]:
            if time_s > limit_s:
                found[index] = time_s / usual_s if usual_s > 0 else math.inf
    return found


def _choose_special(
    flat: Sequence[_Flat], marks: Marks, outliers: Mapping[int, float], max_special: int
) -> set[int]:
    """The steps that stay by themselves: the first, the farthest outliers, then the disturbed."""
    farthest = sorted(outliers, key=lambda index: -outliers[index])
    disturbed = [step.index for step in flat if step.index in marks.disturbed]
    chosen = dict.fromkeys([flat[0].index, *farthest, *disturbed])
    return set(list(chosen)[:max_special])


def _groups(steps: Sequence[_Flat], size: int) -> list[Sequence[_Flat]]:
    return [steps[start : start + size] for start in range(0, len(steps), size)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Maker:
    """Makes the points of one rank."""

    rank: RankSteps
    marks: Marks
    outliers: frozenset[int]

    def point(self, steps: Sequence[_Flat]) -> StepPoint:
        """One step, or several as their mean."""
        first, num_steps = steps[0], len(steps)
        is_disturbed = all(step.index in self.marks.disturbed for step in steps)
        return StepPoint(
            rank=self.rank.head.rank,
            index=first.index,
            end_unix_s=self.rank.head.t_unix_s + steps[-1].end_s,
            step_time_s=math.fsum(step.time_s for step in steps) / num_steps,
            wall_s=_mean_phases(steps),
            num_steps=num_steps,
            is_warmup=first.index < self.marks.first,
            is_steady=first.index >= self.marks.first and not is_disturbed,
            is_outlier=num_steps == 1 and first.index in self.outliers,
            is_disturbed=is_disturbed,
        )


def _mean_phases(steps: Sequence[_Flat]) -> dict[str, float]:
    """Of the steps whose phases are known. Of one step in a block they are not: it is no mean."""
    if len(steps) == 1:
        return {} if steps[0].is_mean else dict(steps[0].wall_s)
    sums, num = dict.fromkeys(PHASES, 0.0), 0
    for _, same in groupby(steps, key=lambda step: id(step.wall_s)):
        members = list(same)
        wall_s = members[0].wall_s
        if wall_s:
            num += len(members)
            for name in PHASES:
                sums[name] += wall_s[name] * len(members)
    return {name: value / num for name, value in sums.items()} if num else {}


def _flatten(rank: RankSteps) -> Iterator[_Flat]:
    """Each step by itself, those of blocks too."""
    for step in rank.steps:
        yield _Flat(
            index=step.index,
            end_s=step.end_s,
            time_s=step.step_time_s,
            wall_s=_whole_phases(step.wall_s, 1),
            is_mean=False,
        )
    for block in rank.blocks:
        yield from _flatten_block(block)


def begin_of(step: Step) -> float:
    """When its first marker was seen, on the clock of the rank's head [s]."""
    return step.end_s - step.step_time_s - math.fsum(step.spans_s.values())


def _flatten_block(block: StepBlock) -> Iterator[_Flat]:
    """Spans within the block are known in sum alone; each step gets its share of them."""
    wall_s = _whole_phases(block.wall_s, block.num_steps) if block.has_phases else {}
    total_s = math.fsum(block.times_s)
    stretch = (block.end_s - block.start_s) / total_s if total_s > 0 else 0.0
    for number, (time_s, done_s) in enumerate(
        zip(block.times_s, accumulate(block.times_s), strict=True)
    ):
        yield _Flat(
            index=block.first_index + number,
            end_s=block.start_s + done_s * stretch,
            time_s=time_s,
            wall_s=wall_s,
            is_mean=True,
        )


def _whole_phases(wall_s: Mapping[str, float], num_steps: int) -> dict[str, float]:
    """Times a step of the phases that partition it: fetch and collate are in `input_wait`."""
    found = {name: wall_s[name] / num_steps for name in PHASES}
    found["input_wait"] += sum(wall_s[name] for name in INNER_PHASES) / num_steps
    return found
