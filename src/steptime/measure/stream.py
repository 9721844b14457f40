"""The file of one rank: its updates, blocks, device times, cost and end as frozen values.

In: a path. Out: a `RankStream`. The file may have 30 MB, so its lines are converted by hand and
one by one; a line of another shape is skipped and counted. Steps are left to
`measure.steps.step_fold`, the lines about anything but updates to `measure.rank_signals`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steptime.core.codec import from_json
from steptime.errors import DamagedRunError
from steptime.measure.jsonl import Row, Torn, read_rows, take_head
from steptime.measure.rank_signals import TAKE_SIGNAL, SignalLines, Signals

_DISTURBED = 2
# What a line of another shape than its `k` promises raises: it is skipped like one cut short.
_MISSHAPEN = (KeyError, TypeError, ValueError, DamagedRunError)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamHead:
    """First line of a rank's file; names the positions of the numbers in all others."""

    pid: int
    rank: int
    rank_source: str
    world_size: int
    python: str
    torch: str
    device: str
    t_unix_s: float
    buckets: tuple[str, ...]
    counts: tuple[str, ...]
    num_threads: int | None = None
    device_name: str | None = None
    pending: tuple[str, ...] = ()
    versions: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRow:
    """One optimizer update; times [ns] since the head's clock, sums in the order of the head.

    Not `is_detailed`: all CPU time is in `other`, fetch and collate are in `input_wait`.
    Where `is_disturbed`, a look of ours made it longer.
    """

    number: int
    thread: int
    optimizer: int
    start_ns: int
    end_ns: int
    is_skipped: bool | None
    is_detailed: bool
    is_disturbed: bool
    wall_ns: tuple[int, ...]
    cpu_ns: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Rounds that the guest folded; sums over the block, and times of each round [µs].

    `cpu_ns` and the buckets fetch and collate are sums over `num_detailed` rounds alone.
    """

    first_number: int
    thread: int
    num_updates: int
    num_skipped: int
    start_ns: int
    end_ns: int
    wall_ns: tuple[int, ...]
    cpu_ns: tuple[int, ...]
    num_detailed: int
    counts: tuple[int, ...]
    round_wall_us: tuple[int, ...]
    round_cpu_us: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshUpdate:
    """An update of a block that was not full yet: its times [µs] without spans, no phases."""

    number: int
    thread: int
    optimizer: int
    end_ns: int
    is_skipped: bool
    num_backwards: int
    wall_us: int
    cpu_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestCost:
    """What the guest spent so far; the last line counts.

    `rows` are updates and backward calls that stand for one; an older guest had none of those.
    """

    updates: int
    self_ns: int
    flush_ns: int
    nested_calls: int
    nested_ns: int
    lost_updates: int
    rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEnd:
    """Last line of a process that ended in order; `tail` is wall time after all updates [ns]."""

    updates: int
    backwards: int
    failures: Mapping[str, int]
    failure_texts: Mapping[str, str] | None = None
    tail: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStream:
    """One process that stepped.

    `device_ns` maps an update's number to its device sums, `markers` to its raw markers: pairs of
    nanoseconds after its start and the bucket that time flows into from there.
    """

    head: StreamHead
    updates: tuple[UpdateRow, ...]
    blocks: tuple[Block, ...]
    device_ns: Mapping[int, tuple[int, ...]]
    cost: GuestCost | None
    end: StreamEnd | None
    progress: tuple[FreshUpdate, ...]
    signals: Signals
    markers: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


class _RankLines:
    """The lines of a rank's file so far."""

    def __init__(self, head: StreamHead) -> None:
        self.head = head
        self.updates: list[UpdateRow] = []
        self.blocks: list[Block] = []
        self.progress: list[FreshUpdate] = []
        self.device_ns: dict[int, tuple[int, ...]] = {}
        self.markers: dict[int, tuple[int, ...]] = {}
        self.cost: GuestCost | None = None
        self.end: StreamEnd | None = None
        self.signals = SignalLines()

    def add_updates(self, row: Row) -> None:
        """Updates, a row each."""
        self.updates += [_update(values, self.head) for values in row["rows"]]

    def add_block(self, row: Row) -> None:
        """Rounds folded in the guest."""
        self.blocks.append(_block(row, self.head))

    def add_progress(self, row: Row) -> None:
        """Updates of a block in the making."""
        self.progress += [_progress(values) for values in row["rows"]]

    def add_device(self, row: Row) -> None:
        """Device times, which come later than their update."""
        (number,) = _ints((row["n"],), 1)
        self.device_ns[number] = _ints(row["d"], len(self.head.buckets))

    def add_markers(self, row: Row) -> None:
        """Raw markers of an update, in pairs."""
        (number,) = _ints((row["n"],), 1)
        values = row["e"]
        self.markers[number] = _ints(values, len(values) // 2 * 2)

    def set_cost(self, row: Row) -> None:
        """The guest's own cost so far."""
        self.cost = from_json(GuestCost, row)

    def set_end(self, row: Row) -> None:
        """The end in order."""
        self.end = from_json(StreamEnd, row)


_TAKE: Mapping[str, Callable[[_RankLines, Row], None]] = {
    "u": _RankLines.add_updates,
    "b": _RankLines.add_block,
    "p": _RankLines.add_progress,
    "d": _RankLines.add_device,
    "e": _RankLines.add_markers,
    "o": _RankLines.set_cost,
    "end": _RankLines.set_end,
}


def read_stream(path: Path, torn: Torn) -> RankStream | None:
    """The stream in a rank's file; None where the head is missing, for it names the positions."""
    rows = read_rows(path, torn)
    head = take_head(StreamHead, rows, path, torn)
    if head is None:
        return None
    lines = _RankLines(head)
    for row in rows:
        take, take_signal = _TAKE.get(row["k"]), TAKE_SIGNAL.get(row["k"])
        try:
            if take is not None:
                take(lines, row)
            elif take_signal is not None:
                take_signal(lines.signals, row)
        except _MISSHAPEN:
            torn.count += 1
    return RankStream(
        head=head,
        updates=tuple(lines.updates),
        blocks=tuple(lines.blocks),
        device_ns=lines.device_ns,
        cost=lines.cost,
        end=lines.end,
        progress=tuple(lines.progress),
        signals=lines.signals.freeze(),
        markers=lines.markers,
    )


def _update(values: Any, head: StreamHead) -> UpdateRow:
    (number, thread, optimizer, start_ns, end_ns, skipped, detail), wall, counts, cpu = _cut(
        values, 7, len(head.buckets), len(head.counts), len(head.buckets)
    )
    return UpdateRow(
        number=number,
        thread=thread,
        optimizer=optimizer,
        start_ns=start_ns,
        end_ns=end_ns,
        is_skipped=None if skipped < 0 else skipped > 0,
        is_detailed=detail > 0,
        is_disturbed=detail == _DISTURBED,
        wall_ns=wall,
        cpu_ns=cpu,
        counts=counts,
    )


def _block(row: Row, head: StreamHead) -> Block:
    leading, wall, counts, (num_detailed,), cpu = _cut(
        row["row"], 7, len(head.buckets), len(head.counts), 1, len(head.buckets)
    )
    first, thread, num_rounds, num_updates, num_skipped, start_ns, end_ns = leading
    return Block(
        first_number=first,
        thread=thread,
        num_updates=num_updates,
        num_skipped=num_skipped,
        start_ns=start_ns,
        end_ns=end_ns,
        wall_ns=wall,
        cpu_ns=cpu,
        num_detailed=num_detailed,
        counts=counts,
        round_wall_us=_ints(row["rw"], num_rounds),
        round_cpu_us=_ints(row["rc"], num_rounds),
    )


def _progress(values: Any) -> FreshUpdate:
    number, thread, optimizer, end_ns, skipped, backwards, wall_us, cpu_us = _ints(values, 8)
    return FreshUpdate(
        number=number,
        thread=thread,
        optimizer=optimizer,
        end_ns=end_ns,
        is_skipped=skipped > 0,
        num_backwards=backwards,
        wall_us=wall_us,
        cpu_us=cpu_us,
    )


def _cut(values: Any, *sizes: int) -> Iterator[tuple[int, ...]]:
    """The values in pieces of these sizes."""
    whole, begin = _ints(values, sum(sizes)), 0
    for size in sizes:
        yield whole[begin : begin + size]
        begin += size


def _ints(values: Any, size: int) -> tuple[int, ...]:
    """The values as a tuple, if they are `size` whole numbers."""
    if len(values) != size or set(map(type, values)) - {int}:
        raise ValueError(f"`values` must be {size} whole numbers, got {values!r:.60}")
    return tuple(values)
