"""How far each rank of a running command has come, followed at little cost.

In: the ranks' files as they grow. Out: the number of updates, when the last one ended, what a step
and each span usually take. Of a rank that writes fast only the newest lines are read: the steps
are counted again when the command has ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from steptime.core.codec import from_json
from steptime.core.stats import median
from steptime.errors import DamagedRunError
from steptime.measure.values.measurement import SPANS
from steptime.measure.wall.group_kin import Kin
from steptime.record import files, kinds, rows
from steptime.record.lines import Line, LineReader, kind_of
from steptime.record.places import NS, US
from steptime.record.rested_rows import rested
from steptime.record.rows import BlockRow, Layout, MisshapenError, UpdateRow

MAX_BYTES = 64 << 10
"""Read from one rank at a time: some milliseconds of parsing, and at least 200 steps."""

NUM_STEPS = 256
"""The usual step time is the median of as many: it follows a run whose steps grow longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RankHead(Kin):
    world_size: int
    buckets: tuple[str, ...]
    counts: tuple[str, ...]
    rank_source: str | None = None
    argv: tuple[str, ...] = ()


class RankProgress:
    """What is known of one stream so far; `seen_s` is our clock when the last news came."""

    def __init__(self, reader: LineReader, head: _RankHead, *, now_s: float) -> None:
        self.rank = head.rank
        self.pid = head.pid
        self.world_size = head.world_size
        self.argv = head.argv
        self.num_updates = 0
        self.has_ended = False
        self.seen_s = now_s
        self.longest_s: dict[str, float] = {}
        self.evaluations: set[tuple[str, int]] = set()
        self.bad_update: int | None = None
        self.last_unix_s = self.began_unix_s = head.t_unix_s
        self._head = head
        self._layout = Layout(head.buckets, head.counts)
        self._times_s: deque[float] = deque(maxlen=NUM_STEPS)
        self._reader = reader

    @property
    def usual_s(self) -> float | None:
        """The usual time from update to update without spans [s]; None before the second one."""
        return median(list(self._times_s)) if self._times_s else None

    @property
    def is_numbered_by_order(self) -> bool:
        """Whether the process does not know its rank, and only took the next free number."""
        return self._head.rank_source == "order"

    @property
    def kin(self) -> Kin:
        """What shows with which others the process trains, as far as it has come."""
        return replace(self._head, ended_unix_s=self.last_unix_s, num_updates=self.num_updates)

    def was_changed(self) -> bool:
        """Whether its file no longer holds what was read of it."""
        return self._reader.was_changed()

    def read(self, now_s: float) -> bool:
        """Take what was appended; whether there were new updates.

        Raises:
            OSError: the file cannot be read.
        """
        before = self.num_updates
        for line in self._reader.read():
            take = _TAKE.get(kind_of(line))
            if take is not None:
                with suppress(MisshapenError):
                    take(self, line)
        has_news = self.num_updates > before
        if has_news:
            self.seen_s = now_s
        return has_news

    def _take_updates(self, line: Line) -> None:
        for row in self._layout.updates(line):
            self._take_row(row, last=row.number, num=1)

    def _take_block(self, line: Line) -> None:
        row = self._layout.block(line)
        self._take_row(row, last=row.first_number + row.num_updates - 1, num=row.num_updates)

    def _take_fresh(self, line: Line) -> None:
        for row in rows.progress(line):
            self._note(row.number, row.end_ns, row.wall_us * US)

    def _take_rested(self, line: Line) -> None:
        row = rested(line)
        last, time_s = row.first_number + row.num_updates - 1, median(row.times_us) * US
        self._note(last, row.end_ns, time_s)

    def _take_row(self, row: UpdateRow | BlockRow, *, last: int, num: int) -> None:
        apart_s = 0.0
        for name, value_ns in zip(self._layout.buckets, row.wall_ns, strict=True):
            if name in SPANS and value_ns:
                apart_s += value_ns * NS
                self.longest_s[name] = max(self.longest_s.get(name, 0.0), value_ns * NS)
        whole_s = (row.end_ns - row.start_ns) * NS
        self._note(last, row.end_ns, max(0.0, (whole_s - apart_s) / max(1, num)))

    def _note(self, number: int, end_ns: int, time_s: float) -> None:
        if number < self.num_updates:
            return
        # The first update has no beginning of its own.
        if self.num_updates:
            self._times_s.append(time_s)
        self.num_updates = number + 1
        self.last_unix_s = self.began_unix_s + end_ns * NS

    def _take_spans(self, line: Line) -> None:
        found = rows.sites(line)
        self.evaluations |= {(s.file, s.line) for s in found if s.what == "evaluation"}

    def _take_bad(self, line: Line) -> None:
        """Take the first update with a number that is not finite; a scaler's skips are usual."""
        if self.bad_update is None and not line.get("skipped"):
            self.bad_update = rows.whole_number(line, "n")

    def _take_end(self, _: Line) -> None:
        self.has_ended = True


_TAKE: Mapping[str, Callable[[RankProgress, Line], None]] = {
    kinds.UPDATES: RankProgress._take_updates,
    kinds.BLOCK: RankProgress._take_block,
    kinds.RESTED: RankProgress._take_rested,
    kinds.PROGRESS: RankProgress._take_fresh,
    kinds.SPANS: RankProgress._take_spans,
    kinds.NON_FINITE: RankProgress._take_bad,
    kinds.END: RankProgress._take_end,
}


def open_rank(path: Path, *, now_s: float) -> RankProgress | None:
    """The progress in a rank's file; None while its first line is not whole.

    Raises:
        OSError: the file cannot be read.
    """
    reader = LineReader(path, newest_bytes=MAX_BYTES, remembers=True)
    head = reader.read_head()
    try:
        return (
            None if head is None else RankProgress(reader, from_json(_RankHead, head), now_s=now_s)
        )
    except DamagedRunError:
        return None


def count_updates(folder: Path) -> dict[int, int]:
    """Return how many updates each process of a run has made so far, by its id."""
    found: dict[int, int] = {}
    for path in sorted(folder.glob(files.RANKS)):
        with suppress(OSError):
            rank = open_rank(path, now_s=0.0)
            if rank is not None:
                rank.read(0.0)
                found[rank.pid] = rank.num_updates
    return found
