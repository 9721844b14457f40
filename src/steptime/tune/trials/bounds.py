"""How long trials last and when they are given up, by the budget and the command as written.

In: the budget, and what was observed. Out: windows and limits, as functions of their arguments.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from steptime.core.stats import median
from steptime.measure.tried.trial_lines import most_batches
from steptime.tune.search.proof.whole_run import longest_epoch
from steptime.tune.trials.trial_process import TrialLimits
from steptime.tune.trials.trial_watch import Process, Tick, TrialWatch, fold_ticks

_WARMUP_STEPS = 3  # counted by nobody; the steady window finds its own begin
_ENDING_S = 1.0  # a sample of the machine before, writing and killing after
_LEAST_STEPS = 3  # a median of fewer says nothing, however slow they are

FOR_AN_EPOCH = 1 / 20
"""Of the budget, beyond its window, to see the end of an epoch of the command as written."""

_LATE = 0.1  # of an epoch by its loader: if it goes on for longer, its length is not known

YOUNG = 1 / 3
"""Of the seconds that a process of a pair shows at least: they do not count, as allocators and
caches still find their state (page faults of a graph network fell from 7,000 to 1,600 a step)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSize:
    """What a trial must have shown: enough steps and enough time, or time alone.

    Attributes:
        num_steps: after `num_warmup` updates, of which the first never counts.
        least_s: fewer seconds do not count what comes now and then.
        most_s: after which fewer steps will do.
    """

    num_steps: int
    least_s: float
    most_s: float
    num_warmup: int = 0


def observe_window(budget_s: float) -> WindowSize:
    """The baseline's: it is diagnosed, which needs more than a median."""
    return WindowSize(
        num_steps=30, least_s=_between(1.0, budget_s / 60, 10.0), most_s=max(5.0, budget_s / 12)
    )


def process_window(budget_s: float, *, num_warmup: int = 0, update_s: float = 0.0) -> WindowSize:
    """One process of a pair, which warms up as the command as written did, if that is not long."""
    most_s = max(3.0, budget_s / 15)
    least_s = _between(1.0, budget_s / 100, 10.0)
    young_s = YOUNG * least_s if update_s else 0.0
    young = math.ceil(young_s / update_s) if update_s else 0
    return WindowSize(
        num_steps=20,
        least_s=least_s - young_s,
        most_s=most_s,
        num_warmup=max(young, num_warmup if num_warmup * update_s <= most_s else 0),
    )


def first_limits(budget_s: float) -> TrialLimits:
    """The baseline's: nothing is known yet, and some scripts prepare data for minutes."""
    return TrialLimits(
        start_s=max(60.0, 0.4 * budget_s),
        silence_s=silence_s(budget_s),
        total_s=max(120.0, 0.8 * budget_s),
    )


def later_limits(budget_s: float, *, startup_s: float, longest_gap_s: float) -> TrialLimits:
    """Those of all other trials: three times the start as written, and time to compile."""
    return TrialLimits(
        start_s=3 * startup_s + compile_s(budget_s),
        silence_s=silence_s(budget_s),
        working_s=compile_s(budget_s),
        total_s=max(60.0, budget_s),
        longest_gap_s=longest_gap_s,
    )


def compile_s(budget_s: float) -> float:
    """What a lever may take once: 10 to 90 s were measured for a compilation."""
    return _between(20.0, budget_s / 5, 180.0)


def silence_s(budget_s: float) -> float:
    """How long nothing may happen at least before it counts as a hang."""
    return _between(10.0, budget_s / 10, 90.0)


def lasts_s(size: WindowSize, *, startup_s: float, step_s: float) -> float:
    """How long a process is going to take to show a window [s]."""
    warmup_s, steps_s = size.num_warmup * step_s, (_WARMUP_STEPS + size.num_steps) * step_s
    return startup_s + _ENDING_S + warmup_s + min(max(size.least_s, steps_s), size.most_s)


def is_full(watch: TrialWatch, size: WindowSize) -> bool:
    """Whether the trial has shown enough."""
    process = watch.first
    if process is None:
        return False
    ticks = process.ticks
    compiled = [i for i, tick in enumerate(process.ticks) if tick.compile_s > 0]
    begin = max(1 + max(compiled, default=0), size.num_warmup)  # the first update never counts
    num_steps = len(ticks) - begin
    seen_s = ticks[-1].end_s - ticks[min(begin, len(ticks)) - 1].end_s
    if num_steps >= _WARMUP_STEPS + size.num_steps and seen_s >= size.least_s:
        return True
    all_s = ticks[-1].end_s - ticks[0].end_s
    has_least = num_steps >= _LEAST_STEPS and seen_s >= size.most_s
    return has_least or all_s >= (3 if size.num_warmup else 2) * size.most_s


class SeesEpochEnd:
    """Asks whether the command as written has shown its window, and the end of an epoch if near.

    What lies between two epochs is in no step: only a process that sees one end tells of it.
    """

    def __init__(self, budget_s: float) -> None:
        self._size = observe_window(budget_s)
        self._most_s = FOR_AN_EPOCH * budget_s
        self._until_s: float | None = None

    def __call__(self, watch: TrialWatch) -> bool:
        """Return whether the trial is over."""
        process = watch.first
        if process is None or not is_full(watch, self._size):
            return False
        now_s = time.monotonic()
        self._until_s = self._until_s or now_s + self._most_s
        loaders = watch.facts.get("loaders") or ()
        sizes = [(one.get("num_samples"), one.get("batch_size")) for one in loaders]
        steps_s = fold_ticks(process.ticks)
        left = _updates_to_epoch_end(process.ticks, longest_epoch(sizes), num_steps=len(steps_s))
        if left is None:
            return True
        steps_left = round(left * len(steps_s) / len(process.ticks))
        return now_s + steps_left * median(steps_s) > self._until_s


def _updates_to_epoch_end(
    ticks: Sequence[Tick], num_batches: int, *, num_steps: int
) -> float | None:
    """Updates until an epoch of so many batches may end; None if none does, or did.

    It may have begun with the first step, or after any gap: an evaluation, a search for a rate.
    """
    most = most_batches(tick.num_batches for tick in ticks)
    gaps = [n for n, it in enumerate(ticks) if n and (it.starts_epoch or it.num_batches > most)]
    num = num_batches * len(ticks) / max(1, num_steps)
    if gaps and gaps[-1] >= (1 - _LATE) * num:
        return None
    left = [num - (len(ticks) - begin) for begin in (0, *gaps)]
    return min((max(0, it) for it in left if it >= -_LEAST_STEPS - _LATE * num), default=None)


def longest_gap_s(process: Process) -> float:
    """The longest time between two updates, whatever happened in it; the first ones left out."""
    ends = [tick.end_s for tick in process.ticks[1:]]
    return max((b - a for a, b in pairwise(ends)), default=0.0)


def _between(least: float, value: float, most: float) -> float:
    return max(least, min(value, most))
