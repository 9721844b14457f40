"""Draws the plots of the page with Bokeh: steps, events, phases, ranks, machine, devices.

In: a Measurement, its Series, and what the watch saw. Out: `Plots`: a place in the page for each,
and the scripts that fill the places. Importing this file fails if Bokeh is not installed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bokeh.core.properties import value
from bokeh.document import Document
from bokeh.embed import components
from bokeh.models import BoxAnnotation, ColumnDataSource, HoverTool, Span
from bokeh.plotting import figure
from bokeh.resources import Resources

from steptime.core.units import format_count, format_seconds, scale_of
from steptime.diagnose.values.finding import Shift
from steptime.diagnose.values.reach_values import Roofline
from steptime.measure.values.measurement import SPANS, Measurement
from steptime.measure.values.over_time import Event, RunSeries, StepPoint
from steptime.measure.values.stall import Stall
from steptime.report.blocks.colors import (
    DISTURBED,
    EVENT_COLORS,
    LINES,
    OUTLIER,
    PHASE_COLORS,
    STEADY,
    WARMUP,
)
from steptime.report.blocks.phrasing import shortened
from steptime.report.html.html_canvas import Canvas, Drawing, Line, packed
from steptime.report.html.html_host import draw_devices, draw_host
from steptime.report.html.html_points import (
    grouped,
    longest_events,
    mean_of,
    own_time_s,
    phase_bins,
    throttled_periods,
    usual_top,
)
from steptime.report.html.html_roofline import draw_roofline
from steptime.report.html.html_tags import Html
from steptime.report.words.run.run_words import describe_phase, describe_span

_KINDS = (
    ("steady", "counted", STEADY, 0),
    ("warmup", "warm-up", WARMUP, 1),
    ("disturbed", "measured more closely by Steptime", DISTURBED, 1),
    ("outlier", "outlier", OUTLIER, 2),
)
_EVENTS = {
    "gc": "GC",
    "recompile": "recompile",
    "graph_break": "graph break",
    "throttle": "throttled",
    "stall": "stood still",
}
_MANY = 300
"""From this many steps on, each step is drawn smaller."""

_MAX_TEXT = 120
_MAX_LINES = len(LINES)
_MAX_BANDS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """One plot's place in the page; `part` is the section it belongs to."""

    part: str
    title: str
    place: Html
    legend: tuple[tuple[str, str], ...]
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plots:
    """All plots, and the scripts that fill their places: the library, then the data."""

    plots: tuple[Plot, ...] = ()
    scripts: tuple[str, ...] = ()


def draw(
    m: Measurement,
    series: RunSeries,
    stalls: Sequence[Stall],
    shifts: Sequence[Shift],
    roofline: Roofline | None = None,
) -> Plots:
    """Draw all plots of a run; what was not observed has no plot."""
    canvas = Canvas(started_unix_s=m.started_unix_s, ended_unix_s=_end_unix_s(m, series))
    numbers = (s for s in series.steps if math.isfinite(s.step_time_s))
    steps = sorted(numbers, key=lambda step: step.end_unix_s)
    num_cores = None if m.host is None else m.host.num_cores
    found = [
        ("steps", _steps(canvas, steps, m, series.events, stalls, shifts)),
        ("steps", _events(canvas, series, stalls)),
        ("phases", _phases(canvas, steps)),
        ("ranks", _ranks(canvas, steps)),
        *(("machine", drawing) for drawing in draw_host(canvas, series.host, num_cores=num_cores)),
        *(("devices", drawing) for drawing in draw_devices(canvas, series.devices)),
        ("roofline", None if roofline is None else draw_roofline(roofline)),
    ]
    drawings = [(part, drawing) for part, drawing in found if drawing is not None]
    if not drawings:
        return Plots()
    script, places = components(_in_one_document(drawings), wrap_script=False)
    library = "\n".join(Resources(mode="inline", components=["bokeh"]).js_raw)
    plots = tuple(
        Plot(part=part, title=d.title, place=Html(place), legend=d.legend, note=d.note)
        for (part, d), place in zip(drawings, places, strict=True)
    )
    return Plots(plots=plots, scripts=(library, script))


def _in_one_document(drawings: Sequence[tuple[str, Drawing]]) -> list[figure]:
    """Put all figures in one document, because drawing them one by one takes twice as long."""
    document, figures = Document(), [drawing.figure for _, drawing in drawings]
    with document.models.freeze():
        for made in figures:
            document.add_root(made)
    return figures


def _end_unix_s(m: Measurement, series: RunSeries) -> float:
    """Return when the run was last seen; nothing is drawn beyond that time."""
    ends = [m.started_unix_s + (m.duration_s or 0.0)]
    for points in (series.steps, series.host, series.devices, series.events):
        ends += [_time_of(points[-1])] if points else []
    return max(ends)


def _time_of(point: object) -> float:
    return float(getattr(point, "end_unix_s", 0.0) or getattr(point, "t_unix_s", 0.0))


def _kind(step: StepPoint) -> str:
    if step.is_warmup:
        return "warmup"
    if step.is_disturbed:
        return "disturbed"
    return "outlier" if step.is_outlier else "steady"


def _steps(
    canvas: Canvas,
    steps: Sequence[StepPoint],
    m: Measurement,
    events: Sequence[Event],
    stalls: Sequence[Stall],
    shifts: Sequence[Shift],
) -> Drawing | None:
    """Draw each step by its kind, the median, spans behind them, shifts and stalls."""
    top_s = _usual_top_s(steps)
    if top_s is None:
        return None
    scale, unit = scale_of(top_s, "s")
    made = canvas.figure(height=300, label=f"step time [{unit}]", top=top_s / scale)
    legend = []
    _mark_spans(canvas, made, events, stalls)
    least = 4 if len(steps) > _MANY else 7
    for kind, name, color, more in _KINDS:
        chosen = [s for s in steps if _kind(s) == kind]
        if chosen:
            _scatter(canvas, made, chosen, (top_s, scale), color=color, size=least + more)
            legend.append((color, name))
    if m.steady is not None and m.steady.step_time_s is not None:
        y = m.steady.step_time_s.estimate / scale
        made.add_layout(Span(location=y, dimension="width", line_color=STEADY, line_alpha=0.7))
    for shift in shifts:
        x = canvas.x(shift.t_unix_s)
        line = Span(location=x, dimension="height", line_color=OUTLIER, line_dash="dashed")
        made.add_layout(line)
    if shifts:
        legend.append((OUTLIER, "dashed: a lasting change"))
    if stalls:
        legend.append((EVENT_COLORS["stall"], "the run stood still (behind)"))
    spans = {e.what for e in events if e.what in SPANS}
    legend += [(EVENT_COLORS[n], f"{describe_span(n)} (behind)") for n in SPANS if n in spans]
    above = sum(step.step_time_s > top_s for step in steps)
    note = None if not above else f"{format_count(above)} lie above the scale: ▲"
    return Drawing(title="Step time", figure=made, legend=tuple(legend), note=note)


def _usual_top_s(steps: Sequence[StepPoint]) -> float | None:
    """Return the axis' top for usual steps; warm-up, outliers and stalls run off the scale."""
    counted = [s for s in steps if _kind(s) == "steady"] or steps
    return usual_top([s.step_time_s for s in counted], [s.step_time_s for s in steps])


def _scatter(
    canvas: Canvas,
    made: figure,
    steps: Sequence[StepPoint],
    scale: tuple[float, float],
    *,
    color: str,
    size: int,
) -> None:
    """Draw the steps of one kind; those above the axis are triangles at its edge."""
    top_s, unit_s = scale
    _, unit = scale_of(top_s, "s")
    for is_above in (False, True):
        chosen = [s for s in steps if (s.step_time_s > top_s) == is_above]
        if not chosen:
            continue
        source = ColumnDataSource(
            {
                "x": packed([canvas.x(s.end_unix_s) for s in chosen]),
                "y": packed([min(s.step_time_s, 0.985 * top_s) / unit_s for s in chosen]),
                "time": packed([s.step_time_s / unit_s for s in chosen]),
                "step": packed([s.index for s in chosen]),
                "num": packed([s.num_steps for s in chosen]),
                "rank": packed([s.rank for s in chosen]),
            }
        )
        points = made.scatter(
            "x",
            "y",
            marker="triangle" if is_above else "circle",
            size=8 if is_above else size,
            source=source,
            color=color,
            alpha=0.7,
        )
        tips = [("step", "@step{0,0}"), ("rank", "@rank"), ("time", f"@time{{0.[00]}} {unit}")]
        if any(s.num_steps > 1 for s in chosen):
            tips.append(("mean of", "@num{0,0}"))
        made.add_tools(
            HoverTool(renderers=[points], tooltips=[*tips, ("at", canvas.tip_of_x)], limit=3)
        )


def _mark_spans(
    canvas: Canvas, made: figure, events: Sequence[Event], stalls: Sequence[Stall]
) -> None:
    """Draw bands behind the steps: evaluations, checkpoints and stalls."""
    spans = [e for e in events if e.what in SPANS and e.seconds]
    for event in longest_events(spans, _MAX_BANDS):
        left, right = _ends(canvas, event)
        made.add_layout(_band(left, right, EVENT_COLORS[event.what]))
    for stall in stalls:
        left, right = _stall_ends(canvas, stall)
        made.add_layout(_band(left, right, EVENT_COLORS["stall"]))


def _band(left: float, right: float, color: str) -> BoxAnnotation:
    return BoxAnnotation(
        left=left, right=right, fill_color=color, fill_alpha=0.22, line_color=None, level="underlay"
    )


def _ends(canvas: Canvas, event: Event) -> tuple[float, float]:
    """Return an event's ends on the axis; `t_unix_s` is when it began."""
    return canvas.x(event.t_unix_s), canvas.x(event.t_unix_s + (event.seconds or 0.0))


def _stall_ends(canvas: Canvas, stall: Stall) -> tuple[float, float]:
    lasted_s = stall.duration_s
    end = canvas.started_unix_s + canvas.longest_s
    return (
        canvas.x(stall.began_unix_s),
        canvas.x(end if lasted_s is None else stall.began_unix_s + lasted_s),
    )


def _events(canvas: Canvas, series: RunSeries, stalls: Sequence[Stall]) -> Drawing | None:
    """Draw what happened beside the steps, with one row for each kind."""
    rows: dict[str, list[tuple[float, float, str]]] = {}
    for event in longest_events(series.events):
        rows.setdefault(event.what, []).append((*_ends(canvas, event), _event_tip(event)))
    for name, reasons, start, end in throttled_periods(series.devices):
        tip = shortened(f"{', '.join(reasons).replace('_', ' ')} ({name})", _MAX_TEXT)
        rows.setdefault("throttle", []).append((canvas.x(start), canvas.x(end), tip))
    for stall in stalls:
        rows.setdefault("stall", []).append((*_stall_ends(canvas, stall), "no step came"))
    if not rows:
        return None
    order = list(EVENT_COLORS)
    kinds = sorted(rows, key=lambda what: order.index(what) if what in order else len(order))
    names = {what: _EVENTS.get(what) or shortened(describe_span(what), 24) for what in kinds}
    height = 70 + 24 * len(names)
    made = canvas.figure(height=height, label="", rows=list(names.values())[::-1])
    for what in kinds:
        _mark_row(canvas, made, rows[what], name=names[what], color=EVENT_COLORS.get(what, WARMUP))
    made.ygrid.grid_line_color = None
    return Drawing(title="Beside the steps", figure=made)


def _event_tip(event: Event) -> str:
    tip = format_seconds(event.seconds) if event.seconds else format_count(event.count)
    where = f", rank {event.rank}" + ("" if event.step is None else f", step {event.step:,}")
    text = f": {shortened(event.text, _MAX_TEXT)}" if event.text else ""
    return f"{tip}{where}{text}"


def _mark_row(
    canvas: Canvas,
    made: figure,
    found: Sequence[tuple[float, float, str]],
    *,
    name: str,
    color: str,
) -> None:
    """Draw one row of events: bars, and marks for those that would be thinner than a line."""
    least, row = canvas.least, value(name)  # a bare string would be the name of a column
    for is_short in (False, True):
        chosen = [one for one in found if (one[1] - one[0] < least) == is_short]
        if not chosen:
            continue
        source = ColumnDataSource(
            {
                "left": packed([left for left, _, _ in chosen]),
                "right": packed([right for _, right, _ in chosen]),
                "tip": [tip for _, _, tip in chosen],
            }
        )
        if is_short:
            drawn = made.scatter("left", row, source=source, size=6, color=color, alpha=0.7)
        else:
            drawn = made.hbar(
                row, left="left", right="right", height=0.6, source=source, color=color
            )
        made.add_tools(HoverTool(renderers=[drawn], tooltips=[(name, "@tip")], limit=3))


def _phases(canvas: Canvas, steps: Sequence[StepPoint]) -> Drawing | None:
    """Draw what a usual step is made of, over time."""
    bins = phase_bins(steps)
    limit_s = _usual_top_s(steps)
    if limit_s is None or not bins:
        return None
    top_s = min(limit_s, 1.1 * max(sum(s for _, s in b.wall_s) for b in bins))
    scale, unit = scale_of(top_s, "s")
    made = canvas.figure(height=260, label=f"mean of a step [{unit}]", top=top_s / scale)
    names = list(dict.fromkeys(name for b in bins for name, _ in b.wall_s))
    names.sort(key=list(PHASE_COLORS).index)
    floor = [0.0] * len(bins)
    for name in names:
        heights = [dict(b.wall_s).get(name, 0.0) for b in bins]
        tops = [low + height for low, height in zip(floor, heights, strict=True)]
        totals = [sum(s for _, s in b.wall_s) or 1.0 for b in bins]
        source = ColumnDataSource(
            {
                "left": packed([canvas.x(b.start_unix_s) for b in bins]),
                "right": packed([canvas.x(b.end_unix_s) for b in bins]),
                "bottom": packed([y / scale for y in floor]),
                "top": packed([y / scale for y in tops]),
                "time": packed([h / scale for h in heights]),
                "share": packed([100 * h / t for h, t in zip(heights, totals, strict=True)]),
                "first": packed([b.first for b in bins]),
                "last": packed([b.last for b in bins]),
            }
        )
        color = PHASE_COLORS[name]
        quads = made.quad(
            "left", "right", "top", "bottom", source=source, color=color, line_width=0.3
        )
        tips = [
            (describe_phase(name), f"@time{{0.[00]}} {unit}, @share{{0.0}} %"),
            ("steps", "@first{0,0} to @last{0,0}"),
        ]
        made.add_tools(HoverTool(renderers=[quads], tooltips=tips))
        floor = tops
    return Drawing(
        title="What a step is made of, over time",
        figure=made,
        legend=tuple((PHASE_COLORS[name], describe_phase(name)) for name in names),
        note="without outliers and steps that were disturbed",
    )


def _ranks(canvas: Canvas, steps: Sequence[StepPoint]) -> Drawing | None:
    """Draw each rank's own time per step: the others wait for the highest line."""
    by_rank: Mapping[int, list[StepPoint]] = {rank: [] for rank in sorted({s.rank for s in steps})}
    if len(by_rank) < 2:
        return None
    for step in steps:
        if not (step.is_outlier or step.is_warmup or step.is_disturbed):
            by_rank[step.rank].append(step)
    chosen = list(by_rank)[:_MAX_LINES]
    num = min(150, *(len(by_rank[rank]) for rank in chosen))
    groups = {rank: grouped(by_rank[rank], num) for rank in chosen}
    xs = [group[-1].end_unix_s for group in groups[chosen[0]]]
    lines = [
        Line(
            name=f"rank {rank}",
            color=LINES[i],
            values=[mean_of(group, own_time_s) for group in groups[rank]],
        )
        for i, rank in enumerate(chosen)
    ]
    title = "A rank's own time per step, without communication"
    return canvas.lines(title, xs, lines, unit="s", height=220)
