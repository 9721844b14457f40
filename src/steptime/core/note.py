"""Something a reader must know before believing a record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Fact = str | int | float | bool
"""A number or a name behind a sentence, as it is: whoever shows it gives it its unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something a reader must know about the record.

    Attributes:
        code: a stable word.
        facts: the numbers and names that belong to it.
    """

    code: str
    facts: Mapping[str, Fact] | None = None
