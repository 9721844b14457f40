"""Divides the window's time on each device: kernels by class, idle time by reason, exchange.

In: a `Trace`, and the class of each operator of the host. Out: a `DeviceProfile` for each device.
Idle time is host wait if the next work had not been launched when it began, else kernel wait: these
are the definitions of Holistic Trace Analysis (facebookresearch/HolisticTraceAnalysis), over all
queues of the device together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence

from steptime.measure.profile.convolution_algorithms import convolution_algorithm
from steptime.measure.profile.operator_classes import OTHER, class_of_kernel
from steptime.measure.profile.profile_host import MAX_OPERATORS, NS, sum_classes
from steptime.measure.profile.profile_trace import DeviceWork, Trace
from steptime.measure.profile.time_layers import Span, layered, length, merged, outside
from steptime.measure.values.model.profiled import DeviceProfile, OperatorTime, function_of

Launchers = Mapping[int, tuple[str, str]]
"""Class and name of the host's operators, by their number."""


def fold_devices(trace: Trace, launchers: Launchers) -> tuple[DeviceProfile, ...]:
    """Return the profile of every device on which anything ran."""
    numbers = sorted({work.device for work in trace.works})
    return tuple(
        _fold([work for work in trace.works if work.device == number], trace, launchers)
        for number in numbers
    )


def _fold(works: Sequence[DeviceWork], trace: Trace, launchers: Launchers) -> DeviceProfile:
    start, end = works[0].start, max(work.end for work in works)
    kinds = [_kind(work, launchers) for work in works]
    pieces = [(work.start, work.end, index) for index, work in enumerate(works)]
    exchanges = [piece for piece in pieces if kinds[piece[2]] == "communication"]
    copies = [piece for piece in pieces if works[piece[2]].is_copy]
    rest = {*exchanges, *copies}
    computing = [piece for piece in pieces if piece not in rest]
    shared = layered([computing, exchanges, copies])
    busy = merged((begin, until) for begin, until, _ in pieces)
    host, kernel, unknown = _split_idle(list(outside(busy, start, end)), works, trace)
    exposed = sum(u - b for b, u, what in shared if kinds[what] == "communication")
    return DeviceProfile(
        device=works[0].device,
        window_s=(end - start) * NS,
        busy_s=length(busy) * NS,
        idle_s=(host + kernel + unknown) * NS,
        host_wait_s=host * NS,
        kernel_wait_s=kernel * NS,
        unknown_wait_s=unknown * NS,
        communication_s=length(merged((b, u) for b, u, _ in exchanges)) * NS,
        exposed_communication_s=exposed * NS,
        num_kernels=len(works),
        num_streams=len({work.stream for work in works}),
        classes=sum_classes(
            [(b, u, kinds[what]) for b, u, what in shared], Counter(kinds), end - start
        ),
        kernels=_sum_kernels(works, kinds, launchers),
    )


def _kind(work: DeviceWork, launchers: Launchers) -> str:
    """Return a kernel's class by the operator that launched it, or else by its own name."""
    if work.is_copy:
        return "copy"
    kind = launchers.get(work.number, (OTHER, ""))[0]
    by_name = class_of_kernel(work.name)
    if kind == OTHER or by_name == "communication":
        return by_name
    return kind


def _split_idle(
    gaps: Sequence[Span], works: Sequence[DeviceWork], trace: Trace
) -> tuple[int, int, int]:
    """Return idle time before a launch, between queued work, and of unknown reason [ns]."""
    host = kernel = unknown = 0
    starts = [work.start for work in works]
    for start, end in gaps:
        following = works[bisect_left(starts, end)]
        launch = trace.launches.get(following.correlation)
        if launch is None:
            unknown += end - start
        elif launch[0] > start:
            host += end - start
        else:
            kernel += end - start
    return host, kernel, unknown


def _sum_kernels(
    works: Sequence[DeviceWork], kinds: Sequence[str], launchers: Launchers
) -> tuple[OperatorTime, ...]:
    times: Counter[tuple[str, str]] = Counter()
    numbers: Counter[tuple[str, str]] = Counter()
    origins: dict[tuple[str, str], Counter[str]] = {}
    alike = Counter(function_of(work.name) for work in works)
    for work, kind in zip(works, kinds, strict=True):
        key = work.name, kind
        times[key] += work.end - work.start
        numbers[key] += 1
        origin = launchers.get(work.number, ("", ""))[1]
        origins.setdefault(key, Counter())[origin] += work.end - work.start
    return tuple(
        OperatorTime(
            name=key[0],
            kind=key[1],
            num=numbers[key],
            self_s=ns * NS,
            launched_by=origins[key].most_common(1)[0][0] or None,
            num_alike=alike[function_of(key[0])],
            algorithm=convolution_algorithm(key[0]) if key[1] == "convolution" else None,
        )
        for key, ns in times.most_common(MAX_OPERATORS)
    )
