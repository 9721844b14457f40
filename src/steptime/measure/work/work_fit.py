"""Tells the work of updates that were not counted from the work of those that were.

In: counted updates, each with its optimizer and the sizes of its calls. Out: the work of any
update, and how it is known. An update like a counted one has its work. Others are computed from
their sizes, if a sum of at most three terms gives each counted update from the others. No file, no
clock; `step_work` asks for all updates of a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import cached_property
from operator import mul

Passes = tuple[float, float, float]
"""Forward, backward and recomputed work [FLOP]."""

Update = tuple[float, ...]
"""An optimizer, then the numbers of `record.buckets.SIZES`; of blocks, their means. Work goes by no
largest call, so there an `Update` ends before it."""

TERMS: Mapping[str, int] = {
    name: place
    for place, name in enumerate(
        ("rows", "elements", "squares", "nodes", "plain", "", "largest"), 1
    )
}
"""What work may be a multiple of, and its place in an `Update`; `updates` is 1 in each."""

ROWS, ELEMENTS, TRAINED, LARGEST = 1, 2, 6, 7

LARGEST_SQUARE = "largest_square"
"""The square of the largest call: its rows are taken to be as many in each call."""

FORMS = (
    *(("elements",), ("rows",), ("updates", "elements"), ("updates", "rows")),
    *(("rows", "elements"), ("elements", "squares"), ("rows", "elements", "squares")),
    *(("updates", "elements", "squares"), ("updates", "nodes"), ("elements", "nodes")),
    ("elements", "plain"),
)
"""Sums that are tried, the simplest first: layers are linear in the elements of a batch, attention
grows with the square of a sequence, dropped layers are missing in the graph."""

EXACT_ERROR = 1e-9
"""Work is whole numbers: a sum that is there is met exactly, and one that is near is another."""

NEAR_ERROR = 0.001
"""With an error below this, a simpler sum is taken rather than a later one that is not exact."""

MAX_ERROR = 0.05
"""Beyond it, sizes do not explain the work; an update is then not computed from them."""

SAME = 0.001
"""Counted updates of equal sizes that differ by more have work that sizes do not show."""


class Knowledge(Enum):
    """How the work of an update is known."""

    COUNTED = "counted"
    COMPUTED = "computed"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedUpdate:
    """An update that was counted."""

    key: Update
    passes: tuple[int, int, int]

    @property
    def total(self) -> int:
        """Return the work of all passes."""
        return sum(self.passes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A sum of terms that gives the work of one optimizer's updates.

    Attributes:
        terms: names of what is multiplied.
        factors: for each pass, a factor for each term.
        error_fraction: the largest error of a counted update that was left out.
    """

    terms: tuple[str, ...]
    factors: tuple[tuple[float, ...], ...]
    error_fraction: float

    def passes(self, update: Update) -> Passes:
        """Return the work of an update."""
        values = _values(self.terms, update)
        forward, backward, recomputed = (
            max(0.0, sum(map(mul, row, values))) for row in self.factors
        )
        return forward, backward, recomputed


class WorkModel:
    """The work of any update, from the counted ones; at least one must be given."""

    def __init__(self, counted: Sequence[CountedUpdate]) -> None:
        self.counted = tuple(counted)
        self._by_key: dict[Update, list[CountedUpdate]] = {}
        for one in counted:
            self._by_key.setdefault(one.key, []).append(one)
        self._fits: dict[tuple[object, object], Fit | None] = {}

    @cached_property
    def spread_fraction(self) -> float:
        """Return by how much counted updates of equal sizes differ at most, of their mean."""
        spreads = [0.0]
        for same in self._by_key.values():
            totals = [one.total for one in same]
            if sum(totals):
                spreads.append((max(totals) - min(totals)) * len(totals) / sum(totals))
        return max(spreads)

    def work_of(self, update: Update) -> tuple[Passes, Knowledge, Fit | None]:
        """Return the work of an update, how it is known, and by which sum if it was computed."""
        same = self._by_key.get(update)
        if same is not None:
            return _mean_passes(same), Knowledge.COUNTED, None
        fit = self._fit_of(update)
        if fit is not None:
            return fit.passes(update), Knowledge.COMPUTED, fit
        like, ratio = self._nearest(update)
        forward, backward, recomputed = (one * ratio for one in like.passes)
        return (forward, backward, recomputed), Knowledge.ASSUMED, None

    def _fit_of(self, update: Update) -> Fit | None:
        key = update[0], update[TRAINED]
        if key not in self._fits:
            alike = [k for k in self._by_key if (k[0], k[TRAINED]) == key]
            means = [(one, _mean_passes(self._by_key[one])) for one in alike]
            self._fits[key] = find_fit(means)
        return self._fits[key]

    def _nearest(self, update: Update) -> tuple[CountedUpdate, float]:
        """Return the counted update that is most like it, and by what its work is multiplied."""
        like = min(
            self.counted,
            key=lambda one: (
                one.key[0] != update[0],
                one.key[TRAINED] != update[TRAINED],
                abs(_size(one.key) - _size(update)),
            ),
        )
        sizes = _size(update), _size(like.key)
        return like, sizes[0] / sizes[1] if all(sizes) else 1.0


def find_fit(
    known: Sequence[tuple[Update, Passes]], forms: Sequence[tuple[str, ...]] = FORMS
) -> Fit | None:
    """Return the sum that gives each of these updates from the others, if any does.

    The simplest that is exact; else the simplest that nearly is; else the nearest.
    """
    errors = {}
    for terms in forms:
        error = _left_out_error(terms, known) if len(known) > len(terms) else None
        if error is not None and error <= MAX_ERROR:
            errors[terms] = error
        if error is not None and error <= EXACT_ERROR:
            break
    near = next((terms for terms, error in errors.items() if error <= NEAR_ERROR), None)
    exact = next((terms for terms, error in errors.items() if error <= EXACT_ERROR), None)
    best = exact or near or min(errors, key=errors.__getitem__, default=())
    factors = _factors(best, known) if best else None
    if factors is None:
        return None
    return Fit(terms=best, factors=factors, error_fraction=errors[best])


def _left_out_error(terms: tuple[str, ...], known: Sequence[tuple[Update, Passes]]) -> float | None:
    """Return the largest error of an update that the sum was not fitted to; None if it has none."""
    worst = 0.0
    for place, (update, passes) in enumerate(known):
        factors = _factors(terms, [*known[:place], *known[place + 1 :]])
        if factors is None:
            return None
        guess = sum(Fit(terms=terms, factors=factors, error_fraction=0.0).passes(update))
        true = sum(passes)
        worst = max(worst, abs(guess / true - 1) if true else float(guess != 0))
    return worst


def _factors(
    terms: tuple[str, ...], known: Sequence[tuple[Update, Passes]]
) -> tuple[tuple[float, ...], ...] | None:
    """Return the factors with the least squares of relative errors, a row for each pass.

    The few equations are solved in fractions, because sizes and their squares are nearly parallel.
    """
    rows = [[Fraction(one) for one in _values(terms, update)] for update, _ in known]
    weights = [Fraction(1) / (Fraction(sum(passes)) or 1) ** 2 for _, passes in known]
    size = range(len(terms))
    squares = [
        [sum((w * row[i] * row[j] for row, w in zip(rows, weights, strict=True)), Fraction(0))
         for j in size]
        for i in size
    ]  # fmt: skip
    found = []
    for number in range(3):
        right = [
            sum(
                (w * row[i] * Fraction(passes[number])
                 for row, w, (_, passes) in zip(rows, weights, known, strict=True)),
                Fraction(0),
            )
            for i in size
        ]  # fmt: skip
        solved = _solve(squares, right)
        if solved is None:
            return None
        found.append(tuple(map(float, solved)))
    return tuple(found)


def _solve(
    matrix: Sequence[Sequence[Fraction]], right: Sequence[Fraction]
) -> list[Fraction] | None:
    """Return the solution of a few linear equations; None if there is no single one."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    size = len(rows)
    for column in range(size):
        pivot = next((r for r in range(column, size) if rows[r][column]), None)
        if pivot is None:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        rows[column] = [value / rows[column][column] for value in rows[column]]
        for other in range(size):
            if other != column and (factor := rows[other][column]):
                rows[other] = [
                    a - factor * b for a, b in zip(rows[other], rows[column], strict=True)
                ]
    return [row[-1] for row in rows]


def _values(terms: Sequence[str], update: Update) -> list[float]:
    return [_value(name, update) for name in terms]


def _value(name: str, update: Update) -> float:
    if name == "updates":
        return 1
    return update[LARGEST] ** 2 if name == LARGEST_SQUARE else update[TERMS[name]]


def _size(update: Update) -> float:
    """Return a measure of an update's work: a forward without gradients is a third of a step."""
    return 3 * update[TERMS["elements"]] + update[TERMS["plain"]]


def _mean_passes(same: Sequence[CountedUpdate]) -> Passes:
    forward, backward, recomputed = (
        sum(one.passes[number] for one in same) / len(same) for number in range(3)
    )
    return forward, backward, recomputed
