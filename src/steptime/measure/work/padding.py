"""Finds how much of the batches is padding, and what other ways to make them would leave of it.

In: the batches that the ranks' guests looked at, and how the work of a row grows with its length.
Out: a `Padding`, or None where nothing told of lengths.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from steptime.core.stats import median
from steptime.measure.values.model.useful_work import BatchSize, LengthBin, Lengths, Padding
from steptime.measure.work.length_work import LengthWork
from steptime.record.loaders.batch_rows import SEEN_BY, BatchRow

_BOUNDS, _, _PIXELS, _, _TOKEN = range(len(SEEN_BY))

GROUP_BATCHES = 50
"""Rows are sorted within so many batches, so that their order stays random beyond that."""

MIN_SAME = 0.9
"""The padding token must be the same in so many of the batches that have one."""

MAX_BINS = 16
MAX_SIZES = 8


def find_padding(
    ranks: Sequence[Sequence[BatchRow]], work: LengthWork, places: Sequence[str] = ()
) -> Padding | None:
    """Return the padding of the batches that the ranks looked at.

    Args:
        ranks: the batches of each rank.
        work: the work of a row by its length.
        places: lines of the script that pad.
    """
    rows = _sure_rows([row for rank in ranks for row in rank if row.num_seen and row.lengths])
    if not rows:
        return None
    if rows[0].seen_by == _PIXELS:
        work = LengthWork()
    lengths = [length for row in rows for length in row.lengths]
    num_used, num_seen = sum(map(_num_used, rows)), sum(row.num_seen for row in rows)
    trained = [row for row in rows if row.num_trained >= 0]
    is_packed = rows[0].seen_by == _BOUNDS
    before = sum(_work_before(row, work) for row in rows)
    found = Counter(row.num_rows for row in rows).most_common(MAX_SIZES)
    return Padding(
        num_batches=len(rows),
        seen_by=SEEN_BY[rows[0].seen_by],
        token=next((row.token for row in rows if row.token >= 0), None),
        useful_fraction=num_used / num_seen,
        trained_fraction=min(
            1.0, sum(row.num_trained for row in trained) / max(1.0, sum(map(_num_used, trained)))
        )
        if trained
        else None,
        lengths=describe_lengths(lengths),
        batch_sizes=tuple(BatchSize(num_rows=size, num_batches=num) for size, num in found),
        trimmed_fraction=min(1.0, sum(row.num_needed for row in rows) / num_seen),
        attention_fraction=work.attention_fraction(row.width for row in rows),
        useful_work=min(1.0, sum(_work_used(row, work) for row in rows) / before),
        trimmed_work=None
        if is_packed
        else min(1.0, sum(_work_trimmed(row, work) for row in rows) / before),
        grouped_work=None if is_packed else min(1.0, _work_grouped(rows, work) / before),
        places=tuple(places),
    )


def useful_fraction(rows: Sequence[BatchRow]) -> float | None:
    """Return the share of the positions of one rank's batches that are no padding."""
    sure = _sure_rows([row for row in rows if row.num_seen and row.lengths])
    num_seen = sum(row.num_seen for row in sure)
    return sum(map(_num_used, sure)) / num_seen if num_seen else None


def _sure_rows(rows: Sequence[BatchRow]) -> list[BatchRow]:
    """Return the batches of which the same source told; tokens pad only if they are the same."""
    if not rows:
        return []
    sources = Counter(row.seen_by for row in rows)
    seen_by = max(sources, key=lambda one: (sources[one], -one))
    same = [row for row in rows if row.seen_by == seen_by]
    if seen_by != _TOKEN:
        return same
    tokens = Counter(row.token for row in same if row.token >= 0)
    if not tokens:
        return same
    token, num = tokens.most_common(1)[0]
    is_one = num >= MIN_SAME * sum(tokens.values())
    return [row if is_one and row.token == token else _as_full(row) for row in same]


def _as_full(row: BatchRow) -> BatchRow:
    """Return the batch as one without padding: what ends its rows is no padding token."""
    full = (row.width,) * len(row.lengths)
    return row._replace(token=-1, lengths=full, num_needed=row.num_seen)


def _num_used(row: BatchRow) -> float:
    """Return the used positions of the rows that were read; lengths may be of some of them."""
    if row.seen_by == _BOUNDS:
        return row.num_needed
    return sum(row.lengths) / len(row.lengths) * _num_read(row)


def _num_read(row: BatchRow) -> float:
    return row.num_seen / row.width if row.width else 0.0


# -- work


def _work_before(row: BatchRow, work: LengthWork) -> float:
    """Return the work of a batch as it was; packed sequences have attention each for itself."""
    if row.seen_by == _BOUNDS:
        return _work_used(row, work) + max(0, row.num_seen - row.num_needed)
    return _num_read(row) * work.of_row(row.width)


def _work_used(row: BatchRow, work: LengthWork) -> float:
    scale = _num_used(row) / max(1, sum(row.lengths))
    return scale * sum(map(work.of_row, row.lengths))


def _work_trimmed(row: BatchRow, work: LengthWork) -> float:
    num = _num_read(row)
    return num * work.of_row(row.num_needed / num) if num else 0.0


def _work_grouped(rows: Sequence[BatchRow], work: LengthWork) -> float:
    """Return the work of the same rows in batches of similar lengths, each cut to its longest."""
    lengths = [length for row in rows for length in row.lengths]
    size = max(1, round(median([len(row.lengths) for row in rows])))
    total = 0.0
    for begin in range(0, len(lengths), GROUP_BATCHES * size):
        group = sorted(lengths[begin : begin + GROUP_BATCHES * size], reverse=True)
        for first in range(0, len(group), size):
            batch = group[first : first + size]
            total += len(batch) * work.of_row(batch[0])
    return total * sum(map(_num_read, rows)) / len(lengths)


# -- distributions


def describe_lengths(lengths: Sequence[int]) -> Lengths:
    """Return the distribution of lengths; there is at least one."""
    ordered = sorted(lengths)
    return Lengths(
        num_rows=len(ordered),
        mean=sum(ordered) / len(ordered),
        shortest=ordered[0],
        median=median(ordered),
        p95=ordered[-(-95 * len(ordered) // 100) - 1],
        longest=ordered[-1],
        bins=tuple(_bins(ordered)),
    )


def _bins(ordered: Sequence[int]) -> list[LengthBin]:
    low, high = ordered[0], ordered[-1]
    width = -(-(high - low + 1) // MAX_BINS)
    found = Counter((length - low) // width for length in ordered)
    return [
        LengthBin(
            low=low + place * width, high=min(high, low + (place + 1) * width - 1), num_rows=num
        )
        for place, num in sorted(found.items())
    ]
