"""Something a reader must know before believing a record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Fact = str | int | float | bool
"""A number or a name behind a sentence, as it is: whoever shows it gives it its unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something a reader must know about the record: a stable code and its facts.

    `facts` are the numbers or names for the sentence; the wording is in `report/`.
    """

    code: str
    facts: Mapping[str, Fact] | None = None
