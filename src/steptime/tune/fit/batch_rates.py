"""What larger batches give where memory is free: factors that have room, and what trials say.

In: how much larger the micro-batch could be, what is known of the script, and a live comparison.
Out: a `BatchTrial` for each factor, or the machine word of why there is none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from steptime.core.interval import Interval
from steptime.core.note import Fact
from steptime.levers.base import Facts, Lever
from steptime.levers.lengths.joined_batches import LEVER as JOINING
from steptime.levers.memory.repeated_rows import LEVER as REPEATING
from steptime.plan.learning_rate import advise_learning_rate
from steptime.plan.values.batch_values import LearningRateAdvice
from steptime.tune.fit.held_parts import Parts, peaks_by_batch
from steptime.tune.search.bench import ArmResult, Baseline, ComparisonResult
from steptime.tune.search.proof.pairs import interval, to_speedup
from steptime.tune.values.fit_values import BatchTrial
from steptime.tune.values.study_values import Applied, State

EXCLUDED_BY = "larger_batch"
"""The lever of the training that these trials are about."""

MEASURES = (JOINING, REPEATING)
"""What makes larger batches in trials; no recipe has them."""

JOINED, REPEATED = "joined", "repeated"
"""Batches of a loader as one, or, where the script makes its batches itself, their rows again."""

FACTORS = (2, 4)
"""Of the batch as written."""

RISES = 1.05
"""A rate that is this much higher is worth another training."""

CPU, WALL = "cpu", "wall"

Why = tuple[str, Mapping[str, Fact] | None]
"""A machine word, with the facts of its sentence."""


def factors_with_room(
    room: float | None, facts: Facts, *, excluded: Sequence[str] = ()
) -> tuple[tuple[int, ...], Why | None]:
    """Return the factors that are worth a trial; without one, why there is none.

    Args:
        room: how many times as large the micro-batch could be; None where that is not known.
        facts: of script and machine.
        excluded: names of those that the user left out.
    """
    if EXCLUDED_BY in excluded:
        return (), ("excluded", None)
    refused = _measure_for(facts).applies(facts)
    if refused is not None:
        return (), ("does_not_apply", {"text": refused})
    if room is None:
        return (), ("growth_not_known", None)
    found = tuple(factor for factor in FACTORS if factor <= room)
    return found, None if found else ("no_room", None)


def how_larger(facts: Facts) -> str:
    """Return how a larger batch is made."""
    return REPEATED if facts.loaders is not None and not facts.loaders else JOINED


def _measure_for(facts: Facts) -> Lever:
    return REPEATING if how_larger(facts) == REPEATED else JOINING


def states_of(factors: Sequence[int], facts: Facts) -> tuple[State, ...]:
    """Return the states to compare: as written, then each factor."""
    name = _measure_for(facts).name
    return ((), *((Applied(name=name, settings={"factor": factor}),) for factor in factors))


def trials_of(
    result: ComparisonResult, factors: Sequence[int], baseline: Baseline, parts: Parts
) -> tuple[BatchTrial, ...]:
    """Return what a comparison said of each factor."""
    peaks = {one.factor: one.bytes for one in peaks_by_batch(parts)}
    return tuple(
        _trial(arm, factor, baseline, peaks.get(float(factor)))
        for arm, factor in zip(result.arms, factors, strict=False)
    )


def _trial(
    arm: ArmResult, factor: int, baseline: Baseline, estimate_bytes: int | None
) -> BatchTrial:
    clock = clock_for(baseline.facts)
    ratios = arm.cpu_log_ratios if clock == CPU else arm.log_ratios
    found = interval(ratios) if arm.ending.is_well else None
    how = how_larger(baseline.facts)
    # The samples that are counted are those that the script made.
    more = math.log(factor) if how == REPEATED else 0.0
    gain = None if found is None else to_speedup(shifted(found, more))
    reason: str | None = None
    if gain is None:
        reason = "too_few_rounds" if arm.ending.is_well else arm.ending.word
    return BatchTrial(
        factor=factor,
        how=how,
        rate_gain=gain,
        clock=clock,
        rises=None if gain is None else does_rise(gain),
        same_global_gain=None if gain is None else same_global(gain, factor, baseline),
        estimate_bytes=estimate_bytes,
        learning_rate=advice_for(baseline, factor),
        reason=reason,
        facts=None if arm.ending.is_well else arm.ending.facts,
    )


def shifted(found: Interval, by: float) -> Interval:
    """Return an interval of logarithms with something added."""
    return Interval(
        estimate=found.estimate + by, low=found.low + by, high=found.high + by, n=found.n
    )


def clock_for(facts: Facts) -> str:
    """Return the time that decides: of the processor where one thread does all, else of the wall.

    Neighbors hardly disturb the former, but it does not see waiting, nor work of other processes.
    """
    is_alone = facts.device == "cpu" and facts.num_threads == 1 and facts.world_size == 1
    return CPU if is_alone and not any(one.num_workers for one in facts.loaders or ()) else WALL


def does_rise(gain: Interval) -> bool | None:
    """Return whether the rate rises by what is worth it; None where it cannot be told."""
    if gain.low >= RISES:
        return True
    return False if gain.high < RISES else None


def same_global(gain: Interval, factor: int, baseline: Baseline) -> Interval | None:
    """Return the speedup with so much less accumulation, which keeps the global batch.

    A step of k micro-batches takes `k c + u` with u for the update. With k / f micro-batches f
    times as large it takes (S - u) / f + u, where S is the step that was measured with k of them.

    Returns:
        None where the script does not accumulate so many micro-batches, or u was not seen.
    """
    num = baseline.facts.backwards_per_update
    phases = {one.name: one.fraction for one in baseline.measurement.phases}
    update = phases.get("optimizer")
    if num is None or num < factor or num % factor or update is None:
        return None
    left = update * (1 - 1 / factor)
    low, high = (1 / (1 / end + left) for end in (gain.low, gain.high))
    return Interval(estimate=1 / (1 / gain.estimate + left), low=low, high=high, n=gain.n)


def advice_for(baseline: Baseline, factor: int) -> LearningRateAdvice | None:
    """Return how the learning rate follows; None where the optimizer is not known, or several."""
    names = {one.name for one in baseline.facts.optimizers or ()}
    if len(names) != 1:
        return None
    return advise_learning_rate(names.pop(), old_batch=1, new_batch=factor)
