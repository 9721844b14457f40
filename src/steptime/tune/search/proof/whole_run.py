"""How long a whole run takes as written and with the recipe: forecast from parts, or measured.

In: the baseline, the proof, and how many steps the run has. Out: both times with intervals. A
forecast counts the start, what is paid once, the loop with what came between its steps, and what
ends each of its epochs, if a trial saw one end. An epoch of which no trial saw the end counts with
its start alone. How the process ends is in neither.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from steptime.core.interval import Interval, mean_of, t_point
from steptime.levers.base import Facts
from steptime.tune.search.bench import Baseline, WholeResult
from steptime.tune.values.study_values import WholeRun

LEAST_LOOPS = 3
"""Processes that tell of a loop which the baseline's window was too short for."""

_SLACK = 0.01
"""Of an epoch, whose steps are a mean: a run of whole ones has so many, within that."""

NUM_RUNS = 2
"""Of the command to its end, each way."""


def forecast_whole_run(
    baseline: Baseline,
    loop_speedup: Interval,
    num_steps: int,
    *,
    one_off_s: float,
    start_s: float,
    is_later: bool = False,
    loops_s: Sequence[float] = (),
) -> WholeRun | None:
    """Return the forecast; None where the loop as written was not seen.

    Args:
        baseline: the command as written.
        loop_speedup: of the loop with the recipe, from the proof.
        num_steps: of the whole run.
        one_off_s: what the recipe pays once, for compiling [s].
        start_s: how much later its first step ends [s].
        is_later: the recipe gains from the second epoch on; trials read its samples ahead.
        loops_s: a step of the loop as written, of further processes [s].
    """
    loop = _of_a_process(baseline.loop_step_s, [*baseline.loops_s, *loops_s])
    if loop is None:
        return None
    relative = math.hypot(_width(loop), _width(loop_speedup))
    num_first = min(num_steps, steps_an_epoch(baseline.facts)) if is_later else 0
    before_s = num_steps * loop.estimate
    after_s = (num_first + (num_steps - num_first) / loop_speedup.estimate) * loop.estimate
    unsure_s = 0.0  # what the gaps may be faster by, or slower
    first_s = max(0.0, baseline.startup_s + (0.0 if is_later else start_s)) + one_off_s
    if (epoch := unended_epoch(baseline)) is not None:
        starts_s = (num_steps - 1) // epoch.num_steps * epoch.start_s
        before_s, after_s = before_s + starts_s, after_s + starts_s
    if baseline.epoch is not None:
        # A run ends in the middle of an epoch, or with the evaluation that ends one.
        ended_early = math.modf(num_steps / baseline.epoch.num_steps + _SLACK)[0] - _SLACK
        after_s -= ended_early * baseline.epoch.gap_s
        before_s -= ended_early * baseline.epoch.gap_s
        gaps_s = (num_steps / baseline.epoch.num_steps - ended_early) * baseline.epoch.gap_s
        unsure_s = gaps_s * abs(1 - 1 / loop_speedup.estimate)
    return WholeRun(
        num_steps=num_steps,
        baseline=_around(baseline.startup_s + before_s, before_s * _width(loop), loop.n),
        tuned=_around(
            first_s + after_s,
            math.hypot(after_s * relative, unsure_s),
            min(loop.n, loop_speedup.n),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LongEpoch:
    """An epoch that no trial saw end: how many steps it has, and what starting it takes [s]."""

    num_steps: int
    start_s: float


def unended_epoch(baseline: Baseline) -> LongEpoch | None:
    """Return the epoch that was longer than the window in which the command was observed.

    What follows it and what starts the next one was in no trial: all of them are about as long.
    """
    seen, num_batches = baseline.measurement, steps_an_epoch(baseline.facts)
    a_step = (seen.counts_per_step or {}).get("batches", 1.0)
    num_steps = round(num_batches / max(1.0, a_step))
    if num_steps <= seen.num_steps:
        return None
    start_s = math.fsum(one.total_s for one in seen.spans if one.name == "epoch_start")
    return LongEpoch(num_steps=num_steps, start_s=start_s)


def _of_a_process(one: Interval | None, others_s: Sequence[float]) -> Interval | None:
    """A step of the loop in another process, by the baseline's blocks and by further processes.

    The interval is that of a prediction. Its variance is that of a process' mean, pooled from how
    the blocks of the baseline differ and from how the processes do.
    """
    if one is None:
        return mean_of(others_s) if len(others_s) >= LEAST_LOOPS else None
    seen_s = [one.estimate, *others_s]
    mean_s = math.fsum(seen_s) / len(seen_s)
    own = one.n - 1
    own_s2 = ((one.high - one.low) / 2 / t_point(own)) ** 2
    between_s2 = math.fsum((it - mean_s) ** 2 for it in seen_s)
    degrees = own + len(others_s)
    variance_s2 = (own * own_s2 + between_s2) / degrees * (1 + 1 / len(seen_s))
    reach_s = t_point(degrees) * math.sqrt(variance_s2)
    return Interval(
        estimate=mean_s, low=max(0.0, mean_s - reach_s), high=mean_s + reach_s, n=degrees + 1
    )


def steps_an_epoch(facts: Facts) -> int:
    """Return the batches of the largest data set; 0 where that is not known."""
    return longest_epoch((one.num_samples, one.batch_size) for one in facts.loaders or ())


def longest_epoch(sizes: Iterable[tuple[int | None, int | None]]) -> int:
    """Return the most batches of an epoch, by samples and size of a batch; 0 without any."""
    return max((math.ceil(num / size) for num, size in sizes if num and size), default=0)


def measured_whole_run(result: WholeResult, num_steps: int) -> WholeRun | None:
    """Return what runs to the end took: their mean, the least and the most; None without any."""
    if not (result.written_s and result.tuned_s):
        return None
    return WholeRun(
        num_steps=num_steps,
        baseline=_spread(result.written_s),
        tuned=_spread(result.tuned_s),
        is_measured=True,
    )


def _spread(values_s: Sequence[float]) -> Interval:
    mean_s = math.fsum(values_s) / len(values_s)
    return Interval(estimate=mean_s, low=min(values_s), high=max(values_s), n=len(values_s))


def _width(found: Interval) -> float:
    """Half of an interval, relative to its estimate."""
    return (found.high - found.low) / 2 / found.estimate


def _around(value_s: float, reach_s: float, n: int) -> Interval:
    return Interval(estimate=value_s, low=max(0.0, value_s - reach_s), high=value_s + reach_s, n=n)
