"""Hashes rows so that equal rows have equal hashes, as they are and as people would call the same.

In: the columns of some rows. Out: a hash of 64 bits of each row (num_rows,). Two unlike rows of ten
million beside ten million have the same hash with a chance of 1 in 200,000 over all pairs.

Source of the mixing: G. L. Steele, D. Lea, C. H. Flood, OOPSLA 2014 (SplitMix64).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]

_STEPS = 512
"""Of a number's leading digits: numbers that agree in about three digits are nearly equal, as a
table that was exported twice differs in later ones."""


def hash_rows(columns: Sequence[Any], *, is_near: bool) -> Hashes:
    """Return the hash of each row (num_rows,).

    Args:
        columns: arrays (num_rows,) of numbers or text, in the same order for both tables.
        is_near: hash numbers rounded to three digits, and text without case and extra spaces.
    """
    found = np.zeros(len(columns[0]), dtype=np.uint64)
    for values in columns:
        hashed = _of_text if values.dtype.kind in "UO" else _of_numbers
        found = mix(found * np.uint64(31) + hashed(values, is_near=is_near))
    return found


def normal_text(text: str) -> str:
    """Return a text without case and extra spaces."""
    return " ".join(text.casefold().split())


def mix(values: Hashes) -> Hashes:
    """Spread the bits of each number over all 64; overflow is meant."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Hashes = values ^ (values >> np.uint64(31))
    return mixed


def _of_numbers(values: Any, *, is_near: bool) -> Hashes:
    numbers = np.asarray(values, dtype=np.float64)
    if is_near:
        leading, power = np.frexp(numbers)
        numbers = np.ldexp(np.rint(leading * _STEPS) / _STEPS, power)
    numbers = np.where(np.isnan(numbers), np.nan, numbers + 0.0)  # one NaN, and no minus zero
    bits = numbers.view(np.uint64)
    if values.dtype.kind in "iu":  # ids may be larger than what a float holds
        bits = np.where(np.abs(numbers) < 2.0**53, bits, values.astype(np.uint64))
    return mix(bits)


def _of_text(values: Any, *, is_near: bool) -> Hashes:
    """Hash each different text once."""
    texts = values.tolist()
    hashes = {
        text: hashlib.blake2b((normal_text(text) if is_near else text).encode(), digest_size=8)
        for text in set(texts)
    }
    codes = {text: int.from_bytes(one.digest(), "little") for text, one in hashes.items()}
    return np.array([codes[text] for text in texts], dtype=np.uint64)
