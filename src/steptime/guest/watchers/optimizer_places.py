"""Notes where the script steps each optimizer, so that several loops of a process have lines.

In: an optimizer that ends its first update. Out: the line `op`: a row for each with its number, its
class, the user's line that steps it, and the line that called the function it is in. The last line
counts.
"""

from __future__ import annotations

import sys
from json import dumps
from typing import Any

from ...record import kinds
from ..sites.frames import Frames
from ..timeline.recorder import Recorder

MAX_OPTIMIZERS = 64
"""Frames are walked once for each; a sweep in one process may make thousands."""


def name_of(kind: type) -> str:
    """Return a class's name, with its library's where it computes no update of torch's.

    Keras, or the script itself, may call it Adam.
    """
    bases = [one for one in kind.__mro__ if one.__name__ != "Optimizer"]
    is_of_torch = any(one.__module__.startswith("torch.optim.") for one in bases)
    library = kind.__module__.partition(".")[0]
    return kind.__name__ if is_of_torch else f"{library}.{kind.__name__}"


class OptimizerPlaces:
    """The places of optimizers, by their numbers."""

    place = "optimizers"

    def __init__(self, recorder: Recorder, frames: Frames) -> None:
        self.recorder = recorder
        self.frames = frames
        recorder.meet = self.meet
        self.reset()

    def reset(self) -> None:
        """Forget everything: this is a new process."""
        self.rows: list[list[Any]] = []
        self.num_told = 0

    def meet(self, number: int, optimizer: Any) -> None:
        """Note an optimizer that ends its first update."""
        if len(self.rows) >= MAX_OPTIMIZERS:
            return
        try:
            stack = self.frames.stack(sys._getframe(1))
            inner, outer = [None, None, *stack][:-3:-1]
            row = [number, name_of(type(optimizer))]
            for spot in (inner, outer):
                row += [None, None] if spot is None else [spot.file, spot.line]
            self.rows.append(row)
        except BaseException:
            self.recorder.fail(self.place)

    def poll(self, bucket: int, *, is_last: bool) -> str:
        """Return all rows, where there are new ones."""
        if len(self.rows) == self.num_told:
            return ""
        self.num_told = len(self.rows)
        return dumps({"k": kinds.OPTIMIZERS, "optimizers": self.rows}) + "\n"
