"""One number behind a finding."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One number behind a finding.

    Attributes:
        name: what was measured, as a machine word.
        value: the value, in `unit`.
        unit: `s`, `bytes`, `fraction`, `count`, `cores`, or `x` for a ratio.
    """

    name: str
    value: float
    unit: str
