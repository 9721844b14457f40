"""Computes the bounds of a group of operators, from its least possible time to its real time.

In: a group of operators and the `Roofs`. Out: `Bounds`, which only rise; the parts of a
waterfall are their differences.
"""

from __future__ import annotations

from dataclasses import dataclass

from steptime.diagnose.values.reach_values import Roofs
from steptime.diagnose.waterfall.roofs import TRAINING_TYPES
from steptime.measure.values.model.work import GroupCount

_FULL = ("fp32", "tf32")
"""Types whose work the machine might do in a shorter type."""

SMALL_S = 10e-6
"""Half of a tiny operator's longest time: an operator that needs less, and took more, spent the
rest on being called, or its core was cold."""

_NAMES = ("arithmetic", "ceiling", "precision", "threads", "bandwidth")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of one group [s], each at least the one before.

    Attributes:
        group: the group of operators.
        rising: its time at the datasheet's peak, at the fastest type's ceiling, at its own type's,
            with the run's threads, and with what memory allows [s].
        over_s: its time beyond these bounds [s]; `over` is the part to which this belongs, None
            where no roof is known or where calling it was most of it.
        too_low: a roof that it beat, and the least time that this roof would allow [s].
        lacking: ceilings that were not measured.
    """

    group: GroupCount
    rising: tuple[float, float, float, float, float]
    over: str | None = None
    over_s: float = 0.0
    too_low: tuple[str, float] | None = None
    lacking: tuple[str, ...] = ()

    @property
    def kept_s(self) -> float:
        """Return the time that operators explain; what an unknown roof hides is unexplained."""
        return self.rising[-1] + (0.0 if self.over == "launch" else self.over_s)

    def part(self, name: str) -> float:
        """Return what the group adds to a part of the waterfall [s]."""
        if name not in _NAMES:
            return self.over_s if self.over == name else 0.0
        at = _NAMES.index(name)
        return self.rising[at] - (self.rising[at - 1] if at else 0.0)

    def scaled(self, factor: float) -> Bounds:
        """Return the bounds with all times scaled."""
        a, b, c, d, e = self.rising
        return Bounds(
            group=self.group,
            rising=(a * factor, b * factor, c * factor, d * factor, e * factor),
            over=self.over,
            over_s=self.over_s * factor,
            too_low=self.too_low,
            lacking=self.lacking,
        )


def fastest_type(roofs: Roofs) -> str:
    """Return the type of a training in which products are fastest."""
    usable = [name for name in TRAINING_TYPES if name in roofs.flops_per_s]
    return max(usable or list(roofs.flops_per_s), key=lambda name: roofs.flops_per_s[name])


def bounds_of(group: GroupCount, roofs: Roofs, *, scale: float | None) -> Bounds:
    """Return the bounds of a group.

    Args:
        group: the group, with its work, bytes and time.
        roofs: what the machine reaches.
        scale: factor for its time; None where its time is not known, and nothing limits bounds.
    """
    work = float(group.flops)
    own = None if group.dtype is None else roofs.flops_per_s.get(group.dtype)
    used = None if group.dtype is None else roofs.run_flops_per_s.get(group.dtype)
    memory_s = group.moved_bytes / roofs.bytes_per_s if roofs.bytes_per_s else None
    took_s = None if scale is None else (group.time_s or 0.0) * scale
    lacking = _lacking(group, own, memory_s)
    if (work and own is None) or (not work and memory_s is None):
        time_s = 0.0 if took_s is None or group.is_tiny else took_s
        return Bounds(
            group=group, rising=(0.0,) * 5, over="unknown", over_s=time_s, lacking=lacking
        )
    best = fastest_type(roofs) if group.dtype in _FULL else group.dtype or ""
    top = max(roofs.flops_per_s.get(best, 0.0), own or 0.0)
    peak = roofs.peak_flops_per_s.get(best)
    arithmetic_s = work / used if work and used else 0.0
    raw = [
        work / peak if work and peak else work / top if work else 0.0,
        work / top if work else 0.0,
        work / own if work and own else 0.0,
        arithmetic_s,
        max(arithmetic_s, memory_s or 0.0),
    ]
    is_compute = bool(work) and arithmetic_s >= (memory_s or 0.0)
    is_small = group.is_tiny or raw[-1] < SMALL_S * group.num
    too_low = _too_low(group, roofs, arithmetic_s) if took_s is not None else None
    top_s = raw[-1] if took_s is None else took_s
    rising = _rising(raw, top_s)
    return Bounds(
        group=group,
        rising=rising,
        over="launch" if is_small else "shape" if is_compute else "slow_operators",
        over_s=top_s - rising[-1],
        too_low=too_low,
        lacking=lacking,
    )


def _rising(raw: list[float], top_s: float) -> tuple[float, float, float, float, float]:
    """Return the bounds, with none above the next one, and the last not above the real time."""
    found, limit = [], top_s
    for value in reversed(raw):
        limit = min(limit, value)
        found.append(limit)
    e, d, c, b, a = found
    return a, b, c, d, e


def _lacking(group: GroupCount, own: float | None, memory_s: float | None) -> tuple[str, ...]:
    missing = []
    if group.flops and own is None:
        missing.append(f"ceiling_{group.dtype or 'unknown'}")
    if memory_s is None:
        missing.append("ceiling_memory")
    return tuple(missing)


FROM_CACHE = 0.75
"""Of a set that counts as memory, a last-level cache can hold a quarter at most (STREAM's rule)."""


def _too_low(group: GroupCount, roofs: Roofs, arithmetic_s: float) -> tuple[str, float] | None:
    """Return the roof that a group beat; caches explain less time than memory allows."""
    cache_s = group.moved_bytes / roofs.cache_bytes_per_s if roofs.cache_bytes_per_s else 0.0
    time_s = group.time_s or 0.0
    if arithmetic_s > max(time_s, cache_s):
        return "compute", arithmetic_s
    is_large = roofs.memory_set_bytes and group.moved_bytes >= group.num * roofs.memory_set_bytes
    if is_large and roofs.bytes_per_s:
        memory_s = FROM_CACHE * group.moved_bytes / roofs.bytes_per_s
        if memory_s > max(time_s, cache_s):
            return "memory", memory_s
    return ("cache", cache_s) if cache_s > time_s else None
