"""The work of a row by its length: a part in proportion to it, and attention with its square.

In: the counted updates of a run. Out: how much of the work grows with the square. Relative work is
all that is needed, so a position has the work 1 without attention.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from steptime.measure.fold.seen_lines import CountSeen
from steptime.measure.values.model.work import Count
from steptime.measure.work.work_fit import ELEMENTS, TRAINED, find_fit
from steptime.record.buckets import SIZES

_FORM = ("elements", "squares")
_SQUARES = ELEMENTS + 1
_MAX_ERROR = 0.02
"""Beyond it, lengths do not explain the work of the counted updates."""

_ATTENTION = "attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthWork:
    """The relative work of rows; `square` is what a position adds for each position of its row.

    `is_known` says whether the count of work knows what grows with the square.
    """

    square: float = 0.0
    is_known: bool = False

    def of_row(self, length: float) -> float:
        """Return the work of a row."""
        return length + self.square * length * length

    def of_step(self, elements: float, squares: float) -> float:
        """Return the work of a step, by the sums of lengths and of their squares."""
        return elements + self.square * squares

    def attention_fraction(self, lengths: Iterable[float]) -> float | None:
        """Return the share of the work of such rows that grows with the square."""
        known = [(length, self.of_row(length)) for length in lengths]
        whole = sum(work for _, work in known)
        if not self.is_known or not whole:
            return None
        return 1 - sum(length for length, _ in known) / whole


def find_length_work(count: Count | None, seen: Sequence[CountSeen]) -> LengthWork:
    """Return how the work of a step grows with the length of its rows.

    Counted updates of different lengths say it themselves. Where all have the same, the operators
    of attention are what grows with the square.

    Args:
        count: the work of the mean step.
        seen: the counted updates.
    """
    known = [
        ((one.optimizer or 0, *one.sizes[:TRAINED]), _passes(one.count))
        for one in seen
        if one.count is not None and len(one.sizes) == len(SIZES)
    ]
    fit = find_fit(known, [_FORM]) if len({key for key, _ in known}) > len(_FORM) else None
    if fit is not None and fit.error_fraction <= _MAX_ERROR:
        linear, square = (sum(each) for each in zip(*fit.factors, strict=True))
        if linear > 0:
            return LengthWork(square=max(0.0, square / linear), is_known=True)
    return _by_operators(count, [key for key, _ in known])


def _passes(count: Count) -> tuple[float, float, float]:
    return count.forward, count.backward, count.recomputed


def _by_operators(count: Count | None, keys: Sequence[tuple[float, ...]]) -> LengthWork:
    part = 0.0 if count is None or not count.total else count.by_class[_ATTENTION] / count.total
    elements = sum(key[ELEMENTS] for key in keys)
    squares = sum(key[_SQUARES] for key in keys)
    if not 0 < part < 1 or not elements or not squares:
        return LengthWork()
    return LengthWork(square=part / (1 - part) * elements / squares, is_known=True)
