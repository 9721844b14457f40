"""Draws what a run did over its time: steps, phases, ranks, the machine and its devices.

In: what is known of a run, with its series. Out: plots, only of what was observed. All have one
axis: the time since the start.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from steptime.core.units import format_count, format_seconds
from steptime.measure.values.measurement import PHASES as ORDER
from steptime.measure.values.measurement import SPANS, Measurement
from steptime.measure.values.over_time import DevicePoint, Event, HostPoint, RunSeries, StepPoint
from steptime.report.blocks.colors import DISTURBED, LINES, OUTLIER, STEADY, WARMUP, color_of
from steptime.report.blocks.phrasing import shortened
from steptime.report.blocks.run.course_points import (
    grouped,
    longest_events,
    mean_of,
    own_time_s,
    phase_bins,
    rate_of,
    throttled_periods,
    usual_top,
)
from steptime.report.blocks.run.run_report import DEVICES, MACHINE, PHASES, RANKS, STEPS, PageFacts
from steptime.report.blocks.values import Block, Curve, LinePlot, Section, Shade
from steptime.report.words.run.run_words import describe_phase, describe_span

_KINDS = (
    ("steady", "counted", STEADY, 5),
    ("warmup", "warm-up", WARMUP, 6),
    ("disturbed", "measured more closely by Steptime", DISTURBED, 6),
    ("outlier", "outlier", OUTLIER, 7),
)
_EVENTS = {"gc": "GC", "recompile": "recompile", "graph_break": "graph break"}
_MAX_TEXT, _MAX_LINES, _MAX_STRETCHES = 120, len(LINES), 200
_EDGE, _FOOT = 0.985, 0.03
"""Fractions of the height: where a step above the scale is drawn, and between rows of events."""

Line = tuple[str, str, Sequence[float | None]]
"""A name, a color and values; None where nothing was observed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The axis of a run: when it started, and how long it lasted [s]."""

    started_unix_s: float
    longest_s: float

    def at(self, t_unix_s: float) -> float:
        """Return the place of a time of day."""
        return round(t_unix_s - self.started_unix_s, 3)

    def plot(
        self,
        title: str,
        curves: Sequence[Curve],
        *,
        unit: str,
        top: float,
        note: str = "",
        stretches: Sequence[Shade] = (),
    ) -> list[Block]:
        """Return a plot from zero to `top`."""
        drawn = LinePlot(
            title,
            curves,
            x_name="since the start",
            x_unit="s",
            y_unit=unit,
            note=note,
            y_range=(0.0, top),
            stretches=stretches,
            x_range=(0.0, self.longest_s),
        )
        return [drawn]


def course_sections(facts: PageFacts) -> list[Section]:
    """Return the plots of a run, each in its section of the page."""
    m, series = facts.document.measurement, facts.series
    course = _course_of(m, series)
    numbers = (step for step in series.steps if math.isfinite(step.step_time_s))
    steps = sorted(numbers, key=lambda step: step.end_unix_s)
    found = (
        (STEPS, _steps(course, steps, facts)),
        (PHASES, _phases(course, steps)),
        (RANKS, _ranks(course, steps)),
        (MACHINE, _host(course, series.host, None if m.host is None else m.host.num_cores)),
        (DEVICES, _devices(course, series.devices)),
    )
    return [Section(title, blocks, only="page") for title, blocks in found if blocks]


def _course_of(m: Measurement, series: RunSeries) -> Course:
    """Return the axis, which ends when the run was last seen."""
    ends = [m.started_unix_s + (m.duration_s or 0.0)]
    ends += [step.end_unix_s for step in series.steps[-1:]]
    for points in (series.host, series.devices, series.events):
        ends += [point.t_unix_s for point in points[-1:]]
    return Course(
        started_unix_s=m.started_unix_s, longest_s=max(1e-3, max(ends) - m.started_unix_s)
    )


# -- steps


def _kind(step: StepPoint) -> str:
    if step.is_warmup:
        return "warmup"
    if step.is_disturbed:
        return "disturbed"
    return "outlier" if step.is_outlier else "steady"


def _top_s(steps: Sequence[StepPoint]) -> float | None:
    """Return the axis' top for usual steps; warm-up, outliers and stalls run off the scale."""
    counted = [step for step in steps if _kind(step) == "steady"] or steps
    return usual_top([s.step_time_s for s in counted], [s.step_time_s for s in steps])


def _steps(course: Course, steps: Sequence[StepPoint], facts: PageFacts) -> list[Block]:
    """Draw each step by its kind, the median, what was beside the steps, and what stood behind."""
    top_s, steady = _top_s(steps), facts.document.measurement.steady
    if top_s is None:
        return []
    curves = []
    for kind, name, color, size in _KINDS:
        chosen = [step for step in steps if _kind(step) == kind]
        points = [(course.at(s.end_unix_s), min(s.step_time_s, _EDGE * top_s)) for s in chosen]
        tips = [] if kind == "steady" else list(map(_step_tip, chosen))
        if chosen:
            curves.append(_marks(name, color, points, tips, size=size))
    if steady is not None and steady.step_time_s is not None:
        y = steady.step_time_s.estimate
        curves.append(Curve("median", [(0.0, y), (course.longest_s, y)], color=STEADY, width=0.8))
    curves += _events(course, facts.series.events, top_s)
    above = sum(step.step_time_s > top_s for step in steps)
    note = f"{format_count(above)} lie above the scale, and are drawn at its edge." if above else ""
    return course.plot(
        "Step time",
        curves,
        unit="s",
        top=top_s,
        note=note,
        stretches=list(_stretches(course, facts)),
    )


def _marks(
    name: str,
    color: str,
    points: Sequence[tuple[float, float]],
    tips: Sequence[str],
    *,
    size: float = 5,
) -> Curve:
    return Curve(
        name,
        points,
        color=color,
        has_line=False,
        has_marks=True,
        mark_size=size,
        tips=tips,
    )


def _step_tip(step: StepPoint) -> str:
    many = f", mean of {step.num_steps:,}" if step.num_steps > 1 else ""
    return f"step {step.index:,} of rank {step.rank}: {format_seconds(step.step_time_s)}{many}"


def _events(course: Course, events: Sequence[Event], top_s: float) -> Iterator[Curve]:
    """Yield a row of marks at the foot for each kind of what happened and was no span."""
    rows: dict[str, list[Event]] = {}
    for event in longest_events([one for one in events if one.what not in SPANS]):
        rows.setdefault(event.what, []).append(event)
    for row, (what, found) in enumerate(rows.items()):
        name = _EVENTS.get(what) or shortened(describe_span(what), 24)
        height = top_s * _FOOT * (row + 0.5)
        points = [(course.at(event.t_unix_s), height) for event in found]
        color = color_of(what)
        yield _marks(name, color, points, [f"{name}: {_event_tip(event)}" for event in found])


def _event_tip(event: Event) -> str:
    tip = format_seconds(event.seconds) if event.seconds else format_count(event.count)
    where = f", rank {event.rank}" + ("" if event.step is None else f", step {event.step:,}")
    return f"{tip}{where}" + (f": {shortened(event.text, _MAX_TEXT)}" if event.text else "")


def _stretches(course: Course, facts: PageFacts) -> Iterator[Shade]:
    """Yield evaluations, checkpoints, throttling, stalls, and lasting changes as thin lines."""
    spans = [e for e in facts.series.events if e.what in SPANS and e.seconds]
    for event in longest_events(spans, _MAX_STRETCHES):
        end = course.at(event.t_unix_s + (event.seconds or 0.0))
        color, name = color_of(event.what), describe_span(event.what)
        yield Shade(name, color, course.at(event.t_unix_s), end)
    for _, _, start, stop in throttled_periods(facts.series.devices)[:_MAX_STRETCHES]:
        color = color_of("throttle")
        yield Shade("a device was throttled", color, course.at(start), course.at(stop))
    for stall in facts.stalls:
        begun, lasted_s = course.at(stall.began_unix_s), stall.duration_s
        end = course.longest_s if lasted_s is None else begun + lasted_s
        yield Shade("the run stood still", color_of("stall"), begun, end)
    for shift in facts.shifts:
        at = course.at(shift.t_unix_s)
        yield Shade("a lasting change", OUTLIER, at, at)


def _phases(course: Course, steps: Sequence[StepPoint]) -> list[Block]:
    """Draw what a usual step is made of, over time."""
    bins, limit_s = phase_bins(steps), _top_s(steps)
    if limit_s is None or not bins:
        return []
    names = {name for one in bins for name, _ in one.wall_s}
    ends = [course.at(t) for one in bins for t in (one.start_unix_s, one.end_unix_s)]
    lines: list[Line] = []
    for name in sorted(names, key=ORDER.index):
        heights = [dict(one.wall_s).get(name, 0.0) for one in bins]
        twice = [height for height in heights for _ in range(2)]
        lines.append((describe_phase(name), color_of(name), twice))
    top_s = min(limit_s, 1.1 * max(sum(s for _, s in one.wall_s) for one in bins))
    return course.plot(
        "What a step is made of, over time",
        _stacked(ends, lines),
        unit="s",
        top=top_s,
        note="Means of steps, without outliers and steps that were disturbed.",
    )


def _stacked(xs: Sequence[float], lines: Sequence[Line]) -> list[Curve]:
    """Return the lines as areas, each on top of the one before."""
    curves, floor = [], [0.0] * len(xs)
    for name, color, values in lines:
        tops = [low + (value or 0.0) for low, value in zip(floor, values, strict=True)]
        spread = list(zip(floor, tops, strict=True))
        curves.append(Curve(name, [(x, None) for x in xs], spread, color=color, is_filled=True))
        floor = tops
    return curves


def _ranks(course: Course, steps: Sequence[StepPoint]) -> list[Block]:
    """Draw each rank's own time per step: the others wait for the highest line."""
    by_rank: dict[int, list[StepPoint]] = {rank: [] for rank in sorted({s.rank for s in steps})}
    if len(by_rank) < 2:
        return []
    for step in steps:
        if not (step.is_outlier or step.is_warmup or step.is_disturbed):
            by_rank[step.rank].append(step)
    chosen = list(by_rank)[:_MAX_LINES]
    num = min(150, *(len(by_rank[rank]) for rank in chosen))
    groups = [grouped(by_rank[rank], num) for rank in chosen]
    lines = [
        (f"rank {rank}", LINES[i], [mean_of(group, own_time_s) for group in groups[i]])
        for i, rank in enumerate(chosen)
    ]
    xs = [course.at(group[-1].end_unix_s) for group in groups[0]]
    return _drawn(course, "A rank's own time per step, without communication", xs, lines, unit="s")


# -- the machine and its devices


def _giga(value_hz: float | None) -> float | None:
    return None if value_hz is None else value_hz * 1e-9


_Get = Callable[[HostPoint], float | None]
_HOST: tuple[tuple[str, str, tuple[tuple[str, str, _Get], ...]], ...] = (
    (
        "Memory of the machine",
        "bytes",
        (
            ("the command", LINES[0], lambda p: p.job_resident_bytes),
            ("of that its workers", LINES[1], lambda p: p.worker_resident_bytes),
            ("page cache", LINES[2], lambda p: p.cached_bytes),
            ("available", LINES[7], lambda p: p.available_bytes),
        ),
    ),
    (
        "Disk and swap",
        "bytes_per_s",
        (
            ("read", LINES[0], lambda p: p.disk_read_bytes),
            ("written", LINES[1], lambda p: p.disk_write_bytes),
            ("back from swap", LINES[5], lambda p: p.swap_in_bytes),
        ),
    ),
    (
        "Network",
        "bytes_per_s",
        (
            ("received", LINES[0], lambda p: p.received_bytes),
            ("sent", LINES[1], lambda p: p.sent_bytes),
            ("between local processes", LINES[2], lambda p: p.loopback_bytes),
        ),
    ),
    ("Clock of the cores", "GHz", (("mean", LINES[0], lambda p: _giga(p.clock_hz)),)),
)
_CORES: tuple[tuple[str, str, _Get], ...] = (
    ("the training", color_of("backward"), lambda p: p.job_cores - (p.worker_cores or 0.0)),
    ("its workers", color_of("input_wait"), lambda p: p.worker_cores),
    ("others", WARMUP, lambda p: max(0.0, p.busy_cores - p.job_cores)),
    ("idle for a disk", OUTLIER, lambda p: p.io_wait_cores),
)
_DEVICE: tuple[tuple[str, str, Callable[[DevicePoint], float | None]], ...] = (
    ("Device busy: a kernel runs", "fraction", lambda p: p.busy_fraction),
    ("Multiprocessors active", "fraction", lambda p: p.sm_fraction),
    ("Device memory active", "fraction", lambda p: p.memory_active_fraction),
    ("Device memory in use", "bytes", lambda p: p.used_bytes),
    ("Power", "W", lambda p: p.power_w),
    ("Clock of the multiprocessors", "GHz", lambda p: _giga(p.sm_clock_hz)),
    ("Temperature", "°C", lambda p: p.temperature_c),
)


def _host(course: Course, points: Sequence[HostPoint], num_cores: int | None) -> list[Block]:
    """Draw cores, memory, disk and network, and the clock."""
    groups = grouped(points)
    xs = [course.at(group[-1].t_unix_s) for group in groups]
    cores = [(name, color, [mean_of(g, get) for g in groups]) for name, color, get in _CORES]
    blocks = _drawn(
        course,
        "Cores kept busy",
        xs,
        cores,
        unit="cores",
        ceiling=num_cores,
        is_stacked=True,
    )
    for title, unit, rows in _HOST:
        of = rate_of if unit.endswith("_per_s") else mean_of
        lines = [(name, color, [of(g, get) for g in groups]) for name, color, get in rows]
        blocks += _drawn(course, title, xs, lines, unit=unit)
    return blocks


def _devices(course: Course, points: Sequence[DevicePoint]) -> list[Block]:
    """Draw one plot for each quantity, with one line for each of the first few devices."""
    names = list(dict.fromkeys(point.device for point in points))[:_MAX_LINES]
    by_device = [grouped([p for p in points if p.device == name]) for name in names]
    num = min(map(len, by_device), default=0)
    by_device = [groups[:num] for groups in by_device]
    xs = [course.at(group[-1].t_unix_s) for group in by_device[0]] if num else []
    blocks: list[Block] = []
    for title, unit, get in _DEVICE:
        lines = [
            (f"device {i}", LINES[i], [mean_of(group, get) for group in groups])
            for i, groups in enumerate(by_device)
        ]
        ceiling = 1.0 if unit == "fraction" else None
        blocks += _drawn(course, title, xs, lines, unit=unit, ceiling=ceiling)
    return blocks


def _drawn(
    course: Course,
    title: str,
    xs: Sequence[float],
    lines: Sequence[Line],
    *,
    unit: str,
    ceiling: float | None = None,
    is_stacked: bool = False,
) -> list[Block]:
    """Draw lines, or areas on top of each other; nothing if fewer than two points were seen.

    `ceiling` is the most that there is.
    """
    seen = [line for line in lines if any(value is not None for value in line[2])]
    if not seen or len(xs) < 2:
        return []
    combine = sum if is_stacked else max
    columns = zip(*(values for _, _, values in seen), strict=True)
    top = max([ceiling or 0.0, *(combine([v or 0.0 for v in column]) for column in columns)])
    curves = [Curve(name, list(zip(xs, y, strict=True)), color=color) for name, color, y in seen]
    if is_stacked:
        curves = _stacked(xs, seen)
    if ceiling is not None:
        level = [(xs[0], ceiling), (xs[-1], ceiling)]
        curves.append(Curve("", level, color=WARMUP, is_dashed=True))
    return course.plot(title, curves, unit=unit, top=1.08 * top or 1.0)
