"""What the first steps see of each sample: a share that grows linearly to the whole.

This is no lever, as it has no `LEVER`: `progressive_length` and `progressive_resolution` share it.
"""

from __future__ import annotations

import weakref
from typing import Any

from .base import Session, Settings, Undo

GROWTH_STEPS = 1000
"""Steps until samples are whole; a recipe takes any other number."""


class GrowingShare:
    """Counts the steps of each optimizer, and says which share of a sample is due.

    The settings are `start`, the share of the first step, and `steps`, until samples are whole.
    """

    def __init__(self, settings: Settings) -> None:
        self._start = float(settings["start"])
        self._steps = max(1, int(settings["steps"]))
        self._made: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def watch(self, session: Session) -> Undo:
        """Begin to count; return what ends it."""
        return session.before_update(self._count)

    def fraction(self) -> float:
        """Return the share that is due, 1 where samples are whole."""
        made = max(self._made.values(), default=0)
        return min(1.0, self._start + (1 - self._start) * made / self._steps)

    def _count(self, optimizer: Any) -> None:
        self._made[optimizer] = self._made.get(optimizer, 0) + 1
