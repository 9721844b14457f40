"""Computes MFU and HFU of a measured run: its counted work per second over its device's peak.

In: a Measurement. Out: `Utilization`s, each with its denominator and the content of its numerator,
or with the reason why there is none. Nothing is estimated: without a peak, a count or a steady step
time there is no fraction.
"""

from __future__ import annotations

from dataclasses import replace

from steptime.diagnose.devices_at_work import devices_at_work, peak_of_all
from steptime.diagnose.peaks import find_peaks
from steptime.diagnose.values.utilization_values import Utilization
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.work import Count, WorkBasis


def model_utilization(measurement: Measurement) -> Utilization:
    """Return MFU, which counts forward and backward alone."""
    count = measurement.count
    return _utilization(measurement, 0 if count is None else count.model_flops)


def hardware_utilization(measurement: Measurement) -> Utilization:
    """Return HFU, which also counts what checkpointing runs again.

    It is not known where a compiler may have arranged the program differently.
    """
    count = measurement.count
    if count is not None and not count.is_executed:
        return Utilization(missing="not_executed")
    return _utilization(measurement, 0 if count is None else count.total)


def _utilization(m: Measurement, flops: int) -> Utilization:
    count = m.count
    if count is None:
        return Utilization(missing=m.count_missing or "not_counted")
    if m.steady is None or m.steady.step_time_s is None or m.steady.step_time_s.estimate <= 0:
        return Utilization(missing="no_steady_steps", convention=count.convention)
    step_s = _step_s(count.basis, m.steady.step_time_s.estimate)
    if step_s is None:
        return Utilization(missing="work_differs", convention=count.convention)
    rate = flops * count.rank_ratio / step_s
    dtype, share = _main_type(count)
    rank = m.ranks[0] if m.ranks else None
    peaks, devices = find_peaks(rank, m.given_peaks), devices_at_work(count)
    peak = None if dtype is None else peak_of_all(devices, peaks, own=rank, dtype=dtype)
    found = Utilization(
        flops_per_s=rate,
        dtype=dtype,
        dtype_fraction=share,
        device=peaks.part,
        source=peaks.source_of(dtype),
        is_given=dtype in peaks.given,
        convention=count.convention,
        is_at_least=count.is_complete is False,
        num_devices=max(1, len(devices)),
        missing=None if peak else "no_peak_for_type" if peaks.flops_per_s else "unknown_device",
    )
    if peak is None:
        return found
    masked = count.masked_flops / count.total if count.total else 0.0
    causal = rate / peak * (1 - masked)
    return replace(found, fraction=rate / peak, causal_fraction=causal, peak_flops_per_s=peak)


def _step_s(basis: WorkBasis | None, median_s: float) -> float | None:
    """Return the time that the work of a mean step takes [s]; None where the mean is not known.

    Where steps differ in their work, only their sums belong together: the work and the time of all
    steps of the window.
    """
    if basis is None or not basis.differs:
        return median_s
    if basis.how == "range" or not basis.window_s:
        return None
    return basis.window_s / basis.num_steps


def _main_type(count: Count) -> tuple[str | None, float | None]:
    """Return the type that did most of the work, and its share."""
    whole = sum(count.by_dtype.values())
    if not whole:
        return None, None
    name = max(count.by_dtype, key=lambda one: count.by_dtype[one])
    return name, count.by_dtype[name] / whole
