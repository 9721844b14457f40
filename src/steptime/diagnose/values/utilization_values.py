"""A rate of work, and its share of what the datasheet promises."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilization:
    """A rate of work on one device, and its share of what the datasheet promises.

    Attributes:
        flops_per_s: work of a step over the median step time, on a device: the mean of the
            ranks [FLOP/s].
        fraction: share of the peak; None with a reason in `missing`.
        causal_fraction: the same if the masked half of causal attention is not counted.
        peak_flops_per_s: dense, of the type that did most of the work.
        dtype: the type that most of the work was of.
        dtype_fraction: share of the work that is of that type.
        device: the name of the device in the datasheet.
        source: where its peak was read.
        convention: what is in the work.
        missing: why there is no fraction, a machine word.
    """

    flops_per_s: float | None = None
    fraction: float | None = None
    causal_fraction: float | None = None
    peak_flops_per_s: float | None = None
    dtype: str | None = None
    dtype_fraction: float | None = None
    device: str | None = None
    source: str | None = None
    convention: str | None = None
    missing: str | None = None
