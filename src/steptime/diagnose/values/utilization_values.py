"""The value for a rate of work, and its share of the device's peak."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilization:
    """A rate of work on one device, and its share of the device's peak.

    Attributes:
        flops_per_s: work of a step over the median step time, per device, as the mean of the
            ranks; where steps differ in their work, the work of all steps of the window over their
            time [FLOP/s].
        fraction: share of the peak; None with a reason in `missing`.
        causal_fraction: the same share without the masked half of causal attention.
        peak_flops_per_s: dense peak for the type that did most of the work [FLOP/s].
        dtype: the type of most of the work.
        dtype_fraction: share of the work that has this type.
        device: name of the device in the datasheet.
        source: source of the peak.
        is_given: whether the user gave the peak (`steptime run --peak`).
        convention: what counts as work.
        is_at_least: whether the work is not proven to be whole, so that rate and fractions are
            lower bounds.
        num_devices: devices of one process that did the work; the peak is the sum of theirs.
        missing: why there is no fraction, as a machine word.
    """

    flops_per_s: float | None = None
    fraction: float | None = None
    causal_fraction: float | None = None
    peak_flops_per_s: float | None = None
    dtype: str | None = None
    dtype_fraction: float | None = None
    device: str | None = None
    source: str | None = None
    is_given: bool = False
    convention: str | None = None
    is_at_least: bool = False
    num_devices: int = 1
    missing: str | None = None
