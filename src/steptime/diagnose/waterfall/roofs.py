"""Finds the roofs over a run: what its device reaches with the threads of the run.

In: measured `Ceilings`, a rank. Out: `Roofs`, or why there are none. A ceiling is its fastest
repetition: on a busy machine the median is only what a neighbor leaves, and not a roof. The doubts
of a provisional ceiling come along.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from steptime.diagnose.peaks import find_peaks
from steptime.diagnose.values.reach_values import Roofs, SizeRate
from steptime.measure.values.measurement import RankSummary

if TYPE_CHECKING:
    from steptime.machine.values.ceiling_values import Ceiling, Ceilings

TRAINING_TYPES = ("fp32", "tf32", "bf16", "fp16")
"""The types in which a training's products are possible without a change of the model."""


def find_roofs(
    ceilings: Ceilings | None, rank: RankSummary | None, given: Mapping[str, float] | None = None
) -> Roofs | str:
    """Return the roofs of a rank's device, or a machine word that says why there are none.

    Args:
        ceilings: the measured ceilings of the machine.
        rank: the rank.
        given: peaks that the user gave by type [FLOP/s].
    """
    if ceilings is None:
        return "no_ceilings"
    if rank is None:
        return "no_steady_steps"
    kind = rank.device.partition(":")[0]
    near = [one for one in ceilings.ceilings if one.device.partition(":")[0] == kind]
    products = {
        one.dtype: one
        for one in reversed(near)
        if one.kind == "matmul" and one.unit == "flops_per_s" and one.dtype and one.fastest_rate
    }
    if not products or not _is_same_device(ceilings, rank):
        return "no_ceilings_of_device"
    memory, cache = _fastest(near, "memory"), _fastest(near, "cache")
    peaks = find_peaks(rank, given or {})
    threads = None if ceilings.bench is None or kind != "cpu" else ceilings.bench.num_threads
    own = rank.num_threads if kind == "cpu" else None
    return Roofs(
        device=next(iter(products.values())).device,
        flops_per_s={name: one.fastest_rate or 0.0 for name, one in products.items()},
        run_flops_per_s={
            name: (one.fastest_rate or 0.0) * _share_of(one, own, threads)
            for name, one in products.items()
        },
        bytes_per_s=None
        if memory is None
        else (memory.fastest_rate or 0.0) * _share_of(memory, own, threads),
        cache_bytes_per_s=None if cache is None else cache.fastest_rate,
        peak_flops_per_s=peaks.flops_per_s,
        given_types=tuple(sorted(peaks.given)),
        part=peaks.part,
        num_threads=threads,
        run_threads=own,
        measured_unix_s=ceilings.measured_unix_s,
        memory_set_bytes=_memory_set(memory),
        sizes=tuple(size for name, one in products.items() for size in _sizes(name, one, threads)),
        doubts=_doubts({**products, "memory": memory, "cache": cache}, own, threads),
    )


def _is_same_device(ceilings: Ceilings, rank: RankSummary) -> bool:
    names = () if ceilings.bench is None else ceilings.bench.device_names
    return not names or rank.device_name is None or rank.device_name in names


def _fastest(near: list[Ceiling], variant: str) -> Ceiling | None:
    """Return the larger of copying and adding, since operators do both."""
    found = [
        one
        for one in near
        if one.kind in ("copy", "triad") and one.variant == variant and one.fastest_rate
    ]
    return max(found, key=lambda one: one.fastest_rate or 0.0, default=None)


def _memory_set(memory: Ceiling | None) -> int | None:
    """Return the smallest set that counted as memory, because no cache holds it."""
    settings = [] if memory is None else [memory.setting, *(p.setting for p in memory.points)]
    return min((s.payload_bytes for s in settings if s and s.payload_bytes), default=None)


def _sizes(dtype: str, one: Ceiling, threads: int | None) -> Iterator[SizeRate]:
    """Yield the rate at each size and number of threads, in the faster layout."""
    found: dict[tuple[float, int | None], float] = {}
    for point in one.points:
        shape = point.setting.shape
        if shape is not None and len(shape) == 3 and point.rate > 0:
            key = (2.0 * shape[0] * shape[1] * shape[2], point.setting.num_threads or threads)
            found[key] = max(point.rate, found.get(key, 0.0))
    for (flops, num), rate in sorted(found.items(), key=lambda item: item[0][0]):
        yield SizeRate(dtype=dtype, flops=flops, num_threads=num, flops_per_s=rate)


def _doubts(
    used: Mapping[str, Ceiling | None], own: int | None, threads: int | None
) -> dict[str, tuple[str, ...]]:
    """Return the doubts of each roof that has any."""
    found = {}
    for name, one in used.items():
        if one is not None:
            more = () if _is_measured(one, own, threads) else ("threads",)
            found[name] = (*one.state.doubts, *more)
    return {name: doubts for name, doubts in found.items() if doubts}


def _is_measured(one: Ceiling, own: int | None, threads: int | None) -> bool:
    """Return whether something was measured with the threads of the run."""
    if own is None or threads is None or own >= threads or own == 1 or one.variant == "cache":
        return True
    return any(point.setting.num_threads == own for point in one.points)


def _share_of(ceiling: Ceiling, own: int | None, threads: int | None) -> float:
    """Return the share of the ceiling at so many threads, by settings measured with both.

    Where only a single thread was measured, several threads count as that many times as much. Where
    not even that was measured, they get their share of the threads for products, and all of the
    memory's bandwidth.
    """
    if own is None or threads is None or own >= threads:
        return 1.0
    rates: dict[tuple[object, object], dict[int, float]] = {}
    for point in ceiling.points:
        setting = point.setting
        alike = rates.setdefault((setting.shape, setting.payload_bytes), {})
        num = setting.num_threads or threads
        alike[num] = max(point.rate, alike.get(num, 0.0))
    for num in (own, 1):
        both = [alike for alike in rates.values() if num in alike and len(alike) > 1]
        if both:
            best = max(both, key=lambda alike: max(alike.values()))
            return min(1.0, own / num * best[num] / max(best.values()))
    return own / threads if ceiling.kind == "matmul" else 1.0
