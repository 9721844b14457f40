"""Reads the file of one rank: its updates, blocks, device times, cost and end as frozen values.

In: a path. Out: a `RankStream`. The file may have 30 MB, so the updates are kept as columns. It
skips and counts lines of another shape. `measure.steps` makes the steps; `measure.rank_signals`
reads the lines about anything else.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from steptime.core.codec import from_json
from steptime.errors import DamagedRunError
from steptime.measure.fold.jsonl import take_head
from steptime.measure.fold.rank_signals import TAKE_SIGNAL, SignalLines, Signals
from steptime.record import kinds, rows
from steptime.record.lines import Line, Torn, kind_of, read_lines
from steptime.record.places import FULL_UPDATES
from steptime.record.rested_rows import RestedRow, rested
from steptime.record.rows import BlockRow, Layout, ProgressRow
from steptime.record.table import UpdateTable

# A line with another shape than its `k` promises raises these; it is skipped like a torn line.
_MISSHAPEN = (KeyError, TypeError, ValueError, OverflowError, DamagedRunError)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamHead:
    """First line of a rank's file; it names the positions of the numbers in all others."""

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
    device_bytes: int | None = None
    num_multiprocessors: int | None = None
    pending: tuple[str, ...] = ()
    versions: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestCost:
    """What the guest cost so far; the last line counts.

    `rows` are updates and the backward calls that count as one; an older guest had none of these.
    `evaluations` are those of closures inside steps of an optimizer; `evaluated_steps` are such
    steps that have ended. `rest_ns` is what rests of the watch took, by our estimate. `exchanges`
    are those of gradients that DDP told of; None without DDP.
    """

    updates: int
    self_ns: int
    flush_ns: int
    nested_calls: int
    nested_ns: int
    lost_updates: int
    rows: int | None = None
    evaluations: int = 0
    evaluated_steps: int = 0
    rest_ns: int = 0
    exchanges: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEnd:
    """Last line of a process that ended in order, at `t` [ns on the head's clock].

    `tail` is the time after all updates by bucket [ns].
    """

    updates: int
    backwards: int
    failures: Mapping[str, int]
    failure_texts: Mapping[str, str] | None = None
    tail: tuple[int, ...] = ()
    t: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStream:
    """One process that stepped.

    `device_ns` maps an update's number to its device sums, `markers` to its raw markers: pairs of
    nanoseconds after its start and the bucket that receives the time from there. `progress` holds
    the updates after the last block of their thread, `rested` those that were only counted and
    timed, of which the early ones have rows, too.
    """

    head: StreamHead
    updates: UpdateTable
    blocks: tuple[BlockRow, ...]
    rested: tuple[RestedRow, ...]
    device_ns: Mapping[int, Sequence[int]]
    cost: GuestCost | None
    end: StreamEnd | None
    progress: tuple[ProgressRow, ...]
    signals: Signals
    markers: Mapping[int, Sequence[int]] = field(default_factory=dict)


class _Lines:
    """The lines of a rank's file so far."""

    def __init__(self, head: StreamHead) -> None:
        self.layout = Layout(head.buckets, head.counts)
        self.updates = UpdateTable(self.layout)
        self.blocks: list[BlockRow] = []
        self.rested: list[RestedRow] = []
        self.progress: list[ProgressRow] = []
        self.device_ns: dict[int, Sequence[int]] = {}
        self.markers: dict[int, Sequence[int]] = {}
        self.cost: GuestCost | None = None
        self.end: StreamEnd | None = None
        self.signals = SignalLines()

    def add_updates(self, line: Line) -> None:
        """Add updates, one per row."""
        self.updates.add(line)

    def add_block(self, line: Line) -> None:
        """Add rounds that the guest folded; they replace what was known of each round."""
        block = self.layout.block(line)
        self.blocks.append(block)
        self.progress = [
            row for row in self.progress if row.thread != block.thread or row.end_ns > block.end_ns
        ]

    def add_rested(self, line: Line) -> None:
        """Add updates that were only counted and timed."""
        self.rested.append(rested(line))

    def add_progress(self, line: Line) -> None:
        """Add updates of a block that is not full yet."""
        self.progress += rows.progress(line)

    def add_device(self, line: Line) -> None:
        """Add device times, which come later than their update."""
        number, times_ns = self.layout.device_times(line)
        self.device_ns[number] = array("q", times_ns)

    def add_markers(self, line: Line) -> None:
        """Add the raw markers of an update, in pairs."""
        number, markers = rows.markers(line)
        self.markers[number] = array("q", markers)

    def set_cost(self, line: Line) -> None:
        """Set the guest's own cost so far."""
        self.cost = from_json(GuestCost, line)

    def set_end(self, line: Line) -> None:
        """Set the end, which came in order."""
        self.end = from_json(StreamEnd, line)


_TAKE: Mapping[str, Callable[[_Lines, Line], None]] = {
    kinds.UPDATES: _Lines.add_updates,
    kinds.BLOCK: _Lines.add_block,
    kinds.RESTED: _Lines.add_rested,
    kinds.PROGRESS: _Lines.add_progress,
    kinds.DEVICE_TIMES: _Lines.add_device,
    kinds.MARKERS: _Lines.add_markers,
    kinds.COST: _Lines.set_cost,
    kinds.END: _Lines.set_end,
}


def read_stream(path: Path, torn: Torn) -> RankStream | None:
    """Return the stream in a rank's file; None without the head, which names the positions."""
    all_lines = read_lines(path, torn)
    head = take_head(StreamHead, all_lines, path, torn)
    if head is None:
        return None
    lines = _Lines(head)
    for line in all_lines:
        take, take_signal = _TAKE.get(kind_of(line)), TAKE_SIGNAL.get(kind_of(line))
        try:
            if take is not None:
                take(lines, line)
            elif take_signal is not None:
                take_signal(lines.signals, line)
        except _MISSHAPEN:
            torn.count += 1
    lines.updates.add_rested([one for one in lines.rested if one.first_number < FULL_UPDATES])
    lines.updates.close()
    return RankStream(
        head=head,
        updates=lines.updates,
        blocks=tuple(lines.blocks),
        rested=tuple(lines.rested),
        device_ns=lines.device_ns,
        cost=lines.cost,
        end=lines.end,
        progress=tuple(lines.progress),
        signals=lines.signals.freeze(),
        markers=lines.markers,
    )
