"""Makes the pieces of a waterfall, each with its arithmetic.

In: a `Cut`, which knows the step, and the bounds of its operators. Out: parts, and the `Waterfall`
of them. `diagnose.waterfall.step_waterfall` decides which pieces a step has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from steptime.diagnose.ailments.signals import phase_of
from steptime.diagnose.values.reach_values import (
    MAX_UNEXPLAINED,
    PARTS,
    Exceeded,
    Roofs,
    Term,
    Waterfall,
    WaterfallPart,
)
from steptime.diagnose.waterfall.chain import SMALL_S, Bounds, fastest_type
from steptime.diagnose.waterfall.step_clock import WALL, StepClock
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.work import ClassCount, Count, GroupCount

MODEL = ("forward", "forward_and_loss", "backward")
"""Phases whose operators the guest counts."""

EXCHANGE = "communication"
"""The class of operators that no roof of one machine bounds."""

ROUNDING = 1e-9
"""Share of a step that rounding leaves in differences of equal bounds."""

BY_PHASE = {
    "input": "input_wait",
    "process_wait": "process_wait",
    "rollout": "rollout",
    "copies": "h2d",
    "communication": "communication",
    "sync": "sync",
    "loss": "loss",
    "gradient_processing": "gradient_processing",
    "optimizer": "optimizer",
}
"""Parts that are phases as they were measured."""

COMPUTING = {name: BY_PHASE[name] for name in ("loss", "gradient_processing", "optimizer")}
"""Of these, what the process computes: off its core it is displaced, and does not wait."""

_CHAIN = ("arithmetic", "ceiling", "precision", "threads", "bandwidth")


def groups_of(count: Count, *, is_on_device: bool = False) -> tuple[GroupCount, ...]:
    """Return the count's groups, or its classes where it has no groups; no communication.

    Args:
        count: the count of a step.
        is_on_device: whether to take the times on the device.
    """
    groups = [one for one in count.groups or _classes_as_groups(count) if one.name != EXCHANGE]
    return tuple(_on_device(one) for one in groups) if is_on_device else tuple(groups)


def exchange_s(count: Count) -> float:
    """Return the time of the operators that move elements between ranks [s]."""
    return math.fsum(one.time_s or 0.0 for one in count.classes if one.name == EXCHANGE)


def _on_device(one: GroupCount) -> GroupCount:
    time_s = one.device_time_s
    is_tiny = time_s is not None and time_s < 2 * SMALL_S * one.num
    return replace(one, time_s=time_s, is_tiny=is_tiny)


def _classes_as_groups(count: Count) -> tuple[GroupCount, ...]:
    main = max(count.by_dtype, key=lambda name: count.by_dtype[name], default=None)

    def type_of(one: ClassCount) -> str | None:
        return max(one.by_dtype, key=lambda name: one.by_dtype[name], default=main)

    return tuple(
        GroupCount(
            name=one.name,
            dtype=type_of(one) if one.flops else None,
            num=one.num,
            flops=one.flops,
            pointwise_flops=one.pointwise_flops,
            moved_bytes=one.moved_bytes,
            time_s=one.time_s,
            device_time_s=one.device_time_s,
        )
        for one in count.classes
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The step to cut, and the facts to cut it by."""

    measurement: Measurement
    count: Count
    roofs: Roofs
    clock: StepClock

    @property
    def step_s(self) -> float:
        """Return the median step on the clock of the waterfall [s]."""
        return self.clock.step_s

    def phase_s(self, *names: str) -> float:
        """Return phases' time in a median step, by their shares of all steps [s]."""
        return self.step_s * math.fsum(self.clock.shares.get(name, 0.0) for name in names)

    def off_core_s(self, name: str) -> float:
        """Return a host phase's wall time in which no thread of the process ran [s]."""
        phase = phase_of(self.measurement, name)
        if self.clock.name != WALL or phase is None:
            return 0.0
        if not phase.median_s or phase.cpu_median_s is None:
            return 0.0
        return self.phase_s(name) * max(0.0, 1 - phase.cpu_median_s / phase.median_s)


def operator_parts(cut: Cut, bounds: list[Bounds]) -> list[WaterfallPart]:
    """Return the operators' time by its causes, with what checkpointing did again apart."""
    count = cut.count
    again = count.recomputed / count.total if count.total else 0.0
    sums = {name: _by_class(bounds, name) for name in (*_CHAIN, "shape", "slow_operators")}
    products = _CHAIN[:-1]
    repeated_s = again * math.fsum(sum(sums[name].values()) for name in products)
    parts = []
    for name, classes in sums.items():
        kept = {k: v * (1 - again) if name in products else v for k, v in classes.items()}
        parts.append(_chain_part(cut, name, kept, bounds))
    if repeated_s:
        terms = (
            Term(name="recomputed", value=float(count.recomputed), unit="flops"),
            Term(name="work", value=float(count.total), unit="flops"),
            Term(name="products", value=repeated_s / again, unit="s"),
        )
        parts.append(
            WaterfallPart(
                name="recomputation",
                time_s=repeated_s,
                formula="recomputed ÷ work × matmul",
                terms=terms,
            )
        )
    return parts


def _by_class(bounds: list[Bounds], name: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for one in bounds:
        time_s = one.part(name)
        if time_s > 0:
            found[one.group.name] = found.get(one.group.name, 0.0) + time_s
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _chain_part(
    cut: Cut, name: str, classes: dict[str, float], bounds: list[Bounds]
) -> WaterfallPart:
    """Return a part of the operators' time with its arithmetic."""
    of_bounds = name in ("bandwidth", "shape", "slow_operators")
    formula, terms = _of_bounds(cut, name, bounds) if of_bounds else _formula(cut, name)
    return WaterfallPart(
        name=name,
        time_s=math.fsum(classes.values()),
        formula=formula,
        terms=terms,
        classes=classes,
    )


def _formula(cut: Cut, name: str) -> tuple[str, tuple[Term, ...]]:
    """Return the arithmetic of one part of the operators' time."""
    roofs, count = cut.roofs, cut.count
    best = fastest_type(roofs)
    work = Term(name="work", value=float(count.total), unit="flops")
    given = "given_peak" if best in roofs.given_types else "peak"
    peak = _rate(given, roofs.peak_flops_per_s.get(best))
    top = _rate(f"ceiling_{best}", roofs.flops_per_s.get(best))
    own = [_rate(f"ceiling_{d}", roofs.flops_per_s.get(d)) for d in count.by_dtype if d != best]
    if name == "arithmetic" and peak:
        return "work ÷ peak", (work, *peak)
    if name == "arithmetic":
        return "work ÷ ceiling", (work, *top)
    if name == "ceiling":
        return "work ÷ ceiling − work ÷ peak", (work, *top, *peak)
    if name == "precision":
        return "work ÷ ceiling of its type − work ÷ ceiling of the fastest", (
            *(term for one in own for term in one),
            *top,
        )
    used = [_rate(f"reached_{d}", roofs.run_flops_per_s.get(d)) for d in count.by_dtype]
    threads = (("threads", roofs.run_threads), ("machine_threads", roofs.num_threads))
    return "work ÷ ceiling with the run's threads − work ÷ ceiling", (
        *(Term(name=n, value=float(v), unit="count") for n, v in threads if v is not None),
        *(term for one in used for term in one),
    )


def _of_bounds(cut: Cut, name: str, bounds: list[Bounds]) -> tuple[str, tuple[Term, ...]]:
    """Return the arithmetic of a part that memory explains, or nothing that was measured."""
    if name == "bandwidth":
        held = [one for one in bounds if one.part(name) > 0]
        moved = sum(one.group.moved_bytes for one in held)
        return "bytes ÷ bandwidth − arithmetic, at most what they took", (
            Term(name="bytes", value=float(moved), unit="bytes"),
            *_rate("bandwidth", cut.roofs.bytes_per_s, unit="bytes_per_s"),
            Term(name="arithmetic", value=math.fsum(one.rising[-2] for one in held), unit="s"),
        )
    over = [one for one in bounds if one.over == name]
    allowed_s = math.fsum(one.rising[-1] for one in over)
    over_s = math.fsum(one.over_s for one in over)
    what, roof = ("products", "ceiling") if name == "shape" else ("operators", "memory")
    return f"{what} − what {'the ' if roof == 'ceiling' else ''}{roof} allows", (
        Term(name=what, value=allowed_s + over_s, unit="s"),
        Term(name=f"{roof}_allows", value=allowed_s, unit="s"),
    )


def _rate(name: str, value: float | None, unit: str = "flops_per_s") -> tuple[Term, ...]:
    return () if value is None else (Term(name=name, value=value, unit=unit),)


def phase_part(
    cut: Cut, name: str, phase: str, *, off_s: float = 0.0, more_s: float = 0.0
) -> WaterfallPart:
    """Return a part that is a phase as it was measured, without `off_s` off the core.

    Operators inside the model's phases that belong to it add `more_s`.
    """
    more = (Term(name="operators", value=more_s, unit="s"),) if more_s else ()
    off = (Term(name="off_core", value=off_s, unit="s"),) if off_s else ()
    return WaterfallPart(
        name=name,
        time_s=cut.phase_s(phase) - off_s + more_s,
        formula="share × step" + " − off the core" * bool(off) + " + operators" * bool(more),
        terms=(
            Term(name="share", value=cut.clock.shares.get(phase, 0.0), unit="fraction"),
            Term(name="step", value=cut.step_s, unit="s"),
            *off,
            *more,
        ),
    )


def conclude(
    cut: Cut,
    parts: list[WaterfallPart],
    *,
    exceeded: tuple[Exceeded, ...],
    lacking: tuple[str, ...],
    scale: float,
) -> Waterfall:
    """Return the parts in order, with the unexplained rest; they sum to the step on its clock."""
    parts = [part for part in parts if part.time_s > ROUNDING * cut.step_s]
    known_s = math.fsum(part.time_s for part in parts)
    if known_s > cut.step_s:  # phases are medians and shares, with rounding errors
        shrink = cut.step_s / known_s
        parts = [_shrunk(part, shrink) for part in parts]
        known_s = cut.step_s
    left_s = max(0.0, cut.step_s - known_s)
    rest = WaterfallPart(
        name="unexplained",
        time_s=left_s,
        formula="step − all other parts",
        terms=(
            Term(name="step", value=cut.step_s, unit="s"),
            Term(name="parts", value=known_s, unit="s"),
            Term(name="operator_scale", value=scale, unit="x"),
        ),
    )
    shown = sorted(
        [*parts, rest],
        key=lambda part: PARTS.index(part.name),
    )
    # Time that the roof demands beyond the real time belongs to the parts above it.
    too_low = math.fsum(
        one.fraction * (1 - 1 / one.ratio) for one in exceeded if one.roof == "compute"
    )
    best = fastest_type(cut.roofs)
    provisional = _provisional(cut, best, exceeded)
    unsure = {
        "true_ceilings": too_low > MAX_UNEXPLAINED or any(one.is_proof for one in exceeded),
        "firm_ceilings": any(name in cut.roofs.doubts for name in provisional),
        "quiet_machine": cut.clock.is_disturbed,
    }
    words = (*lacking, *(word for word, holds in unsure.items() if holds))
    is_sure = left_s / cut.step_s <= MAX_UNEXPLAINED and not any(unsure.values())
    return Waterfall(
        step_time_s=cut.step_s,
        clock=cut.clock.name,
        wall_s=cut.clock.wall_s,
        waits=cut.clock.waits,
        begins_at=_start(cut.roofs, best),
        dtype=best,
        parts=tuple(replace(part, fraction=part.time_s / cut.step_s) for part in shown),
        exceeded=exceeded,
        provisional=provisional,
        is_conclusive=is_sure,
        lacking=() if is_sure else words,
    )


def _provisional(cut: Cut, best: str, exceeded: tuple[Exceeded, ...]) -> tuple[str, ...]:
    """Return the roofs behind the parts that may be too low: doubted ones, and beaten ones."""
    beaten = {one.ceiling for one in exceeded if one.is_proof}
    used = dict.fromkeys((*cut.count.by_dtype, best, "memory"))
    return tuple(name for name in used if name in cut.roofs.doubts or name in beaten)


def _start(roofs: Roofs, dtype: str) -> str:
    """Return where the waterfall begins: at a peak if one is known, else at a ceiling."""
    if dtype in roofs.given_types:
        return "given"
    return "datasheet" if dtype in roofs.peak_flops_per_s else "ceiling"


def _shrunk(part: WaterfallPart, factor: float) -> WaterfallPart:
    classes = {name: time_s * factor for name, time_s in part.classes.items()}
    return replace(part, time_s=part.time_s * factor, classes=classes)
