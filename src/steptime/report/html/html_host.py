"""Draws the plots of the machine and of its devices over the time of a run.

In: the points of a Series. Out: drawings, only for what was observed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from steptime.measure.values.over_time import DevicePoint, HostPoint
from steptime.report.blocks.colors import LINES, OUTLIER, PHASE_COLORS, WARMUP
from steptime.report.html.html_canvas import Canvas, Drawing, Line
from steptime.report.html.html_points import grouped, mean_of, rate_of

_JOB, _WORKER, _OTHERS = PHASE_COLORS["backward"], PHASE_COLORS["input_wait"], WARMUP
_MAX_DEVICES = len(LINES)

Groups = Sequence[Sequence[HostPoint]]


def draw_host(
    canvas: Canvas, points: Sequence[HostPoint], *, num_cores: int | None
) -> list[Drawing]:
    """Draw cores, memory, disk and network, and the clock."""
    groups = grouped(points)
    xs = [group[-1].t_unix_s for group in groups]
    made = [
        canvas.lines(
            "Cores kept busy",
            xs,
            _cores(groups),
            unit="cores",
            ceiling=num_cores,
            is_stacked=True,
        ),
        canvas.lines("Memory of the machine", xs, _memory(groups), unit="bytes"),
        canvas.lines("Disk and swap", xs, _disk(groups), unit="bytes/s"),
        canvas.lines("Network", xs, _network(groups), unit="bytes/s"),
        canvas.lines("Clock of the cores", xs, _clock(groups), unit="GHz"),
    ]
    return [drawing for drawing in made if drawing is not None]


def _cores(groups: Groups) -> list[Line]:
    """Return stacked lines: the command, its workers, all others, and waiting for a disk on top."""
    return [
        _line("the training", _JOB, groups, lambda p: p.job_cores - (p.worker_cores or 0.0)),
        _unless_zero(_line("its workers", _WORKER, groups, lambda p: p.worker_cores)),
        _line("others", _OTHERS, groups, lambda p: max(0.0, p.busy_cores - p.job_cores)),
        _unless_zero(_line("idle for a disk", OUTLIER, groups, lambda p: p.io_wait_cores)),
    ]


def _memory(groups: Groups) -> list[Line]:
    return [
        _line("the command", LINES[0], groups, lambda p: p.job_resident_bytes),
        _unless_zero(
            _line("of that its workers", LINES[1], groups, lambda p: p.worker_resident_bytes)
        ),
        _line("page cache", LINES[2], groups, lambda p: p.cached_bytes),
        _line("available", LINES[7], groups, lambda p: p.available_bytes),
    ]


def _disk(groups: Groups) -> list[Line]:
    return [
        _rate("read", LINES[0], groups, lambda p: p.disk_read_bytes),
        _rate("written", LINES[1], groups, lambda p: p.disk_write_bytes),
        _unless_zero(_rate("back from swap", LINES[5], groups, lambda p: p.swap_in_bytes)),
    ]


def _network(groups: Groups) -> list[Line]:
    return [
        _rate("received", LINES[0], groups, lambda p: p.received_bytes),
        _rate("sent", LINES[1], groups, lambda p: p.sent_bytes),
        _rate("between local processes", LINES[2], groups, lambda p: p.loopback_bytes),
    ]


def _clock(groups: Groups) -> list[Line]:
    return [_line("mean", LINES[0], groups, lambda p: _giga(p.clock_hz))]


def _giga(value_hz: float | None) -> float | None:
    return None if value_hz is None else value_hz * 1e-9


def _line(name: str, color: str, groups: Groups, get: Callable[[HostPoint], float | None]) -> Line:
    return Line(name=name, color=color, values=[mean_of(group, get) for group in groups])


def _rate(name: str, color: str, groups: Groups, get: Callable[[HostPoint], float | None]) -> Line:
    return Line(name=name, color=color, values=[rate_of(group, get) for group in groups])


def _unless_zero(line: Line) -> Line:
    """Return the line, or an empty one if all of its values are zero."""
    return line if any(line.values) else replace(line, values=[None] * len(line.values))


_DEVICE_PLOTS: tuple[tuple[str, str, Callable[[DevicePoint], float | None]], ...] = (
    ("Device busy: a kernel runs", "fraction", lambda p: p.busy_fraction),
    ("Multiprocessors active", "fraction", lambda p: p.sm_fraction),
    ("Device memory active", "fraction", lambda p: p.memory_active_fraction),
    ("Device memory in use", "bytes", lambda p: p.used_bytes),
    ("Power", "W", lambda p: p.power_w),
    ("Clock of the multiprocessors", "GHz", lambda p: _giga(p.sm_clock_hz)),
    ("Temperature", "°C", lambda p: p.temperature_c),
)


def draw_devices(canvas: Canvas, points: Sequence[DevicePoint]) -> list[Drawing]:
    """Draw one plot for each quantity, with one line for each of the first few devices."""
    names = list(dict.fromkeys(point.device for point in points))[:_MAX_DEVICES]
    if not names:
        return []
    by_device = [grouped([p for p in points if p.device == name]) for name in names]
    num = min(map(len, by_device))
    by_device = [groups[:num] for groups in by_device]
    xs = [group[-1].t_unix_s for group in by_device[0]]
    made = []
    for title, unit, get in _DEVICE_PLOTS:
        lines = [
            Line(
                name=f"device {i}",
                color=LINES[i],
                values=[mean_of(group, get) for group in groups],
            )
            for i, groups in enumerate(by_device)
        ]
        ceiling = 1.0 if unit == "fraction" else None
        made.append(canvas.lines(title, xs, lines, unit=unit, ceiling=ceiling))
    return [drawing for drawing in made if drawing is not None]
