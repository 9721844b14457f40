"""How much of a training may be watched: bursts of updates with markers, and rests between them.

A marker costs the same in a step of 0.3 ms and in one of a second. Where the watch would take more
than `TARGET` of a step, it rests: updates are counted and timed by their ends, and nothing else. No
torch here.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import sub

SAMPLED_AT_FIRST = 256
SAMPLE_BLOCK = 16
SAMPLE_EVERY = 8
"""CPU time by bucket, fetch and collate on their own, and our own time are measured in the first
256 updates of a thread, then in one block of 16 out of eight: the process CPU clock is a system
call of 0.6 µs, and a step has ten markers. The CPU time of a whole update is always measured."""

TARGET = 0.005
"""Of a step: half of what may be spent, as the ends of updates and writing take the rest."""

COLD = 5
"""Between the user's kernels our code runs with cold caches: markers and wrapped calls take about
five times what they take where they measure themselves (`benchmarks/run/overhead.py`)."""

BURST = 32
"""Updates of a burst at least; the first of them is not like the others, as caches are cold."""

END_NS = 2_000
"""What the end of an update costs while the watch rests."""

LONGEST = 25
"""A rest takes at least one in so many of the time since the first update. Each change of a hook
makes Python forget the attributes of all modules, and Python 3.13 gives up on a class after a
thousand changes: a day has 250 rests."""

MOST_NS = 1_800_000_000_000
"""No rest is planned to last longer than half an hour."""


def is_sampled_at(update: int) -> bool:
    """Return whether everything is measured in this update of a thread, counted from 0."""
    return update < SAMPLED_AT_FIRST or (update // SAMPLE_BLOCK) % SAMPLE_EVERY == 0


class WatchBudget:
    """What bursts and rests may be, in updates of the length that the last ones had."""

    def __init__(self) -> None:
        self.cost_ns = 0.0  # of watching an update
        self.switch_ns = 0.0  # of a rest's beginning and end
        self.step_ns = 0.0
        self.is_timed = False  # whether that is of updates that were not watched

    def see_cost(self, marker_ns: float, nested_ns: float, flush_ns: float) -> None:
        """Take what markers, wrapped calls and writing took in an update [ns]."""
        self.cost_ns = COLD * (marker_ns + nested_ns) + flush_ns

    def see_times(self, begin_ns: int, ends_ns: Sequence[int]) -> None:
        """Take the ends of updates that were not watched, and when the first of them began [ns]."""
        if len(ends_ns) >= BURST:
            times = sorted(map(sub, ends_ns, (begin_ns, *ends_ns)))
            self.step_ns, self.is_timed = float(times[len(times) // 2]), True

    @property
    def share(self) -> float:
        """The share of the updates that may be watched; 1 for all."""
        if self.cost_ns <= TARGET * self.step_ns:
            return 1.0
        allowed_ns = max(TARGET * self.step_ns - END_NS, TARGET * self.step_ns / 4)
        burst_ns = BURST * self.cost_ns + self.switch_ns
        return min(1.0, allowed_ns * BURST / burst_ns)

    def plan(self, elapsed_ns: int) -> tuple[int, int]:
        """Return how many updates the next burst has, and for how long the rest before it lasts.

        Args:
            elapsed_ns: since the thread's first update.

        Returns:
            Updates, and nanoseconds; no rest where the watch may stay.
        """
        share = self.share
        if share >= 1.0:
            return BURST, 0
        rest_ns = BURST * (1 / share - 1) * self.step_ns
        longer = max(1.0, min(elapsed_ns / LONGEST, MOST_NS) / rest_ns)
        return round(BURST * longer), round(rest_ns * longer)
