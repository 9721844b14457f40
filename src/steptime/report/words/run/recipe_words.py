"""The words for what was proven of a recipe that a run trains with."""

from __future__ import annotations

from steptime.core.units import format_bytes, format_speedup
from steptime.measure.values.observations import RecipeUse


def describe_proof(use: RecipeUse) -> str:
    """Say what the study of a recipe proved."""
    if use.speedup is None:
        if use.limit_bytes is None:
            return "nothing was proven of it"
        return f"proven to fit into {format_bytes(use.limit_bytes)}"
    ends = f"{format_speedup(use.speedup.low)} to {format_speedup(use.speedup.high)}"
    return f"proven {format_speedup(use.speedup.estimate)}, 95 % interval {ends}"
