"""The peak of a command that ran out of the memory here, from a forecast of its step.

In: what a trial showed until it died, and a forecast on tensors without memory. Out: parts that sum
to the peak, a `FitPeak`, and a baseline whose facts are those of the forecast.
"""

from __future__ import annotations

from dataclasses import replace

from steptime.core.codec import from_json, to_json
from steptime.errors import DamagedRunError
from steptime.levers.base import Facts
from steptime.measure.values.model.anatomy import STATES, WITH_BATCH
from steptime.plan.values import MemoryForecast
from steptime.tune.fit.held_parts import (
    CONTEXT,
    CONTEXT_BYTES,
    FRAGMENTATION,
    PROCESS,
    PROCESS_BYTES,
    total_of,
)
from steptime.tune.search.bench import Baseline
from steptime.tune.trials.children.forecast_child import CommandForecast
from steptime.tune.values.fit_values import FitPeak, RankPeak

FAKE_STEP = "fake_step"
"""How a peak is known that was forecast because the command ran out of the memory here."""

KEPT = 1.08
"""Of what grows with the batch, what the C allocator kept besides: the median of seven trainings on
CPUs (benchmarks/results/fit_specimens.json)."""

MOST_KEPT = 1.54
"""The most among these. The least is none at all: pieces beyond 32 MiB always go back."""

LEAST_PROCESS_BYTES = 178 << 20
"""What importing torch takes (see `PROCESS_BYTES`)."""

TWICE = 2
"""Buckets and gradients, which are of one size, may each be there once more: in a process of DDP
with 356 MiB of tensors, the C allocator kept 120 MiB beyond what one process alone keeps."""

MORE_CONTEXT_BYTES = 3 << 29
"""A device's context was up to 2 GiB (as for `CONTEXT_BYTES`)."""

DIED = "ended_by_the_memory_here"
"""Of a peak: the command as written ran out of the memory that is free here."""


def forecast_parts(
    found: CommandForecast, *, least_bytes: int, is_of_device: bool
) -> dict[str, int]:
    """Return the parts of a forecast peak with what the process or the device's context takes.

    Args:
        found: one with a peak; where it did not see the process, torch's own size is taken.
        least_bytes: what the process needs at least, as its death showed; what no part accounts
            for is put down to the process.
        is_of_device: the tensors are, or would be, on a device.
    """
    tensors = {name: size for name, size in found.memory.by_category.items() if size > 0}
    if is_of_device:
        return tensors | {CONTEXT: CONTEXT_BYTES}
    growing = sum(tensors.get(name, 0) for name in WITH_BATCH)
    process = PROCESS_BYTES if found.process_bytes is None else found.process_bytes
    parts = tensors | {PROCESS: process, FRAGMENTATION: round(KEPT * growing)}
    parts[PROCESS] += max(0, least_bytes - total_of(parts))
    return {name: size for name, size in parts.items() if size > 0}


def describe_forecast(
    forecast: MemoryForecast, parts: dict[str, int], *, least_bytes: int, is_of_device: bool
) -> FitPeak:
    """Return the peak of a forecast, with its interval and what is not known of it.

    Raises:
        ValueError: the forecast has no peak.
    """
    peak = forecast.peak
    if peak is None:
        raise ValueError(f"a forecast with a peak is needed, got {forecast.unknown=}")
    estimate = total_of(parts)
    growing = sum(parts.get(name, 0) for name in WITH_BATCH)
    exchanged = parts.get("communication", 0)
    if is_of_device:
        low, high = peak.low + CONTEXT_BYTES, peak.high + CONTEXT_BYTES + MORE_CONTEXT_BYTES
        unknown = [DIED, "context_of_the_device"]
    else:
        low = max(least_bytes, peak.low + LEAST_PROCESS_BYTES)
        high = peak.high + parts.get(PROCESS, 0) + round(MOST_KEPT * growing)
        unknown = [DIED, "allocator_not_seen"]
        if exchanged:
            high += TWICE * exchanged
            unknown.append("ranks_beside")
    return FitPeak(
        estimate=estimate,
        low=min(low, estimate),
        high=max(high, estimate),
        by_category=parts,
        how=FAKE_STEP,
        unknown=(*unknown, *forecast.unknown),
    )


def peaks_of_ranks(found: CommandForecast) -> tuple[RankPeak, ...]:
    """Return the forecast of each rank that has one, in order."""
    peaks = [(one.rank, one.memory.peak) for one in found.ranks]
    return tuple(
        RankPeak(rank=rank, estimate=peak.estimate, low=peak.low, high=peak.high)
        for rank, peak in peaks
        if peak is not None
    )


def with_forecast(baseline: Baseline, found: CommandForecast) -> Baseline:
    """Return a baseline that knows what the forecast knows of the script and its peak."""
    parts = found.memory.by_category
    known = {name: value for name, value in found.script.items() if value is not None}
    try:
        facts = from_json(Facts, {**to_json(baseline.facts), **known})
    except DamagedRunError:
        facts = baseline.facts
    facts = replace(
        facts,
        peak_bytes=dict(parts),
        peak_phase=found.memory.phase,
        held_bytes={name: parts[name] for name in STATES if name in parts},
    )
    return replace(baseline, facts=facts)
