"""Reads whole numbers out of text that somebody else wrote, such as an environment variable.

`str.isdigit` is true for `²`, of which `int` makes no number; and `int` takes ` 1_0 `, refuses
5,000 digits, and makes numbers that nothing else can hold.
"""

from __future__ import annotations

from collections.abc import Mapping

MAX_WHOLE = (1 << 63) - 1
"""The largest whole number that a record holds: 64 bits, as in a column or a database."""

_MAX_DIGITS = 18  # any number with so many digits is below MAX_WHOLE


def whole_number_in(text: str | None) -> int | None:
    """Return the number that the digits 0 to 9 alone write; None for any other text."""
    if text is None or not 0 < len(text) <= _MAX_DIGITS:
        return None
    return int(text) if text.isascii() and text.isdigit() else None


def rank_told(environment: Mapping[str, str]) -> tuple[int | None, int]:
    """Return the rank and the world size that a launcher told; None and 1 where it told none.

    A variable of these names that holds no number is somebody's own.
    """
    rank = whole_number_in(environment.get("RANK"))
    world_size = whole_number_in(environment.get("WORLD_SIZE") or "1")
    if rank is None or world_size is None:
        return None, 1
    return rank, world_size
