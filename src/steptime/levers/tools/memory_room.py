"""Whether memory is short, and what levers may keep in it that trade memory for time."""

from __future__ import annotations

from ..base import Facts

MIN_MEMORY_FRACTION = 0.8
"""Of the memory that the training may have; below it there is room, and time would be lost."""

KEPT_FRACTION = 0.25
"""Of the available memory, for samples that are kept: the script's own peak may still come."""


def bytes_to_keep(facts: Facts, *, if_unknown: int = 0) -> int:
    """Return what each rank may keep of samples; `if_unknown` counts as available memory."""
    return int(KEPT_FRACTION * (facts.available_bytes or if_unknown) / facts.world_size)


def is_memory_short(facts: Facts) -> bool:
    """Return whether memory is known to be short."""
    return (facts.memory_fraction or 0.0) >= MIN_MEMORY_FRACTION


def why_memory_suffices(facts: Facts) -> str | None:
    """Return why there is no memory to save, as a sentence; None if it is short or not known."""
    if facts.memory_fraction is None or is_memory_short(facts):
        return None
    return f"Memory is not short: the training holds {facts.memory_fraction:.0%} of what it may."
