"""Checks the numbers of a value as it enters, so that no rule behind has to.

In: a value that was read from JSON or TOML. Out: nothing, or an error that names the field. The
name of a field ends in its unit, so the name says what the number can be; a number without a rule
of its own only has to be of a size that anything measured has.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, lru_cache
from typing import Any

MAX_WHOLE = (1 << 63) - 1
"""What a column, and a database, hold."""

MAX_FLOAT = 1e100
"""No quantity is larger: all the FLOPs of the largest training are below 1e28. The square of
this, and the sum of many squares, are still finite."""

MAX_DEPTH = 100
"""Levels of plain data in plain data; ours has fewer than ten."""

MAX_UNIX_S = 1e11
"""In the year 5138; beyond the year 9999 there is no date to print."""

MAX_SECONDS = 1e11
"""3,000 years."""

_NAMES: Mapping[str, tuple[int, float]] = {
    "num_cores": (1, 1e6),
    "num_threads": (0, 1e6),
    "world_size": (1, 1e7),
    "num_ranks": (0, 1e7),
    "rank": (0, 1e7),
    "pid": (0, 2**31),
    "ppid": (0, 2**31),
    "parent_pid": (0, 2**31),
    "child_pid": (0, 2**31),
    "exit_code": (-(2**31), 2**32),
    "signal": (0, 1024),
}
"""The names that stand for one quantity everywhere."""


class OutOfRangeError(ValueError):
    """A number is not of the size that its name allows."""


def check_numbers(value: object) -> None:
    """Check every number in a value: in dataclasses, mappings and sequences, at any depth.

    Raises:
        OutOfRangeError: a number is too large or too small, or the data are nested too deeply.
    """
    level = [value]
    for _ in range(MAX_DEPTH):
        below: list[object] = []
        for item in level:
            _check_level(item, below)
        if not below:
            return
        level = below
    raise OutOfRangeError(f"it is nested more than {MAX_DEPTH} levels deep")


def _check_level(item: Any, below: list[object]) -> None:
    """Check the numbers of one object; what lies below is added to the list."""
    known = _ranges_of(item.__class__)
    if known is not None:
        for name, low, high in known:
            found = getattr(item, name)
            if type(found) in _NUMBERS:
                if not low <= found <= high:
                    raise _out_of_range(name, found)
            elif type(found) not in _PLAIN:
                below.append(found)
    elif isinstance(item, Mapping):
        for name, found in item.items():
            _check_one(str(name), found, below)
    elif isinstance(item, (tuple, list)):
        for found in item:
            _check_one("", found, below)


def _check_one(name: str, found: object, below: list[object]) -> None:
    if isinstance(found, (int, float)):
        low, high = range_of(name)
        if not low <= found <= high:
            raise _out_of_range(name, found)
    elif type(found) not in _PLAIN:
        below.append(found)


_NUMBERS = (int, float)
_PLAIN = (str, type(None), bool)


@cache
def _ranges_of(kind: Hashable) -> tuple[tuple[str, float, float], ...] | None:
    """Return the fields of a dataclass with their ranges; None for any other class."""
    if not isinstance(kind, type) or not is_dataclass(kind):
        return None
    return tuple((field.name, *range_of(field.name)) for field in fields(kind))


@lru_cache(maxsize=4096)  # keys of a mapping are anybody's words
def range_of(name: str) -> tuple[float, float]:
    """Return the least and the largest number that a field of this name may hold."""
    if name in _NAMES:
        return _NAMES[name]
    if name.endswith("_unix_s"):
        return 0, MAX_UNIX_S
    if name.startswith("num_"):
        return 0, MAX_WHOLE
    if name.endswith("_s") and not name.endswith("_per_s"):
        return -MAX_SECONDS, MAX_SECONDS
    return -MAX_FLOAT, MAX_FLOAT


def _out_of_range(name: str, found: float) -> OutOfRangeError:
    low, high = range_of(name)
    what = f"`{name}`" if name else "a number of a list"
    return OutOfRangeError(f"{what} must be between {low:.6g} and {high:.6g}, got {_short(found)}")


def _short(number: float) -> str:
    """Return a number as text; Python refuses to write thousands of digits."""
    if isinstance(number, int) and abs(number) > MAX_WHOLE:
        return "a whole number of more than 64 bits"
    return repr(number)
