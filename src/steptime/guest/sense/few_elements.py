"""Reads a few elements of some tensors at an even stride; nothing waits for a device.

In: tensors of one device. Out: numbers, at once or once the device has passed a copy of them.
"""

from __future__ import annotations

from ctypes import c_double
from typing import Any


class Elements:
    """Numbers that were asked for; `event` is None where they lie in the process's memory."""

    __slots__ = ("event", "memory")

    def __init__(self, memory: Any, event: Any) -> None:
        self.memory = memory
        self.event = event

    def take(self) -> list[float] | None:
        """Return the numbers; None where they have not arrived."""
        if self.event is not None and not self.event.query():
            return None
        memory = self.memory
        return list((c_double * memory.numel()).from_address(memory.data_ptr()))


def ask_elements(torch: Any, tensors: list[Any], num: int) -> Elements | None:
    """Ask for up to `num` elements of each tensor, the first among them.

    Returns:
        What arrives; None where asking might wait, be recorded, or is not possible: of tensors on
        several devices, sparse or sharded ones, and of tensors of another class.
    """
    plain = (torch.Tensor, torch.nn.Parameter)
    if not tensors or any(type(one) not in plain for one in tensors):
        return None
    device = tensors[0].device
    if any(one.layout is not torch.strided or one.device != device for one in tensors):
        return None
    if any(map(torch.is_complex, tensors)) or torch._C._are_functorch_transforms_active():
        return None
    if device.type not in ("cpu", "cuda"):
        return None
    if device.type == "cuda" and (
        device.index != torch.cuda.current_device() or torch.cuda.is_current_stream_capturing()
    ):
        return None
    parts = [strided(one.detach(), num).to(torch.float64) for one in tensors]
    found = torch.cat(parts)
    if device.type == "cpu":
        return Elements(found, None)
    memory = torch.empty(found.numel(), dtype=torch.float64, pin_memory=True)
    memory.copy_(found, non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    return Elements(memory, event)


def strided(tensor: Any, num: int) -> Any:
    """Return some elements of a tensor, which is copied only where its elements are scattered."""
    flat = tensor.view(-1) if tensor.is_contiguous() else tensor.select(0, 0).reshape(-1)
    return flat[:: max(1, flat.numel() // num)][:num]
