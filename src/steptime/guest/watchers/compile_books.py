"""What torch.compile made: graphs, graph breaks, and recompilations.

It is read from the books that dynamo keeps, once something has imported dynamo; we never import it.
A poll costs some microseconds where nothing was compiled since the last one.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from json import dumps
from time import time as unix_time
from typing import Any

from ...record import kinds
from ...record.buckets import OTHER
from ..sites.file_owners import FileOwners
from ..timeline.recorder import Recorder

MAX_EVENTS = 10
MAX_REASON = 120
MAX_ROWS = 2_000
"""Compilations and breaks that are written one by one; thousands mean a recompilation in each step,
which the counts show as well."""

_COMPILE_ID = re.compile(r"(?:!\d+/)?\d+/(\d+)")
"""A frame and how often it was compiled before, with compiled autograd's own number in front."""

_NUMBER_IN_FRONT = re.compile(r"^\d+/\d+(?:_\d+)?: ")

_DIGITS = re.compile(r"\d+")


class Events:
    """Counts graph breaks or recompilations by reason and place.

    Sizes in the reason are ignored: ten lengths of a batch are one cause.
    """

    def __init__(self, places: FileOwners) -> None:
        self.places = places
        self.times: Counter[tuple[Any, ...]] = Counter()
        self.reasons: dict[tuple[Any, ...], str] = {}

    def add(self, reason: str, frames: Iterable[tuple[str, int | None]]) -> None:
        """Count one at the innermost place in the user's code."""
        where = self.places.innermost(frames) or (None, None)
        key = (_DIGITS.sub("", reason), *where)
        self.times[key] += 1
        self.reasons.setdefault(key, reason)

    def most_common(self) -> list[list[Any]]:
        """Return the most frequent ones: reason, file, line, times."""
        found = self.times.most_common(MAX_EVENTS)
        return [[self.reasons[key], *key[1:], times] for key, times in found]


class CompileWatcher:
    """Writes a `c` line, and a `ce` line with times, if something was compiled since the last."""

    place = "compiled"

    def __init__(
        self, torch: Any, recorder: Recorder, *, unix_s: Callable[[], float] = unix_time
    ) -> None:
        self.recorder = recorder
        self.places = FileOwners(torch)
        self.unix_s = unix_s
        self.reset()

    def reset(self) -> None:
        """Forget everything: this is a new process."""
        self.seen: tuple[Any, ...] = ()
        self.num_breaks_seen = 0
        self.metrics_seen: set[tuple[Any, ...]] = set()
        self.graphs = self.graphs_before = self.graphs_last = 0
        self.breaks, self.recompiles = Events(self.places), Events(self.places)
        self.rows: list[list[Any]] = []
        self.num_rows = 0

    def skip_past(self) -> None:
        """Leave out what was compiled so far: the process is older than the run."""
        self.poll(OTHER, is_last=False)
        self.graphs_before = -self.graphs_last
        self.graphs = self.num_rows = 0
        self.breaks, self.recompiles = Events(self.places), Events(self.places)
        self.rows = []

    def poll(self, bucket: int, *, is_last: bool) -> str:
        """Return a line if anything was compiled since the last one."""
        books: Any = sys.modules.get("torch._dynamo.utils")
        if not hasattr(books, "get_compilation_metrics") or not hasattr(books, "counters"):
            return ""  # not imported, or still being imported
        stats = books.counters.get("stats", {})  # `get` adds no key: the script may print them
        breaks = getattr(books, "graph_break_reasons", [])
        metrics = books.get_compilation_metrics()
        seen = (stats.get("unique_graphs", 0), len(breaks), metrics[-1:] and id(metrics[-1]))
        if seen == self.seen:
            return ""
        self.seen = seen
        self._take_graphs(stats.get("unique_graphs", 0))
        self._take_breaks(breaks)
        self._take_metrics(metrics, getattr(books, "guard_failures", {}))
        if not (self.graphs or self.breaks.times or self.recompiles.times):
            return ""
        line = {
            "k": kinds.COMPILED,
            "n": self.recorder.num_updates,
            "graphs": self.graphs,
            "breaks": self.breaks.most_common(),
            "recompiles": self.recompiles.most_common(),
        }
        return dumps(line) + "\n" + self._take_rows()

    def _take_rows(self) -> str:
        rows, self.rows = self.rows[: MAX_ROWS - self.num_rows], []
        self.num_rows += len(rows)
        return dumps({"k": kinds.COMPILINGS, "rows": rows}) + "\n" if rows else ""

    def _tell(self, what: str, reason: str | None, frames: Any, one: Any = None) -> None:
        """Add a row: what happened, when it began, how long it took, why, and where."""
        start_s = getattr(one, "start_time", None)
        seconds = None if start_s is None else getattr(one, "entire_frame_compile_time_s", None)
        began = self.unix_s() if start_s is None else start_s
        where = self.places.innermost(frames) or (None, None)
        self.rows.append([what, began, seconds, reason, *where])

    def _take_graphs(self, num: int) -> None:
        if num < self.graphs_last:  # `counters.clear()`
            self.graphs_before += self.graphs_last
        self.graphs_last = num
        self.graphs = self.graphs_before + num

    def _take_breaks(self, breaks: list[Any]) -> None:
        if len(breaks) < self.num_breaks_seen:  # `torch._dynamo.reset()`
            self.num_breaks_seen = 0
        fresh = breaks[self.num_breaks_seen :]
        self.num_breaks_seen += len(fresh)
        for one in fresh:
            frames = [(frame.filename, frame.lineno) for frame in one.user_stack]
            self.breaks.add(explain_break(str(one.reason)), frames)
            self._tell("graph_break", explain_break(str(one.reason)), frames)

    def _take_metrics(self, metrics: list[Any], guard_failures: Any) -> None:
        """Take the compilations since the last poll; torch keeps the last 64."""
        keys = [(one.compile_id, one.co_filename, one.start_time) for one in metrics]
        for key, one in zip(keys, metrics, strict=True):
            if key in self.metrics_seen or not one.co_filename:
                continue  # without a file it belongs to a backward
            place = (one.co_filename, one.co_firstlineno)
            if one.fail_reason:  # the frame runs uncompiled, which breaks the graph as well
                failed_at = (one.fail_user_frame_filename, one.fail_user_frame_lineno)
                frames = [place, failed_at] if failed_at[0] else [place]
                self.breaks.add(explain_break(one.fail_reason), frames)
                self._tell("graph_break", explain_break(one.fail_reason), frames, one)
            number = _COMPILE_ID.match(str(one.compile_id))
            if number is None or int(number[1]) == 0:
                self._tell("compile", None, [place], one)
                continue
            reason = getattr(one, "recompile_reason", None) or last_failure(guard_failures, *place)
            self.recompiles.add(explain_recompile(reason), [place])
            self._tell("recompile", explain_recompile(reason), [place], one)
        self.metrics_seen = set(keys)


def last_failure(guard_failures: Any, file: str, line: int) -> str:
    """Return why a function was compiled again, from its failed guards: torch before 2.6."""
    for code, reasons in list(guard_failures.items()):
        if reasons and (code.co_filename, code.co_firstlineno) == (file, line):
            return str(reasons[-1])
    return "unknown"


def explain_break(reason: str) -> str:
    """Return torch's reason and explanation in one line, without hints."""
    reason = reason.partition("\n  Hint:")[0].replace("\n  Explanation:", ":")
    return " ".join(reason.split())[:MAX_REASON]


def explain_recompile(reason: str) -> str:
    """Return the guard that failed, without its number and the source it came from."""
    first = _NUMBER_IN_FRONT.sub("", reason).partition("\n")[0].partition("  #")[0]
    return " ".join(first.split())[:MAX_REASON]
