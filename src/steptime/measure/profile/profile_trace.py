"""Puts a trace of torch's profiler in order: what ran in which thread, and what was launched.

In: events, one by one (`measure.profile.trace_file`). Out: a `Trace` of plain rows.
`measure.profile.profile_host` and `measure.profile.profile_device` divide the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

NS_PER_US = 1000

MAX_ROWS = 1_000_000
"""It bounds memory; three steps of ten thousand operators with their kernels have a tenth of it."""

STEP = "ProfilerStep#"

_HOST = ("cpu_op", "user_annotation")
_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCH = ("cuda_runtime", "cuda_driver", "privateuse1_runtime", "privateuse1_driver")


_COMPILED = "## Call CompiledFxGraph"
"""A range in which kernels of a compiler run that have no name on a CPU."""


class TooLargeError(Exception):
    """The trace has more events than we read."""


class Op(NamedTuple):
    """An operator on a thread of the host [ns]; `number` joins it to what it launched.

    `is_range`: it is a named stretch of the script, in which operators run.
    """

    start: int
    end: int
    name: str
    number: int
    shapes: str | None = None
    is_range: bool = False


class PythonCall(NamedTuple):
    """A Python function [ns], where stacks were recorded; `name` is `file(line): function`."""

    start: int
    end: int
    name: str


class DeviceWork(NamedTuple):
    """Something that ran on a device [ns]: a kernel, a copy, a fill."""

    start: int
    end: int
    name: str
    device: int
    stream: int
    correlation: int
    number: int
    is_copy: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The rows of a trace.

    Attributes:
        threads: operators and ranges by thread, in the order of their start, the longer first.
        steps: the ranges of whole steps, in order.
        training_thread: the thread of these steps.
        calls: Python functions by thread.
        works: what ran on devices, in the order of its start.
        launches: when the call that launched a correlation began [ns], and on which thread.
        syncs: calls in which the host waited for a device [ns].
    """

    threads: Mapping[int, list[Op]]
    steps: tuple[Op, ...]
    training_thread: int
    works: tuple[DeviceWork, ...] = ()
    launches: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    calls: Mapping[int, list[PythonCall]] = field(default_factory=dict)
    syncs: tuple[tuple[int, int], ...] = ()

    @property
    def start(self) -> int:
        """Return the start of the first step [ns]."""
        return self.steps[0].start

    @property
    def end(self) -> int:
        """Return the end of the last step [ns]."""
        return self.steps[-1].end


def collect(events: Iterable[Mapping[str, Any]], *, num_steps: int) -> Trace | None:
    """Return the trace of the first `num_steps` steps; None if it holds no step.

    Raises:
        TooLargeError: there are more than `MAX_ROWS` events.
    """
    threads: dict[int, list[Op]] = {}
    calls: dict[int, list[PythonCall]] = {}
    works: list[DeviceWork] = []
    launches: dict[int, tuple[int, int]] = {}
    syncs: list[tuple[int, int]] = []
    names: dict[str, str] = {}
    num_rows = 0
    for event in events:
        if event.get("ph") != "X":
            continue
        kind = event.get("cat")
        try:
            start, end = _interval(event)
            name = names.setdefault(event["name"], event["name"])
            if kind in _HOST:
                thread = threads.setdefault(int(event["tid"]), [])
                thread.append(_op(event, start, end, name, names))
            elif kind in _DEVICE:
                works.append(_work(event, start, end, name))
            elif kind in _LAUNCH:
                if "Synchronize" in name:
                    syncs.append((start, end))
                launches[int(event["args"]["correlation"])] = start, int(event["tid"])
            elif kind == "python_function":
                calls.setdefault(int(event["tid"]), []).append(PythonCall(start, end, name))
            else:
                continue
        except (KeyError, TypeError, ValueError):
            continue  # torch does not write this shape: it says nothing
        num_rows += 1
        if num_rows > MAX_ROWS:
            raise TooLargeError
    for ops in threads.values():
        ops.sort(key=lambda op: (op.start, -op.end))
    for each in calls.values():
        each.sort(key=lambda call: (call.start, -call.end))
    works.sort()
    trace = _around_steps(threads, works, launches, num_steps=num_steps)
    return None if trace is None else replace(trace, calls=calls, syncs=tuple(syncs))


def _around_steps(
    threads: dict[int, list[Op]],
    works: list[DeviceWork],
    launches: dict[int, tuple[int, int]],
    *,
    num_steps: int,
) -> Trace | None:
    for thread, ops in threads.items():
        steps = [op for op in ops if _is_step(op)][:num_steps]
        if not steps:
            continue
        start, end = steps[0].start, steps[-1].end
        inside = {
            each: [op for op in rows if op.end > start and op.start < end and not _is_step(op)]
            for each, rows in threads.items()
        }
        return Trace(
            threads={each: rows for each, rows in inside.items() if rows},
            steps=tuple(steps),
            training_thread=thread,
            works=tuple(_launched_before(works, launches, end)),
            launches=launches,
        )
    return None


def _is_step(op: Op) -> bool:
    return op.is_range and op.name.startswith(STEP)


def _launched_before(
    works: list[DeviceWork], launches: Mapping[int, tuple[int, int]], end: int
) -> list[DeviceWork]:
    """Return the work of the steps: a process that was cut short launched more."""
    return [work for work in works if launches.get(work.correlation, (0, 0))[0] < end]


def _interval(event: Mapping[str, Any]) -> tuple[int, int]:
    """Return start and end [ns]; the file has microseconds with three decimals."""
    start = round(float(event["ts"]) * NS_PER_US)
    return start, start + max(0, round(float(event["dur"]) * NS_PER_US))


def _op(event: Mapping[str, Any], start: int, end: int, name: str, names: dict[str, str]) -> Op:
    args = event.get("args", {})
    found = [each for each in args.get("Input Dims") or () if each]
    shapes = str(found)[1:-1] if found else None
    if shapes is not None:
        shapes = names.setdefault(shapes, shapes)
    is_range = event["cat"] == "user_annotation" and not name.startswith(_COMPILED)
    return Op(start, end, name, int(args.get("External id", -1)), shapes, is_range)


def _work(event: Mapping[str, Any], start: int, end: int, name: str) -> DeviceWork:
    args = event["args"]
    return DeviceWork(
        start=start,
        end=end,
        name=name,
        device=int(args["device"]),
        stream=int(args["stream"]),
        correlation=int(args.get("correlation", -1)),
        number=int(args.get("External id", -1)),
        is_copy=event["cat"] != "kernel",
    )
