"""Places each class of operators under the roofs of the machine.

In: the `Count` of a step and the `Roofs`. Out: a `Roofline`. Where a class's time, its work or a
roof is not known, there is no position, and a word says why. With a device, times on the host only
show launching, so only times on the device count.
"""

from __future__ import annotations

import math
from dataclasses import replace

from steptime.diagnose.ailments.signals import is_on_device
from steptime.diagnose.values.reach_values import Roofline, RooflinePoint, Roofs
from steptime.diagnose.waterfall.cut import EXCHANGE
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.work import ClassCount, Count


def make_roofline(measurement: Measurement, roofs: Roofs | str) -> Roofline:
    """Return the classes of a step under the roofs, with the most time first.

    Args:
        measurement: a measurement with a count.
        roofs: the roofs, or why there are none; what was reached is known without them.
    """
    found, missing = (None, roofs) if isinstance(roofs, str) else (roofs, None)
    count = measurement.count
    if count is None:
        return Roofline(roofs=found, missing=measurement.count_missing or "not_counted")
    classes = tuple(one for one in count.classes if one.name != EXCHANGE)
    if is_on_device(measurement):
        classes = tuple(replace(one, time_s=one.device_time_s) for one in classes)
    whole_s = math.fsum(one.time_s or 0.0 for one in classes)
    points = [_point(one, count, found, whole_s=whole_s) for one in classes]
    points.sort(key=lambda point: -(point.time_s or 0.0))
    return Roofline(roofs=found, points=tuple(points), missing=missing)


def _point(one: ClassCount, count: Count, roofs: Roofs | None, *, whole_s: float) -> RooflinePoint:
    """Return the point of one class; without times it has only intensity and roof."""
    dtype = _dtype_of(one, count)
    time_s = one.time_s
    attainable, roof = _attainable(one, dtype, roofs)
    if not time_s or not one.moved_bytes:
        return RooflinePoint(
            name=one.name,
            intensity=one.intensity,
            dtype=dtype,
            roof=roof,
            roof_flops_per_s=attainable,
            missing="no_operator_times" if not time_s else "no_bytes_moved",
        )
    flops = one.flops + one.pointwise_flops
    reached = flops / time_s
    # Operators that only move elements have their place under the memory's roof, by their bytes.
    position = None
    if roof == "memory" and roofs is not None and roofs.bytes_per_s:
        position = one.moved_bytes / time_s / roofs.bytes_per_s
    elif roof == "compute" and attainable:
        position = one.flops / time_s / attainable
    return RooflinePoint(
        name=one.name,
        time_s=time_s,
        fraction=time_s / whole_s,
        intensity=one.intensity,
        dtype=dtype,
        flops_per_s=reached,
        bytes_per_s=one.moved_bytes / time_s,
        roof=roof,
        roof_flops_per_s=attainable,
        position=position,
        headroom_s=None if position is None else time_s * max(0.0, 1 - position),
        missing=None if position is not None else "no_roof",
    )


def _dtype_of(one: ClassCount, count: Count) -> str | None:
    """Return the type that most of a class's work is of."""
    flops = one.by_dtype or (count.by_dtype if one.flops else {})
    return max(flops, key=lambda name: flops[name], default=None)


def _attainable(
    one: ClassCount, dtype: str | None, roofs: Roofs | None
) -> tuple[float | None, str | None]:
    """Return the rate that the lower roof allows at a class's intensity, and which roof that is."""
    if roofs is None or one.intensity is None:
        return None, None
    memory = None if roofs.bytes_per_s is None else one.intensity * roofs.bytes_per_s
    if not one.flops:  # there is no measured ceiling for elements
        return memory, None if memory is None else "memory"
    compute = roofs.run_flops_per_s.get(dtype or "")
    if compute is None or (memory is not None and memory < compute):
        return memory, None if memory is None or compute is None else "memory"
    return compute, "compute"
