"""Estimates what a training would take under another optimizer or precision, and what makes it fit.

In: an `Anatomy`, and the bytes that are missing. Out: the table of bytes per parameter, and
remedies in order of what they cost. These are estimates from measurements; nothing is tried.

Source of the table: stas00/ml-engineering, training/performance, "Anatomy of model's memory usage".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.anatomy import Anatomy
from steptime.plan.values import MemoryFit, ModeFit, Remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """The bytes per parameter of one way to train."""

    name: str
    weights: float
    optimizer: float
    gradients: float

    @property
    def total(self) -> float:
        """The sum of all three."""
        return self.weights + self.optimizer + self.gradients


_MASTER = "half precision with fp32 master weights"

MODES = (
    Mode(name="fp32, SGD", weights=4, optimizer=0, gradients=4),
    Mode(name="fp32, SGD with momentum or Lion", weights=4, optimizer=4, gradients=4),
    Mode(name="fp32, AdamW", weights=4, optimizer=8, gradients=4),
    Mode(name="fp32, 8-bit AdamW", weights=4, optimizer=2, gradients=4),
    Mode(name=f"{_MASTER}, AdamW", weights=6, optimizer=8, gradients=4),
    Mode(name=f"{_MASTER}, AdamW, half gradients", weights=6, optimizer=8, gradients=2),
    Mode(name=f"{_MASTER}, 8-bit AdamW", weights=6, optimizer=2, gradients=4),
    Mode(name=f"{_MASTER}, Lion or Adafactor", weights=6, optimizer=4, gradients=4),
    Mode(name="pure bf16, AdamW", weights=2, optimizer=4, gradients=2),
)
"""Autocast alone keeps fp32 weights, and a half copy only for the time of a step: it is fp32 here.
Adafactor's factored states are almost nothing for matrices; 4 bytes are its upper bound, with
momentum.
"""


LOGITS_FRACTION = 0.2
"""A fraction of what a step takes beside the states: above it, computing the loss in chunks pays
off."""

KEPT_FRACTION = 0.2
"""A fraction of the activations: checkpointing each block keeps at least its inputs and one
block."""

SHARDED_RANKS = 2
"""The least number of devices that can share states."""


def fit_memory(measurement: Measurement) -> MemoryFit | None:
    """Return what a run's memory adds up to, or None if no process reported its memory."""
    found = measurement.memory
    if found is None:
        return None
    return MemoryFit(
        states_bytes=found.states_bytes,
        bytes_per_parameter=found.bytes_per_parameter,
        would_take=tuple(
            ModeFit(name=mode.name, bytes_per_parameter=mode.total, bytes=size)
            for mode, size in table_of(found)
        ),
        remedies=remedies(found, wanted_bytes=wanted_bytes(measurement)),
    )


def table_of(anatomy: Anatomy) -> tuple[tuple[Mode, int], ...]:
    """Return each mode, and the bytes that this model's parameters would take under it."""
    return tuple(
        (mode, round(mode.weights * anatomy.num_parameters + _trained(mode, anatomy)))
        for mode in MODES
    )


def _trained(mode: Mode, anatomy: Anatomy) -> float:
    """Return the bytes of gradients and states, which only trained parameters have."""
    return (mode.optimizer + mode.gradients) * anatomy.num_trainable


def remedies(anatomy: Anatomy, *, wanted_bytes: int | None = None) -> tuple[Remedy, ...]:
    """Return what would free memory, the cheapest first; what would free nothing is left out.

    Args:
        anatomy: the memory of the rank that is short of it.
        wanted_bytes: bytes that are missing; None if that is not known.
    """
    found = [(name, estimate(anatomy)) for name, estimate in _ESTIMATES]
    return tuple(
        Remedy(name=name, frees_bytes=size, is_enough=_is_enough(size, wanted_bytes))
        for name, size in found
        if size != 0
    )


def _is_enough(size: int | None, wanted_bytes: int | None) -> bool | None:
    return None if size is None or wanted_bytes is None else size >= wanted_bytes


def _expandable(anatomy: Anatomy) -> int | None:
    """Return the memory that is reserved but too fragmented to use."""
    allocator = anatomy.death.allocator if anatomy.death else anatomy.allocator
    if allocator is None or allocator.reserved is None or allocator.allocated is None:
        return 0
    return max(0, allocator.reserved - allocator.allocated - (allocator.largest_free_block or 0))


def _grown(anatomy: Anatomy, *names: str) -> int:
    """Return these parts as they are at the peak of the run: in its largest step, or at the end."""
    died = {} if anatomy.death is None else anatomy.death.by_part
    return sum(
        max(round((anatomy.part(name).bytes or 0) * anatomy.run_scale), died.get(name, 0))
        for name in names
    )


def _with_batch(anatomy: Anatomy) -> int:
    """Return the memory that grows with the micro-batch."""
    return _grown(anatomy, "activations", "logits", "inputs")


def _half_batch(anatomy: Anatomy) -> int | None:
    if anatomy.part("activations").bytes is None:
        return None
    return _with_batch(anatomy) // 2


def _chunked_loss(anatomy: Anatomy) -> int:
    logits = _grown(anatomy, "logits")
    return logits if logits >= LOGITS_FRACTION * max(1, _with_batch(anatomy)) else 0


def _checkpointing(anatomy: Anatomy) -> int | None:
    if anatomy.part("activations").bytes is None:
        return None
    return round(_grown(anatomy, "activations") * (1 - KEPT_FRACTION))


def _autocast(anatomy: Anatomy) -> int | None:
    """Return half of the activations that are fp32 now."""
    part = anatomy.part("activations")
    if part.bytes is None:
        return None
    half = (part.by_dtype or {}).get("fp32", 0) // 2
    return round(half * _grown(anatomy, "activations") / part.bytes) if part.bytes else half


def _eight_bit(anatomy: Anatomy) -> int | None:
    """Return what two states of one byte each would save over the optimizer's own."""
    part = anatomy.part("optimizer")
    if part.bytes is None:
        return None if not anatomy.num_updates else 0
    return max(0, part.bytes - 2 * anatomy.num_trainable)


def _half_weights(anatomy: Anatomy) -> int:
    """Return what weights, gradients and states in bf16 would save over fp32."""
    names = ("weights", "gradients", "optimizer")
    parts = [anatomy.part(name).by_dtype or {} for name in names]
    return sum(by_dtype.get("fp32", 0) for by_dtype in parts) // 2


def _sharding(anatomy: Anatomy) -> int:
    """Return the states that two devices would save on each by sharing what is whole now."""
    names = [n for n in ("weights", "gradients", "optimizer") if not anatomy.part(n).is_sharded]
    return anatomy.bytes_of(*names) * (SHARDED_RANKS - 1) // SHARDED_RANKS


_ESTIMATES: tuple[tuple[str, Callable[[Anatomy], int | None]], ...] = (
    ("expandable_segments", _expandable),
    ("half_micro_batch", _half_batch),
    ("chunked_loss", _chunked_loss),
    ("activation_checkpointing", _checkpointing),
    ("autocast_bf16", _autocast),
    ("optimizer_8bit", _eight_bit),
    ("bf16_weights", _half_weights),
    ("sharding", _sharding),
)
"""The order is that of cost: a setting; more micro-batches of the same step; another loss function;
a
fifth to a quarter of the throughput; other rounding; other updates; other weights; another device.
"""


def wanted_bytes(measurement: Measurement) -> int | None:
    """Return the failed allocation minus what was free; None if no run reported such a failure."""
    error = next((error for error in measurement.errors if error.is_memory), None)
    if error is None or error.requested_bytes is None:
        return None
    death = None if measurement.memory is None else measurement.memory.death
    free = 0 if death is None or death.allocator is None else death.allocator.free or 0
    return max(0, error.requested_bytes - free)
