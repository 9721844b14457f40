"""Writes a run as a trace that Perfetto and Chrome read: slices and counters over time.

In: a `RunSeries`, and `Slice`s where the order within steps is known. Out: the JSON object
format of the Trace Event Format (Google, "Trace Event Format", complete, instant, counter and
metadata events; times in microseconds). Slices of one track never overlap, because readers drop
slices that do.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from steptime.measure.values.over_time import (
    DevicePoint,
    Event,
    HostPoint,
    RunSeries,
    Slice,
    StepPoint,
)

TraceEvent = dict[str, Any]

_STEPS, _SPANS, _GC, _COMPILING, _PHASES = 1, 2, 3, 4, 10
_TRACKS = {
    _STEPS: "steps",
    _SPANS: "beside the steps",
    _GC: "garbage collection",
    _COMPILING: "torch.compile",
}
_TRACK_OF = {
    "evaluation": _SPANS,
    "checkpoint": _SPANS,
    "epoch_start": _SPANS,
    "compile": _SPANS,
    "gc": _GC,
    "recompile": _COMPILING,
    "graph_break": _COMPILING,
}
_MARKS = ("is_warmup", "is_steady", "is_outlier", "is_disturbed")

_MACHINE, _RANKS = 1, 1000
"""Process numbers: of the machine, followed by its devices, and of rank 0. Readers show them
behind the name, and take 0 for the kernel.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _TraceSlice:
    """A slice to be drawn; if it has no length, it is an instant."""

    name: str
    begin_s: float
    end_s: float | None
    category: str
    args: Mapping[str, Any]


def chrome_trace(series: RunSeries, slices: Iterable[Slice] = (), *, run_id: str) -> dict[str, Any]:
    """Return the document as data for `json.dumps`; its zero is the first time that was seen.

    Args:
        series: the run, with the steps one by one as far as possible.
        slices: what raw markers say.
        run_id: the id that is put into the metadata.
    """
    pieces = list(slices)
    zero_s = min(_first_times(series, pieces), default=0.0)
    events = [
        *_rank_events(series, pieces, zero_s),
        *_host_events(series.host, zero_s),
        *_device_events(series.devices, zero_s),
    ]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"run_id": run_id, "zero_unix_s": zero_s, "made_by": "steptime"},
    }


def _first_times(series: RunSeries, slices: Sequence[Slice]) -> Iterator[float]:
    yield from (point.t_unix_s - point.dt_s for point in series.host)
    yield from (point.t_unix_s for point in series.devices)
    yield from (_begin_of(point) for point in series.steps)
    yield from (event.t_unix_s for event in series.events)
    yield from (piece.t_unix_s for piece in slices)


def _begin_of(point: StepPoint) -> float:
    return point.end_unix_s - point.num_steps * point.step_time_s


# -- ranks


def _rank_events(series: RunSeries, slices: Sequence[Slice], zero_s: float) -> Iterator[TraceEvent]:
    ranks = {point.rank for point in series.steps} | {event.rank for event in series.events}
    for rank in sorted(ranks | {piece.rank for piece in slices}):
        pid = _RANKS + rank
        yield from _name_process(pid, f"rank {rank}", order=pid)
        tracks: defaultdict[int, list[_TraceSlice]] = defaultdict(list)
        for point in (point for point in series.steps if point.rank == rank):
            tracks[_STEPS].append(_step_piece(point))
        for event in (event for event in series.events if event.rank == rank):
            tracks[_TRACK_OF.get(event.what, _SPANS)].append(_event_piece(event))
        for piece in (piece for piece in slices if piece.rank == rank):
            tracks[_PHASES + piece.thread].append(_phase_piece(piece))
        for track, found in sorted(tracks.items()):
            yield from _name_track(pid, track)
            yield from _draw(found, pid, track, zero_s)


def _name_process(pid: int, name: str, *, order: int) -> Iterator[TraceEvent]:
    yield _metadata("process_name", pid, {"name": name})
    yield _metadata("process_sort_index", pid, {"sort_index": order})


def _name_track(pid: int, track: int) -> Iterator[TraceEvent]:
    thread = track - _PHASES
    name = _TRACKS.get(track) or ("phases" if thread == 0 else f"phases of thread {thread}")
    order = track if track != _PHASES else _STEPS  # directly below the steps
    yield _metadata("thread_name", pid, {"name": name}, track)
    yield _metadata("thread_sort_index", pid, {"sort_index": order}, track)


def _metadata(name: str, pid: int, args: Mapping[str, Any], tid: int = 0) -> TraceEvent:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": dict(args)}


def _step_piece(point: StepPoint) -> _TraceSlice:
    last = point.index + point.num_steps - 1
    name = f"step {point.index}" if point.num_steps == 1 else f"steps {point.index} to {last}"
    marks = [mark.removeprefix("is_") for mark in _MARKS if getattr(point, mark)]
    phases = {f"{name}_ms": value * 1e3 for name, value in point.wall_s.items() if value > 0}
    return _TraceSlice(
        name=name,
        begin_s=_begin_of(point),
        end_s=point.end_unix_s,
        category="step",
        args={"step_time_ms": point.step_time_s * 1e3, "marks": ", ".join(marks), **phases},
    )


def _event_piece(event: Event) -> _TraceSlice:
    known = {"step": event.step, "count": event.count, "why": event.text}
    return _TraceSlice(
        name=event.what,
        begin_s=event.t_unix_s,
        end_s=None if event.seconds is None else event.t_unix_s + event.seconds,
        category="event",
        args={name: value for name, value in known.items() if value is not None},
    )


def _phase_piece(piece: Slice) -> _TraceSlice:
    end_s = piece.t_unix_s + piece.seconds
    return _TraceSlice(
        name=piece.name, begin_s=piece.t_unix_s, end_s=end_s, category="phase", args={}
    )


def _draw(
    pieces: Sequence[_TraceSlice], pid: int, track: int, zero_s: float
) -> Iterator[TraceEvent]:
    """Return the slices in order; one that would overlap its predecessor begins where that ends."""
    until_us = 0.0
    for piece in sorted(pieces, key=lambda piece: piece.begin_s):
        begin_us = _us(piece.begin_s, zero_s)
        event = {"name": piece.name, "cat": piece.category, "pid": pid, "tid": track}
        event |= {"args": _finite(piece.args)}
        if piece.end_s is None:
            yield {"ph": "i", "ts": begin_us, "s": "t", **event}
            continue
        begin_us = max(until_us, begin_us)
        end_us = _us(piece.end_s, zero_s)
        if end_us > begin_us:
            yield {"ph": "X", "ts": begin_us, "dur": round(end_us - begin_us, 3), **event}
            until_us = end_us


# -- counters


def _host_events(points: Sequence[HostPoint], zero_s: float) -> Iterator[TraceEvent]:
    """Return counter events, each where its time begins: a counter holds from its event on."""
    if not points:
        return
    yield from _name_process(_MACHINE, "machine", order=_MACHINE)
    for point in points:
        ts = _us(point.t_unix_s - point.dt_s, zero_s)
        yield from _counters(_MACHINE, ts, _host_values(point))
    yield from _counters(_MACHINE, _us(points[-1].t_unix_s, zero_s), _host_values(points[-1]))


def _host_values(point: HostPoint) -> dict[str, dict[str, float | None]]:
    def per_s(value: int | None) -> float | None:
        return None if value is None else value / point.dt_s / 1e6

    def gib(value: int | None) -> float | None:
        return None if value is None else value / 1024**3

    return {
        "cores": {
            "job": point.job_cores,
            "others": max(0.0, point.busy_cores - point.job_cores),
            "workers": point.worker_cores,
            "waiting for a disk": point.io_wait_cores,
        },
        "memory [GiB]": {
            "job": gib(point.job_resident_bytes),
            "workers": gib(point.worker_resident_bytes),
            "available": gib(point.available_bytes),
            "page cache": gib(point.cached_bytes),
        },
        "disk [MB/s]": {
            "read": per_s(point.disk_read_bytes),
            "written": per_s(point.disk_write_bytes),
            "swapped in": per_s(point.swap_in_bytes),
        },
        "network [MB/s]": {
            "received": per_s(point.received_bytes),
            "sent": per_s(point.sent_bytes),
            "loopback": per_s(point.loopback_bytes),
        },
        "clock [GHz]": {"mean": _scaled(point.clock_hz, 1e-9)},
    }


def _device_events(points: Sequence[DevicePoint], zero_s: float) -> Iterator[TraceEvent]:
    names = list(dict.fromkeys(point.device for point in points))
    for number, name in enumerate(names):
        pid = _MACHINE + 1 + number
        mine = [point for point in points if point.device == name]
        words = sorted({word for point in mine for word in point.throttle})
        yield from _name_process(pid, f"device {name}", order=pid)
        for point in mine:
            values = _device_values(point)
            if words:
                values["held down"] = {word: float(word in point.throttle) for word in words}
            yield from _counters(pid, _us(point.t_unix_s, zero_s), values)


def _device_values(point: DevicePoint) -> dict[str, dict[str, float | None]]:
    return {
        "busy": {
            "kernels": point.busy_fraction,
            "multiprocessors": point.sm_fraction,
            "memory": point.memory_active_fraction,
        },
        "memory [GiB]": {"used": _scaled(point.used_bytes, 1 / 1024**3)},
        "power [W]": {"drawn": point.power_w},
        "clock [GHz]": {"SM": _scaled(point.sm_clock_hz, 1e-9)},
        "temperature [C]": {"device": point.temperature_c},
    }


def _counters(
    pid: int, ts: float, values: Mapping[str, Mapping[str, float | None]]
) -> Iterator[TraceEvent]:
    for name, parts in values.items():
        known = {part: value for part, value in parts.items() if value is not None}
        if known := _finite(known):
            yield {"ph": "C", "name": name, "pid": pid, "ts": ts, "args": known}


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _us(t_unix_s: float, zero_s: float) -> float:
    return round((t_unix_s - zero_s) * 1e6, 3)


def _finite(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values without those that are not finite, which JSON cannot hold."""
    found = {}
    for name, value in args.items():
        if isinstance(value, float):
            if math.isfinite(value):
                found[name] = round(value, 6)
        elif value != "":
            found[name] = value
    return found
