"""Who holds the peak of a training process, as parts that sum to it.

In: the anatomy of a run, and the private memory that its process had at most. Out: bytes by part:
those of the anatomy, `process` for Python, torch and libraries, and `fragmentation` for what the C
allocator kept although it was free. docs/how-to/make-it-fit.md says what is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.anatomy import WITH_BATCH, Anatomy
from steptime.measure.values.model.longest import PeakForecast
from steptime.tune.values.fit_values import BatchPoint, LengthPoint

PROCESS_BYTES = 250 << 20
"""Python 3.11 with torch 2.13 for CPUs after its first update: 248 MiB of private memory. Importing
torch takes 178 MiB; the first step of an optimizer imports its compiler (our own measurement)."""

CONTEXT_BYTES = 1 << 29
"""A device's context: 0.47 GiB with kernels loaded lazily, 0.9 GiB and more without (Machine
Learning Engineering, S. Bekman). It differs between releases, so a real device must say it."""

PROCESS, FRAGMENTATION, CONTEXT = "process", "fragmentation", "context"

TENSORS = (
    *("weights", "buffers", "gradients", "optimizer", "activations", "logits", "inputs"),
    *("others", "temporaries", "communication"),
)
"""Parts that are tensors."""

Parts = Mapping[str, float]


def parts_at_peak(
    anatomy: Anatomy | None, peak_bytes: int, *, is_of_device: bool = False
) -> dict[str, int]:
    """Return the bytes of each part at the peak; they sum to `peak_bytes`, or to the tensors' own.

    Args:
        anatomy: who held the memory; None where no process told.
        peak_bytes: private memory of the process at its peak.
        is_of_device: what the same tensors would take on a device, with its context.
    """
    tensors = {} if anatomy is None else tensors_at_peak(anatomy)
    if is_of_device:
        return {name: size for name, size in tensors.items() if size > 0} | {CONTEXT: CONTEXT_BYTES}
    held = sum(tensors.values())
    rest = max(0, peak_bytes - held)
    process = min(rest, PROCESS_BYTES)
    found = {**tensors, PROCESS: process, FRAGMENTATION: rest - process}
    return {name: size for name, size in found.items() if size > 0}


def peak_to_come(measurement: Measurement) -> PeakForecast | None:
    """Return what the step of a batch will hold that is larger than all so far, and still to come.

    None where there is none, or the difference to the peak so far is not known.
    """
    found = measurement.longest_batch
    if found is None or not found.is_to_come or found.seen_peak_bytes is None:
        return None
    memory = measurement.memory
    if memory is None or memory.timeline is None or memory.run_peak is None:
        return None
    return found.peak


def growth_to_come(measurement: Measurement) -> int:
    """Return by how much the peak will rise with the largest batch of the epoch [bytes]."""
    coming, found = peak_to_come(measurement), measurement.longest_batch
    if coming is None or found is None or found.seen_peak_bytes is None:
        return 0
    return max(0, coming.estimate - found.seen_peak_bytes)


def with_largest(measurement: Measurement) -> Anatomy | None:
    """Return the anatomy with the peak that the largest batch of the epoch will have."""
    coming, memory = peak_to_come(measurement), measurement.memory
    if coming is None or memory is None or memory.run_peak is None:
        return memory
    largest = max(coming.estimate, memory.run_peak.bytes)
    return replace(memory, run_peak=replace(memory.run_peak, bytes=largest))


def tensors_at_peak(anatomy: Anatomy) -> dict[str, int]:
    """Return the tensors at the peak of the run's largest step that is known.

    Where no step was followed, these are the parts that each snapshot showed.
    """
    if anatomy.timeline is not None:
        scale = anatomy.run_scale
        peak = anatomy.timeline.peak.by_part
        return {
            name: round(peak.get(name, 0) * (scale if name in WITH_BATCH else 1.0))
            for name in TENSORS
        }
    died = {} if anatomy.death is None else anatomy.death.by_part
    return {name: max(anatomy.part(name).bytes or 0, died.get(name, 0)) for name in TENSORS}


def room_for_batch(parts: Parts, limit_bytes: float) -> float | None:
    """Return how many times as large the micro-batch could be; None where nothing grows with it.

    What the C allocator keeps grows with the tensors.
    """
    growing = _growing(parts)
    if growing <= 0:
        return None
    return (limit_bytes - (total_of(parts) - growing)) / growing


def peaks_by_batch(parts: Parts) -> tuple[BatchPoint, ...]:
    """Return the peak for smaller and larger micro-batches; none where nothing grows with them."""
    growing = _growing(parts)
    if growing <= 0:
        return ()
    fixed = total_of(parts) - growing
    return tuple(BatchPoint(factor=one, bytes=round(fixed + growing * one)) for one in FACTORS)


def peaks_by_length(parts: Parts) -> tuple[LengthPoint, ...]:
    """Return the peak for shorter and longer rows, between growth by elements and by squares.

    None where nothing grows with the batch.
    """
    growing = _growing(parts)
    if growing <= 0:
        return ()
    fixed = total_of(parts) - growing
    ends = [(one, sorted((fixed + growing * one, fixed + growing * one**2))) for one in LENGTHS]
    return tuple(
        LengthPoint(factor=one, low=round(low), high=round(high)) for one, (low, high) in ends
    )


LENGTHS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
"""Of the length of the rows that were seen."""

FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
"""Of the micro-batch as written."""


def _growing(parts: Parts) -> float:
    """Return what grows with the micro-batch [bytes], with what the allocator keeps of it."""
    tensors = sum(parts.get(name, 0.0) for name in TENSORS)
    growing = sum(parts.get(name, 0.0) for name in WITH_BATCH)
    loose = parts.get(FRAGMENTATION, 0.0) * growing / tensors if tensors else 0.0
    return growing + loose


def total_of(parts: Parts) -> int:
    """Return the sum of the parts [bytes]."""
    return round(sum(parts.values()))
