"""Makes the series that are drawn over the time of a run, from the files in its folder.

In: the folder of a run that ended or still runs. Out: a `RunSeries`. It leaves out lines that were
cut short. `diagnose` interprets the course of the numbers.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path

from steptime.errors import StoreError
from steptime.measure.fold.rank_fold import Folded, FoldedRank, fold_ranks
from steptime.measure.fold.run_records import read_records
from steptime.measure.series.host_points import read_points
from steptime.measure.series.thin_steps import Marks, begin_of, thin_steps
from steptime.measure.steps.markers import slices_of
from steptime.measure.steps.step_fold import RankSteps
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.over_time import Event, RunSeries, Slice, StepPoint
from steptime.record import files
from steptime.record.places import NS

_ORDER = ("evaluation", "checkpoint", "epoch_start", "compile")
"""The order of spans within one step, where only their sums are known."""

_MIN_PAUSE_S = 1e-3
"""Shorter collections appear only in sums, here as in the guest."""


def read_series(
    run_folder: Path,
    measurement: Measurement | None,
    *,
    max_steps: int = 4000,
    training: int | None = None,
) -> RunSeries:
    """Return the series of the run in a folder.

    Args:
        run_folder: a folder as docs/internals/run-folder.md describes it.
        measurement: the run's measurement, if it is at hand; else the window is chosen here.
        max_steps: most points for the steps of all ranks (at least one per rank). The machine and
            each device have half as many, and so has each kind of event.
        training: the number of the training, if there is no measurement to say it.

    Raises:
        NotFoundError: there is no such folder, or no such training.
        DamagedRunError: `command.json` is missing or damaged, or a file is of another schema.
        StoreError: a file cannot be read.
    """
    known = None if measurement is None else measurement.training
    number = training if known is None else known.number
    folded = fold_ranks(read_records(run_folder, number))
    return make_series(run_folder, folded, measurement=measurement, max_steps=max_steps)


def make_series(
    run_folder: Path,
    folded: Folded,
    *,
    measurement: Measurement | None,
    max_steps: int = 4000,
) -> RunSeries:
    """Return the series of ranks that were folded already."""
    half = max(1, max_steps // 2)
    try:
        host, devices = read_points(run_folder / files.HOST, max_points=half)
    except OSError as error:
        raise StoreError(
            f"cannot read the load of the machine: {error.filename}: {error.strerror or error}."
        ) from error
    if not folded.ranks:
        return RunSeries(host=host, devices=devices)
    steady = measurement.steady if measurement is not None else None
    first = (steady or folded.steady_window()).first_step
    share = max(1, max_steps // len(folded.ranks))
    steps = [point for rank in folded.ranks for point in _thin(rank, first, max_points=share)]
    events = [
        event
        for rank in folded.ranks
        for event in find_events(rank.steps, slices_of(rank.stream, _ORDER))
    ]
    return RunSeries(
        host=host,
        devices=devices,
        steps=tuple(sorted(steps, key=lambda point: (point.end_unix_s, point.rank))),
        events=_choose(events, half),
    )


def _thin(rank: FoldedRank, first: int, *, max_points: int) -> tuple[StepPoint, ...]:
    # Steps beside a busy neighbor are drawn like others, and a change that it makes is found.
    disturbed = rank.series.disturbed - rank.series.beside_neighbor
    marks = Marks(first=first, disturbed=disturbed, watched=rank.series.watched)
    return thin_steps(rank.steps, marks, times_s=rank.series.times_s, max_points=max_points)


def _choose(events: Iterable[Event], max_of_a_kind: int) -> tuple[Event, ...]:
    """Return events in order of time: each kind's longest, or the first of those without length."""
    kinds: dict[str, list[Event]] = {}
    for event in sorted(events, key=lambda event: (event.t_unix_s, event.rank)):
        kinds.setdefault(event.what, []).append(event)
    chosen = [
        event
        for found in kinds.values()
        for event in sorted(found, key=lambda event: -(event.seconds or 0.0))[:max_of_a_kind]
    ]
    return tuple(sorted(chosen, key=lambda event: (event.t_unix_s, event.rank)))


def read_slices(run_folder: Path, training: int | None = None) -> tuple[Slice, ...]:
    """Return the slices of a run's raw markers, by rank in the order of its threads and time.

    Raises:
        NotFoundError, DamagedRunError, StoreError: as for `read_series`.
    """
    folded = fold_ranks(read_records(run_folder, training))
    return tuple(piece for rank in folded.ranks for piece in slices_of(rank.stream))


def find_events(rank: RankSteps, slices: Iterable[Slice] = ()) -> Iterator[Event]:
    """Yield a rank's events other than steps: spans, collections of garbage, compiling.

    Args:
        rank: the steps of the rank.
        slices: the slices of its raw markers, which say when spans began.
    """
    course = _Course(rank, slices)
    yield from course.spans()
    yield from course.pauses()
    yield from course.compilings()


class _Course:
    """One rank's steps and blocks, with their ends at hand."""

    def __init__(self, rank: RankSteps, slices: Iterable[Slice]) -> None:
        self._rank = rank
        self._steps, self._blocks = rank.steps, rank.blocks
        self._ends_s = [*rank.steps.end_s, *(block.end_s for block in rank.blocks)]
        self._begins_s: dict[str, list[float]] = {}  # pieces of spans, on the head's clock
        for piece in slices:
            if piece.name in _ORDER:
                begin_s = piece.t_unix_s - rank.head.t_unix_s
                self._begins_s.setdefault(piece.name, []).append(begin_s)
        for begins_s in self._begins_s.values():
            begins_s.sort()

    def spans(self) -> Iterator[Event]:
        """Yield the spans; without markers, a step's spans follow each other from its begin."""
        with_spans = (place for place, span_s in enumerate(self._steps.sum_of_spans()) if span_s)
        for step in map(self._steps.__getitem__, with_spans):
            yield from self._lay_out(step.spans_s, begin_of(step), step.index)
        for block in self._blocks:
            yield from self._lay_out(block.spans_s, block.start_s, block.first_index)
        if self._ends_s:
            last = self._rank.num_steps - 1
            yield from self._lay_out(self._rank.tail_s, self._ends_s[-1], last)

    def _lay_out(self, spans_s: Mapping[str, float], begin_s: float, step: int) -> Iterator[Event]:
        for what in _ORDER:
            if spans_s[what] > 0:
                seen_s = self._first_piece(what, step)
                at_s = begin_s if seen_s is None else seen_s
                yield self._event(what, at_s, seconds=spans_s[what], step=step)
                begin_s += spans_s[what]

    def _first_piece(self, what: str, step: int) -> float | None:
        """Return when a span of a step began, by its markers."""
        if step >= len(self._steps):
            return None  # of a block
        begins_s = self._begins_s.get(what, [])
        before_s = self._ends_s[step - 1] if step else -math.inf
        place = bisect_left(begins_s, before_s)
        is_within = place < len(begins_s) and begins_s[place] < self._ends_s[step]
        return begins_s[place] if is_within else None

    def pauses(self) -> Iterator[Event]:
        """Yield each collection that the guest wrote, and the others by the step they fell into."""
        for pause in self._rank.signals.pauses:
            begin_s, text = pause.t * NS, f"generation {pause.generation}"
            step = self._step_at(begin_s)
            yield self._event("gc", begin_s, seconds=pause.ns * NS, step=step, text=text)
        if self._rank.signals.pauses:
            return
        in_gc_ns = self._steps.count("gc_ns")
        long = (place for place, ns in enumerate(in_gc_ns) if ns * NS >= _MIN_PAUSE_S)
        for one in map(self._steps.__getitem__, long):
            seconds = one.count("gc_ns") * NS
            found = self._event("gc", begin_of(one), seconds=seconds, step=one.index)
            yield replace(found, count=one.count("gc_pauses"))

    def compilings(self) -> Iterator[Event]:
        """Yield what torch itself recorded; compilations only where no span has their time."""
        spans_s = chain(
            self._steps.span("compile"), (block.spans_s["compile"] for block in self._blocks)
        )
        has_spans = any(span_s > 0 for span_s in spans_s)
        for seen in self._rank.signals.compilings:
            if seen.what == "compile" and has_spans:
                continue
            place = None if seen.file is None else f"{seen.file}:{seen.line}"
            text = ", ".join(part for part in (seen.reason, place) if part is not None)
            begin_s = seen.t_unix_s - self._rank.head.t_unix_s
            yield self._event(
                seen.what,
                begin_s,
                seconds=seen.seconds,
                step=self._step_at(begin_s),
                text=text or None,
            )

    def _event(
        self,
        what: str,
        begin_s: float,
        *,
        seconds: float | None,
        step: int | None,
        text: str | None = None,
    ) -> Event:
        head = self._rank.head
        t_unix_s = head.t_unix_s + begin_s
        return Event(
            what=what, rank=head.rank, t_unix_s=t_unix_s, seconds=seconds, step=step, text=text
        )

    def _step_at(self, t_s: float) -> int | None:
        """Return the index of the step at a time on the head's clock; after the end, the last."""
        if not self._ends_s:
            return None
        place = min(bisect_left(self._ends_s, t_s), len(self._ends_s) - 1)
        if place < len(self._steps):
            return place
        found = self._blocks[place - len(self._steps)]
        length_s = found.end_s - found.start_s
        part = (t_s - found.start_s) / length_s if length_s > 0 else 0.0
        return found.first_index + min(found.num_steps - 1, max(0, int(part * found.num_steps)))
