"""Times a training's loop from the passes over it: with its loader, and with a kept batch.

In: the lines of the windows. Out: a `LoaderBench` with the step, the wait and the bound, and
whether the bound says that a loader helps. The parts of a batch are left to `bench_lines`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from steptime.core.interval import Interval
from steptime.core.stats import bounded_mean, effective_size
from steptime.measure.values.loader_bench import HELPS, LoaderBench
from steptime.record.lines import Line

NS = 1e-9

_Z = 1.959964


def helps(bound: Interval | None) -> bool | None:
    """Return whether another loader can help; None where the interval has both answers in it."""
    if bound is None or bound.low < HELPS <= bound.high:
        return None
    return bound.low >= HELPS


def with_steps(bench: LoaderBench, full: Sequence[Line], consumer: Sequence[Line]) -> LoaderBench:
    """Add the times of the loop with its loader, and with a kept batch.

    Args:
        bench: with its loader.
        full: the windows with the loader, one for each time that the pass was made; at least one.
        consumer: those with a kept batch.
    """
    missing, notes = dict(bench.missing), list(bench.notes)
    first_ns = full[0]["first_batch_ns"]
    bench = replace(bench, first_batch_s=None if first_ns is None else first_ns * NS)
    steps = _steps_of(full)
    if not steps:
        missing["step_s"] = "short_epochs"
        return replace(bench, missing=missing)
    waits_s = sorted(wait_s for _, wait_s in steps)
    step = mean_interval([sum(one) for one in steps], added_s=_tail_s(full, len(steps)))
    if kept := _steps_of(consumer):
        alone = mean_interval([work_s for work_s, _ in kept], added_s=_tail_s(consumer, len(kept)))
        bench = replace(bench, num_kept=consumer[0]["num_kept"])
        if bench.num_kept > 1:
            notes.append("shapes_differ")
    else:
        # A part of what the device does may lie in the waits, so this is the least it can be.
        alone = mean_interval([work_s for work_s, _ in steps])
        notes.append("consumer_beside_loader")
    bound = ratio_interval(step, alone)
    by_waits = _bound_by_waits(full, steps)
    if helps(bound) is not False and helps(by_waits) is False:
        bound = by_waits
        notes.append("bound_by_waits")
    return replace(
        bench,
        step_s=step,
        consumer_s=alone,
        bound=bound,
        wait_s=bounded_mean(waits_s),
        wait_p99_s=waits_s[min(len(waits_s) - 1, math.ceil(0.99 * len(waits_s)) - 1)],
        notes=tuple(notes),
        missing=missing,
    )


def _steps_of(loops: Sequence[Line]) -> list[tuple[float, float]]:
    """Return the steps of all windows: work and wait [s]."""
    return [(work * NS, wait * NS) for loop in loops for work, wait in loop["steps"]]


def _tail_s(loops: Sequence[Line], num_steps: int) -> float:
    """Return what the device still had to do at the end of the windows, for a step [s]."""
    return sum(int(loop.get("tail_ns", 0)) for loop in loops) * NS / num_steps


def _bound_by_waits(full: Sequence[Line], steps: Sequence[tuple[float, float]]) -> Interval | None:
    """Return the bound that follows from the waits of the loop alone; None where it does not.

    Without workers and without a device nothing of the loader is done beside the step, so no loader
    saves more than the waits and the copies. Both are of the same steps as the rest: a neighbor
    that comes between two passes changes the ratio of the passes, and not this one.
    """
    loop = full[0]
    if loop["loader"]["num_workers"] or loop["device"] is not None:
        return None
    copy_s = sum(int(one["copies_ns"] or 0) for one in full) * NS / len(steps)
    saved = mean_interval([wait_s for _, wait_s in steps], added_s=copy_s)
    rest = mean_interval([work_s for work_s, _ in steps], added_s=-copy_s)
    if rest.low <= 0:
        return None
    return Interval(
        estimate=1 + saved.estimate / rest.estimate,
        low=1 + saved.low / rest.high,
        high=1 + saved.high / rest.low,
        n=len(steps),
    )


def mean_interval(values_s: Sequence[float], *, added_s: float = 0.0) -> Interval:
    """Return the mean with an interval of 95 % for as many values as are independent.

    The mean and not the median: with workers, one step in several waits for all of them.
    """
    mean, n = bounded_mean(values_s), effective_size(values_s)
    spread = math.sqrt(sum((v - mean) ** 2 for v in values_s) / max(1, len(values_s) - 1))
    half = _Z * spread / math.sqrt(n)
    return Interval(
        estimate=mean + added_s,
        low=max(0.0, mean - half) + added_s,
        high=mean + half + added_s,
        n=len(values_s),
    )


def ratio_interval(above: Interval, below: Interval) -> Interval | None:
    """Return the ratio of two means, with the interval that follows from theirs."""
    if below.estimate <= 0 or above.estimate <= 0:
        return None
    ratio = above.estimate / below.estimate
    away = math.hypot(*((one.high - one.estimate) / one.estimate for one in (above, below)))
    return Interval(
        estimate=ratio,
        low=ratio * math.exp(-away),
        high=ratio * math.exp(away),
        n=min(above.n, below.n),
    )
