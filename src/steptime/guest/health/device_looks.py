"""Fetches a number from a device without waiting for it.

The copy goes to pinned memory in the order of the stream, an event follows it, and the number is
read once the event has passed: some updates later. Nothing is allocated on the device.
"""

from __future__ import annotations

from typing import Any

from .scalars import Read

MAX_SLOTS = 4
"""Copies under way. A device that is further behind is not asked again until it catches up."""


class Slot:
    """One copy under way: the pinned memory, and the event behind it."""

    __slots__ = ("event", "memory", "read")

    def __init__(self, memory: Any, event: Any, read: Read) -> None:
        self.memory = memory
        self.event = event
        self.read = read


class DeviceLooks:
    """Begins copies, and gives their numbers when they have arrived."""

    def __init__(self, torch: Any, readers: dict[Any, Read]) -> None:
        self.torch = torch
        self.readers = readers
        self.free: dict[Any, list[Slot]] = {}
        self.num_slots = 0

    def begin(self, tensor: Any) -> Slot | None:
        """Begin to copy a tensor of one number; None where that might wait, or be seen."""
        torch = self.torch
        read = self.readers.get(tensor.dtype)
        cuda = torch.cuda
        if read is None or tensor.device.type != "cuda":
            return None
        if tensor.device.index != cuda.current_device() or cuda.is_current_stream_capturing():
            return None
        if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
            return None
        slot = self._take(tensor.dtype, read)
        if slot is None:
            return None
        with torch.no_grad():
            slot.memory.copy_(tensor.detach().view(1), non_blocking=True)
        slot.event.record()
        return slot

    def take(self, slot: Slot) -> float | None:
        """Return the number, if it has arrived; the slot is free again then."""
        if not slot.event.query():
            return None
        value = slot.read(slot.memory.data_ptr())
        self.free[slot.memory.dtype].append(slot)
        return value

    def _take(self, dtype: Any, read: Read) -> Slot | None:
        free = self.free.setdefault(dtype, [])
        if free:
            return free.pop()
        if self.num_slots == MAX_SLOTS:
            return None
        self.num_slots += 1
        memory = self.torch.empty(1, dtype=dtype, pin_memory=True)
        return Slot(memory, self.torch.cuda.Event(), read)
