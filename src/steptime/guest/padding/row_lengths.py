"""Tells from the bytes of rows which positions hold something: masks, bounds, runs, labels.

In: rows as bytes, and the size of an element. Out: how many positions of each row are used, and
between which they lie. No torch here.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

ONES = {
    **{name: (1).to_bytes(size, "little") for name, size in
       (("bool", 1), ("uint8", 1), ("int8", 1), ("int16", 2), ("int32", 4), ("int64", 8))},
    "float16": b"\x00\x3c",
    "bfloat16": b"\x80\x3f",
    "float32": b"\x00\x00\x80\x3f",
    "float64": b"\x00\x00\x00\x00\x00\x00\xf0\x3f",
}  # fmt: skip
"""How a one lies in memory, by type."""

IGNORED = -100
"""The label that torch's losses leave out."""

MIN_RUN = 2
"""A padding token is one that ends a row at least twice in a row."""

MAX_INSIDE = 0.01
"""A token that is also found between others is no padding: of all of its places, so many at most
(one in a hundred is left to bytes that look like it)."""

NO_TOKEN = -1

_FORMATS = {"int64": "q", "int32": "i", "int16": "h", "int8": "b", "uint8": "B"}


class UsedPart(NamedTuple):
    """The positions of a row that hold something: how many, the first one, and the end."""

    num: int
    begin: int
    end: int


def read_mask(
    rows: Sequence[bytes], dtype: str, *, is_inverted: bool = False
) -> list[UsedPart] | None:
    """Return what a mask of ones leaves of each row; None if it holds anything but 0 and 1.

    `is_inverted`: the ones are the padding.
    """
    one = ONES[dtype]
    size, mark = len(one), one.strip(b"\x00")
    place = one.index(mark)
    found = []
    for row in rows:
        num = row.count(mark)
        if row.count(b"\x00") != len(row) - num * len(mark):
            return None
        if size > 1 and row[place::size].count(mark[:1]) != num:
            return None  # other numbers with the same bytes
        if not is_inverted:
            begin = (row.find(mark) - place) // size if num else 0
            found.append(UsedPart(num, begin, (row.rfind(mark) - place) // size + 1 if num else 0))
            continue
        length = len(row) // size
        if num == length:
            found.append(UsedPart(0, 0, 0))
            continue
        begin = -(-row.find(bytes(size)) // size)  # zeros may begin inside the one before
        found.append(UsedPart(length - num, begin, length - run_at_end(row, one)))
    return found


def are_solid(used: Sequence[UsedPart]) -> bool:
    """Return whether the used positions of each row lie side by side."""
    return all(one.num == one.end - one.begin for one in used)


def pads_with_one_token(rows: Sequence[bytes], used: Sequence[UsedPart], size: int) -> bool:
    """Return whether all positions outside hold the same token; true if there are none."""
    token: bytes | None = None
    for row, one in zip(rows, used, strict=False):
        rest = row[: one.begin * size] + row[one.end * size :]
        if not rest:
            continue
        token = rest[:size] if token is None else token
        if rest != token * (len(rest) // size):
            return False
    return True


def read_bounds(row: bytes, dtype: str) -> list[int] | None:
    """Return the bounds of packed sequences, from 0 on upward; None if these are none."""
    values = numbers(row, dtype)
    if values is None or len(values) < 2 or values[0] != 0:
        return None
    if any(b < a for a, b in pairwise(values)):
        return None
    return values


def numbers(row: bytes, dtype: str) -> list[int] | None:
    """Return the whole numbers of a row."""
    code = _FORMATS.get(dtype)
    if code is None:
        return None
    return list(struct.unpack(f"={len(row) // struct.calcsize('=' + code)}{code}", row))


def restarts(row: bytes, dtype: str) -> list[int] | None:
    """Return the bounds of sequences whose positions count from 0 again, without the end."""
    values = numbers(row, dtype)
    if values is None or not values or values[0] != 0:
        return None
    begins = [place for place, value in enumerate(values) if value == 0]
    for place, value in enumerate(values):
        if value and value != values[place - 1] + 1:
            return None
    return begins


def num_ignored(rows: Sequence[bytes], dtype: str) -> int:
    """Return how many labels the loss leaves out."""
    return sum(row.count(_ignored(dtype)) for row in rows)


def _ignored(dtype: str) -> bytes:
    return IGNORED.to_bytes(struct.calcsize("=" + _FORMATS[dtype]), "little", signed=True)


def run_at_end(row: bytes, token: bytes) -> int:
    """Return how often a token ends a row, without anything else between."""
    size = len(token)
    low, high = 0, len(row) // size
    if not row.endswith(token * min(2, high)):
        return int(row.endswith(token))
    whole = token * high
    while low < high:  # that the last n are the token holds up to some n
        middle = (low + high + 1) // 2
        if row.endswith(whole[: middle * size]):
            low = middle
        else:
            high = middle - 1
    return low


def run_at_begin(row: bytes, token: bytes) -> int:
    """Return how often a token begins a row, without anything else between."""
    size = len(token)
    low, high = 0, len(row) // size
    if not row.startswith(token * min(2, high)):
        return int(row.startswith(token))
    whole = token * high
    while low < high:
        middle = (low + high + 1) // 2
        if row.startswith(whole[: middle * size]):
            low = middle
        else:
            high = middle - 1
    return low


def find_padding(
    rows: Sequence[bytes], size: int, labels: Sequence[bytes] | None, labels_dtype: str = ""
) -> tuple[int, list[UsedPart]] | None:
    """Return the padding token by its runs at the ends of rows, and what it leaves of each row.

    Where labels are given, a position is padding only if the loss leaves it out. `NO_TOKEN`: no
    token ends a row twice, so all positions are used. None: one does, and is elsewhere, too.
    """
    length, is_doubtful = len(rows[0]) // size, False
    for is_end in (True, False):
        token = _most_common_run(rows, size, is_end=is_end)
        if token is None:
            continue
        run = run_at_end if is_end else run_at_begin
        runs = [run(row, token) for row in rows]
        if labels is not None:
            ignored = _ignored(labels_dtype)
            runs = [min(n, run(row, ignored)) for n, row in zip(runs, labels, strict=False)]
        total = sum(runs)
        if not total:
            continue
        if labels is None and _num_inside(rows, runs, token, is_end=is_end) > MAX_INSIDE * total:
            is_doubtful = True
            continue
        value = int.from_bytes(token, "little", signed=True)
        if is_end:
            return value, [UsedPart(length - n, 0, length - n) for n in runs]
        return value, [UsedPart(length - n, n, length) for n in runs]
    return None if is_doubtful else (NO_TOKEN, [UsedPart(length, 0, length)] * len(rows))


def _most_common_run(rows: Sequence[bytes], size: int, *, is_end: bool) -> bytes | None:
    """Return the token that ends most rows at least twice in a row."""
    found: Counter[bytes] = Counter()
    for row in rows:
        token = row[-size:] if is_end else row[:size]
        pair = row[-MIN_RUN * size :] if is_end else row[: MIN_RUN * size]
        if len(row) > MIN_RUN * size and pair == token * MIN_RUN:
            found[token] += 1
    return found.most_common(1)[0][0] if found else None


def _num_inside(rows: Sequence[bytes], runs: Sequence[int], token: bytes, *, is_end: bool) -> int:
    """Return how often the token is found outside of the runs; zeros are counted by element."""
    num = 0
    for row, run in zip(rows, runs, strict=False):
        cut = run * len(token)
        rest = row[: len(row) - cut] if is_end else row[cut:]
        num += rest.count(token)
    return num
