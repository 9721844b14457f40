"""Folds optimizer updates into steps, by the rule in docs/reference/run-folder.md.

In: the `RankStream` of one process. Out: `RankSteps`, the steps of the thread that stepped
most. Which of them count is left to `measure.steps.steady_window`, what they say to
`measure.steps.phases`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from steptime.measure.rank_signals import Signals
from steptime.measure.steps.rounds import BY_HAND, Round, fold_rounds, split_rounds
from steptime.measure.stream import Block, GuestCost, RankStream, StreamEnd, StreamHead, UpdateRow
from steptime.measure.values.measurement import INNER_PHASES, PHASES, SPANS, Step

NS = 1e-9
US = 1e-6

_INSIDE = (*PHASES, *INNER_PHASES)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBlock:
    """Consecutive steps known by their times one by one, and by phase in sums only.

    The guest writes no row an update after the first 20,000. `cpu_s` and fetch and collate
    in `wall_s` are sums over `num_detailed` of the steps.
    """

    first_index: int
    start_s: float
    end_s: float
    times_s: tuple[float, ...]
    cpu_times_s: tuple[float, ...]
    wall_s: Mapping[str, float]
    cpu_s: Mapping[str, float]
    spans_s: Mapping[str, float]
    num_detailed: int
    num_updates: int
    num_skipped: int
    num_backwards: int
    num_copies: int
    num_syncs: int
    num_batches: int
    gc_pauses: int = 0
    gc_s: float = 0.0
    prepare_s: float = 0.0
    has_phases: bool = True

    @property
    def num_steps(self) -> int:
        """Steps in the block."""
        return len(self.times_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSteps:
    """The steps of one rank: first one by one, then in blocks.

    `num_threads` counts the threads with rows, `num_threads_stepped` those of them that made
    updates (all, where no optimizer stepped); the steps are of the one that made most.
    `num_empty_steps` are a wrapper's that let nothing through. `tail_s` is what was kept apart
    after the last update.
    """

    head: StreamHead
    cost: GuestCost | None
    end: StreamEnd | None
    steps: tuple[Step, ...]
    blocks: tuple[StepBlock, ...]
    num_threads: int
    num_threads_stepped: int
    num_empty_steps: int
    tail_s: Mapping[str, float]
    signals: Signals

    @property
    def items(self) -> tuple[Step | StepBlock, ...]:
        """Steps and blocks, in order."""
        return (*self.steps, *self.blocks)

    @property
    def num_steps(self) -> int:
        """Steps of this rank."""
        return len(self.steps) + sum(block.num_steps for block in self.blocks)

    @property
    def num_updates(self) -> int:
        """Updates; by the guest's own count where that is higher, for lines may be lost."""
        seen = sum(item.num_updates for item in self.items)
        if self._own_end is None:
            return seen
        return max(seen, self._own_end.updates - self.num_empty_steps)

    @property
    def num_backwards(self) -> int:
        """Backward calls, with those after the last update where the end was seen."""
        seen = sum(item.num_backwards for item in self.items)
        return max(seen, self._own_end.backwards) if self._own_end is not None else seen

    @property
    def num_by_hand(self) -> int:
        """Steps in which no optimizer stepped: a backward call stands for the update."""
        return sum(step.num_updates == 0 for step in self.steps) + sum(
            max(0, block.num_steps - block.num_updates) for block in self.blocks
        )

    @property
    def num_skipped(self) -> int:
        """Updates that the gradient scaler skipped."""
        return sum(item.num_skipped for item in self.items)

    @property
    def _own_end(self) -> StreamEnd | None:
        """The process's own counts, where they are those of this thread alone."""
        return self.end if self.num_threads == 1 else None


def fold_stream(stream: RankStream) -> RankSteps | None:
    """The steps of a process, or None if none was recorded."""
    updates, rows = _count_by_thread(stream)
    if not rows:
        return None
    thread = max(sorted(rows), key=lambda t: (updates[t], rows[t]))
    updated = _rows_of(stream, thread)
    rounds = fold_rounds(updated, stream.head.counts)
    steps = tuple(_step(index, made, stream) for index, made in enumerate(rounds))
    num_empty = sum(row.optimizer != BY_HAND for row in updated)
    num_empty -= sum(made.num_updates for made in rounds)
    return RankSteps(
        head=stream.head,
        cost=stream.cost,
        end=stream.end,
        steps=steps,
        blocks=_fold_blocks(stream, thread, first_index=len(steps)),
        num_threads=len(rows),
        num_threads_stepped=len(+updates) or len(rows),
        num_empty_steps=num_empty,
        tail_s=_tail(stream),
        signals=stream.signals,
    )


def fold_nothing(stream: RankStream) -> RankSteps:
    """A process whose updates are not known, for what it told beside them."""
    return RankSteps(
        head=stream.head,
        cost=stream.cost,
        end=stream.end,
        steps=(),
        blocks=(),
        num_threads=0,
        num_threads_stepped=0,
        num_empty_steps=0,
        tail_s=_tail(stream),
        signals=stream.signals,
    )


def _count_by_thread(stream: RankStream) -> tuple[Counter[int], Counter[int]]:
    """Updates, and rows of any kind, that each thread made."""
    updates = Counter(row.thread for row in stream.updates if row.optimizer != BY_HAND)
    rows = Counter(row.thread for row in stream.updates)
    for block in stream.blocks:
        updates[block.thread] += block.num_updates
        rows[block.thread] += len(block.round_wall_us)
    return updates, rows


def _tail(stream: RankStream) -> dict[str, float]:
    tail = stream.end.tail if stream.end is not None else ()
    if len(tail) != len(stream.head.buckets):
        return dict.fromkeys(SPANS, 0.0)
    return _split(tail, stream.head)[1]


def _rows_of(stream: RankStream, thread: int) -> list[UpdateRow]:
    # By number, for a flush that failed half way may have written a line twice.
    numbered = {update.number: update for update in stream.updates if update.thread == thread}
    return [numbered[number] for number in sorted(numbered)]


def _step(index: int, made: Round, stream: RankStream) -> Step:
    head, updates = stream.head, made.rows
    wall_s, spans_s = _split(_sum([u.wall_ns for u in updates]), head)
    cpu_s, _ = _split(_sum([u.cpu_ns for u in updates]), head)
    counts = dict(zip(head.counts, _sum([u.counts for u in updates]), strict=True))
    device_ns = [stream.device_ns[u.number] for u in updates if u.number in stream.device_ns]
    has_device = len(device_ns) == len(updates)
    return Step(
        index=index,
        end_s=updates[-1].end_ns * NS,
        wall_s=wall_s,
        cpu_s=cpu_s,
        spans_s=spans_s,
        device_s=_split(_sum(device_ns), head)[0] if has_device else None,
        num_updates=made.num_updates,
        num_backwards=counts.get("backwards", 0),
        num_skipped=sum(u.is_skipped is True for u in updates),
        num_copies=counts.get("copies", 0),
        num_syncs=counts.get("syncs", 0),
        num_batches=counts.get("batches", 0),
        gc_pauses=counts.get("gc_pauses", 0),
        gc_s=counts.get("gc_ns", 0) * NS,
        prepare_s=counts.get("prepare_ns", 0) * NS,
        optimizers=made.optimizers,
        is_first=index == 0,
        is_detailed=all(u.is_detailed for u in updates),
        is_disturbed=any(u.is_disturbed for u in updates),
    )


def _fold_blocks(stream: RankStream, thread: int, *, first_index: int) -> tuple[StepBlock, ...]:
    numbered = {block.first_number: block for block in stream.blocks if block.thread == thread}
    found = []
    for number in sorted(numbered):
        block = _block(first_index, numbered[number], stream.head)
        found.append(block)
        first_index += block.num_steps
    rest = _fold_progress(stream, thread, found, first_index)
    return tuple(found) if rest is None else (*found, rest)


def _fold_progress(
    stream: RankStream, thread: int, blocks: Sequence[StepBlock], first_index: int
) -> StepBlock | None:
    """The steps after the last full block, where the process did not end in order.

    Their times are known, their phases are not.
    """
    begin_ns = max((b.end_ns for b in stream.blocks if b.thread == thread), default=0)
    numbered = {p.number: p for p in stream.progress if p.thread == thread and p.end_ns > begin_ns}
    rounds = split_rounds([numbered[number] for number in sorted(numbered)])
    if not rounds:
        return None
    nothing = dict.fromkeys(_INSIDE, 0.0)
    updates = [update for updates in rounds for update in updates]
    return StepBlock(
        first_index=first_index,
        start_s=begin_ns * NS,
        end_s=updates[-1].end_ns * NS,
        times_s=tuple(sum(u.wall_us for u in updates) * US for updates in rounds),
        cpu_times_s=tuple(sum(u.cpu_us for u in updates) * US for updates in rounds),
        wall_s=nothing,
        cpu_s=nothing,
        spans_s=dict.fromkeys(SPANS, 0.0),
        num_detailed=0,
        num_updates=sum(u.optimizer != BY_HAND for u in updates),
        num_skipped=sum(u.is_skipped for u in updates),
        num_backwards=sum(u.num_backwards for u in updates),
        num_copies=0,
        num_syncs=0,
        num_batches=0,
        has_phases=False,
    )


def _block(first_index: int, block: Block, head: StreamHead) -> StepBlock:
    wall_s, spans_s = _split(block.wall_ns, head)
    cpu_s, _ = _split(block.cpu_ns, head)
    counts = dict(zip(head.counts, block.counts, strict=True))
    return StepBlock(
        first_index=first_index,
        start_s=block.start_ns * NS,
        end_s=block.end_ns * NS,
        times_s=tuple(us * US for us in block.round_wall_us),
        cpu_times_s=tuple(us * US for us in block.round_cpu_us),
        wall_s=wall_s,
        cpu_s=cpu_s,
        spans_s=spans_s,
        num_detailed=block.num_detailed,
        num_updates=block.num_updates,
        num_skipped=block.num_skipped,
        num_backwards=counts.get("backwards", 0),
        num_copies=counts.get("copies", 0),
        num_syncs=counts.get("syncs", 0),
        num_batches=counts.get("batches", 0),
        gc_pauses=counts.get("gc_pauses", 0),
        gc_s=counts.get("gc_ns", 0) * NS,
        prepare_s=counts.get("prepare_ns", 0) * NS,
    )


def _sum(rows: Sequence[Sequence[int]]) -> Sequence[int]:
    return rows[0] if len(rows) == 1 else [sum(column) for column in zip(*rows, strict=True)]


def _split(values_ns: Sequence[int], head: StreamHead) -> tuple[dict[str, float], dict[str, float]]:
    """Sums by bucket as phases [s] and spans [s]; what a newer guest adds counts as other."""
    phases_s = dict.fromkeys(_INSIDE, 0.0)
    spans_s = dict.fromkeys(SPANS, 0.0)
    for bucket, value_ns in zip(head.buckets, values_ns, strict=True):
        if bucket in spans_s:
            spans_s[bucket] += value_ns * NS
        else:
            phases_s[bucket if bucket in phases_s else "other"] += value_ns * NS
    return phases_s, spans_s
