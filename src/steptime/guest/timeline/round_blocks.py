"""Folds updates into rounds inside the guest, for runs that are too long for a row an update.

The rule is that of `measure/steps/step_fold.py` in the parent: a new round begins when an optimizer
that has already stepped in this round steps again.
"""

from __future__ import annotations

from ...record.buckets import (
    BACKWARDS,
    CHECKPOINT,
    COMPILE,
    EPOCH_START,
    EVALUATION,
    NUM_BUCKETS,
    NUM_WRITTEN,
)
from ...record.places import (
    BY_HAND,
    DETAIL,
    DISTURBED,
    END_NS,
    NUM_LEADING,
    NUMBER,
    OPTIMIZER,
    SKIPPED,
    START_NS,
)
from ...record.writing import block_line

ROUNDS_A_BLOCK = 100
_SPANS = (EVALUATION, CHECKPOINT, EPOCH_START, COMPILE)


def _step_us(sums: list[int]) -> int:
    return (sum(sums[:NUM_BUCKETS]) - sum(sums[i] for i in _SPANS)) // 1000


def _plus(a: list[int], b: list[int]) -> list[int]:
    return [x + y for x, y in zip(a, b)] if a else list(b)


class Rounds:
    """One thread's rounds and, once rows are added, the block that is being filled."""

    def __init__(self, thread: int) -> None:
        self.thread = thread
        self.seen: set[int] = set()  # the optimizers that have stepped in this round
        self.sums: list[int] = []
        self._begin_block()

    def _begin_block(self) -> None:
        self.first = -1
        self.rounds = self.updates = self.skipped = 0
        self.round_rows = self.round_updates = self.round_skipped = self.round_sampled = 0
        self.totals: list[int] = []
        self.sampled_rounds = 0
        self.sampled_cpu: list[int] = []
        self.step_walls: list[int] = []
        self.step_cpus: list[int] = []
        self.start = self.end = 0
        self.fresh: list[list[int]] = []  # updates of this block that are not on disk yet
        self.disturbed: list[int] = []  # rounds of this block that a probe of ours made longer

    def begins_with(self, optimizer: int) -> bool:
        """Return whether this update begins a round; must be asked once for each update."""
        begins = optimizer in self.seen or not self.seen
        if begins:
            self.seen.clear()
        self.seen.add(optimizer)
        return begins

    @property
    def is_open(self) -> bool:
        """True once rows have been added; the first one must begin a round."""
        return self.first >= 0

    def add(self, row: list[int], *, begins: bool) -> str | None:
        """Take an update's row; return the line of a block that it finished."""
        number, end, skipped = row[NUMBER], row[END_NS], row[SKIPPED]
        done = None
        if begins and self.is_open:
            self._end_round()
            if self.rounds == ROUNDS_A_BLOCK:
                done = self._line()
                self._begin_block()
        if self.first < 0:
            self.first, self.start = number, row[START_NS]
        self.sums = _plus(self.sums, row[NUM_LEADING:])
        self.round_rows += 1
        self.round_updates += row[OPTIMIZER] != BY_HAND
        self.round_skipped += skipped == 1
        self.round_sampled += row[DETAIL] > 0
        if row[DETAIL] == DISTURBED and self.rounds not in self.disturbed[-1:]:
            self.disturbed.append(self.rounds)
        self.end = end
        sums = row[NUM_LEADING:]
        times = [_step_us(sums), _step_us(sums[NUM_WRITTEN:])]
        self.fresh.append(
            [number, self.thread, row[OPTIMIZER], end, skipped, sums[BACKWARDS], *times]
        )
        return done

    def take_fresh(self) -> list[list[int]]:
        """Return the updates of an unfinished block that no line contains yet."""
        fresh, self.fresh = self.fresh, []
        return fresh

    def close(self) -> str | None:
        """Return the line of the unfinished block, if it holds anything."""
        if self.is_open:
            self._end_round()
        return self._line() if self.rounds else None

    def _end_round(self) -> None:
        self.rounds += 1
        self.updates += self.round_updates
        self.skipped += self.round_skipped
        self.step_walls.append(_step_us(self.sums))
        self.step_cpus.append(_step_us(self.sums[NUM_WRITTEN:]))
        self.totals = _plus(self.totals, self.sums)
        if self.round_sampled == self.round_rows:
            self.sampled_rounds += 1
            self.sampled_cpu = _plus(self.sampled_cpu, self.sums[NUM_WRITTEN:])
        self.sums = []
        self.round_rows = self.round_updates = self.round_skipped = self.round_sampled = 0

    def _line(self) -> str:
        head = [self.first, self.thread, self.rounds, self.updates, self.skipped]
        sampled = self.sampled_cpu or [0] * NUM_BUCKETS
        row = [
            *head,
            self.start,
            self.end,
            *self.totals[:NUM_WRITTEN],
            self.sampled_rounds,
            *sampled,
        ]
        return block_line(row, self.step_walls, self.step_cpus, self.disturbed)
