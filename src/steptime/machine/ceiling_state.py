"""Judges each ceiling: whether it is firm, or provisional because it may be too low.

In: `Ceilings` with what was seen while they were measured. Out: the same, with the doubts of each.
Every disturbance makes a measured rate too low, so a provisional ceiling is a lower bound: it is
shown, and it feeds no verdict.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from steptime.core.devices.machine_condition import MachineCondition, find_changes
from steptime.machine.values.ceiling_values import (
    QUIET_CORES,
    BenchProcess,
    Ceiling,
    Ceilings,
    find_part,
)

ROOFS = ("matmul", "copy", "triad")
"""Kinds by which runs are judged; the others only inform."""

MEMORY_CORES = 0.05
"""Share of the cores of others that leaves the memory alone: programs on other cores share it."""

MAX_SPREAD = 0.25
"""Beside programs that kept 1.3 of 2 cores busy, medians were 5 to 31 % below the fastest
repetition. So a small spread proves nothing, and a large one shows an unseen disturbance."""

MAX_TRIED = 1.25
"""A setting of the search that was this much faster than the winner's repetitions shows that those
were disturbed."""

MAX_APART = 2.5
"""Copying and adding move the same bytes per s except what is read before it is written (2 of 3
and 3 of 4 arrays count), so by themselves they differ by an eighth."""

ROOM = 1.05
"""Ceilings are within 5 % of the best loop by hand."""

MIN_OF_DATASHEET = 0.25
"""Products and copies reach 60 to 95 % of a datasheet on a free device."""

MAX_DEVICE_BUSY = 0.1
"""Share of a second; NVML counts a window that moves on the screen as well."""


def judge(found: Ceilings, *, condition: MachineCondition | None = None) -> Ceilings:
    """Return the ceilings with their doubts.

    Args:
        found: the ceilings, as they were measured or kept.
        condition: the state of the machine in the run that they are used for; None if it is not
            known, or if they are for no run.
    """
    has_changed = bool(condition and found.condition and find_changes(found.condition, condition))
    return replace(
        found,
        ceilings=tuple(_judged(one, found, has_changed=has_changed) for one in found.ceilings),
    )


def _judged(one: Ceiling, found: Ceilings, *, has_changed: bool) -> Ceiling:
    if one.rate is None and one.best_rate is None:
        return one
    doubts = [*_seen(one, found.bench), *_beside(one, found)]
    # The copy in a run's folder remembers what was seen when the run ended.
    if has_changed or "other_state" in one.state.doubts:
        doubts.append("other_state")
    state = replace(one.state, doubts=tuple(doubts), spread_fraction=_spread(one))
    return replace(one, state=state)


def is_contended(ceiling: Ceiling, bench: BenchProcess) -> bool | None:
    """Whether others took what the measuring wanted; None where that is not known.

    A container may use fewer cores than there are, and then others may be busy beside it; but they
    all share the memory.
    """
    if ceiling.others_cores is None:
        return None
    if ceiling.kind in ("copy", "triad") and ceiling.device == "cpu":
        return ceiling.others_cores > max(QUIET_CORES, MEMORY_CORES * bench.num_cores)
    threads = ceiling.setting.num_threads if ceiling.setting is not None else None
    wanted = max(threads or 1, ceiling.num_ranks or 1)
    free = bench.num_cores - ceiling.others_cores
    return ceiling.others_cores > QUIET_CORES and free < wanted - QUIET_CORES


# -- what was seen meanwhile


def _seen(one: Ceiling, bench: BenchProcess | None) -> Iterator[str]:
    state = one.state
    if bench is not None and is_contended(one, bench):
        yield "others_busy"
    if (state.stolen_cores or 0.0) > QUIET_CORES:
        yield "stolen"
    if state.num_throttles:
        yield "throttled"
    if (state.device_busy_fraction or 0.0) > MAX_DEVICE_BUSY:
        yield "device_busy"
    if one.kind in ROOFS and _is_spread(one):
        yield "spread"
    if state.exceeded_rate is not None and state.exceeded_rate > ROOM * (one.fastest_rate or 0.0):
        yield "exceeded"


def _spread(one: Ceiling) -> float | None:
    best = one.fastest_rate
    return None if one.rate is None or not best else max(0.0, 1 - one.rate.estimate / best)


def _is_spread(one: Ceiling) -> bool:
    best, spread = one.fastest_rate or 0.0, _spread(one) or 0.0
    tried = max((point.rate for point in one.points), default=0.0)
    return spread > MAX_SPREAD or tried > MAX_TRIED * best


# -- what the others, and the datasheet, say


def _beside(one: Ceiling, found: Ceilings) -> Iterator[str]:
    rate = one.fastest_rate or 0.0
    near = [other for other in found.ceilings if other.device == one.device]
    if one.kind in ("copy", "triad"):
        bandwidths = [other for other in near if other.kind in ("copy", "triad")]
        alike = [o.fastest_rate or 0.0 for o in bandwidths if o.variant == one.variant]
        memory = [o.fastest_rate or 0.0 for o in bandwidths if o.variant == "memory"]
        is_slow_cache = one.variant == "cache" and rate * ROOM < max(memory, default=0.0)
        if is_slow_cache or rate * MAX_APART < max(alike, default=0.0):
            yield "below_others"
    sold = _sold(one, found.bench)
    if sold and rate > ROOM * sold:
        yield "above_datasheet"
    if sold and rate < MIN_OF_DATASHEET * sold:
        yield "below_datasheet"


def _sold(one: Ceiling, bench: BenchProcess | None) -> float | None:
    """Return what the datasheet of the GPU promises; None where it is not known."""
    part = None if bench is None else find_part(bench, one.device)
    if part is None:
        return None
    if one.kind == "matmul":
        return part.peak_flops_per_s.get(one.dtype or "")
    return part.bandwidth_bytes_per_s if one.kind in ("copy", "triad") else None
