"""Folds optimizer updates into steps, by the rule in docs/internals/run-folder.md.

In: the `RankStream` of one process. Out: `RankSteps`, the steps of the thread that stepped most.
`measure.steps.steady_window` decides which of them count; `measure.steps.phases` divides their
time.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

from steptime.measure.fold.rank_signals import Signals
from steptime.measure.fold.stream import GuestCost, RankStream, StreamEnd, StreamHead
from steptime.measure.steps.rounds import Round, Rows, fold_rounds
from steptime.measure.steps.step_blocks import (
    StepBlock,
    by_name,
    fold_blocks,
    late_rested,
    split_sums,
)
from steptime.measure.steps.step_table import Numbers, StepTable
from steptime.measure.values.measurement import SPANS
from steptime.record.buckets import SIZES
from steptime.record.places import (
    BY_HAND,
    DETAIL,
    DISTURBED,
    END_NS,
    NS,
    NUMBER,
    OPTIMIZER,
    RESTED,
    SKIPPED,
    THREAD,
)
from steptime.record.table import UpdateTable

_NO_THREAD = -1  # threads are numbered from 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSizes:
    """What the work of each row goes by, and which rows are a step.

    `columns` are the numbers of `record.buckets.SIZES`, a column each; there are none from an
    older guest. `rounds` are the places of each step's rows, without the end.
    """

    optimizers: Sequence[int]
    columns: tuple[Sequence[int], ...]
    rounds: Sequence[tuple[int, int]]

    def rows_of(self, step: int) -> list[tuple[int, ...]]:
        """Return the rows of a step: the optimizer, then the sizes."""
        begin, end = self.rounds[step]
        return [
            (self.optimizers[row], *(column[row] for column in self.columns))
            for row in range(begin, end)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSteps:
    """The steps of one rank, first one by one, then in blocks.

    `num_threads` counts the threads with rows, `num_threads_stepped` those that made updates (all
    threads if no optimizer stepped). The steps are those of the thread that made most.
    `num_empty_steps` are steps of a wrapper that passed nothing on. `has_rested` says that some
    updates were only counted and timed. `tail_s` is the time of spans
    after the last update.
    """

    head: StreamHead
    cost: GuestCost | None
    end: StreamEnd | None
    steps: StepTable
    blocks: tuple[StepBlock, ...]
    num_threads: int
    num_threads_stepped: int
    num_empty_steps: int
    has_rested: bool
    tail_s: Mapping[str, float]
    signals: Signals
    sizes: RowSizes

    @property
    def num_watched(self) -> int:
        """Return the number of steps whose phases were watched; the others were only timed."""
        singles = len(self.steps) - sum(self.steps.is_rested)
        return singles + sum(block.num_steps for block in self.blocks if block.has_phases)

    @property
    def num_steps(self) -> int:
        """Return the number of steps of this rank."""
        return len(self.steps) + sum(block.num_steps for block in self.blocks)

    @property
    def num_seen_updates(self) -> int:
        """Return the number of updates in the steps that are known."""
        return sum(self.steps.num_updates) + sum(block.num_updates for block in self.blocks)

    @property
    def num_updates(self) -> int:
        """Return the number of updates, or the guest's count if higher: lines may be lost."""
        seen = self.num_seen_updates
        if self._own_end is None:
            return seen
        return max(seen, self._own_end.updates - self.num_empty_steps)

    @property
    def num_backwards(self) -> int:
        """Return the number of backward calls, with those after the last update if it is known."""
        seen = self.total("backwards")
        return max(seen, self._own_end.backwards) if self._own_end is not None else seen

    @property
    def num_by_hand(self) -> int:
        """Return the number of steps without an optimizer: a backward call counts as the update."""
        singles = sum(num == 0 for num in self.steps.num_updates)
        return singles + sum(max(0, block.num_steps - block.num_updates) for block in self.blocks)

    @property
    def num_skipped(self) -> int:
        """Return the number of updates that the gradient scaler skipped."""
        return sum(self.steps.num_skipped) + sum(block.num_skipped for block in self.blocks)

    @property
    def has_batches(self) -> bool:
        """Return whether a loader's batch was seen in any step."""
        return self.total("batches") > 0

    @property
    def has_updates(self) -> bool:
        """Return whether an optimizer stepped in any step."""
        return any(self.steps.num_updates) or any(block.num_updates for block in self.blocks)

    def total(self, name: str) -> int:
        """Return the sum of one of the guest's counts over all steps."""
        return sum(self.steps.count(name)) + sum(block.count(name) for block in self.blocks)

    @property
    def _own_end(self) -> StreamEnd | None:
        """Return the process's own counts if they are those of this thread alone."""
        return self.end if self.num_threads == 1 else None


def fold_stream(stream: RankStream) -> RankSteps | None:
    """Return the steps of a process, or None if none was recorded."""
    updates, rows = _count_by_thread(stream)
    if not rows:
        return None
    thread = max(sorted(rows), key=lambda t: (updates[t], rows[t]))
    updated = stream.updates.of_thread(thread)
    asked = _rows_of(updated)
    rounds = fold_rounds(asked)
    num_empty = sum(optimizer != BY_HAND for optimizer in asked.optimizers)
    num_empty -= sum(made.num_updates for made in rounds)
    return RankSteps(
        head=stream.head,
        cost=stream.cost,
        end=stream.end,
        steps=_Folder(stream, updated, rounds).steps(),
        blocks=fold_blocks(stream, thread, first_index=len(rounds)),
        num_threads=len(rows),
        num_threads_stepped=len(+updates) or len(rows),
        num_empty_steps=num_empty,
        has_rested=bool(stream.rested),
        tail_s=_tail(stream),
        signals=stream.signals,
        sizes=_sizes_of(updated, rounds),
    )


def fold_nothing(stream: RankStream) -> RankSteps:
    """Return a process without known updates, for what it reported beside them."""
    return RankSteps(
        head=stream.head,
        cost=stream.cost,
        end=stream.end,
        steps=_Folder(stream, stream.updates.of_thread(_NO_THREAD), []).steps(),
        blocks=(),
        num_threads=0,
        num_threads_stepped=0,
        num_empty_steps=0,
        has_rested=False,
        tail_s=_tail(stream),
        signals=stream.signals,
        sizes=RowSizes(optimizers=(), columns=(), rounds=()),
    )


def _sizes_of(table: UpdateTable, rounds: Sequence[Round]) -> RowSizes:
    has_sizes = set(SIZES) <= set(table.layout.counts)
    return RowSizes(
        optimizers=table.column(OPTIMIZER),
        columns=tuple(_count(table, name) for name in SIZES) if has_sizes else (),
        rounds=[(made.begin, made.end) for made in rounds],
    )


def _count_by_thread(stream: RankStream) -> tuple[Counter[int], Counter[int]]:
    """Return how many updates, and rows of any kind, each thread made."""
    table = stream.updates
    threads, optimizers = table.column(THREAD), table.column(OPTIMIZER)
    rows = Counter(threads)
    updates = Counter(compress(threads, map(BY_HAND.__ne__, optimizers)))
    for block in stream.blocks:
        updates[block.thread] += block.num_updates
        rows[block.thread] += block.num_rounds
    for one in late_rested(stream):
        updates[one.thread] += one.num_updates
        rows[one.thread] += one.num_updates
    return updates, rows


def _tail(stream: RankStream) -> dict[str, float]:
    tail = stream.end.tail if stream.end is not None else ()
    if len(tail) != len(stream.head.buckets):
        return dict.fromkeys(SPANS, 0.0)
    return split_sums(tail, stream.head)[1]


def _rows_of(table: UpdateTable) -> Rows:
    """Return the columns for a thread's rounds; counts that an older guest lacks are 0."""
    return Rows(
        optimizers=table.column(OPTIMIZER),
        backwards=_count(table, "backwards"),
        inner_steps=_count(table, "inner_steps"),
    )


def _count(table: UpdateTable, name: str) -> Sequence[int]:
    layout = table.layout
    if name not in layout.counts:
        return array("q", bytes(8 * len(table)))
    return table.column(layout.counts_at + layout.counts.index(name))


class _Folder:
    """Makes steps of the rows of one thread, one column at a time."""

    def __init__(self, stream: RankStream, table: UpdateTable, rounds: Sequence[Round]) -> None:
        self._stream = stream
        self._table = table
        self._rounds = rounds
        # Rows after the last round belong to none.
        self._has_one_row_each = all(made.end - made.begin == 1 for made in rounds)

    def steps(self) -> StepTable:
        """Return all steps."""
        table, layout = self._table, self._table.layout
        wall_s, spans_s = self._divide(layout.wall_at)
        cpu_s, _ = self._divide(layout.cpu_at)
        ends_ns, details = table.column(END_NS), table.column(DETAIL)
        skipped = [int(value > 0) for value in table.column(SKIPPED)]
        names = [name for name in layout.counts if name not in SIZES]  # those are of single rows
        counts = {name: self._sum(_count(table, name)) for name in names}
        device_s, has_device = self._device()
        return StepTable(
            index=array("q", range(len(self._rounds))),
            end_s=array("d", [ends_ns[made.end - 1] * NS for made in self._rounds]),
            wall_s=wall_s,
            cpu_s=cpu_s,
            spans_s=spans_s,
            device_s=device_s,
            counts={name: array("q", column) for name, column in counts.items() if any(column)},
            num_updates=array("q", [made.num_updates for made in self._rounds]),
            num_skipped=array("q", self._sum(skipped)),
            optimizers=tuple(made.optimizers for made in self._rounds),
            has_device=has_device,
            is_detailed=self._flags(all, [0 < value < RESTED for value in details]),
            is_disturbed=self._flags(any, [value == DISTURBED for value in details]),
            is_rested=self._flags(any, [value == RESTED for value in details]),
        )

    def _sum(self, column: Sequence[int]) -> Sequence[int]:
        if self._has_one_row_each:
            return column[: len(self._rounds)]
        return [sum(column[made.begin : made.end]) for made in self._rounds]

    def _flags(self, of: Callable[[Iterable[bool]], bool], column: Sequence[bool]) -> bytes:
        if self._has_one_row_each:
            return bytes(column[: len(self._rounds)])
        return bytes(of(column[made.begin : made.end]) for made in self._rounds)

    def _divide(self, place: int) -> tuple[dict[str, Numbers], dict[str, Numbers]]:
        """Return the sums by bucket from this place on, as phases and spans [s]."""
        table = self._table
        return by_name(
            (bucket, self._sum(table.column(place + number)))
            for number, bucket in enumerate(table.layout.buckets)
            if table.has(place + number)
        )

    def _device(self) -> tuple[dict[str, Numbers], bytes]:
        """Return the device times of those steps whose updates all have them."""
        known, buckets = self._stream.device_ns, self._table.layout.buckets
        numbers = self._table.column(NUMBER)
        empty = array("q", bytes(8 * len(buckets)))
        sums, flags = [], bytearray()
        for made in self._rounds if known else ():
            found = [known.get(numbers[place]) for place in range(made.begin, made.end)]
            whole = [one for one in found if one is not None]
            flags.append(len(whole) == len(found))
            sums.append(list(map(sum, zip(*whole, strict=True))) if flags[-1] else empty)
        columns = zip(buckets, zip(*sums, strict=True), strict=True) if any(flags) else ()
        phases_s, _ = by_name((bucket, column) for bucket, column in columns if any(column))
        return phases_s, bytes(flags) or bytes(len(self._rounds))
