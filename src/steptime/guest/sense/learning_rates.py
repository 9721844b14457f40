"""The learning rate of each update, and how often schedulers advance.

A rate is read where its optimizer's step ends: it is what the update used. Of a training whose rate
never changes, one comparison is made per update.
"""

from __future__ import annotations

import weakref
from types import FrameType
from typing import Any

from ..sites.frames import Frames, innermost

MAX_OPTIMIZERS = 8
MAX_SCHEDULERS = 8


class Rates:
    """The rates and the schedulers of a process; what is known of each is what is written."""

    def __init__(self, frames: Frames) -> None:
        self.frames = frames
        self.known: dict[int, dict[str, Any]] = {}
        self.values: dict[int, Any] = {}
        self.schedules: dict[int, tuple[Any, int, dict[str, Any]]] = {}

    def end_step(self, key: int, optimizer: Any, number: int) -> None:
        """Take the rate that the update with this number, from 1, has used."""
        groups = getattr(optimizer, "param_groups", None)
        value = groups[0].get("lr") if groups else None
        if key not in self.values or value is not self.values[key]:
            self._change(key, optimizer, value, number)

    def _change(self, key: int, optimizer: Any, value: Any, number: int) -> None:
        if key not in self.values and len(self.values) >= MAX_OPTIMIZERS:
            return
        is_new, before = key not in self.values, self.values.get(key)
        self.values[key] = value
        rate = self.known.setdefault(
            key,
            {
                "kind": type(optimizer).__name__,
                "first_update": number,
                "highest": 0.0,
                "has_moved": False,
            },
        )
        if type(value) not in (float, int):  # a tensor would have to be read from its device
            rate["zero_since"], rate["has_moved"] = None, True
            return
        rate["has_moved"] |= not is_new and value != before
        rate["highest"] = max(rate["highest"], value)
        if value != 0 or not _are_zero(optimizer):
            rate["zero_since"] = None
        elif rate.get("zero_since") is None:
            rate["zero_since"] = number

    def see_scheduler(self, scheduler: Any, frame: FrameType) -> None:
        """Take a step of a scheduler that begins; its constructor makes the first one."""
        key, num = id(scheduler), getattr(scheduler, "_step_count", 0)
        known = self.schedules.get(key)
        if known is None or known[0]() is not scheduler:
            if len(self.schedules) >= MAX_SCHEDULERS:
                return
            facts: dict[str, Any] = {"scheduler": type(scheduler).__name__}
            known = weakref.ref(scheduler), id(scheduler.optimizer), facts
            self.schedules[key] = known
        if num <= 1:  # the place of the constructor, and then of the first real step
            place = innermost(self.frames.stack(frame))
            known[2]["place"] = None if place is None else {"file": place[0], "line": place[1]}
        known[2]["num_advances"] = num

    def tell(self) -> list[dict[str, Any]]:
        """Return what is known of each rate, and of the scheduler that advances it most."""
        for reference, _, schedule in self.schedules.values():
            if (scheduler := reference()) is not None:
                schedule["num_advances"] = getattr(scheduler, "_step_count", 1) - 1
        return [
            rate
            | max(self._schedules_of(key), key=lambda one: int(one["num_advances"]), default={})
            for key, rate in self.known.items()
        ]

    def _schedules_of(self, key: int) -> list[dict[str, Any]]:
        return [one for _, owner, one in self.schedules.values() if owner == key]


def _are_zero(optimizer: Any) -> bool:
    rates = [group.get("lr") for group in optimizer.param_groups]
    return all(type(rate) in (float, int) and rate == 0 for rate in rates)
