"""Measures memory and garbage collections in a rank's steady window.

In: the steps of a rank, its window, its samples of memory. Out: `MemoryUse` and `GcPauses`;
docs/explanation/how-we-measure.md says how. `diagnose` decides whether memory leaks.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, compress, pairwise, repeat

from steptime.core.interval import Interval
from steptime.core.stats import trend
from steptime.measure.fold.seen_lines import MemorySample
from steptime.measure.steps.steady_window import StepWindow
from steptime.measure.steps.step_fold import RankSteps
from steptime.measure.values.measurement import SPANS
from steptime.measure.values.observations import GcPauses, MemoryUse
from steptime.record.places import NS

Read = Callable[[MemorySample], int | None]

MAX_SPAN_FRACTION = 0.1
"""Share of spans above which a stretch says nothing of the steps, because counts of the process
(faults, collections) cannot be divided there. The first batch of an epoch stays below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedSample:
    """A sample and its place: the steps before it, with fractions, and the spans before it [s]."""

    sample: MemorySample
    step: float
    spans_begun_s: float
    spans_done_s: float


def host_memory(
    rank: RankSteps, placed: Sequence[PlacedSample], *, limit_bytes: int | None
) -> MemoryUse | None:
    """Return the resident memory of the process, with its faults and the system's CPU time.

    Args:
        rank: the rank whose memory it is.
        placed: its samples, from `place_samples`.
        limit_bytes: the most memory that the process may have.
    """
    use = _memory_use(rank, placed, read=lambda sample: sample.rss)
    if use is None:
        return None
    peaks = [sample.rss_peak for sample in rank.signals.memory if sample.rss_peak is not None]
    system_ns = _per_step(placed, lambda sample: sample.stime_ns)
    return replace(
        use,
        peak_bytes=max([use.peak_bytes, *peaks]),
        limit_bytes=limit_bytes,
        minor_faults_per_step=_per_step(placed, lambda sample: sample.minflt),
        major_faults_per_step=_per_step(placed, lambda sample: sample.majflt),
        system_cpu_s_per_step=None if system_ns is None else system_ns * NS,
    )


def device_memory(rank: RankSteps, placed: Sequence[PlacedSample]) -> MemoryUse | None:
    """Return the memory allocated on the device, without a limit; None without a device."""
    use = _memory_use(rank, placed, read=lambda sample: sample.allocated)
    if use is None:
        return None
    peaks = [sample.peak for sample in rank.signals.memory if sample.peak is not None]
    return replace(use, peak_bytes=max([use.peak_bytes, *peaks]))


def _memory_use(rank: RankSteps, placed: Sequence[PlacedSample], *, read: Read) -> MemoryUse | None:
    """Return the use; without a sample in the window all samples count, and without any, None."""
    every = _values(rank.signals.memory, read)
    if not every:
        return None
    inside = _values([p.sample for p in placed], read)
    points = [(p.step, float(v)) for p in placed if (v := read(p.sample)) is not None]
    return MemoryUse(
        first_bytes=(inside or every)[0],
        last_bytes=every[-1],
        peak_bytes=max(every),
        num_samples=len(every),
        slope_bytes_per_step=_lasting_trend(points),
    )


def _lasting_trend(points: Sequence[tuple[float, float]]) -> Interval | None:
    """Return the trend, or that of the second half where it is less: what fills once is no trend.

    Its interval begins where the lower of both does: what goes up and down may rise over the whole
    and not in its second half. Where the second half has too few samples, there is no trend.
    """
    trends = (trend(points), trend(points[len(points) // 2 :]))
    known = [one for one in trends if one is not None]
    if len(known) < len(trends):
        return None
    less = min(known, key=lambda one: one.estimate)
    return replace(less, low=min(one.low for one in known))


def _values(samples: Sequence[MemorySample], read: Read) -> list[int]:
    return [value for value in map(read, samples) if value is not None]


def _inside(rank: RankSteps, window: StepWindow) -> list[MemorySample]:
    """Return the window's samples outside spans, since spans have memory of their own."""
    if not window.steps and not window.blocks:
        return []
    spans = {place for place, name in enumerate(rank.head.buckets) if name in SPANS}
    start_s, end_s = window.start_s, window.end_s
    return [
        sample
        for sample in rank.signals.memory
        if start_s <= sample.t * NS <= end_s and sample.bucket not in spans
    ]


def place_samples(rank: RankSteps, window: StepWindow) -> list[PlacedSample]:
    """Return where the samples of the window fell among the steps, by the clock they share.

    The number of updates in the sample would be simpler, but it counts other threads too.
    """
    blocks = rank.blocks
    ends_s = [*rank.steps.end_s, *(block.end_s for block in blocks)]
    singles_s = zip(*(rank.steps.span(name) for name in SPANS), strict=True)
    sums_s = map(math.fsum, chain(singles_s, (block.spans_s.values() for block in blocks)))
    spans_s = [0.0, *accumulate(sums_s)]
    sizes = [*repeat(1, len(rank.steps)), *(block.num_steps for block in blocks)]
    first_steps = [0, *accumulate(sizes)]
    placed = []
    for sample in _inside(rank, window):
        t_s = sample.t * NS
        # The window ends at the end of an item.
        index = min(bisect_right(ends_s, t_s), len(ends_s) - 1)
        begin_s = ends_s[index - 1] if index else t_s
        length_s = ends_s[index] - begin_s
        part = (t_s - begin_s) / length_s if length_s > 0 else 0.0
        placed.append(
            PlacedSample(
                sample=sample,
                step=first_steps[index] + part * sizes[index],
                spans_begun_s=spans_s[index + 1],
                spans_done_s=spans_s[index],
            )
        )
    return placed


def _per_step(placed: Sequence[PlacedSample], read: Read) -> float | None:
    """Return the growth of a counter over the stretches between samples that hold steps alone."""
    growth, num_steps = 0, 0.0
    for before, after in pairwise(placed):
        first, last = read(before.sample), read(after.sample)
        spans_s = after.spans_begun_s - before.spans_done_s
        length_s = (after.sample.t - before.sample.t) * NS
        if first is None or last is None or spans_s > MAX_SPAN_FRACTION * length_s:
            continue
        growth += last - first
        num_steps += after.step - before.step
    return growth / num_steps if num_steps >= 1 else None


def gc_pauses(rank: RankSteps, window: StepWindow) -> GcPauses | None:
    """Return the steps' garbage collections; None where the guest did not count them."""
    times_s, spans_s = window.times_s(), window.spans_s()
    pairs = zip(spans_s, times_s, strict=True)
    kept = [span_s <= MAX_SPAN_FRACTION * (span_s + step_s) for span_s, step_s in pairs]
    total_s = math.fsum(compress(times_s, kept))
    if "gc_ns" not in rank.head.counts or total_s <= 0:
        return None
    blocks = window.blocks
    sizes = chain(repeat(1, len(window.steps)), (block.num_steps for block in blocks))
    num_steps = sum(compress(sizes, kept))

    def total(name: str) -> int:
        each = chain(window.steps.count(name), (block.count(name) for block in blocks))
        return sum(compress(each, kept))

    gc_s = total("gc_ns") * NS
    return GcPauses(
        pauses_per_step=total("gc_pauses") / num_steps,
        s_per_step=gc_s / num_steps,
        fraction=min(1.0, gc_s / total_s),
    )
