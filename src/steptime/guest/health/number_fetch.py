"""Reads many numbers of tensors at once: out of memory, or from a device without waiting for it.

The script's own reads are counted, so ours must not pass through the same methods. From a device
the numbers are copied to pinned memory in the order of its stream, an event follows them, and they
are taken once the event has passed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from ctypes import c_float
from typing import Any, NamedTuple

Take = Callable[[list[float]], None]

MAX_WAITING = 16
"""Fetches under way. A device that is further behind is not asked again until it catches up."""


class Fetch(NamedTuple):
    """Numbers under way: the memory they come to, the event behind them, and who takes them."""

    memory: Any
    event: Any
    order: list[int]
    take: Take


class NumberFetch:
    """Gives numbers to whoever wants them, at once or when they have arrived, in order."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.waiting: deque[Fetch] = deque()

    def begin(self, numbers: list[Any], take: Take) -> bool:
        """Fetch tensors of one number each, all on one device; False where that cannot be now."""
        if not numbers:
            take([])
            return True
        stacked, order = self._stack(numbers)
        if self.is_here(stacked):
            take(read(stacked, order))
            return True
        if len(self.waiting) >= MAX_WAITING:
            return False
        memory, event = self._copy(stacked)
        self.waiting.append(Fetch(memory, event, order, take))
        return True

    def is_here(self, stacked: Any) -> bool:
        """Return whether the numbers are in this process's memory."""
        return bool(stacked.is_cpu)

    def _stack(self, numbers: list[Any]) -> tuple[Any, list[int]]:
        """Return all numbers in 32 bits, and the place of each: types are grouped, then turned."""
        torch = self.torch
        places: dict[Any, list[int]] = {}
        for place, number in enumerate(numbers):
            places.setdefault(number.dtype, []).append(place)
        parts = [torch.stack([numbers[i] for i in own]).float() for own in places.values()]
        order = [place for own in places.values() for place in own]
        return parts[0] if len(parts) == 1 else torch.cat(parts), order

    def _copy(self, stacked: Any) -> tuple[Any, Any]:
        """Begin to copy numbers from a device."""
        torch = self.torch
        memory = torch.empty(stacked.shape, dtype=torch.float32, pin_memory=True)
        memory.copy_(stacked, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        return memory, event

    def poll(self) -> None:
        """Hand over what has arrived."""
        while self.waiting and self.waiting[0].event.query():
            fetch = self.waiting.popleft()
            fetch.take(read(fetch.memory, fetch.order))


def read(memory: Any, order: list[int]) -> list[float]:
    """Return the numbers of a tensor on the CPU, each at its place."""
    values = (c_float * len(order)).from_address(memory.data_ptr())
    found = [0.0] * len(order)
    for place, value in zip(order, values, strict=True):
        found[place] = value
    return found


TAKE_TENSORS = (NumberFetch.begin, NumberFetch._stack, NumberFetch._copy, NumberFetch.poll, read)
"""Functions whose frames hold tensors (`hooks/patching.py` says why that matters)."""
