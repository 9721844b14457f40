"""What levers ask that turn a debug switch off: whether it was on.

In: the facts, and the name of a switch. Out: None, or why there is nothing to turn off.
"""

from __future__ import annotations

from .base import Facts


def why_not_on(facts: Facts, switch: str, reason: str) -> str | None:
    """Return why the switch need not be turned off; None if it was on in most of the steps."""
    if facts.switches_on is None:
        return f"It was not observed whether the script turns on {switch.replace('_', ' ')}."
    return None if switch in facts.switches_on else reason
