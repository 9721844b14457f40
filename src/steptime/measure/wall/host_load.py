"""Averages the load of the machine over the steps that count, or over the whole run.

In: the samples of `host.jsonl`. Out: a `HostLoad`. Means are over the requested time; the least
available memory and the kernel's kills are always those of the whole run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from steptime.measure.fold.host_lines import HostLines, HostSample
from steptime.measure.values.machine_load import HostLoad

if TYPE_CHECKING:
    from steptime.measure.fold.run_records import RunRecords
    from steptime.measure.steps.steady_window import StepWindow
    from steptime.measure.steps.step_fold import RankSteps
    from steptime.measure.wall.quiet_steps import Stretch

_Weighted = Sequence[tuple[float, HostSample]]


MIN_OBSERVED_FRACTION = 0.5
"""A mean over less than half of the window would speak of steps that nobody saw."""


def load_in_window(
    records: RunRecords, rank: RankSteps, window: StepWindow, *, left_out: Sequence[Stretch] = ()
) -> HostLoad | None:
    """Return the mean load in the window, each sample weighted by how much of it is inside.

    Samples in a stretch whose steps were left out do not count.
    """
    if observed_part(records, rank, window) is not None:
        return None
    ends = {stretch.end_unix_s for stretch in left_out}
    inside = _samples_inside(records, *_limits(rank, window))
    return _load(
        records.host, [(part_s, sample) for part_s, sample in inside if sample.t_unix_s not in ends]
    )


def observed_part(
    records: RunRecords, rank: RankSteps, window: StepWindow
) -> tuple[float, float] | None:
    """Return how long the machine was observed within the window, and how long that is [s].

    It is None where enough was observed. The samples end with the command: a training that outlives
    it goes on unobserved.
    """
    begin, end = _limits(rank, window)
    samples = records.host.samples
    if not samples or samples[-1].t_unix_s >= end:
        return None
    observed_s = math.fsum(weight_s for weight_s, _ in _samples_inside(records, begin, end))
    is_enough = observed_s >= MIN_OBSERVED_FRACTION * (end - begin)
    return None if is_enough else (observed_s, end - begin)


def _limits(rank: RankSteps, window: StepWindow) -> tuple[float, float]:
    zero_s = rank.head.t_unix_s
    return zero_s + window.start_s, zero_s + window.end_s


def _samples_inside(records: RunRecords, begin: float, end: float) -> _Weighted:
    inside = [
        (min(end, sample.t_unix_s) - max(begin, sample.t_unix_s - sample.dt_s), sample)
        for sample in records.host.samples
    ]
    return [(overlap_s, sample) for overlap_s, sample in inside if overlap_s > 0]


def load_of_run(records: RunRecords) -> HostLoad | None:
    """Return the mean load over the whole run, for a run that ended before its window."""
    whole = [(sample.dt_s, sample) for sample in records.host.samples if sample.dt_s > 0]
    return _load(records.host, whole)


def _load(host: HostLines, weighted: _Weighted) -> HostLoad | None:
    if host.num_cores is None or not weighted:
        return None
    job = _mean(weighted, lambda sample: sample.job_cores)
    busy = _mean(weighted, lambda sample: sample.busy_cores)
    available = [s.available_bytes for s in host.samples if s.available_bytes is not None]
    kills = [sample.oom_kills for sample in host.samples if sample.oom_kills is not None]
    return HostLoad(
        num_cores=host.num_cores,
        job_cores=job,
        # The two come from different counters, so the difference may fall below zero.
        others_cores=max(0.0, busy - job),
        num_samples=len(weighted),
        swap_in_bytes_per_s=_mean_of(weighted, _swap_in_bytes_per_s),
        min_available_bytes=min(available, default=None),
        num_oom_kills=max(kills, default=None),
        quota_cores=host.quota_cores,
        delayed_fraction=_mean_of(weighted, lambda sample: sample.delayed_fraction),
        stopped_fraction=_mean_of(weighted, lambda sample: sample.stopped_fraction),
        throttled_fraction=host.throttled_fraction,
    )


def _mean_of(weighted: _Weighted, value: Callable[[HostSample], float | None]) -> float | None:
    """Return the mean over the samples that have the value."""
    known = [(w, sample) for w, sample in weighted if value(sample) is not None]
    return _mean(known, lambda sample: value(sample) or 0.0) if known else None


def _mean(weighted: _Weighted, value: Callable[[HostSample], float]) -> float:
    total_s = math.fsum(weight_s for weight_s, _ in weighted)
    return math.fsum(weight_s * value(sample) for weight_s, sample in weighted) / total_s


def _swap_in_bytes_per_s(sample: HostSample) -> float | None:
    return None if sample.swap_in_bytes is None else sample.swap_in_bytes / sample.dt_s
