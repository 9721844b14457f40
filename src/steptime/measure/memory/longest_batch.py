"""Finds the largest batch of the epoch: its number, its largest sample, and whether it has come.

In: lines `lb` of the ranks. Out: a `LongestBatch`. The sizes that a data set holds count only if
the batches that were compared go with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from steptime.measure.fold.rank_fold import FoldedRank
from steptime.measure.memory.epoch_lines import EpochSeen, Row
from steptime.measure.memory.longest_peak import forecast_peak
from steptime.measure.memory.memory_anatomy import MemoryTold
from steptime.measure.values.model.anatomy import Anatomy
from steptime.measure.values.model.longest import EpochBatch, LongestBatch

KNOWN, ITERABLE = "known", "iterable"

EXACT = 0.01
"""Batches are as large as their rows say, to a hundredth."""

MIN_PAIRS, MIN_ALIKE = 3, 0.9
"""Otherwise nine in ten pairs of batches must be in the order that their rows say."""

LARGER = 1.01

_SIZE, _SUM = 3, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """How the elements of a batch go with the sizes of its rows, by factor and shift.

    It is the largest size for each row of the batch, or the sum of all.
    """

    column: int
    is_padded: bool
    factor: float
    shift: float

    def elements(self, row: Row) -> int:
        """Return how many elements a batch has."""
        if self.is_padded:
            return round(row[2] * (self.factor * row[_SIZE] + self.shift))
        return round(self.factor * row[_SUM] + self.shift)


def find_longest(
    ranks: Sequence[FoldedRank], anatomy: Anatomy | None, lines: Sequence[MemoryTold] = ()
) -> LongestBatch | None:
    """Return the largest batch of a training; of several ranks, that with the largest to come.

    Args:
        ranks: the folded ranks.
        anatomy: the memory of the rank that holds most.
        lines: what all processes said of their memory, in the order of writing.
    """
    found = [one for rank in ranks if (one := _of_rank(rank, anatomy, lines)) is not None]
    return max(found, key=lambda one: (one.is_to_come is True, one.growth or 0), default=None)


def _of_rank(
    rank: FoldedRank, anatomy: Anatomy | None, memory: Sequence[MemoryTold]
) -> LongestBatch | None:
    lines = last_lines(rank.steps.signals.epochs)
    if not lines:
        return None
    found = longest_of(lines, rank.steps.head.rank)
    if found is None or anatomy is None:
        return found
    seen_bytes = None if anatomy.run_peak is None else anatomy.run_peak.bytes
    found = replace(found, seen_peak_bytes=seen_bytes)
    if not found.is_to_come or found.growth is None:
        return found
    forecast = forecast_peak(
        rank,
        anatomy,
        elements=found.growth,
        rows=_rows_ratio(found),
        kept=_kept([line.anatomy for line in memory if line.pid == rank.steps.head.pid]),
    )
    return replace(found, peak=forecast)


def _kept(told: Sequence[Anatomy]) -> tuple[int, ...]:
    """Return what the graph kept in the first update, and in the one that was followed."""
    first = next((one for one in told if one.moment == "backward"), None)
    last = next((one for one in reversed(told) if one.timeline is not None), None)
    if first is None or last is None:
        return ()
    return tuple(one.bytes_of("activations", "logits") for one in (first, last))


def _rows_ratio(found: LongestBatch) -> float:
    largest, seen = found.largest, found.seen
    if largest is None or seen is None or not largest.num_rows or not seen.num_rows:
        return 1.0
    return largest.num_rows / seen.num_rows


def last_lines(lines: Sequence[EpochSeen]) -> list[EpochSeen]:
    """Return the last line of each epoch, of the loader from which most batches were taken."""
    last = {(one.loader, one.epoch): one for one in lines}
    handed: dict[int, int] = {}
    for (loader, _), one in last.items():
        handed[loader] = handed.get(loader, 0) + one.handed
    most = max(handed, key=lambda loader: handed[loader], default=None)
    return [one for (loader, _), one in sorted(last.items()) if loader == most]


def longest_of(lines: Sequence[EpochSeen], rank: int = 0) -> LongestBatch | None:
    """Return the largest batch, by the last line of each epoch of one loader."""
    line = lines[-1]
    found = LongestBatch(
        rank=rank,
        dataset=line.dataset,
        epoch=line.epoch,
        order=line.order,
        num_batches=line.num_batches,
        num_handed=min(line.handed, line.num_batches or line.handed),
    )
    if line.order == ITERABLE:
        return replace(found, missing=ITERABLE)
    if not line.columns:
        is_seen = sum(len(one.compared) for one in lines) >= MIN_PAIRS
        alike = "same_size" if is_seen and _are_alike(lines) else "no_sizes"
        return replace(found, missing=alike)
    if line.order != KNOWN:
        first = line.columns[0]
        largest = EpochBatch(batch=None, sample=first.largest[0], size=first.largest[1])
        return replace(found, told_by=first.name, largest=largest)
    relation = relate(lines)
    if relation is None:
        missing = "same_size" if _are_alike(lines) else "sizes_say_nothing"
        return replace(found, missing=missing)
    return _name_batches(found, lines, relation)


def _name_batches(
    found: LongestBatch, lines: Sequence[EpochSeen], relation: Relation
) -> LongestBatch:
    """Return it with the largest batch, the largest so far, and the last."""
    line, column = lines[-1], lines[-1].columns[relation.column]
    rises = _rises(line, relation)
    if not rises:
        return found
    taken = [row for one in lines for row in _rises(one, relation) if row[0] < one.handed]
    largest = _batch(rises[-1], relation)
    seen = max((_batch(row, relation) for row in taken), key=_elements, default=None)
    is_over = line.begun > line.epoch + 1 or any(
        one.handed >= (one.num_batches or 0) for one in lines
    )
    growth = None if seen is None else _elements(largest) / max(1, _elements(seen))
    return replace(
        found,
        told_by=column.name,
        largest=largest,
        seen=seen,
        last=_batch(column.last, relation) if column.last else None,
        growth=growth,
        is_to_come=None if growth is None else not is_over and growth > LARGER,
    )


def _rises(line: EpochSeen, relation: Relation) -> tuple[Row, ...]:
    if relation.column >= len(line.columns):
        return ()
    column = line.columns[relation.column]
    return column.padded if relation.is_padded else column.summed


def _batch(row: Row, relation: Relation) -> EpochBatch:
    return EpochBatch(
        batch=row[0],
        sample=row[1],
        size=row[_SIZE],
        num_rows=row[2],
        elements=relation.elements(row),
    )


def _elements(batch: EpochBatch) -> int:
    return batch.elements or 0


# -- whether sizes tell anything


def relate(lines: Sequence[EpochSeen]) -> Relation | None:
    """Return how batches go with the sizes of their rows; None if they do not.

    The first column counts whose sizes say how large each compared batch is; else the first that
    says which of two batches is larger.
    """
    weak = []
    for column in range(len(lines[-1].columns)):
        for is_padded in (True, False):
            points = _points(lines, column, is_padded=is_padded)
            found = fit_line(points)
            if found is None:
                continue
            (factor, shift), error = found
            relation = Relation(column=column, is_padded=is_padded, factor=factor, shift=shift)
            if error <= EXACT:
                return relation
            if are_in_order(points):
                weak.append((error, relation))
    return min(weak, key=lambda one: one[0], default=(0.0, None))[1]


def _points(
    lines: Sequence[EpochSeen], column: int, *, is_padded: bool
) -> list[tuple[float, float]]:
    """Return what the rows of each compared batch say, and what it is."""
    found: list[tuple[float, float]] = []
    for line in lines:
        for row in line.compared:
            told = row[4 + 3 * column : 7 + 3 * column]
            if len(told) == 3 and row[2] and told[0]:
                num = row[2] if row[3] % told[0] else told[0]
                found.append((told[1], row[3] / num) if is_padded else (told[2], row[3]))
    return found


def _are_alike(lines: Sequence[EpochSeen]) -> bool:
    """Return whether all compared batches have as many elements a row."""
    found = {row[3] / row[2] for line in lines for row in line.compared if row[2]}
    return len(found) == 1


def fit_line(
    points: Sequence[tuple[float, float]],
) -> tuple[tuple[float, float], float] | None:
    """Return factor and shift of the line through points, and its largest relative error.

    Points that are all alike say a factor alone. None if nothing rises.
    """
    if not points:
        return None
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    if not spread:
        are_same = max(y for _, y in points) == min(y for _, y in points)
        factor = mean_y / mean_x if mean_x else 0.0
        return ((factor, 0.0), 0.0) if are_same and factor == round(factor) and factor else None
    factor = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    shift = mean_y - factor * mean_x
    if factor <= 0 or not mean_y:
        return None
    error = max(abs(factor * x + shift - y) / mean_y for x, y in points)
    return (factor, shift), error


def are_in_order(points: Sequence[tuple[float, float]]) -> bool:
    """Return whether larger sizes mean larger batches, in nearly all pairs that differ."""
    pairs = [(a, b) for a, b in combinations(points, 2) if a[0] != b[0]]
    alike = sum((a[0] - b[0]) * (a[1] - b[1]) > 0 for a, b in pairs)
    return len(pairs) >= MIN_PAIRS and alike >= MIN_ALIKE * len(pairs)
