"""The peak on each of several devices, from the peak of a training on one.

In: who holds the peak, and how many devices share the same global batch. Out: the peak of a device
under each common way to share. These are estimates by sizes alone: `steptime.plan.rank_memory` runs
a rank on tensors without memory, and knows the order of what comes and goes.

Source of what is cut: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion
Parameter Models", 2020, section 5; that DDP keeps its buckets beside the gradients: torch's
`DistributedDataParallel`, `gradient_as_bucket_view`.
"""

from __future__ import annotations

from collections.abc import Mapping

from steptime.measure.values.model.anatomy import WITH_BATCH
from steptime.plan.values.shared_peaks import SharedPeak

CUT: Mapping[str, tuple[str, ...]] = {
    "ddp": (),
    "zero1": ("optimizer",),
    "zero2": ("optimizer", "gradients"),
    "fsdp": ("optimizer", "gradients", "weights"),
}
"""What each way cuts into as many parts as there are devices, besides the batch."""

GATHERED_BLOCKS = 2
"""Blocks whose weights are there in full under FSDP: the one that computes, and the next one."""


def peaks_per_device(
    by_category: Mapping[str, int], num_devices: int, *, num_blocks: int | None = None
) -> tuple[SharedPeak, ...]:
    """Return the peak of a device for each way to share the same global batch.

    Args:
        by_category: parts of the peak on one device, which sum to it [bytes].
        num_devices: how many there are.
        num_blocks: blocks of like size that the model consists of; None where it is one.

    Raises:
        ValueError: there is not at least one device.
    """
    if num_devices < 1:
        raise ValueError(f"num_devices must be 1 or more, got {num_devices}.")
    return tuple(
        SharedPeak(
            sharing=name,
            num_devices=num_devices,
            bytes=round(_peak(by_category, num_devices, name, num_blocks or 1)),
        )
        for name in CUT
    )


def _peak(parts: Mapping[str, int], num_devices: int, name: str, num_blocks: int) -> float:
    cut = (*CUT[name], *WITH_BATCH)
    size = sum(own / num_devices if part in cut else own for part, own in parts.items())
    if num_devices == 1:
        return size
    if name in ("ddp", "zero1"):
        return size + parts.get("gradients", 0)
    whole = parts.get("gradients", 0) / num_blocks
    if name == "fsdp":
        whole += parts.get("weights", 0) * min(1.0, GATHERED_BLOCKS / num_blocks)
    return size + whole * (1 - 1 / num_devices)
