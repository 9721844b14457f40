"""Copies of numbers from a device that is not there, whose waits are counted."""

from __future__ import annotations

from typing import Any

from steptime.levers._late_numbers import LateCopy


class CountedCopies:
    """Counts waits for copies; what is copied is there once `is_done`."""

    def __init__(self) -> None:
        self.num_begun = self.num_waits = 0
        self.is_done = False

    def copy(self, number: Any) -> LateCopy:
        """Begin the copy of a number."""
        self.num_begun += 1

        def read() -> Any:
            self.num_waits += not self.is_done
            return number

        return LateCopy(read, lambda: self.is_done)
