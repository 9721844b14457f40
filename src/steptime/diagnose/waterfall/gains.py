"""Foretells how much shorter a step becomes if the cause of a part is removed, as an interval.

In: a waterfall and what it was cut from. Out: the same with a `Gain` for each part whose cause can
be removed. A part says where time goes; what comes back is less sure, since what replaces the cause
takes time, too. `benchmarks/run/waterfall_interventions.py` removes the causes and compares.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from steptime.diagnose.ailments.signals import is_on_device
from steptime.diagnose.values.reach_values import (
    Gain,
    Roofs,
    SizeRate,
    Term,
    Waterfall,
    WaterfallPart,
)
from steptime.diagnose.waterfall.chain import bounds_of
from steptime.diagnose.waterfall.cut import Cut, groups_of
from steptime.diagnose.waterfall.step_clock import WALL
from steptime.measure.values.model.work import GroupCount

FULL_TYPES = ("fp32", "tf32")
"""Types whose work a training may do in a shorter one."""

NEAR = 8.0
"""Products of up to this many times more or less work are alike: twice the size each way."""

CAST_BYTES = 1.5
"""A cast reads 4 bytes and writes 2 for each 4 bytes that a product moves in fp32."""

CASTS = (0.5, 1.0)
"""Share of what products move that is cast: weights once a forward, results often not at all."""

IN_CACHE = 4
"""A set that counts as memory is this many times as large as the last cache (STREAM's rule)."""

CALL_S = (2e-6, 15e-6)
"""What calling the casts adds to a product [s]: 2.1 µs on a Xeon with AMX (`shorter_type.py` of the
benchmarks); several times that is left for slower hosts and less plain models."""

ELEMENTS = (-0.4, 0.3)
ELEMENTS_ON_DEVICE = (0.0, 0.5)
"""Share of their time that elements and normalizations gain in a shorter type. On the Xeon those
of 2 MiB and more gained from -21 % (sigmoid) to 48 % (normalization), and smaller ones lost, since
they are computed in fp32 all the same. On a device memory binds them, so half is the most."""

MEASURED = (0.9, 1.1)
"""What removing a phase gives, as a multiple of its time: what comes after finds other caches. It
is an assumption, which `waterfall_interventions.py` checks."""

MIN_FRACTION = 0.01
"""A part below a hundredth of a step is not worth removing."""

REACHED = 0.8
"""Of the ceiling, which is that of the best shape, good shapes reach this and more."""

LAUNCH = (0.5, 1.1)
"""Of launching: operators that were fused by hand left next to nothing of it
(`waterfall_interventions.py`); fusion by a compiler leaves calls and guards, so half is the least
that is foretold."""

_PHASES = frozenset(
    (
        *(
            "loss",
            "input",
            "process_wait",
            "rollout",
            "preprocessing",
            "copies",
            "communication",
            "sync",
        ),
        *("gradient_processing", "optimizer", "script"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Range:
    """A factor for the time of a group, between two ends."""

    low: float
    high: float


def with_gains(found: Waterfall, cut: Cut) -> Waterfall:
    """Return the waterfall with the gain of each part whose cause can be removed.

    Times that are partly others' foretell nothing.
    """
    if cut.clock.is_disturbed:
        return found
    return replace(
        found, parts=tuple(replace(part, gain=_gain_of(part, found, cut)) for part in found.parts)
    )


def _gain_of(part: WaterfallPart, found: Waterfall, cut: Cut) -> Gain | None:
    if (part.fraction or 0.0) < MIN_FRACTION:
        return None
    if part.name in _PHASES:
        return _of_phase(part, cut)
    if found.provisional:
        return None
    if part.name == "precision":
        return _of_precision(found, cut)
    if part.name == "threads":
        return _of_threads(found, cut)
    if part.name == "shape":
        return _of_shape(part)
    return _of_launch(part, cut) if part.name == "launch" else None


def _of_phase(part: WaterfallPart, cut: Cut) -> Gain:
    """Return what a phase takes, within the interval of the step and what caches make of it."""
    steady = cut.measurement.steady
    step = None
    if steady is not None:
        step = steady.step_time_s if cut.clock.name == WALL else steady.step_cpu_s
    low, high = (1.0, 1.0)
    if step is not None and step.estimate > 0:
        low, high = step.low / step.estimate, step.high / step.estimate
    return Gain(
        low_s=part.time_s * low * MEASURED[0],
        high_s=part.time_s * high * MEASURED[1],
        formula="time × interval of the step × what caches make of it",
        terms=(
            Term(name="time", value=part.time_s, unit="s"),
            Term(name="step_low", value=low, unit="x"),
            Term(name="step_high", value=high, unit="x"),
        ),
    )


def _of_shape(part: WaterfallPart) -> Gain:
    """Return what better shapes give: the ceiling at most, and four fifths of it in practice."""
    allowed_s = next((one.value for one in part.terms if one.name == "ceiling_allows"), 0.0)
    return Gain(
        low_s=max(0.0, part.time_s - (1 / REACHED - 1) * allowed_s),
        high_s=part.time_s,
        formula="matmul − what the ceiling, or four fifths of it, allows",
        terms=part.terms,
    )


def _of_launch(part: WaterfallPart, cut: Cut) -> Gain:
    """Return what fewer and larger operators give: some calls always remain.

    With the tiny operators goes what they need themselves, which other parts have.
    """
    groups = groups_of(cut.count, is_on_device=is_on_device(cut.measurement))
    tiny = [bounds_of(one, cut.roofs, scale=1.0) for one in groups if one.is_tiny]
    needed_s = math.fsum(one.rising[-1] for one in tiny)
    return Gain(
        low_s=LAUNCH[0] * part.time_s,
        high_s=LAUNCH[1] * part.time_s + needed_s,
        formula="time × what fewer and larger operators leave + what tiny ones need",
        terms=(
            Term(name="time", value=part.time_s, unit="s"),
            Term(name="tiny_operators", value=needed_s, unit="s"),
        ),
    )


# -- a shorter type


def _of_precision(found: Waterfall, cut: Cut) -> Gain | None:
    """Return what the fastest type gives: products by size, less the casts, and the rest's bytes.

    Where memory holds a product back, a shorter type halves its bytes at most.
    """
    best, scale = found.dtype or "", _scale(found)
    on_device = is_on_device(cut.measurement)
    groups = groups_of(cut.count, is_on_device=on_device)
    elements = ELEMENTS_ON_DEVICE if on_device else ELEMENTS
    products = [one for one in groups if one.flops and one.dtype in FULL_TYPES]
    low = high = 0.0
    for one in products:
        if one.is_tiny:  # its time is that of its call
            continue
        time_s = scale * (one.time_s or 0.0)
        factor = _memory_or(cut.roofs, one, _in_type(cut.roofs, one, best))
        low += time_s * (1 - factor.high)
        high += time_s * (1 - factor.low)
    rest = [one for one in groups if not one.flops and not one.is_tiny]
    rest_s = scale * math.fsum(one.time_s or 0.0 for one in rest)
    casts = _casts(cut.roofs, products)
    return Gain(
        low_s=low - casts.high + elements[0] * rest_s,
        high_s=high - casts.low + elements[1] * rest_s,
        formula="matmul in the fastest type − casts ± what other operators gain",
        terms=(
            Term(name="products_low", value=low, unit="s"),
            Term(name="products_high", value=high, unit="s"),
            Term(name="casts_low", value=casts.low, unit="s"),
            Term(name="casts_high", value=casts.high, unit="s"),
            Term(name="other_operators", value=rest_s, unit="s"),
        ),
    )


def _scale(found: Waterfall) -> float:
    """Return the factor by which the operators' times were made to fit."""
    terms = (term for part in found.parts for term in part.terms)
    return next((term.value for term in terms if term.name == "operator_scale"), 1.0)


def _in_type(roofs: Roofs, one: GroupCount, best: str) -> _Range:
    """Return a product's time in the fastest type over that in its own, by sizes near its own."""
    own = one.dtype or ""
    rates = roofs.run_flops_per_s
    ceiling = rates.get(own, 0.0) / rates[best] if rates.get(best) else 1.0
    threads = roofs.run_threads
    slow, fast = _by_size(roofs, own, threads), _by_size(roofs, best, threads)
    ratios = [slow[size] / fast[size] for size in _near(one, slow.keys() & fast.keys())]
    return _Range(low=min([ceiling, *ratios]), high=max([ceiling, *ratios]))


def _by_size(roofs: Roofs, dtype: str, threads: int | None) -> Mapping[float, float]:
    """Return rates by size with the threads of the run, else with those of most settings."""
    sizes = [one for one in roofs.sizes if one.dtype == dtype]
    with_own = [one for one in sizes if one.num_threads == threads]
    chosen = with_own if len(with_own) > 1 else _usual(sizes)
    return {one.flops: one.flops_per_s for one in chosen}


def _usual(sizes: list[SizeRate]) -> list[SizeRate]:
    most = max((one.num_threads or 0 for one in sizes), default=0)
    return [one for one in sizes if (one.num_threads or 0) == most]


def _near(one: GroupCount, sizes: Iterable[float]) -> list[float]:
    """Return the measured sizes near a group's products; the nearest where none is near."""
    own, known = one.flops / max(1, one.num), sorted(sizes)
    near = [size for size in known if own / NEAR <= size <= own * NEAR]
    return near or sorted(known, key=lambda size: abs(math.log(size / own)))[:1]


def _memory_or(roofs: Roofs, one: GroupCount, factor: _Range) -> _Range:
    """Return the factor of a product that memory holds back: its bytes, halved at best."""
    used = roofs.run_flops_per_s.get(one.dtype or "")
    if not used or not roofs.bytes_per_s:
        return factor
    is_held = one.moved_bytes / roofs.bytes_per_s > one.flops / used
    return _Range(low=min(0.5, factor.low), high=1.0) if is_held else factor


def _casts(roofs: Roofs, products: Iterable[GroupCount]) -> _Range:
    """Return what the casts to a shorter type and back take [s]."""
    low = high = 0.0
    fast, memory = roofs.cache_bytes_per_s or roofs.bytes_per_s, roofs.bytes_per_s
    for one in products:
        cast = CAST_BYTES * one.moved_bytes
        low += CALL_S[0] * one.num + (CASTS[0] * cast / fast if fast else 0.0)
        slow = memory
        if fast and memory and one.moved_bytes * IN_CACHE < one.num * (roofs.memory_set_bytes or 0):
            slow = math.sqrt(fast * memory)  # of the larger caches
        high += CALL_S[1] * one.num + (CASTS[1] * cast / slow if slow else 0.0)
    return _Range(low=low, high=high)


# -- more threads


def _of_threads(found: Waterfall, cut: Cut) -> Gain | None:
    """Return what all threads give: products by size; other operators nothing, or as much."""
    roofs, scale = cut.roofs, _scale(found)
    if roofs.run_threads is None or roofs.num_threads is None:
        return None
    low = high = 0.0
    for one in groups_of(cut.count):
        if one.is_tiny:
            continue
        time_s = scale * (one.time_s or 0.0)
        factor = _with_all(roofs, one)
        if one.flops:
            low += time_s * (1 - factor.high)
        high += time_s * (1 - factor.low)
    return Gain(
        low_s=low,
        high_s=high,
        formula="operators with all threads, by the rates of matmuls of their size",
        terms=(
            Term(name="threads", value=float(roofs.run_threads), unit="count"),
            Term(name="machine_threads", value=float(roofs.num_threads), unit="count"),
        ),
    )


def _with_all(roofs: Roofs, one: GroupCount) -> _Range:
    """Return an operator's time with all threads over that with the run's."""
    dtype = one.dtype if one.dtype in roofs.run_flops_per_s else None
    own, every = roofs.run_threads or 1, roofs.num_threads or 1
    dtypes = [dtype] if dtype is not None else list(roofs.run_flops_per_s)
    ratios = [roofs.run_flops_per_s[name] / roofs.flops_per_s[name] for name in dtypes]
    for name in dtypes:
        few = {
            s.flops: s.flops_per_s for s in roofs.sizes if (s.dtype, s.num_threads) == (name, own)
        }
        all_ = {
            s.flops: s.flops_per_s for s in roofs.sizes if (s.dtype, s.num_threads) == (name, every)
        }
        both = few.keys() & all_.keys()
        sizes = _near(one, both) if one.flops else both
        ratios += [few[size] / all_[size] for size in sizes]
    return _Range(low=max(min(ratios), own / every), high=min(1.0, max(ratios)))
