"""Whether memory is short; the levers that trade time for memory ask this."""

from __future__ import annotations

from .base import Facts

MIN_MEMORY_FRACTION = 0.8
"""Of the memory that the training may have; below it there is room, and time would be lost."""


def is_memory_short(facts: Facts) -> bool:
    """Return whether memory is known to be short."""
    return (facts.memory_fraction or 0.0) >= MIN_MEMORY_FRACTION


def why_memory_suffices(facts: Facts) -> str | None:
    """Return why there is no memory to save, as a sentence; None if it is short or not known."""
    if facts.memory_fraction is None or is_memory_short(facts):
        return None
    return f"Memory is not short: the training holds {facts.memory_fraction:.0%} of what it may."
