"""The peak of a training on a CUDA device: its tensors, what torch's allocator loses, the context.

In: the anatomy that a trial on the device showed. Out: what was observed, in bytes of the device,
and parts that sum to it. No device has run this yet: it is tested with made-up values.
"""

from __future__ import annotations

from dataclasses import dataclass

from steptime.measure.values.model.anatomy import Anatomy
from steptime.tune.fit.held_parts import CONTEXT, CONTEXT_BYTES, FRAGMENTATION, tensors_at_peak


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePeak:
    """What a process had on its device.

    Attributes:
        reserved_bytes: the most that torch's allocator held [bytes].
        context_bytes: what the device held beside it [bytes].
        total_bytes: the memory of the device [bytes].
    """

    reserved_bytes: int
    context_bytes: int
    total_bytes: int

    @property
    def peak_bytes(self) -> int:
        """Return the most that the process had on the device."""
        return self.reserved_bytes + self.context_bytes


def device_peak(anatomy: Anatomy | None) -> DevicePeak | None:
    """Return what a process had on its device; None where its allocator did not say."""
    allocator = None if anatomy is None else anatomy.allocator
    if anatomy is None or allocator is None:
        return None
    if allocator.peak_reserved is None or allocator.total is None:
        return None
    context = anatomy.part(CONTEXT).bytes
    return DevicePeak(
        reserved_bytes=allocator.peak_reserved,
        context_bytes=CONTEXT_BYTES if context is None else context,
        total_bytes=allocator.total,
    )


def device_parts(anatomy: Anatomy | None, peak: DevicePeak) -> dict[str, int]:
    """Return the bytes of each part on the device; they sum to its peak, or to the tensors' own."""
    tensors = {} if anatomy is None else tensors_at_peak(anatomy)
    lost = max(0, peak.reserved_bytes - sum(tensors.values()))
    found = {**tensors, FRAGMENTATION: lost, CONTEXT: peak.context_bytes}
    return {name: size for name, size in found.items() if size > 0}
