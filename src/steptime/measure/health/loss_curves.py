"""Describes the losses of an optimizer: levels, sudden rises, repetition, growth.

In: the losses of updates in order. Out: `LossCurve`s, without a judgement. Everything is robust:
medians, and a deviation that single values cannot stretch, because losses have heavy tails.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise

from steptime.core.stats import median
from steptime.measure.values.model.health import LossCurve, LossRise
from steptime.record.rows import LossRow

LEVEL_VALUES = 32
"""The level is the median of as many losses before."""

SCATTER_VALUES = 128
LARGEST_VALUES = 512
"""Of so many deviations before, the median gives the scatter, and the largest the tails."""

MIN_VALUES = 48
"""Before this many values nothing is said of rises: their scatter is not known."""

CANDIDATE_SIGMAS = 6.0
CANDIDATE_RATIO = 2.0
"""Smaller rises are not kept; `diagnose` has the thresholds that count."""

MAX_RISE_VALUES = 64
"""A rise that lasts longer is a new level."""

MAX_SIGMAS = 1e6
"""Where the loss was constant, any rise has infinitely many."""

MAX_RISES = 20
NORMAL_SCALE = 1.4826
"""The standard deviation of normal values over the median of their sizes."""

SAME = 1e-6
"""Losses that differ by less, as a fraction, are the same: they are written with seven digits."""

MIN_REPEATED = 64
MAX_TRIED = 8
MAX_CURVES = 8


def make_curves(rows: Sequence[LossRow]) -> tuple[LossCurve, ...]:
    """Return a curve for each optimizer that has losses, those with most values first."""
    by_optimizer: dict[int, list[tuple[int, float]]] = {}
    for row in rows:
        if row.loss is not None and math.isfinite(row.loss):
            by_optimizer.setdefault(row.optimizer, []).append((row.number, row.loss))
    ordered = sorted(by_optimizer.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(make_curve(optimizer, pairs) for optimizer, pairs in ordered[:MAX_CURVES])


def make_curve(optimizer: int, pairs: Sequence[tuple[int, float]]) -> LossCurve:
    """Return the curve of losses, given with the numbers of their updates."""
    numbers, losses = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    part = max(8, len(losses) // 16)
    repeats = find_repeats(losses)
    return LossCurve(
        optimizer=optimizer,
        num_values=len(losses),
        first=median(losses[:part]),
        last=median(losses[-part:]),
        lowest=_lowest_level(losses),
        rises=tuple(find_rises(numbers, losses)),
        repeats_since=None if repeats is None else numbers[repeats[0]],
        repeats_every=None if repeats is None else repeats[1],
        growth=find_growth(losses),
        end=losses[-1],
    )


def _lowest_level(losses: Sequence[float]) -> float | None:
    if len(losses) < LEVEL_VALUES:
        return None
    step = LEVEL_VALUES // 2
    begins = range(0, len(losses) - LEVEL_VALUES + 1, step)
    return min(median(losses[begin : begin + LEVEL_VALUES]) for begin in begins)


class Scatter:
    """The level and the scatter of the losses so far."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque()
        self._recent_sorted: list[float] = []
        self._sizes: deque[float] = deque()
        self._sizes_sorted: list[float] = []
        self._largest: deque[tuple[int, float]] = deque()  # rises that no later one exceeds
        self.num = 0

    @property
    def level(self) -> float:
        """Return the median of the last losses."""
        return _middle(self._recent_sorted)

    @property
    def deviation(self) -> float:
        """Return the robust standard deviation around the level, above zero."""
        floor = max(abs(self.level) * SAME, 1e-30)
        return max(NORMAL_SCALE * _middle(self._sizes_sorted), floor)

    @property
    def largest(self) -> float:
        """Return the largest deviation upward so far, or at least the scatter."""
        return max(self._largest[0][1] if self._largest else 0.0, self.deviation)

    def add(self, loss: float) -> None:
        """Take one more loss."""
        if self._recent:
            self._add_deviation(loss - self.level)
        _push(self._recent, self._recent_sorted, loss, LEVEL_VALUES)
        self.num += 1

    def _add_deviation(self, rise: float) -> None:
        _push(self._sizes, self._sizes_sorted, abs(rise), SCATTER_VALUES)
        while self._largest and self._largest[-1][1] <= rise:
            self._largest.pop()
        self._largest.append((self.num, rise))
        while self._largest[0][0] <= self.num - LARGEST_VALUES:
            self._largest.popleft()

    def start_again(self, losses: Iterable[float]) -> None:
        """Take a new level; the scatter stays."""
        self._recent.clear()
        self._recent_sorted.clear()
        for loss in losses:
            _push(self._recent, self._recent_sorted, loss, LEVEL_VALUES)


def _push(order: deque[float], ordered: list[float], value: float, most: int) -> None:
    order.append(value)
    insort(ordered, value)
    if len(order) > most:
        del ordered[bisect_left(ordered, order.popleft())]


def _middle(ordered: Sequence[float]) -> float:
    if not ordered:
        return 0.0
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def find_rises(numbers: Sequence[int], losses: Sequence[float]) -> list[LossRise]:
    """Return the largest sudden rises, in order."""
    scatter, found, place = Scatter(), [], 0
    while place < len(losses):
        rise = losses[place] - scatter.level
        is_high = (
            scatter.num >= MIN_VALUES
            and rise >= CANDIDATE_SIGMAS * scatter.deviation
            and rise >= CANDIDATE_RATIO * scatter.largest
        )
        if not is_high:
            scatter.add(losses[place])
            place += 1
            continue
        one, end = _follow(numbers, losses, place, scatter)
        found.append(one)
        if not one.is_over:
            scatter.start_again(losses[max(place, end - LEVEL_VALUES) : end])
        place = end
    largest = sorted(found, key=lambda one: -one.over_largest)[:MAX_RISES]
    return sorted(largest, key=lambda one: one.first_update)


def _follow(
    numbers: Sequence[int], losses: Sequence[float], begin: int, scatter: Scatter
) -> tuple[LossRise, int]:
    """Return the rise that begins here, and the place of the first loss after it."""
    level, peak, end = scatter.level, losses[begin], begin + 1
    while end < len(losses) and end - begin < MAX_RISE_VALUES:
        if losses[end] < level + (peak - level) / 2:
            break
        peak = max(peak, losses[end])
        end += 1
    is_over = end < len(losses) and end - begin < MAX_RISE_VALUES
    rise = LossRise(
        first_update=numbers[begin],
        before=level,
        peak=peak,
        sigmas=min(MAX_SIGMAS, (peak - level) / scatter.deviation),
        over_largest=min(MAX_SIGMAS, (peak - level) / scatter.largest),
        num_values=end - begin,
        is_over=is_over,
    )
    return rise, end


def find_repeats(losses: Sequence[float]) -> tuple[int, int] | None:
    """Return from which place on the losses repeat, and after how many; None if they do not.

    Each loss must have come before at least once more, and 64 in all. Losses of 16 bits repeat by
    themselves, and are left out.
    """
    if len(losses) < MIN_REPEATED or _are_short(losses[-MIN_REPEATED:]):
        return None
    last, tried = len(losses) - 1, 0
    for period in range(1, len(losses) // 2 + 1):
        if not _is_same(losses[last], losses[last - period]):
            continue
        tried += 1
        begin = last
        while begin - period >= 0 and _is_same(losses[begin], losses[begin - period]):
            begin -= 1
        since = begin + 1 - period
        if last - begin >= max(period, MIN_REPEATED - period):
            return max(0, since), period
        if tried == MAX_TRIED:
            break
    return None


def _is_same(a: float, b: float) -> bool:
    return abs(a - b) <= SAME * max(abs(a), abs(b))


def _are_short(losses: Sequence[float]) -> bool:
    """Return whether all of them may be numbers of 16 bits, of which there are few."""
    if all(loss == 0 for loss in losses):
        return False
    return all(_is_same(loss, _rounded(loss, "<e")) for loss in losses) or all(
        _is_same(loss, _as_bfloat16(loss)) for loss in losses
    )


def _rounded(value: float, form: str) -> float:
    try:
        return float(struct.unpack(form, struct.pack(form, value))[0])
    except OverflowError:
        return math.inf


def _as_bfloat16(value: float) -> float:
    try:
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:
        return math.inf
    return float(struct.unpack("<f", struct.pack("<I", (bits + 0x7FFF) & 0xFFFF0000))[0])


def find_growth(losses: Sequence[float]) -> float | None:
    """Return the growth over the last quarter, if the losses grew in all of its parts."""
    quarter = losses[-(len(losses) // 4) :]
    size = len(quarter) // 4
    if size < 4:
        return None
    levels = [median(quarter[place * size : (place + 1) * size]) for place in range(4)]
    if levels[0] <= 0 or any(after <= before for before, after in pairwise(levels)):
        return None
    return min(MAX_SIGMAS, levels[-1] / levels[0])
