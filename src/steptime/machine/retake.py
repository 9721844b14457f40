"""Which provisional ceilings are worth taking again, and what becomes of them then.

In: judged `Ceilings`, and those that were taken again. Out: the stages to measure, and the
`Ceilings` to keep. `app.machine` and `app.retake_ceilings` decide when the machine is quiet enough.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from steptime.core.devices.machine_condition import find_changes
from steptime.machine.ceiling_state import ROOFS, judge
from steptime.machine.values.ceiling_values import Ceiling, Ceilings

AGAIN_AFTER_S = 86_400.0
"""A doubt that a quiet machine did not remove is examined once a day, not after every run."""

DISTURBED = frozenset({"others_busy", "stolen", "throttled", "device_busy"})
"""Doubts that say only that the moment was a bad one."""

SHARE_S = {"matmul": 3.0, "copy": 3.5, "triad": 2.5}
"""Seconds for one ceiling: half of what a first measurement gives it [s]."""


def find_provisional(found: Ceilings, *, wanted: Collection[str] | None = None) -> list[Ceiling]:
    """Return the provisional ceilings by which runs are judged.

    Args:
        found: judged ceilings.
        wanted: types of products, `memory` and `cache`; None for all.
    """
    return [
        one
        for one in found.ceilings
        if one.kind in ROOFS
        and one.is_provisional
        and (wanted is None or (one.dtype or one.variant) in wanted)
    ]


def is_due(found: Ceilings, *, now_s: float) -> bool:
    """Return whether provisional ceilings may be taken again by now [s since 1970]."""
    is_other = any("other_state" in one.state.doubts for one in found.ceilings)
    since_s = now_s - (found.retaken_unix_s or 0.0)
    return is_other or found.retaken_unix_s is None or since_s >= AGAIN_AFTER_S


def stages_of(provisional: Collection[Ceiling]) -> tuple[tuple[str, str], ...]:
    """Return the devices and stages that measure these ceilings."""
    return tuple(dict.fromkeys((one.device, _stage(one)) for one in provisional))


def time_for(provisional: Collection[Ceiling]) -> float:
    """Return how long taking these again may take, without starting torch [s]."""
    kinds = [stage.partition(" ")[0] for _, stage in stages_of(provisional)]
    return sum(SHARE_S.get(kind, 0.0) for kind in kinds)


def merge(kept: Ceilings, taken: Ceilings) -> Ceilings:
    """Return the kept ceilings, with those that were taken again in place of provisional ones.

    Where both are provisional, the higher rate stays: each is a lower bound. Of another state of
    the machine nothing stays.
    """
    if kept.condition and taken.condition and find_changes(kept.condition, taken.condition):
        return replace(taken, retaken_unix_s=None, is_partial=True, missing="other_state")
    again = {_key(one): one for one in taken.ceilings if one.fastest_rate}
    merged = tuple(_better(one, again.get(_key(one))) for one in kept.ceilings)
    was_quiet = not any(DISTURBED.intersection(one.state.doubts) for one in again.values())
    found = replace(
        kept,
        ceilings=merged,
        measured_unix_s=taken.measured_unix_s,
        retaken_unix_s=taken.measured_unix_s if was_quiet and again else kept.retaken_unix_s,
        condition=taken.condition or kept.condition,
    )
    return judge(found)


def retaken(before: Ceilings, after: Ceilings) -> Iterator[Ceiling]:
    """Yield the ceilings that were provisional and are not any more."""
    doubted = {_key(one) for one in find_provisional(before)}
    yield from (o for o in after.ceilings if _key(o) in doubted and not o.is_provisional)


def _better(kept: Ceiling, again: Ceiling | None) -> Ceiling:
    if again is None or not kept.is_provisional:
        return kept
    higher = max(kept, again, key=lambda one: one.fastest_rate or 0.0)
    found = again if not again.is_provisional else higher
    # What a run has reached stays true: only a rate as high answers it.
    return replace(found, state=replace(found.state, exceeded_rate=kept.state.exceeded_rate))


def _stage(one: Ceiling) -> str:
    return f"matmul {one.dtype}" if one.kind == "matmul" else one.kind


def _key(one: Ceiling) -> tuple[str, str, str | None, str | None]:
    return one.kind, one.device, one.variant, one.dtype
