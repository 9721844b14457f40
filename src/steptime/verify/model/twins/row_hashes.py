"""Hashes rows so that equal rows have equal hashes, as they are and as people would call the same.

In: the columns of some rows. Out: a hash of 64 bits of each row (num_rows,). Two unlike rows of ten
million beside ten million have the same hash with a chance of 1 in 200,000 over all pairs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]

_DIGITS = 3
"""Significant digits that nearly equal numbers share: a table that was exported twice differs in
later ones."""


def hash_rows(columns: Sequence[Any], *, is_near: bool) -> Hashes:
    """Return the hash of each row (num_rows,).

    Args:
        columns: arrays (num_rows,) of numbers or text, in the same order for both tables.
        is_near: hash numbers rounded to three digits, and text without case and extra spaces.
    """
    found = np.zeros(len(columns[0]), dtype=np.uint64)
    for values in columns:
        hashed = _of_text if values.dtype.kind in "USO" else _of
        part = hashed(values, is_near=is_near)
        found = mix(found * np.uint64(31) + part)
    return found


def normal_text(text: str) -> str:
    """Return a text without case and extra spaces."""
    return " ".join(text.casefold().split())


def mix(values: Hashes) -> Hashes:
    """Spread the bits of each number (num_rows,) over all 64.

    Source: G. L. Steele, D. Lea, C. H. Flood, OOPSLA 2014 (SplitMix64).
    """
    with np.errstate(over="ignore"):
        values = values + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Hashes = values ^ (values >> np.uint64(31))
    return mixed


def _of(values: Any, *, is_near: bool) -> Hashes:
    numbers = np.asarray(values, dtype=np.float64)
    if is_near:
        with np.errstate(divide="ignore", invalid="ignore"):
            power = np.floor(np.log10(np.abs(numbers)))
            unit = 10.0 ** (np.where(np.isfinite(power), power, 0.0) - _DIGITS + 1)
            numbers = np.where(np.isfinite(numbers), np.rint(numbers / unit) * unit, numbers)
            numbers = numbers.astype(np.float32).astype(np.float64)
    numbers = np.where(np.isnan(numbers), np.nan, numbers + 0.0)  # one NaN, and no minus zero
    return mix(numbers.view(np.uint64))


def _of_text(values: Any, *, is_near: bool) -> Hashes:
    """Hash each different text once."""
    unique, places = np.unique(np.asarray(values, dtype=str), return_inverse=True)
    texts = (normal_text(text) if is_near else text for text in unique.tolist())
    hashes = [
        int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
        for text in texts
    ]
    return np.array(hashes, dtype=np.uint64)[places]
