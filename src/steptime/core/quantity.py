"""A number with its count, median, spread and interval."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A median with its 95 % interval and the number of values behind it."""

    median: float
    low: float
    high: float
    n: int
