"""Which algorithm a device computes its convolutions by, where a profile has names of kernels.

In: a Measurement with a profile of a device. Out: a finding that is a hint: cuDNN chooses by a rule
of thumb unless it is asked to try, and only a trial shows whether another algorithm is faster.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace

from steptime.diagnose.ailments.ailment import Ailment, Asked, by_facts
from steptime.diagnose.ailments.scale import WARNING_FRACTION
from steptime.diagnose.ailments.signals import count, make_finding, share
from steptime.diagnose.values.finding import Finding, Severity
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.profiled import DeviceProfile

CONVOLUTION = "convolution"


def find_convolution_algorithm(measurement: Measurement) -> Finding | None:
    """No measured bottleneck: how cuDNN computes the convolutions that take much of a device."""
    ranks = () if measurement.profile is None else measurement.profile.ranks
    devices = [device for rank in ranks for device in rank.devices]
    device = max(devices, key=_fraction_of, default=None)
    if device is None or _fraction_of(device) < WARNING_FRACTION.value:
        return None
    times: defaultdict[str, list[float]] = defaultdict(list)
    for kernel in device.kernels:
        if kernel.kind == CONVOLUTION and kernel.algorithm is not None:
            times[kernel.algorithm].append(kernel.self_s)
    if not times:
        return None
    sums = {name: math.fsum(found) for name, found in times.items()}
    most = max(sums, key=lambda name: sums[name])
    whole_s = math.fsum(one.self_s for one in device.kernels if one.kind == CONVOLUTION)
    found = make_finding(
        ALGORITHM,
        severity=Severity.INFO,
        evidence=(
            share("convolutions", _fraction_of(device)),
            share("by_algorithm", min(1.0, sums[most] / whole_s) if whole_s else 0.0),
            count("num_algorithms", len(sums)),
        ),
    )
    return replace(found, names={"algorithm": most})


def _fraction_of(device: DeviceProfile) -> float:
    """Return the share of a device's window in which convolutions ran."""
    return math.fsum(one.fraction for one in device.classes if one.name == CONVOLUTION)


ALGORITHM = Ailment(
    cause="convolution_algorithm",
    what="convolutions take much of a device, by an algorithm that cuDNN chose",
    needs="a profile of a device, with names of kernels",
    rule=find_convolution_algorithm,
    asked=Asked.ALWAYS,
    thresholds=(WARNING_FRACTION,),
    title="convolutions",
    sentence="convolutions run for {convolutions} of the profiled time of the device, "
    "{by_algorithm} of their time by {algorithm}, as their kernels are named.",
    remedy="Let cuDNN try its algorithms (`torch.backends.cudnn.benchmark = True`), where sizes "
    "stay the same; some of them want channels last, or 16 bits.",
    levers=("cudnn_benchmark", "channels_last", "autocast"),
    when_contended=by_facts("The kernels are named by the device, whoever else kept cores busy."),
)
AILMENTS = (ALGORITHM,)
