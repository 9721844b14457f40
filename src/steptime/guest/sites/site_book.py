"""Where in the user's code the time goes, sorted from the frames of two short windows.

What was noted in a window runs through a timeline of its own, with a book in the place of the
device's clock, so the pieces of time get the names of the phases. Spans are counted by place over
the whole run; of rollouts, frames are walked for the first few only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ...record.buckets import (
    BUCKETS,
    CHECKPOINT,
    COMPILE,
    EPOCH_START,
    EVALUATION,
    NUM_WRITTEN,
    OTHER,
    ROLLOUT,
    SPANS_KEPT,
)
from ..timeline.thread_timeline import ThreadTimeline
from .frames import Frames, Place, Stack, innermost

SPANS = frozenset((EVALUATION, CHECKPOINT, EPOCH_START, COMPILE))
MAX_SITES = 60
"""No report names more lines of a step; those that took longest are kept."""

WALKED_ROLLOUTS = 20
"""A script steps environments from the same few lines, and 10,000 walks would be noticeable."""

Site = list[Any]
"""As in docs/internals/run-folder.md: bucket, file, first line, last line, calls, time [ns]."""


class TimedMarker(NamedTuple):
    """One marker of a window: what it does to a timeline, when, and in which functions."""

    act: Callable[[ThreadTimeline], None]
    now: int
    stack: Stack
    is_counted: bool = False


class Piece:
    """The time between two markers: what it was spent on, and where."""

    __slots__ = ("bucket", "calls", "is_counted", "ns", "place")

    def __init__(self, bucket: int, place: Place | None) -> None:
        self.bucket = bucket
        self.place = place
        self.calls = 1
        self.ns = 0
        self.is_counted = False


class SiteBook:
    """Sorts the time of a window by place; it takes the place of a timeline's device clock.

    It is the timeline's sink as well: when an update ends, the names of its pieces are final.
    """

    def __init__(self, frames: Frames) -> None:
        self.frames = frames
        self.pieces: list[Piece] = []
        self.open: list[Piece] = []  # one for each open marker
        self.batch_at = self.anchor_at = 0
        self.num_updates = 0
        self.sums: dict[tuple[int, Place], tuple[int, int | None]] = {}

    def fold(self, began: int, stack: Stack, marks: Iterable[TimedMarker]) -> None:
        """Run what was noted since `began` through a timeline."""
        self.last, self.before = began, stack
        self.timeline = timeline = ThreadTimeline(self)
        timeline.reset(began, 0)
        timeline.started = True
        timeline.device = self
        for mark in marks:
            self.now = mark
            timeline.now = mark.now
            mark.act(timeline)

    def mark(self, bucket: int) -> None:
        """Give `bucket` the time since the last marker; the timeline's stack has moved already."""
        now, ns = self.now, self.now.now - self.last
        self.last = now.now
        if bucket == OTHER or bucket >= NUM_WRITTEN or not self.open:
            around = self.open[-1].place if self.open else None  # inside a step with a closure
            piece = Piece(bucket, self.frames.between(self.before, now.stack) or around)
        else:
            opened = self.open[-1]
            piece = Piece(bucket, opened.place)
            if (
                opened.bucket != bucket and len(self.open) > 1
            ):  # it moved nothing, so this is not its time
                piece.place, piece.calls = self.open[-2].place, 0
            else:
                piece.calls, piece.is_counted = opened.calls, opened.is_counted
            opened.calls = 0
        piece.ns = ns
        if ns > 0 or piece.is_counted:
            self.pieces.append(piece)
        depth = len(self.timeline.stack)
        del self.open[depth:]
        while len(self.open) < depth:
            opened = Piece(self.timeline.top, innermost(now.stack))
            opened.is_counted = now.is_counted
            self.open.append(opened)
        self.before = now.stack

    def here(self) -> int:
        """Return the place of the next piece."""
        return len(self.pieces)

    def rename(self, source: int, target: int, *, since: int = 0, until: int | None = None) -> None:
        """Give `target` what was marked as `source`, or what lies between two places."""
        for piece in self.pieces[since:until]:
            if piece.bucket == source:
                piece.bucket = target

    def mark_batch(self) -> None:
        """Remember that the work on a batch begins here."""
        self.batch_at = len(self.pieces)

    def anchor(self) -> None:
        """Remember this point: an evaluation that follows takes everything since."""
        self.anchor_at = len(self.pieces)

    def take_evaluation(self) -> None:
        """Give the evaluation everything since the anchor."""
        for piece in self.pieces[self.anchor_at :]:
            if piece.bucket not in SPANS_KEPT:
                piece.bucket = EVALUATION

    def add(self, timeline: ThreadTimeline, optimizer: Any, skipped: int | None) -> None:
        """Sum up a finished update; spans have lines of their own."""
        for piece in self.pieces:
            if piece.place is None or piece.bucket in SPANS:
                continue
            key = (piece.bucket, piece.place)
            calls, ns = self.sums.get(key, (0, None))
            if not piece.is_counted:
                ns = (ns or 0) + piece.ns
            self.sums[key] = calls + piece.calls, ns
        self.pieces = []
        self.batch_at = self.anchor_at = 0
        self.num_updates += 1

    def sites(self) -> list[Site]:
        """Return the sites, longest first; those that are only counted come last."""
        return as_sites(self.sums)


class SpanSites:
    """The places of one thread's spans: calls and time, by kind and place.

    Steps of environments and generations are kept as well: a window of a few updates may hold none.
    """

    def __init__(self, frames: Frames) -> None:
        self.frames = frames
        self.left = WALKED_ROLLOUTS
        kinds = (EVALUATION, CHECKPOINT, EPOCH_START, ROLLOUT)
        self.found: dict[int, deque[Place | None]] = {kind: deque() for kind in kinds}
        self.current: dict[int, Place | None] = {}
        self.before: dict[int, int] = {}
        self.sums: dict[tuple[int, Place], list[int]] = {}

    def walk(self, kind: int, frame: Any) -> None:
        """Keep the place where a span begins until the timeline reaches it."""
        if kind not in self.found or (kind == ROLLOUT and not self.left):
            return
        self.left -= kind == ROLLOUT
        self.found[kind].append(self.frames.place(frame))

    def enter(self, kind: int, before: int, *, goes_on: bool) -> None:
        """Open a span; with `goes_on` it is the first batch of an epoch that has begun already."""
        if kind not in self.found:
            return
        last = self.current.get(kind)
        place = self.found[kind].popleft() if self.found[kind] else last
        self.current[kind] = place
        self.before[kind] = before
        if place is not None:
            sums = self.sums.setdefault((kind, place), [0, 0])
            sums[0] += not (goes_on and place == last)

    def leave(self, kind: int, after: int) -> None:
        """Close a span; its bucket now holds `after` nanoseconds."""
        place = self.current.get(kind)
        if place is not None:
            sums = self.sums[kind, place]
            sums[1] += max(0, after - self.before.get(kind, after))
            self.before[kind] = after


def spans_of(books: Iterable[SpanSites]) -> list[Site]:
    """Return the sites of all threads' spans, longest first."""
    sums: dict[tuple[int, Place], list[int]] = {}
    for book in books:
        for key, (calls, ns) in list(book.sums.items()):
            known = sums.setdefault(key, [0, 0])
            known[0] += calls
            known[1] += ns
    return as_sites({key: (calls, ns) for key, (calls, ns) in sums.items()})


def as_sites(sums: Mapping[tuple[int, Place], tuple[int, int | None]]) -> list[Site]:
    """Return calls and time by bucket and place as they are written, longest first, then most."""
    ordered = sorted(sums.items(), key=lambda item: (item[1][1] or 0, item[1][0]), reverse=True)
    return [[BUCKETS[kind], *place, *values] for (kind, place), values in ordered[:MAX_SITES]]
