"""Something a reader must know before believing a record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Fact = str | int | float | bool
"""A number or a name behind a sentence, as plain data: whoever shows it adds the unit."""

Numbers = tuple[int, ...]
"""Several things that have numbers, in order: trainings, for example."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something a reader must know about the record.

    Attributes:
        code: a stable word that says which note it is.
        facts: the numbers and names that belong to the note.
    """

    code: str
    facts: Mapping[str, Fact | Numbers] | None = None
