"""How far each rank of a running command has come, followed at little cost.

In: the ranks' files as they grow. Out: the number of updates, when the last one ended, what a step
and each span usually take. Unlike `measure.run_records` it reads each byte once, and of a rank that
writes fast only the newest ones: the steps are counted again when the command has ended.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from steptime.core.stats import median
from steptime.measure.steps.step_fold import NS, US
from steptime.measure.values.measurement import SPANS

MAX_BYTES = 64 << 10
"""Read of one rank at a look: some milliseconds of parsing, and 200 steps or more."""

NUM_STEPS = 256
"""The usual step time is the median of as many: it follows a run whose steps grow longer."""

_LEADING = 7  # numbers of an update before its buckets


class RankProgress:
    """What is known of one stream so far; `seen_s` is our clock when the last news came."""

    def __init__(self, path: Path, head: Mapping[str, Any], *, now_s: float) -> None:
        self.rank = int(head["rank"])
        self.pid = int(head["pid"])
        self.world_size = int(head["world_size"])
        self.num_updates = 0
        self.has_ended = False
        self.seen_s = now_s
        self.longest_s: dict[str, float] = {}
        self.evaluations: set[tuple[str, int]] = set()
        self.last_unix_s = self.began_unix_s = float(head["t_unix_s"])
        self._buckets = [str(name) for name in head["buckets"]]
        self._times_s: deque[float] = deque(maxlen=NUM_STEPS)
        self._path = path
        self._offset = 0
        self._rest = b""

    @property
    def usual_s(self) -> float | None:
        """The usual time from update to update without spans [s]; None before the second one."""
        return median(list(self._times_s)) if self._times_s else None

    def read(self, now_s: float) -> bool:
        """Take what was appended; whether there were new updates.

        Raises:
            OSError: the file cannot be read.
        """
        before = self.num_updates
        with self._path.open("rb") as file:
            size = file.seek(0, 2)
            if size - self._offset > MAX_BYTES:
                self._offset, self._rest = size - MAX_BYTES, b""
                file.seek(self._offset)
                self._offset += len(file.readline())  # what is left of a line
            file.seek(self._offset)
            new = file.read()
        self._offset += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        for line in filter(None, lines):
            with suppress(ValueError, LookupError, TypeError, RecursionError):
                self._take(json.loads(line))
        has_news = self.num_updates > before
        if has_news:
            self.seen_s = now_s
        return has_news

    def _take(self, row: Mapping[str, Any]) -> None:
        take = _TAKE.get(row["k"])
        if take is not None:
            take(self, row)

    def _take_updates(self, row: Mapping[str, Any]) -> None:
        for values in row["rows"]:
            self._take_row(int(values[0]), values[3], values[4], values[_LEADING:], num=1)

    def _take_block(self, row: Mapping[str, Any]) -> None:
        first, _, _, num, _, start_ns, end_ns, *rest = row["row"]
        self._take_row(int(first) + int(num) - 1, start_ns, end_ns, rest, num=int(num))

    def _take_fresh(self, row: Mapping[str, Any]) -> None:
        for number, _, _, end_ns, _, _, wall_us, _ in row["rows"]:
            self._note(int(number), float(end_ns), float(wall_us) * US)

    def _take_row(
        self, number: int, start_ns: float, end_ns: float, wall: Any, *, num: int
    ) -> None:
        apart_s = 0.0
        for name, value in zip(self._buckets, wall, strict=False):
            if name in SPANS and value:
                apart_s += value * NS
                self.longest_s[name] = max(self.longest_s.get(name, 0.0), value * NS)
        self._note(number, float(end_ns), max(0.0, ((end_ns - start_ns) * NS - apart_s) / num))

    def _note(self, number: int, end_ns: float, time_s: float) -> None:
        if number < self.num_updates:
            return
        # The first update has no beginning of its own.
        if self.num_updates:
            self._times_s.append(time_s)
        self.num_updates = number + 1
        self.last_unix_s = self.began_unix_s + end_ns * NS

    def _take_spans(self, row: Mapping[str, Any]) -> None:
        found = {(str(s[1]), int(s[2])) for s in row["sites"] if s[0] == "evaluation"}
        self.evaluations |= found

    def _take_end(self, _: Mapping[str, Any]) -> None:
        self.has_ended = True


_TAKE: Mapping[str, Callable[[RankProgress, Mapping[str, Any]], None]] = {
    "u": RankProgress._take_updates,
    "b": RankProgress._take_block,
    "p": RankProgress._take_fresh,
    "a": RankProgress._take_spans,
    "end": RankProgress._take_end,
}


def open_rank(path: Path, *, now_s: float) -> RankProgress | None:
    """The progress in a rank's file; None while its first line is not whole.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        line = file.readline()
    try:
        return RankProgress(path, json.loads(line), now_s=now_s)
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
