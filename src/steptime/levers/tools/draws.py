"""The class of a lever that makes a model draw other random numbers, if it draws any."""

from __future__ import annotations

from ..base import Facts, Preserves, Settings


def numeric_without_draws(facts: Facts, settings: Settings) -> Preserves | None:
    """Return NUMERIC for a model that draws nothing: only the rounding changes; else None."""
    return Preserves.NUMERIC if facts.draws_in_calls is False else None
