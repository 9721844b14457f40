"""The peak on each of several devices that share a training."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPeak:
    """The peak of one device, as estimated.

    Attributes:
        sharing: how the devices share the training: `ddp`, `zero1`, `zero2`, `fsdp` (each shares
            the same global batch).
        num_devices: how many there are.
        bytes: the peak [bytes].
    """

    sharing: str
    num_devices: int
    bytes: int
