"""Which devices of one process did the work of a step, and what they could do together.

In: a Count. Out: names of parts, and the sum of their peaks. A process that trains on several GPUs
(`DataParallel`, a model that is cut by hand) is not measured by the peak of its first one.
"""

from __future__ import annotations

from collections.abc import Sequence

from steptime.core.devices.hardware import find_accelerator
from steptime.diagnose.peaks import DevicePeaks
from steptime.measure.values.measurement import RankSummary
from steptime.measure.values.model.work import Count

CPU = "cpu"

_MIN_FRACTION = 0.01
"""A device with less of the work than this does not take part."""


def devices_at_work(count: Count) -> tuple[str, ...]:
    """Return the name of each device that did a hundredth of the work or more."""
    whole = sum(one.flops for one in count.devices)
    return tuple(one.name for one in count.devices if one.flops >= _MIN_FRACTION * whole > 0)


def peak_of_all(
    names: Sequence[str], peaks: DevicePeaks, *, own: RankSummary | None, dtype: str
) -> float | None:
    """Return the sum of the dense peaks of devices [FLOP/s]; None where one has none.

    Args:
        names: the devices, a name each; none where an older version counted.
        peaks: those of the rank's own device, and the user's, which are of each device.
        own: the rank.
        dtype: the type of the numbers that are multiplied.
    """
    is_on_cpu = own is None or own.device.partition(":")[0] == CPU
    own_name = CPU if own is None or is_on_cpu else own.device_name
    total = 0.0
    for name in names or (own_name,):
        is_own = name == own_name or (dtype in peaks.given and (name == CPU) == is_on_cpu)
        part = None if is_own or name is None else find_accelerator(name)
        other = {} if part is None else part.peak_flops_per_s
        peak = (peaks.flops_per_s if is_own else other).get(dtype)
        if peak is None:
            return None
        total += peak
    return total
