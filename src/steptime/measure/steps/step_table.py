"""Holds the steps of one rank as columns: twenty thousand of them take a few megabytes.

In: columns of numbers. Out: the columns by name, or the `Step` at a place. `step_fold` makes the
steps from rows.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from operator import itemgetter
from typing import Any, overload

from steptime.measure.values.measurement import INNER_PHASES, PHASES, SPANS, Step

INSIDE = (*PHASES, *INNER_PHASES)

Numbers = Sequence[float]
Columns = Mapping[str, Numbers]
"""Columns by the name of a phase, span or count, without those that are zero in all steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTable:
    """Steps in order of time; `Step` says what the columns hold.

    Attributes:
        index: number of each step in its rank.
        device_s: device times of the steps in `has_device`; zeros elsewhere.
        counts: the guest's counts, by the names of the record.
        has_device, is_detailed, is_disturbed, is_rested: a byte for each step, 1 or 0. A rested
            step has a time, and its phases are not known.
        times_s, cpu_times_s: sums over the phases.
    """

    index: Sequence[int]
    end_s: Numbers
    wall_s: Columns
    cpu_s: Columns
    spans_s: Columns
    device_s: Columns
    counts: Mapping[str, Sequence[int]]
    num_updates: Sequence[int]
    num_skipped: Sequence[int]
    optimizers: Sequence[tuple[int, ...]]
    has_device: bytes
    is_detailed: bytes
    is_disturbed: bytes
    is_rested: bytes
    times_s: Numbers = field(init=False)
    cpu_times_s: Numbers = field(init=False)

    def __post_init__(self) -> None:
        size = len(self.index)
        object.__setattr__(self, "times_s", add_up(self.wall_s, INSIDE, size))
        object.__setattr__(self, "cpu_times_s", add_up(self.cpu_s, INSIDE, size))

    def __len__(self) -> int:
        return len(self.index)

    def __iter__(self) -> Iterator[Step]:
        return map(self._step, range(len(self)))

    @overload
    def __getitem__(self, place: int) -> Step: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Step, ...]: ...

    def __getitem__(self, place: int | slice) -> Step | tuple[Step, ...]:
        """Return one step, or several, made on request."""
        if isinstance(place, slice):
            return tuple(self._step(number) for number in range(*place.indices(len(self))))
        return self._step(range(len(self))[place])

    def _step(self, place: int) -> Step:
        def by_name(columns: Columns, names: Iterable[str]) -> dict[str, float]:
            return {name: columns[name][place] if name in columns else 0.0 for name in names}

        return Step(
            index=self.index[place],
            end_s=self.end_s[place],
            wall_s=by_name(self.wall_s, INSIDE),
            cpu_s=by_name(self.cpu_s, INSIDE),
            spans_s=by_name(self.spans_s, SPANS),
            device_s=by_name(self.device_s, INSIDE) if self.has_device[place] else None,
            num_updates=self.num_updates[place],
            num_skipped=self.num_skipped[place],
            counts={name: column[place] for name, column in self.counts.items()},
            optimizers=self.optimizers[place],
            is_first=self.index[place] == 0,
            is_detailed=bool(self.is_detailed[place]),
            is_disturbed=bool(self.is_disturbed[place]),
        )

    def count(self, name: str) -> Sequence[int]:
        """Return one of the guest's counts for each step."""
        return self.counts[name] if name in self.counts else array("q", bytes(8 * len(self)))

    def span(self, name: str) -> Numbers:
        """Return a span of all steps [s]."""
        return self.spans_s[name] if name in self.spans_s else zeros(len(self))

    def sum_of_spans(self) -> Numbers:
        """Return the sum of all spans of each step [s]."""
        return add_up(self.spans_s, SPANS, len(self))

    def begin_s(self, place: int) -> float:
        """Return when a step's first marker was seen, on the clock of the rank's head."""
        spans_s = sum(self.spans_s[name][place] for name in SPANS if name in self.spans_s)
        return self.end_s[place] - self.times_s[place] - spans_s

    def take(self, kept: Sequence[int]) -> StepTable:
        """Return the steps for which `kept` holds."""
        pick = _picker(kept)

        def numbers(columns: Columns) -> dict[str, Numbers]:
            return {name: array("d", pick(c)) for name, c in columns.items()}

        return StepTable(
            index=array("q", pick(self.index)),
            end_s=array("d", pick(self.end_s)),
            wall_s=numbers(self.wall_s),
            cpu_s=numbers(self.cpu_s),
            spans_s=numbers(self.spans_s),
            device_s=numbers(self.device_s),
            counts={name: array("q", pick(c)) for name, c in self.counts.items()},
            num_updates=array("q", pick(self.num_updates)),
            num_skipped=array("q", pick(self.num_skipped)),
            optimizers=tuple(pick(self.optimizers)),
            has_device=bytes(pick(self.has_device)),
            is_detailed=bytes(pick(self.is_detailed)),
            is_disturbed=bytes(pick(self.is_disturbed)),
            is_rested=bytes(pick(self.is_rested)),
        )

    def disturb(self, places: Iterable[int]) -> StepTable:
        """Return the steps with these marked as disturbed, too."""
        flags = bytearray(self.is_disturbed)
        for place in places:
            flags[place] = 1
        return replace(self, is_disturbed=bytes(flags))


def _picker(kept: Sequence[int]) -> Callable[[Sequence[Any]], Iterable[Any]]:
    """Return what takes the places for which `kept` holds, mostly one stretch or a few of many."""
    places = list(compress(range(len(kept)), kept))
    if places and places[-1] - places[0] + 1 == len(places):
        return itemgetter(slice(places[0], places[-1] + 1))
    if 4 * len(places) < len(kept):
        return lambda column: map(column.__getitem__, places)
    return lambda column: compress(column, kept)


def add_up(columns: Columns, names: Iterable[str], size: int) -> Numbers:
    """Return the row-by-row sums of these columns, in the order of the names."""
    known = [columns[name] for name in names if name in columns]
    return array("d", map(sum, zip(*known, strict=True))) if known else zeros(size)


def zeros(size: int) -> Numbers:
    """Return a column of zeros."""
    return array("d", bytes(8 * size))
