"""Which devices of one process did the work of a step, and what they could do together.

In: a Count. Out: names of parts, and the sum of their peaks. A process that trains on several GPUs
(`DataParallel`, a model that is cut by hand) is not measured by the peak of its first one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steptime.core.hardware import find_accelerator
from steptime.measure.values.work import Count

_MIN_FRACTION = 0.01
"""A device with less of the work than this does not take part."""


def devices_at_work(count: Count) -> tuple[str, ...]:
    """Return the name of each device that did a hundredth of the work or more."""
    whole = sum(one.flops for one in count.devices)
    return tuple(one.name for one in count.devices if one.flops >= _MIN_FRACTION * whole > 0)


def peak_of_all(
    names: Sequence[str], known: Mapping[str, float | None], dtype: str
) -> float | None:
    """Return the sum of the dense peaks of devices [FLOP/s]; None where one has none.

    Args:
        names: the devices, a name each.
        known: peaks that were found elsewhere, by the device's name [FLOP/s].
        dtype: the type of the numbers that are multiplied.
    """
    total = 0.0
    for name in names:
        peak = known.get(name)
        if peak is None:
            part = find_accelerator(name)
            peak = None if part is None else part.peak_flops_per_s.get(dtype)
        if peak is None:
            return None
        total += peak
    return total
