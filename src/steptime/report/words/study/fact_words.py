"""The wording of facts: the numbers and names behind notes, checks, trials and comparisons.

In: facts as they are. Out: text, with the unit that ends the name of a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from steptime.core.note import Fact, Numbers
from steptime.core.units import format_count, format_rate, format_value

_RATES = {"_bytes_per_s": "bytes_per_s", "_bits_per_s": "bits_per_s"}
_ENDINGS = {"_bytes": "bytes", "fraction": "fraction", "_s": "s"}
_UNITS: Mapping[str, str] = {
    **dict.fromkeys(("speedup", "low", "high", "headroom", "alone"), "x"),
    **dict.fromkeys(("floor", "noise_floor", "wall", "cpu", "rules_out"), "fraction"),
}
_AS_IT_IS = ("_mhz", "_w", "_c", "exit_code", "signal")
"""Endings of numbers whose unit is in the sentence, or that count nothing."""


def describe_fact(name: str, value: Fact | Numbers) -> str:
    """Return one fact as people read it."""
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith(_AS_IT_IS):
        return str(value)
    rate = next((unit for end, unit in _RATES.items() if name.endswith(end)), None)
    if rate is not None:
        return format_rate(value, rate)
    ending = next((unit for end, unit in _ENDINGS.items() if name.endswith(end)), None)
    unit = _UNITS.get(name, ending)
    return format_count(value) if unit is None else format_value(value, unit)


def describe_facts(facts: Mapping[str, Fact | Numbers]) -> dict[str, str]:
    """Return all facts as people read them."""
    return {name: describe_fact(name, value) for name, value in facts.items()}


def fill(sentence: str | None, values: Mapping[str, str]) -> str | None:
    """Fill the values into the sentence; return None if there is none or a value is missing."""
    with suppress(KeyError):
        return None if sentence is None else sentence.format_map(values)
    return None


def listed(values: Mapping[str, str]) -> str:
    """List names with their values, where there is no sentence for them."""
    return ", ".join(f"{name} {value}" for name, value in values.items())
