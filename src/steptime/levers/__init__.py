"""The levers that Steptime ships; one file each, and this list."""

from __future__ import annotations

from importlib import import_module

from steptime.levers.base import Lever

NAMES: tuple[str, ...] = (
    "num_threads",
    "wait_policy",
    "allocator",
)
"""Module names, in the order in which they are listed."""


def load(name: str) -> Lever:
    """A lever by its name.

    Raises:
        ValueError: there is none of that name.
    """
    if name not in NAMES:
        raise ValueError(f"`name` must be one of {NAMES}, got {name!r}")
    lever: Lever = import_module(f"steptime.levers.{name}").LEVER
    return lever


def load_all() -> tuple[Lever, ...]:
    """All levers."""
    return tuple(load(name) for name in NAMES)
