"""Makes the count of a mean step from the counts of a few updates.

In: counted updates, and how often each kind of update came. Out: one `Count`, whose passes are
those of the mean step. Where each update was like a counted one, all its parts are their mixture;
else they are those of the counted update that is nearest, scaled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TypeVar

from steptime.measure.values.model.operator_time import TimedModule, TimedOperator
from steptime.measure.values.model.work import (
    ClassCount,
    Count,
    GroupCount,
    ModuleCount,
    WorkOnDevice,
)
from steptime.measure.work.work_fit import Update

_Time = TypeVar("_Time", TimedOperator, TimedModule)

_MAX_MODULES = 100
"""As many as the guest writes."""


def mean_count(
    counts: Sequence[Count],
    keys: Sequence[Update],
    rows: Mapping[Update, int],
    *,
    passes: tuple[int, int, int],
) -> Count:
    """Return the count of the mean step.

    Args:
        counts: what was counted, an update each.
        keys: what each of these updates was like.
        rows: how often each kind of update came in the window.
        passes: forward, backward and recomputed work of the mean step [FLOP].
    """
    total = sum(passes)
    weights = _weights(counts, keys, rows, total)
    proof = next((one.completeness for one in reversed(counts) if one.completeness), None)
    one = next((c for c, w in zip(counts, weights, strict=True) if w == 1), None)
    if one is not None and (one.forward, one.backward, one.recomputed) == passes:
        return replace(one, completeness=proof)
    parts = [(c, w) for c, w in zip(counts, weights, strict=True) if w]
    covered = [(c.covered_fraction, float(w) * c.total) for c, w in parts]
    whole = sum(weight for _, weight in covered)
    forward, backward, recomputed = passes
    return Count(
        forward=forward,
        backward=backward,
        recomputed=recomputed,
        macs=_sum(parts, lambda c: c.macs),
        classes=_classes(parts),
        groups=tuple(_scaled(group, w) for c, w in parts for group in c.groups),
        modules=_modules(parts),
        operators=_times([(one, w) for c, w in parts for one in c.operators]),
        module_times=_times([(one, w) for c, w in parts for one in c.module_times]),
        by_dtype=_by_dtype([(c.by_dtype, w) for c, w in parts]),
        covered_fraction=sum((part or 0.0) * weight for part, weight in covered) / whole
        if whole and all(part is not None for part, _ in covered)
        else None,
        devices=_devices(parts),
        completeness=proof,
        uncovered=tuple(dict.fromkeys(name for c, _ in parts for name in c.uncovered)),
        masked_flops=_sum(parts, lambda c: c.masked_flops),
        again_flops=_sum(parts, lambda c: c.again_flops),
        outside_flops=_sum(parts, lambda c: c.outside_flops),
        before_flops=_sum(parts, lambda c: c.before_flops),
        convention=parts[0][0].convention,
        is_executed=all(c.is_executed for c, _ in parts),
        clock=parts[0][0].clock,
    )


def with_ranks(count: Count, of_ranks: Sequence[Count]) -> Count:
    """Return a rank's count with the totals of all ranks; it is whole if all of theirs are."""
    partial = next((one.completeness for one in of_ranks if one.is_complete is False), None)
    totals = tuple(one.total for one in of_ranks)
    return replace(count, rank_flops=totals, completeness=partial or count.completeness)


def _weights(
    counts: Sequence[Count], keys: Sequence[Update], rows: Mapping[Update, int], total: int
) -> list[Fraction]:
    """Return by how much each count is multiplied so that they add up to the mean step."""
    weights = [Fraction(0)] * len(counts)
    if rows and set(rows) <= set(keys):
        for key, num in rows.items():
            places = [place for place, one in enumerate(keys) if one == key]
            weights[places[0]] += num  # of equal ones, the first
        mean = sum((w * c.total for w, c in zip(weights, counts, strict=True)), Fraction(0))
        if mean:
            return [_rounded(weight * total / mean) for weight in weights]
        weights = [Fraction(0)] * len(counts)
    nearest = min(range(len(counts)), key=lambda place: abs(counts[place].total - total))
    whole = counts[nearest].total
    weights[nearest] = Fraction(total, whole) if whole and total else Fraction(1)
    return weights


def _rounded(weight: Fraction) -> Fraction:
    """Return 1 where rounding of the mean alone kept it from 1."""
    return Fraction(1) if abs(weight - 1) < Fraction(1, 10**9) else weight


def _sum(parts: Sequence[tuple[Count, Fraction]], of: Callable[[Count], int]) -> int:
    return round(sum((of(count) * weight for count, weight in parts), Fraction(0)))


def _by_dtype(parts: Sequence[tuple[Mapping[str, int], Fraction]]) -> dict[str, int]:
    found: dict[str, Fraction] = {}
    for by_dtype, weight in parts:
        for name, flops in by_dtype.items():
            found[name] = found.get(name, Fraction(0)) + flops * weight
    return {name: round(flops) for name, flops in found.items()}


def _devices(parts: Sequence[tuple[Count, Fraction]]) -> tuple[WorkOnDevice, ...]:
    """Return the work by device; those of one name stay apart, in the order of the count."""
    names = max((tuple(d.name for d in c.devices) for c, _ in parts), key=len)
    sums = [Fraction(0)] * len(names)
    for count, weight in parts:
        for place, device in enumerate(count.devices):
            sums[place] += device.flops * weight
    return tuple(WorkOnDevice(name=n, flops=round(s)) for n, s in zip(names, sums, strict=True))


def _time(times: Sequence[float | None], weights: Sequence[Fraction]) -> float | None:
    known = [one for one in times if one is not None]
    if len(known) < len(times):
        return None
    return sum(one * float(weight) for one, weight in zip(known, weights, strict=True))


def _classes(parts: Sequence[tuple[Count, Fraction]]) -> tuple[ClassCount, ...]:
    found: dict[str, list[tuple[ClassCount, Fraction]]] = {}
    for count, weight in parts:
        for one in count.classes:
            found.setdefault(one.name, []).append((one, weight))
    return tuple(
        ClassCount(
            name=name,
            num=round(sum(one.num * w for one, w in same)),
            flops=round(sum(one.flops * w for one, w in same)),
            pointwise_flops=round(sum(one.pointwise_flops * w for one, w in same)),
            moved_bytes=round(sum(one.moved_bytes * w for one, w in same)),
            time_s=_time([one.time_s for one, _ in same], [w for _, w in same]),
            device_time_s=_time([one.device_time_s for one, _ in same], [w for _, w in same]),
            by_dtype=_by_dtype([(one.by_dtype, w) for one, w in same]),
        )
        for name, same in found.items()
    )


def _scaled(group: GroupCount, weight: Fraction) -> GroupCount:
    return replace(
        group,
        num=max(1, round(group.num * weight)),
        flops=round(group.flops * weight),
        pointwise_flops=round(group.pointwise_flops * weight),
        moved_bytes=round(group.moved_bytes * weight),
        time_s=_time([group.time_s], [weight]),
        device_time_s=_time([group.device_time_s], [weight]),
    )


def _times(rows: Sequence[tuple[_Time, Fraction]]) -> tuple[_Time, ...]:
    """Return the rows of a mean step, those with most time first; of modules, by class."""
    found: dict[tuple[str, str], list[tuple[_Time, Fraction]]] = {}
    for one, weight in rows:
        name = one.name if isinstance(one, TimedOperator) else ""
        found.setdefault((name, one.kind), []).append((one, weight))
    made = [
        replace(
            same[0][0],
            num=max(1, round(sum(one.num * w for one, w in same))),
            time_s=_time([one.time_s for one, _ in same], [w for _, w in same]),
            device_time_s=_time([one.device_time_s for one, _ in same], [w for _, w in same]),
        )
        for same in found.values()
    ]
    return tuple(sorted(made, key=lambda one: -(one.device_time_s or one.time_s or 0.0)))


def _modules(parts: Sequence[tuple[Count, Fraction]]) -> tuple[ModuleCount, ...]:
    found: dict[tuple[str, str], list[Fraction]] = {}
    for count, weight in parts:
        for one in count.modules:
            sums = found.setdefault((one.name, one.kind), [Fraction(0)] * 3)
            for place, flops in enumerate((one.forward, one.backward, one.recomputed)):
                sums[place] += flops * weight
    made = [
        ModuleCount(
            name=name,
            kind=kind,
            forward=round(forward),
            backward=round(backward),
            recomputed=round(recomputed),
        )
        for (name, kind), (forward, backward, recomputed) in found.items()
    ]
    return tuple(sorted(made, key=lambda one: -one.total)[:_MAX_MODULES])
