"""Divides the time of a step, beginning with the time that the machine would need at best.

In: a Measurement with a count, and `Roofs`. Out: a `Waterfall`, whose parts sum to the step.

Nothing is counted twice: phases partition the step; the model's phases are cut into time off the
core, operators and the rest; and a chain of bounds cuts the time of each group of operators. The
chain only rises, from the machine's best time up to the real time. A part is the difference of two
bounds, so none is negative; what no bound explains remains unexplained.
docs/explanation/counting.md has the reasons.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from steptime.diagnose.ailments.contention import MIN_IDLE_CORES
from steptime.diagnose.ailments.signals import (
    compute_device_s,
    fraction_of,
    is_on_device,
    median_step_s,
    phase_of,
)
from steptime.diagnose.shifts.lasting_shifts import MIN_NEIGHBOR_CORES
from steptime.diagnose.values.reach_values import (
    Exceeded,
    Picture,
    Roofs,
    Term,
    Waterfall,
    WaterfallPart,
)
from steptime.diagnose.waterfall.chain import Bounds, bounds_of
from steptime.diagnose.waterfall.cut import (
    BY_PHASE,
    COMPUTING,
    EXCHANGE,
    MODEL,
    Cut,
    conclude,
    exchange_s,
    groups_of,
    operator_parts,
    phase_part,
)
from steptime.diagnose.waterfall.gains import with_gains
from steptime.diagnose.waterfall.roofline import make_roofline
from steptime.diagnose.waterfall.roofs import find_roofs
from steptime.diagnose.waterfall.step_clock import CPU, choose_clock, is_of_other_clock
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.work import Count, GroupCount

if TYPE_CHECKING:
    from steptime.machine.values.ceiling_values import Ceilings

ROOF_TOLERANCE = 1.05
"""Ceilings are within 5 % of the best hand-written loop; a class that beats a ceiling by more shows
that the ceiling is too low."""

MIN_EXCEEDED_FRACTION = 0.01
"""A class with a smaller share of the step says nothing about a roof."""


def make_picture(measurement: Measurement, ceilings: Ceilings | None) -> Picture:
    """Return roofline and waterfall of a run by its machine's ceilings, if those were measured."""
    rank = measurement.ranks[0] if measurement.ranks else None
    roofs = find_roofs(ceilings, rank, measurement.given_peaks)
    return Picture(
        roofline=make_roofline(measurement, roofs), waterfall=make_waterfall(measurement, roofs)
    )


def make_waterfall(measurement: Measurement, roofs: Roofs | str) -> Waterfall:
    """Return the step in parts; without roofs, count or steady steps, say why there are none.

    Args:
        measurement: the measurement of a run.
        roofs: the roofs, or why there are none.
    """
    step_s, count = median_step_s(measurement), measurement.count
    if not step_s:
        return Waterfall(missing="no_steady_steps")
    missing = _why_not(measurement, count, roofs)
    if count is None or isinstance(roofs, str) or missing is not None:
        return Waterfall(step_time_s=step_s, missing=missing)
    clock = choose_clock(measurement, count, wall_s=step_s)
    if clock.name == CPU:  # more threads would take no less CPU time
        roofs = replace(roofs, flops_per_s=roofs.run_flops_per_s)
    cut = Cut(measurement=measurement, count=count, roofs=roofs, clock=clock)
    found = _cut_on_device(cut) if is_on_device(measurement) else _cut_on_host(cut)
    if count.is_complete is False:
        found = replace(found, is_conclusive=False, lacking=(*found.lacking, "complete_count"))
    return with_gains(found, cut)


def _why_not(m: Measurement, count: Count | None, roofs: Roofs | str) -> str | None:
    if count is None:
        return m.count_missing or "not_counted"
    if not count.is_executed:
        return "not_executed"
    if count.basis is not None and count.basis.how == "range":
        return "work_differs"
    if isinstance(roofs, str):
        return roofs
    if is_on_device(m):
        return None if compute_device_s(m) is not None else "no_device_times"
    if any(one.time_s is None for one in groups_of(count)) or not count.total:
        return "no_operator_times"
    return "operators_by_cpu_time" if is_of_other_clock(m, count) else None


# -- on the CPU: the times of operators are known


def _cut_on_host(cut: Cut) -> Waterfall:
    off_s = math.fsum(cut.off_core_s(name) for name in MODEL)
    model_s = cut.phase_s(*MODEL) - off_s
    exchanged_s = min(model_s, exchange_s(cut.count))
    busy_s = model_s - exchanged_s
    groups = groups_of(cut.count)
    bounds, scale = _fit(cut, groups, busy_s)
    parts = operator_parts(cut, bounds)
    in_operators_s = math.fsum(one.kept_s for one in bounds)
    parts.append(
        WaterfallPart(
            name="launch",
            time_s=max(0.0, busy_s - in_operators_s),
            formula="model − operators",
            terms=(
                Term(name="model", value=busy_s, unit="s"),
                Term(name="operators", value=in_operators_s, unit="s"),
                Term(name="num_operators", value=float(sum(g.num for g in groups)), unit="count"),
                Term(name="num_tiny", value=float(_num_tiny(groups)), unit="count"),
            ),
        )
    )
    script, other_off_s = _script_parts(cut)
    parts += script
    own_off_s = {name: cut.off_core_s(phase) for name, phase in COMPUTING.items()}
    lost = math.fsum((off_s, other_off_s, *own_off_s.values()))
    taken = _taken_by_others(cut, lost)
    if taken > 0:
        parts.append(_contention(cut, taken))
    share = taken / lost if lost else 0.0  # what others did not take, a phase has waited
    parts += [
        phase_part(
            cut,
            name,
            phase,
            off_s=share * own_off_s.get(name, 0.0),
            more_s=exchanged_s if name == EXCHANGE else 0.0,
        )
        for name, phase in BY_PHASE.items()
    ]
    lacking = tuple(dict.fromkeys(w for one in bounds for w in one.lacking))
    if (1 - share) * (off_s + other_off_s) > 0:
        is_known = cut.measurement.host is not None
        lacking += ("waits_off_core" if is_known else "host_load",)
    return conclude(cut, parts, exceeded=_exceeded(cut, groups), lacking=lacking, scale=scale)


def _fit(cut: Cut, groups: tuple[GroupCount, ...], busy_s: float) -> tuple[list[Bounds], float]:
    """Return operators' bounds, fitted to the model's time, and the scale of the large ones."""
    large_s = math.fsum(one.time_s or 0.0 for one in groups if not one.is_tiny)
    # The one step in which operators were timed may have been slower than the usual one.
    scale = min(1.0, busy_s / large_s) if large_s > 0 else 1.0
    bounds = [bounds_of(one, cut.roofs, scale=1.0 if one.is_tiny else scale) for one in groups]
    return _fit_tiny(bounds, busy_s - scale * large_s), scale


def _num_tiny(groups: tuple[GroupCount, ...]) -> int:
    return sum(group.num for group in groups if group.is_tiny)


def _fit_tiny(bounds: list[Bounds], room_s: float) -> list[Bounds]:
    """Return tiny operators' bounds, fitted to the model's time that the large ones leave."""
    tiny_s = math.fsum(one.kept_s for one in bounds if one.group.is_tiny)
    if tiny_s <= room_s or not tiny_s:
        return bounds
    factor = max(0.0, room_s) / tiny_s
    return [one.scaled(factor) if one.group.is_tiny else one for one in bounds]


# -- time outside the model's operators


def _script_parts(cut: Cut) -> tuple[list[WaterfallPart], float]:
    """Return parts for the script's code between marked calls, and its time off the core [s]."""
    other_s = cut.phase_s("other")
    share = fraction_of(cut.measurement, "other") or 0.0  # of the wall time, as is the part's
    prepare = (
        other_s * min(1.0, (cut.measurement.prepare_fraction or 0.0) / share) if share else 0.0
    )
    rest_s = other_s - prepare
    off_s = rest_s * cut.off_core_s("other") / other_s if other_s else 0.0
    step = Term(name="step", value=cut.step_s, unit="s")
    between = Term(name="between_calls", value=rest_s, unit="s")
    return [
        WaterfallPart(
            name="preprocessing",
            time_s=prepare,
            formula="share × step",
            terms=(Term(name="share", value=prepare / cut.step_s, unit="fraction"), step),
        ),
        WaterfallPart(
            name="script",
            time_s=rest_s - off_s,
            formula="between calls − off the core",
            terms=(between, Term(name="off_core", value=off_s, unit="s")),
        ),
    ], off_s


def _taken_by_others(cut: Cut, lost_s: float) -> float:
    """Return the time off the core that other programs explain [s].

    They explain all of it if they kept the machine full. Else they explain at most the share of the
    step that they kept of the machine.
    """
    host = cut.measurement.host
    if host is None or host.others_cores < MIN_NEIGHBOR_CORES.value:
        return 0.0
    if host.num_cores - host.job_cores - host.others_cores < MIN_IDLE_CORES.value:
        return lost_s
    return min(lost_s, cut.step_s * host.others_cores / host.num_cores)


def _contention(cut: Cut, lost_s: float) -> WaterfallPart:
    host = cut.measurement.host
    assert host is not None  # else nobody would know
    return WaterfallPart(
        name="contention",
        time_s=lost_s,
        formula="time of what computes in which no thread of it ran",
        terms=(
            Term(name="others_cores", value=host.others_cores, unit="cores"),
            Term(name="num_cores", value=float(host.num_cores), unit="cores"),
        ),
    )


# -- on a device: its time by phase is known, and mostly that of its operators


def _cut_on_device(cut: Cut) -> Waterfall:
    device_s = {name: _device_s(cut.measurement, name) for name in (*MODEL, *BY_PHASE.values())}
    model_s = math.fsum(device_s[name] for name in MODEL)
    compute = ("loss", "gradient_processing", "optimizer")
    busy_s = model_s + math.fsum(device_s[name] for name in compute)
    shrink = min(1.0, cut.step_s / busy_s) if busy_s else 1.0
    groups = groups_of(cut.count, is_on_device=True)
    if any(one.time_s is None for one in groups):
        model = _without_times(cut, shrink * model_s)
    else:
        model = _with_times(cut, groups, shrink * model_s)
    parts = model.parts
    for name in compute:
        term = Term(name="device_time", value=device_s[name], unit="s")
        time_s = shrink * device_s[name]
        parts.append(WaterfallPart(name=name, time_s=time_s, formula="device time", terms=(term,)))
    parts += _idle_parts(cut, cut.step_s - shrink * busy_s, model)
    return conclude(
        cut, parts, exceeded=model.exceeded, lacking=model.lacking, scale=shrink * model.scale
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    """The model's time on a device in parts, and its time between operators [s]."""

    parts: list[WaterfallPart]
    exceeded: tuple[Exceeded, ...]
    lacking: tuple[str, ...] = ()
    between_s: float = 0.0
    scale: float = 1.0


def _with_times(cut: Cut, groups: tuple[GroupCount, ...], model_s: float) -> _Model:
    """Divide the model's time by the time of each operator on the device."""
    bounds, scale = _fit(cut, groups, model_s)
    return _Model(
        parts=operator_parts(cut, bounds),
        exceeded=_exceeded(cut, groups),
        lacking=tuple(dict.fromkeys(word for one in bounds for word in one.lacking)),
        between_s=max(0.0, model_s - math.fsum(one.kept_s for one in bounds)),
        scale=scale,
    )


def _without_times(cut: Cut, model_s: float) -> _Model:
    """Divide the model's time by what operators need: all beyond that is one part."""
    bounds = [bounds_of(one, cut.roofs, scale=None) for one in groups_of(cut.count)]
    kept_s = math.fsum(one.kept_s for one in bounds)
    fit = min(1.0, model_s / kept_s) if kept_s else 1.0
    slow = WaterfallPart(
        name="device_operators",
        time_s=max(0.0, model_s - fit * kept_s),
        formula="device time of the model − what its operators need",
        terms=(
            Term(name="device_time", value=model_s, unit="s"),
            Term(name="needed", value=kept_s, unit="s"),
        ),
    )
    too_low = Exceeded(
        name="operators", roof="compute", ratio=1 / fit, fraction=model_s / cut.step_s
    )
    return _Model(
        parts=[*operator_parts(cut, [one.scaled(fit) for one in bounds]), slow],
        exceeded=(too_low,) if fit * ROOF_TOLERANCE < 1 else (),
    )


def _device_s(m: Measurement, name: str) -> float:
    phase = phase_of(m, name)
    return 0.0 if phase is None else phase.device_median_s or 0.0


def _idle_parts(cut: Cut, idle_s: float, model: _Model) -> list[WaterfallPart]:
    """Return what the host did while the device was idle; the unexplained rest is launching."""
    parts, left_s = [], idle_s
    idle = Term(name="idle", value=idle_s, unit="s")
    waits = ("input", "process_wait", "rollout", "copies", "communication", "script", "sync")
    for name in waits:
        spent_s = cut.phase_s(BY_PHASE.get(name, "other"))
        time_s = min(left_s, spent_s)
        left_s -= time_s
        parts.append(
            WaterfallPart(
                name=name,
                time_s=time_s,
                formula="time on the host, as far as the device was idle",
                terms=(Term(name="time_on_host", value=spent_s, unit="s"), idle),
            )
        )
    launch = WaterfallPart(
        name="launch",
        time_s=left_s + model.between_s,
        formula="idle time of the device − what explains it + between operators of the model",
        terms=(
            idle,
            Term(name="explained", value=idle_s - left_s, unit="s"),
            Term(name="between_operators", value=model.between_s, unit="s"),
        ),
    )
    return [*parts, launch]


# -- the sum


def _exceeded(cut: Cut, groups: tuple[GroupCount, ...]) -> tuple[Exceeded, ...]:
    """Return the classes that were faster than a roof allows, the longest first."""
    found: dict[tuple[str, str, str], tuple[float, float]] = {}
    for one in groups:
        bounds = bounds_of(one, cut.roofs, scale=1.0)
        if bounds.too_low is None or one.is_tiny:
            continue
        roof, least_s = bounds.too_low
        key = (one.name, roof, (one.dtype or "") if roof == "compute" else roof)
        time_s, needed_s = found.get(key, (0.0, 0.0))
        found[key] = (time_s + (one.time_s or 0.0), needed_s + least_s)
    seen = [
        Exceeded(
            name=name,
            roof=roof,
            ratio=needed / time_s,
            fraction=time_s / cut.step_s,
            ceiling=ceiling,
            is_proof=roof == "memory" or (roof == "compute" and name == "matmul"),
        )
        for (name, roof, ceiling), (time_s, needed) in found.items()
        if time_s > MIN_EXCEEDED_FRACTION * cut.step_s and needed > ROOF_TOLERANCE * time_s
    ]
    return tuple(sorted(seen, key=lambda one: -one.fraction))
