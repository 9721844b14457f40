"""One number behind a finding."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One number behind a finding; `unit` is s, bytes, fraction, count, cores or x."""

    name: str
    value: float
    unit: str
