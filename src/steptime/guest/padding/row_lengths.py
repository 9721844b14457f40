"""Tells from the bytes of rows which positions hold something: masks, bounds, runs, labels.

In: rows as bytes, and the size of an element. Out: how many positions of each row are used, and
between which they lie. No torch here.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Sequence
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

MANY_ROWS = 4
"""Of so many rows two must end in it: one may end in two equal tokens by chance."""

MAX_INSIDE = 0.01
"""A token that is also found between others is no padding: so many at most, of those that pad."""

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
    flags = _flags_of(b"".join(rows), dtype)
    if flags is None:
        return None
    wanted, length = b"\x00" if is_inverted else b"\x01", len(flags) // len(rows)
    found = []
    for begin in range(0, len(flags), length):
        end = begin + length
        num = flags.count(wanted, begin, end)
        first = flags.find(wanted, begin, end) - begin if num else 0
        last = flags.rfind(wanted, begin, end) - begin + 1 if num else 0
        found.append(UsedPart(num, first, last))
    return found


def _flags_of(whole: bytes, dtype: str) -> bytes | None:
    """Return a byte of 0 or 1 for each element; None if one is something else.

    Elements are taken apart byte by byte and put together again, in C: each step on all of them.
    """
    one = ONES[dtype]
    mark = one.strip(b"\x00")
    size, place = len(one), one.index(mark)
    low = whole[place::size]
    flags = low.replace(mark[:1], b"\x01") if mark[0] != 1 else low
    if low.count(mark[:1]) + low.count(b"\x00") != len(low):
        return None
    again = bytearray(len(whole))
    for offset, byte in enumerate(mark):
        again[place + offset :: size] = flags.replace(b"\x01", bytes((byte,)))
    return flags if again == whole else None


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
    whole, ignored = b"".join(rows), _ignored(dtype)
    signs = whole[len(ignored) - 1 :: len(ignored)]
    if b"\xff" not in signs:
        return 0  # none is below zero
    ends = bytearray(2 * len(signs))  # of each label the lowest byte and the highest, which say it
    ends[::2], ends[1::2] = whole[:: len(ignored)], signs
    return ends.count(ignored[:1] + ignored[-1:])


def _ignored(dtype: str) -> bytes:
    return IGNORED.to_bytes(struct.calcsize("=" + _FORMATS[dtype]), "little", signed=True)


def run_at_end(row: bytes, token: bytes) -> int:
    """Return how often a token ends a row, without anything else between."""
    low = row[:: len(token)]
    most = len(low) - len(low.rstrip(token[:1]))
    return most if row.endswith(token * most) else _longest(row.endswith, token, most)


def run_at_begin(row: bytes, token: bytes) -> int:
    """Return how often a token begins a row, without anything else between."""
    low = row[:: len(token)]
    most = len(low) - len(low.lstrip(token[:1]))
    return most if row.startswith(token * most) else _longest(row.startswith, token, most)


def _longest(fits: Callable[[bytes], bool], token: bytes, most: int) -> int:
    """Return how many tokens fit; that they do holds up to some number."""
    low, high, whole = 0, most, token * most
    while low < high:
        middle = (low + high + 1) // 2
        if fits(whole[: middle * len(token)]):
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
        least = 2 if labels is None and len(rows) >= MANY_ROWS else 1
        token = _most_common_run(rows, size, is_end=is_end, least=least)
        if token is None:
            continue
        run = run_at_end if is_end else run_at_begin
        runs = [run(row, token) for row in rows]
        if labels is not None:
            ignored = _ignored(labels_dtype)
            runs = [min(n, run(row, ignored)) for n, row in zip(runs, labels, strict=False)]
        if not any(runs):
            continue
        if labels is None and _is_inside(rows, runs, token, is_end=is_end):
            is_doubtful = True
            continue
        value = int.from_bytes(token, "little", signed=True)
        if is_end:
            return value, [UsedPart(length - n, 0, length - n) for n in runs]
        return value, [UsedPart(length - n, n, length) for n in runs]
    return None if is_doubtful else (NO_TOKEN, [UsedPart(length, 0, length)] * len(rows))


def _most_common_run(rows: Sequence[bytes], size: int, *, is_end: bool, least: int) -> bytes | None:
    """Return the token that ends most rows, and so many at least, at least twice in a row."""
    found: Counter[bytes] = Counter()
    for row in rows:
        token = row[-size:] if is_end else row[:size]
        pair = row[-MIN_RUN * size :] if is_end else row[: MIN_RUN * size]
        if len(row) > MIN_RUN * size and pair == token * MIN_RUN:
            found[token] += 1
    return next((token for token, num in found.most_common(1) if num >= least), None)


def _is_inside(rows: Sequence[bytes], runs: Sequence[int], token: bytes, *, is_end: bool) -> bool:
    """Return whether the token is found too often outside of the runs."""
    size, left = len(token), int(MAX_INSIDE * sum(runs))
    for row, run in zip(rows, runs, strict=True):
        cut = run * size
        rest = row[: len(row) - cut] if is_end else row[cut:]
        low = rest[::size]
        place = low.find(token[:1])
        while place >= 0:
            left -= rest.startswith(token, place * size)
            if left < 0:
                return True
            place = low.find(token[:1], place + 1)
    return False
