"""Thins the steps of one rank to points for a page: special steps stay, the rest become means.

In: the steps of a rank and which of them count. Out: `StepPoint`. `measure.series.run_series` has
the events beside the steps.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import add

from steptime.core.stats import median
from steptime.measure.steps.step_blocks import StepBlock
from steptime.measure.steps.step_fold import RankSteps
from steptime.measure.steps.step_table import Numbers, StepTable, add_up, zeros
from steptime.measure.values.measurement import INNER_PHASES, PHASES, Step
from steptime.measure.values.over_time import StepPoint

MAX_DEVIATIONS = 5.0
"""A step is an outlier above so many median absolute deviations, scaled to standard deviations:
Hampel's identifier (1974) with five instead of three, since step times have long tails."""

MIN_EXCESS = 0.25
"""An outlier is also this much above the median: in quiet runs five deviations are microseconds."""

NEIGHBORS = 75
"""A step is compared with so many on either side, and with those on each side alone: near a lasting
change, the steps of one side are no outliers among those of the other."""

_CHUNK = 50  # steps that share their neighbors: a median each would be quadratic
_MIN_COMPARED = 12  # steps below which none is an outlier
_MAD_TO_DEVIATION = 1.4826  # for a normal distribution
_SPECIAL_FRACTION = 1 / 3  # most points that single special steps get


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Marks on the steps of a rank; nothing counts before `first`."""

    first: int
    disturbed: frozenset[int]
    watched: frozenset[int] = frozenset()


def thin_steps(
    rank: RankSteps, marks: Marks, *, times_s: Numbers, max_points: int
) -> tuple[StepPoint, ...]:
    """Return at most so many points (and one at least), in order of time.

    Args:
        rank: the rank whose steps they are.
        marks: which of its steps count.
        times_s: times of all steps, including those in blocks [s].
        max_points: the most points to return.
    """
    counted_s = dict(enumerate(times_s[marks.first :], start=marks.first))
    outliers = find_outliers(counted_s, marks.disturbed)
    maker = _Maker(rank, marks, times_s, outliers=frozenset(outliers))
    num_steps = len(times_s)
    if num_steps <= max_points:
        return tuple(maker.point([index]) for index in range(num_steps))
    special = _choose_special(
        num_steps, marks, outliers, max(1, int(max_points * _SPECIAL_FRACTION))
    )
    rest = [index for index in range(num_steps) if index not in special]
    size = math.ceil(len(rest) / max(1, max_points - len(special) - 1))
    num_early = bisect_left(rest, marks.first)
    groups = [*_groups(rest[:num_early], size), *_groups(rest[num_early:], size)]
    groups += [[index] for index in sorted(special)]
    return tuple(sorted(map(maker.point, groups), key=lambda point: point.end_unix_s))


def find_outliers(times_s: Mapping[int, float], disturbed: frozenset[int]) -> dict[int, float]:
    """Return the steps that took far longer than their neighbors, each with how many times as long.

    Args:
        times_s: times of the steps after warmup, by index, in order [s].
        disturbed: steps that are not compared.
    """
    kept = [(index, time_s) for index, time_s in times_s.items() if index not in disturbed]
    if len(kept) < _MIN_COMPARED:
        return {}
    found = {}
    for start in range(0, len(kept), _CHUNK):
        end = start + _CHUNK
        times = [time_s for _, time_s in kept[max(0, start - NEIGHBORS) : end + NEIGHBORS]]
        at = min(start, NEIGHBORS)
        sides = (times, times[: at + _CHUNK], times[at:])
        usual_s, limit_s = max(map(_usual, sides), key=lambda usual: usual[1])
        for index, time_s in kept[start:end]:
            if time_s > limit_s:
                found[index] = time_s / usual_s if usual_s > 0 else math.inf
    return found


def _usual(times_s: Sequence[float]) -> tuple[float, float]:
    """Return a median, and the limit above which a time among these is an outlier [s]."""
    usual_s = median(times_s)
    if len(times_s) < _MIN_COMPARED:
        return usual_s, 0.0
    spread_s = _MAD_TO_DEVIATION * median([abs(time_s - usual_s) for time_s in times_s])
    return usual_s, usual_s + max(MAX_DEVIATIONS * spread_s, MIN_EXCESS * usual_s)


def _choose_special(
    num_steps: int, marks: Marks, outliers: Mapping[int, float], max_special: int
) -> set[int]:
    """Return the steps that stay single: the first, the farthest outliers, then the disturbed."""
    farthest = sorted(outliers, key=lambda index: -outliers[index])
    apart = marks.disturbed - marks.watched
    disturbed = [index for index in sorted(apart) if index < num_steps]
    chosen = dict.fromkeys([0, *farthest, *disturbed])
    return set(list(chosen)[:max_special])


def _groups(steps: Sequence[int], size: int) -> list[Sequence[int]]:
    return [steps[start : start + size] for start in range(0, len(steps), size)]


class _Maker:
    """Makes the points of one rank."""

    def __init__(
        self, rank: RankSteps, marks: Marks, times_s: Numbers, *, outliers: frozenset[int]
    ) -> None:
        self._rank = rank
        self._marks = marks
        self._times_s = times_s
        self._outliers = outliers
        self._num_singles = len(rank.steps)
        self._wall_s = _whole_phases(rank.steps)
        self._first_of_block = [block.first_index for block in rank.blocks]
        self._blocks = [_FlatBlock(block) for block in rank.blocks]

    def point(self, steps: Sequence[int]) -> StepPoint:
        """Return one step, or several as their mean."""
        first, last, num_steps = steps[0], steps[-1], len(steps)
        disturbed = self._marks.disturbed
        is_disturbed = all(index in disturbed for index in steps)
        return StepPoint(
            rank=self._rank.head.rank,
            index=first,
            end_unix_s=self._rank.head.t_unix_s + self._end_s(last),
            step_time_s=math.fsum(self._times_s[index] for index in steps) / num_steps,
            wall_s=self._mean_phases(steps),
            num_steps=num_steps,
            is_warmup=first < self._marks.first,
            is_steady=first >= self._marks.first and not is_disturbed,
            is_outlier=num_steps == 1 and first in self._outliers,
            is_disturbed=is_disturbed,
            sizes=self._mean_sizes(steps),
        )

    def _end_s(self, index: int) -> float:
        if index < self._num_singles:
            return self._rank.steps.end_s[index]
        block = self._block_of(index)
        return block.ends_s[index - block.first_index]

    def _block_of(self, index: int) -> _FlatBlock:
        return self._blocks[bisect_right(self._first_of_block, index) - 1]

    def _mean_phases(self, steps: Sequence[int]) -> dict[str, float]:
        """Return mean phases of the steps that have them; a single step of a block has none.

        The steps are in order, with those of blocks last.
        """
        num_singles = bisect_left(steps, self._num_singles)
        singles = [index for index in steps[:num_singles] if not self._rank.steps.is_rested[index]]
        if len(steps) == 1:
            return {name: self._wall_s[name][steps[0]] for name in PHASES} if singles else {}
        blocks = self._by_block(steps[num_singles:])
        known = [(block.wall_s, num) for block, num in blocks if block.wall_s]
        num = len(singles) + sum(num for _, num in known)
        if not num:
            return {}
        sums = {name: sum(map(self._wall_s[name].__getitem__, singles), 0.0) for name in PHASES}
        for wall_s, times in known:
            for name in PHASES:
                sums[name] += wall_s[name] * times
        return {name: value / num for name, value in sums.items()}

    def _mean_sizes(self, steps: Sequence[int]) -> tuple[float, ...]:
        """Return mean sizes of the steps that have them, each step of a block those of its mean."""
        num_singles = bisect_left(steps, self._num_singles)
        columns, rounds = self._rank.sizes.columns, self._rank.sizes.rounds
        found: list[tuple[Sequence[float], int]] = [
            ([sum(column[slice(*rounds[index])]) for column in columns], 1)
            for index in steps[:num_singles]
            if not self._rank.steps.is_rested[index]
        ]
        blocks = self._by_block(steps[num_singles:])
        found += [(block.sizes, num) for block, num in blocks if block.sizes]
        total = sum(num for _, num in found)
        each = ([size * num for size in sizes] for sizes, num in found)
        return tuple(sum(column) / total for column in zip(*each, strict=True))

    def _by_block(self, steps: Sequence[int]) -> Iterator[tuple[_FlatBlock, int]]:
        """Yield each block, and how many of these steps belong to it."""
        begin = 0
        while begin < len(steps):
            block = self._block_of(steps[begin])
            end = bisect_left(steps, block.first_index + len(block.ends_s), begin)
            yield block, end - begin
            begin = end


def begin_of(step: Step) -> float:
    """Return when the step's first marker was seen, on the clock of the rank's head [s]."""
    return step.end_s - step.step_time_s - math.fsum(step.spans_s.values())


def _whole_phases(steps: StepTable) -> dict[str, Numbers]:
    """Return times of the phases that partition a step; `input_wait` has fetch and collate."""
    found = {
        name: steps.wall_s[name] if name in steps.wall_s else zeros(len(steps)) for name in PHASES
    }
    inner_s = add_up(steps.wall_s, INNER_PHASES, len(steps))
    found["input_wait"] = array("d", map(add, found["input_wait"], inner_s))
    return found


class _FlatBlock:
    """The steps of a block one by one; only sums of its spans are known, so each gets a share.

    `wall_s` and `sizes` are those of its mean step, and empty where they are not known.
    """

    def __init__(self, block: StepBlock) -> None:
        self.first_index = block.first_index
        num, total_s = block.num_steps, math.fsum(block.times_s)
        stretch = (block.end_s - block.start_s) / total_s if total_s > 0 else 0.0
        ends_s = (block.start_s + done_s * stretch for done_s in accumulate(block.times_s))
        self.ends_s = array("d", ends_s)
        self.sizes = [size / num for size in block.sizes]
        self.wall_s: dict[str, float] = {}
        if block.has_phases:
            self.wall_s = {name: block.wall_s[name] / num for name in PHASES}
            self.wall_s["input_wait"] += sum(block.wall_s[name] for name in INNER_PHASES) / num
