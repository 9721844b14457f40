"""Names the places of the numbers in an update's row, for its writer and its reader.

Wall times by bucket, counts, and CPU times by bucket follow them, in the order of the file's head
(`record.buckets`). A block has as many numbers before its sums.
"""

from __future__ import annotations

LEADING = ("number", "thread", "optimizer", "start_ns", "end_ns", "skipped", "detail")
NUMBER, THREAD, OPTIMIZER, START_NS, END_NS, SKIPPED, DETAIL = range(len(LEADING))
NUM_LEADING = len(LEADING)
"""Numbers before the sums by bucket."""

DISTURBED = 2
"""`detail` of an update that our probe made longer: it does not count."""

RESTED = 3
"""`detail` of an update that was only counted and timed; its counts are those of one before."""

FULL_UPDATES = 20_000
"""A row of sums for each update up to here, then blocks: 200,000 steps stay below 30 MB."""

NS, US = 1e-9, 1e-6
"""Times in rows are whole nanoseconds; those of rounds and unfinished blocks are microseconds."""

BY_HAND = -1
"""`optimizer` of a row that a backward call has ended, while no optimizer has stepped."""
