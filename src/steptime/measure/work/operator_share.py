"""Brings the operators' times within the phases that they ran in.

In: the work of the mean step, and the phases of the steady window. Out: the same work, whose times
on the host add up to no more than forward, loss and backward take in steps that nobody looks into.
Where operators take microseconds, seeing one costs as much as the operator: in steps under half a
millisecond they summed to twice their phases. That cost is the same for each operator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from steptime.measure.values.measurement import Phase, SteadyWindow
from steptime.measure.values.model.operator_time import TimedModule, TimedOperator
from steptime.measure.values.model.work import ClassCount, Count, GroupCount

_COUNTED = ("forward", "loss", "forward_and_loss", "backward")
_NUM_HALVINGS = 50


class _Row(Protocol):
    @property
    def num(self) -> int: ...

    @property
    def time_s(self) -> float | None: ...


_Timed = TypeVar("_Timed", TimedOperator, TimedModule, GroupCount)


def within_phases(
    count: Count | None, phases: Sequence[Phase], steady: SteadyWindow
) -> Count | None:
    """Return the work with times that fit into its phases; as it is where they do, or on a device.

    Args:
        count: the work of the mean step.
        phases: those of the steady window.
        steady: the window, for the length of the mean step.
    """
    if count is None or any(one.device_time_s is not None for one in count.classes):
        return count
    limit_s = _limit_s(count, phases, steady)
    rows: Sequence[_Row] = count.groups or count.classes
    total_s = math.fsum(row.time_s or 0.0 for row in rows)
    if limit_s is None or total_s <= limit_s:
        return count
    cost_s = _cost_s(rows, limit_s)
    factor = limit_s / total_s
    groups = tuple(_lowered(one, cost_s) for one in count.groups)
    return replace(
        count,
        groups=groups,
        classes=tuple(_class(one, groups, cost_s) for one in count.classes),
        operators=_shared(
            count.operators, [_lowered(one, cost_s) for one in count.operators], factor
        ),
        module_times=_shared(
            count.module_times, [_lowered(one, cost_s) for one in count.module_times], factor
        ),
    )


def _limit_s(count: Count, phases: Sequence[Phase], steady: SteadyWindow) -> float | None:
    """Return what the phases of the operators take in the mean step, by the operators' clock."""
    found = [one for one in phases if one.name in _COUNTED and one.fraction is not None]
    if steady.mean_s is None or not found:
        return None
    usual_s = math.fsum(one.median_s or 0.0 for one in found)
    cpu_s = math.fsum(one.cpu_median_s or 0.0 for one in found)
    by_clock_s = cpu_s if count.clock == "cpu" and cpu_s else usual_s
    if count.basis is not None and count.basis.how in ("one", "equal"):
        return by_clock_s or None  # steps that are alike: a busy machine makes the mean longer
    wall_s = steady.mean_s * math.fsum(one.fraction or 0.0 for one in found)
    return wall_s * min(1.0, by_clock_s / usual_s) if usual_s else wall_s


def _cost_s(rows: Sequence[_Row], limit_s: float) -> float:
    """Return the cost of seeing one operator with which the rest fits into the limit [s]."""
    low, high = 0.0, max((row.time_s or 0.0) / max(1, row.num) for row in rows)
    for _ in range(_NUM_HALVINGS):
        middle = (low + high) / 2
        left_s = math.fsum(max(0.0, (row.time_s or 0.0) - middle * row.num) for row in rows)
        low, high = (middle, high) if left_s > limit_s else (low, middle)
    return high


def _lowered(one: _Timed, cost_s: float) -> _Timed:
    if one.time_s is None:
        return one
    return replace(one, time_s=max(0.0, one.time_s - cost_s * one.num))


def _class(one: ClassCount, groups: Sequence[GroupCount], cost_s: float) -> ClassCount:
    """Return a class with the time of its groups."""
    if one.time_s is None:
        return one
    inside = [group.time_s or 0.0 for group in groups if group.name == one.name]
    time_s = math.fsum(inside) if inside else max(0.0, one.time_s - cost_s * one.num)
    return replace(one, time_s=time_s)


def _shared(before: Sequence[_Timed], rows: Sequence[_Timed], factor: float) -> tuple[_Timed, ...]:
    """Return rows of a table that have the share of all time that they had, the longest first.

    A row that mixes long operators with short ones loses more than seeing these took.
    """
    left_s = math.fsum(row.time_s or 0.0 for row in rows)
    wanted_s = factor * math.fsum(row.time_s or 0.0 for row in before)
    if not left_s:
        rows, left_s = before, wanted_s / factor if factor else 1.0
    scale = wanted_s / left_s if left_s else 1.0
    made = [row if row.time_s is None else replace(row, time_s=row.time_s * scale) for row in rows]
    return tuple(sorted(made, key=lambda row: -(row.time_s or 0.0)))
