"""Steps whose phases are known as sums, or not at all: blocks, and what was only timed.

In: the blocks of a process, and its updates that were only counted and timed. Out: `StepBlock`s.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from operator import add

from steptime.measure.fold.stream import RankStream, StreamHead
from steptime.measure.steps.rounds import split_rounds
from steptime.measure.steps.step_table import INSIDE, Numbers
from steptime.measure.values.measurement import SPANS
from steptime.record.buckets import SIZES
from steptime.record.places import BY_HAND, FULL_UPDATES, NS, US
from steptime.record.rested_rows import RestedRow
from steptime.record.rows import BlockRow


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBlock:
    """Consecutive steps whose times are known one by one, but whose phases only as sums.

    After the first 20,000 updates, the guest writes no row for each update. `cpu_s`, and fetch and
    collate in `wall_s`, are sums over `num_detailed` of the steps. `disturbed` are the places of
    the steps that a probe of ours made longer. `counts` are the guest's, summed over the steps.
    """

    first_index: int
    start_s: float
    end_s: float
    times_s: Numbers
    cpu_times_s: Numbers
    wall_s: Mapping[str, float]
    cpu_s: Mapping[str, float]
    spans_s: Mapping[str, float]
    num_detailed: int
    num_updates: int
    num_skipped: int
    counts: Mapping[str, int]
    has_phases: bool = True
    sizes: Sequence[int] = ()
    disturbed: tuple[int, ...] = ()

    @property
    def num_steps(self) -> int:
        """Return the number of steps in the block."""
        return len(self.times_s)

    def count(self, name: str) -> int:
        """Return one of the guest's counts."""
        return self.counts.get(name, 0)


def fold_blocks(stream: RankStream, thread: int, *, first_index: int) -> tuple[StepBlock, ...]:
    """Return the blocks of a thread in order; the first one begins with step `first_index`."""
    numbered = {row.first_number: row for row in _rows(stream, thread)}
    found = []
    for number in sorted(numbered):
        row = numbered[number]
        if isinstance(row, RestedRow):
            block = _rested_block(first_index, row)
        else:
            block = _block(first_index, row, stream.head)
        found.append(block)
        first_index += block.num_steps
    rest = _fold_progress(stream, thread, found, first_index)
    return tuple(found) if rest is None else (*found, rest)


def _fold_progress(
    stream: RankStream, thread: int, blocks: Sequence[StepBlock], first_index: int
) -> StepBlock | None:
    """Return the steps after the last full block, where the process did not end in order.

    Their times are known, but not their phases.
    """
    begin_ns = max((row.end_ns for row in _rows(stream, thread)), default=0)
    numbered = {p.number: p for p in stream.progress if p.thread == thread and p.end_ns > begin_ns}
    updates = [numbered[number] for number in sorted(numbered)]
    rounds = [updates[begin:end] for begin, end in split_rounds(u.optimizer for u in updates)]
    if not rounds:
        return None
    nothing = dict.fromkeys(INSIDE, 0.0)
    return StepBlock(
        first_index=first_index,
        start_s=begin_ns * NS,
        end_s=updates[-1].end_ns * NS,
        times_s=array("d", [sum(u.wall_us for u in made) * US for made in rounds]),
        cpu_times_s=array("d", [sum(u.cpu_us for u in made) * US for made in rounds]),
        wall_s=nothing,
        cpu_s=nothing,
        spans_s=dict.fromkeys(SPANS, 0.0),
        num_detailed=0,
        num_updates=sum(u.optimizer != BY_HAND for u in updates),
        num_skipped=sum(u.skipped > 0 for u in updates),
        counts={"backwards": sum(u.num_backwards for u in updates)},
        has_phases=False,
    )


def _rows(stream: RankStream, thread: int) -> list[BlockRow | RestedRow]:
    rows: list[BlockRow | RestedRow] = [*stream.blocks, *late_rested(stream)]
    return [row for row in rows if row.thread == thread]


def late_rested(stream: RankStream) -> list[RestedRow]:
    """Return the updates that were only counted and timed, and have no rows."""
    return [one for one in stream.rested if one.first_number >= FULL_UPDATES]


def _rested_block(first_index: int, row: RestedRow) -> StepBlock:
    """Return updates that were only counted and timed; CPU time is known of all together."""
    optimizers = islice(cycle(row.optimizers), row.num_updates)
    rounds = list(split_rounds(optimizers))
    times_s = array("d", [sum(row.times_us[begin:end]) * US for begin, end in rounds])
    nothing = dict.fromkeys(INSIDE, 0.0)
    return StepBlock(
        first_index=first_index,
        start_s=row.start_ns * NS,
        end_s=row.end_ns * NS,
        times_s=times_s,
        cpu_times_s=array("d", [row.cpu_ns * NS / len(times_s)] * len(times_s)),
        wall_s=nothing,
        cpu_s=nothing,
        spans_s=dict.fromkeys(SPANS, 0.0),
        num_detailed=0,
        num_updates=row.num_updates,
        num_skipped=0,
        counts={"gc_pauses": row.gc_pauses, "gc_ns": row.gc_ns, "gc_full": row.gc_full},
        has_phases=False,
    )


def _block(first_index: int, block: BlockRow, head: StreamHead) -> StepBlock:
    wall_s, spans_s = split_sums(block.wall_ns, head)
    cpu_s, _ = split_sums(block.cpu_ns, head)
    counts = dict(zip(head.counts, block.counts, strict=True))
    return StepBlock(
        first_index=first_index,
        start_s=block.start_ns * NS,
        end_s=block.end_ns * NS,
        times_s=array("d", [us * US for us in block.round_wall_us]),
        cpu_times_s=array("d", [us * US for us in block.round_cpu_us]),
        wall_s=wall_s,
        cpu_s=cpu_s,
        spans_s=spans_s,
        num_detailed=block.num_detailed,
        num_updates=block.num_updates,
        num_skipped=block.num_skipped,
        counts={name: number for name, number in counts.items() if name not in SIZES},
        sizes=tuple(counts[name] for name in SIZES) if SIZES[0] in counts else (),
        disturbed=block.disturbed,
    )


def split_sums(
    values_ns: Sequence[int], head: StreamHead
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the sums by bucket as phases [s] and spans [s]."""
    phases_s, spans_s = by_name(
        (bucket, (value_ns,)) for bucket, value_ns in zip(head.buckets, values_ns, strict=True)
    )
    return (
        {name: phases_s[name][0] if name in phases_s else 0.0 for name in INSIDE},
        {name: spans_s[name][0] if name in spans_s else 0.0 for name in SPANS},
    )


def by_name(
    columns: Iterable[tuple[str, Sequence[int]]],
) -> tuple[dict[str, Numbers], dict[str, Numbers]]:
    """Return columns by bucket [ns] as phases and spans [s]; unknown names become `other`."""
    phases_s: dict[str, Numbers] = {}
    spans_s: dict[str, Numbers] = {}
    for bucket, column in columns:
        found = spans_s if bucket in SPANS else phases_s
        name = bucket if bucket in SPANS or bucket in INSIDE else "other"
        more = _seconds(column)
        if name in found:
            more = array("d", map(add, found[name], more))
        found[name] = more
    return phases_s, spans_s


def _seconds(column: Sequence[int]) -> Numbers:
    return array("d", [value * NS for value in column])
