"""Finds the lines of the user's code from which the long operators of one forward are called.

In: the operators of one counted update. Out: rows of operator, module, line and time. A module says
too little where its forward is written in functions: a dropout at one line, a softmax at another.
Operators of a backward have no line of their own.
"""

from __future__ import annotations

import sys
from typing import Any

from ...sites.frames import Frames, innermost
from ..tally import Tally

MIN_NS = 50_000
"""Walking frames takes a third of that."""

MAX_WALKS = 500
MAX_ROWS = 12


class OperatorPlaces:
    """The time of long operators by name, module and line."""

    def __init__(self, torch: Any, frames: Frames) -> None:
        self.frames = frames
        self.of_c = torch._C
        self.left = MAX_WALKS
        self.sums: dict[tuple[str, str, str, int], list[int]] = {}  # number and time

    def see(self, func: Any, ns: int, tally: Tally) -> None:
        """Take an operator that has run in `ns`."""
        if ns < MIN_NS or not self.left or self.of_c._current_autograd_node() is not None:
            return
        self.left -= 1
        place = innermost(self.frames.stack(sys._getframe(1)))
        if place is not None:
            name = ".".join(str(func).split(".")[:2])  # without the overload
            call = tally.place_of_product()[1]
            module = "" if call is None else tally.names.get(call.key, ("", ""))[0]
            key = (name, module, place[0], place[1])
            sums = self.sums.setdefault(key, [0, 0])
            sums[0] += 1
            sums[1] += ns

    def facts(self) -> dict[str, Any]:
        """Return the rows, the longest first; empty without one."""
        ordered = sorted(self.sums.items(), key=lambda item: -item[1][1])[:MAX_ROWS]
        found = [
            dict(zip(("name", "module", "file", "line"), key)) | {"num": num, "time_s": ns * 1e-9}
            for key, (num, ns) in ordered
        ]
        return {"places": found} if found else {}
