"""Writes the page of `steptime data bench`: one file that needs no network.

In: a `LoaderBench`. Out: the text of the file: the bound, the bar of the parts, the curve over
workers, and the way of one sample.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection

from steptime.core.units import format_count, format_seconds, format_speedup
from steptime.measure.values.loader_bench import (
    CONSUMER,
    IN_LOADER,
    TRANSFORM,
    LoaderBench,
    LoaderPart,
)
from steptime.report.blocks.colors import LOADER_COLORS, loader_class_of
from steptime.report.html.html_frame import frame, section, tile
from steptime.report.html.html_tags import Html, bar, joined_html, table, tag
from steptime.report.words.loader_words import (
    MEANINGS,
    PARTS,
    describe_bottleneck,
    describe_loader,
    describe_notes,
    describe_reason,
    describe_workers,
    next_commands,
)

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 640, 200, 60, 30


def render_loader_page(bench: LoaderBench, *, levers: Collection[str], version: str) -> str:
    """Return the whole page.

    Args:
        bench: what was measured.
        levers: the names of those that there are.
        version: of Steptime.
    """
    told = describe_workers(bench)
    parts = [
        section("A batch by part", _parts_bar(bench), _parts_table(bench)),
        section(
            "Batches a second by workers", _curve(bench), None if told is None else tag("p", told)
        ),
        section("The way of one sample", _sample(bench)),
        section("What to know", *(tag("p", note) for note in describe_notes(bench))),
    ]
    shown = [part for part in parts if part is not None]
    return frame("steptime data bench", [_header(bench, version), _verdict(bench, levers), *shown])


def _header(bench: LoaderBench, version: str) -> Html:
    loader = None if bench.loader is None else tag("p", describe_loader(bench.loader), class_="dim")
    return tag(
        "header",
        tag("p", tag("b", "steptime"), f" data bench · Steptime {version}", class_="dim"),
        tag("h1", tag("code", shlex.join(bench.command))),
        loader,
    )


def _verdict(bench: LoaderBench, levers: Collection[str]) -> Html:
    is_calm = bench.bottleneck in (None, CONSUMER)
    head, _, rest = describe_bottleneck(bench).partition(". ")
    commands = next_commands(bench, levers=levers)
    return joined_html(
        [
            tag(
                "div",
                tag("h2", head),
                tag("p", rest) if rest else None,
                *(tag("pre", command) for command in commands),
                class_="card info" if is_calm else "card warning",
            ),
            _tiles(bench),
        ]
    )


def _tiles(bench: LoaderBench) -> Html:
    found: list[tuple[str, str, str]] = []
    if bench.bound is not None:
        low, high = format_speedup(bench.bound.low), format_speedup(bench.bound.high)
        found.append(("upper bound", format_speedup(bench.bound.estimate), f"{low} to {high}"))
    for name, time in (("step", bench.step_s), ("with a kept batch", bench.consumer_s)):
        if time is not None:
            reach = f"{format_seconds(time.low)} to {format_seconds(time.high)}, n {time.n}"
            found.append((name, format_seconds(time.estimate), reach))
    if bench.wait_p99_s is not None:
        found.append(("p99 wait", format_seconds(bench.wait_p99_s), "for a batch"))
    if bench.first_batch_s is not None:
        found.append(("first batch", format_seconds(bench.first_batch_s), "of the first epoch"))
    if bench.cpu_per_sample_s is not None:
        found.append(("CPU", format_seconds(bench.cpu_per_sample_s), "for a sample"))
    return tag("div", *(tile(*one) for one in found), class_="tiles")


# -- parts


def _parts_bar(bench: LoaderBench) -> Html | None:
    total = sum(part.wall_s or 0.0 for part in bench.parts)
    if not total:
        return None
    shares = [(loader_class_of(p.name), (p.wall_s or 0.0) / total) for p in bench.parts]
    keys = [
        tag("span", tag("i", class_=f"dot {loader_class_of(part.name)}"), PARTS[part.name])
        for part in bench.parts
        if part.wall_s
    ]
    return joined_html([bar(shares), tag("div", *keys, class_="legend")])


def _parts_table(bench: LoaderBench) -> Html | None:
    if not bench.parts:
        return None
    rows: list[list[Html | str]] = []
    for part in bench.parts:
        rows.append(_part_cells(part))
        if part.name == TRANSFORM:
            for one in bench.transforms:
                name = tag("span", f"– {one.name}", class_="dim")
                times = [format_seconds(one.wall_s), format_seconds(one.cpu_s), ""]
                rows.append([name, one.place or "", *times])
    heading = ["part", "", "wall", "CPU", "cold"]
    return table(heading, rows, left=2, name="Parts of a batch")


def _part_cells(part: LoaderPart) -> list[Html | str]:
    name = tag("b", PARTS[part.name])
    if not part.wall_s:
        return [name, MEANINGS[part.name], describe_reason(part.missing), "", ""]
    cpu = "" if part.cpu_s is None else format_seconds(part.cpu_s)
    cold = "" if part.cold_wall_s is None else format_seconds(part.cold_wall_s)
    return [name, MEANINGS[part.name], format_seconds(part.wall_s), cpu, cold]


# -- the curve


def _curve(bench: LoaderBench) -> Html | None:
    """Draw batches a second by workers, with the training's own pace as a level."""
    points = bench.curve
    if len(points) < 2:
        return None
    pace = None
    if bench.consumer_s is not None and bench.consumer_s.estimate > 0:
        pace = 1 / bench.consumer_s.estimate
    rates = [point.batches_per_s for point in points]
    top = max(rates) * 1.15
    if pace is not None and pace < 3 * top:
        top = max(top, 1.15 * pace)
    most = points[-1].num_workers

    def x(workers: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 20) * workers / most

    def y(rate: float) -> float:
        return (_HEIGHT - _BOTTOM) * (1 - rate / top)

    line = " ".join(f"{x(p.num_workers):.1f},{y(p.batches_per_s):.1f}" for p in points)
    drawn: list[Html] = [_axis_line(y(0)), tag("polyline", points=line, class_="curve")]
    for point in points:
        at_x, at_y = x(point.num_workers), y(point.batches_per_s)
        drawn.append(tag("circle", cx=f"{at_x:.1f}", cy=f"{at_y:.1f}", r=4, class_="curve-point"))
        drawn.append(_label(at_x, at_y - 9, _rate(point.batches_per_s)))
        drawn.append(_label(at_x, _HEIGHT - 10, str(point.num_workers)))
    if pace is not None and pace <= top:
        drawn.append(_axis_line(y(pace), kind="pace"))
        drawn.append(_label(_WIDTH - 20, y(pace) - 5, f"the training: {_rate(pace)}", at="end"))
    how = "measured" if points[0].is_measured else "predicted from the parts"
    beyond = ""
    if pace is not None and pace > top:
        beyond = f" The training takes {_rate(pace)} batches a second, above this picture."
    return joined_html(
        [
            tag(
                "svg",
                *drawn,
                viewBox=f"0 -16 {_WIDTH} {_HEIGHT + 16}",
                class_="rates",
                role="img",
                aria_label="Batches a second by workers",
            ),
            tag("p", f"The loader alone, {how}; across: worker processes.{beyond}", class_="dim"),
        ]
    )


def _rate(batches_per_s: float) -> str:
    return format_count(float(f"{batches_per_s:.3g}"))


def _axis_line(at: float, *, kind: str = "axis") -> Html:
    place = f"{at:.1f}"
    return tag("line", x1=_LEFT - 20, x2=_WIDTH, y1=place, y2=place, class_=kind)


def _label(x: float, y: float, text: str, *, at: str = "middle") -> Html:
    return tag("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=at)


# -- a sample


def _sample(bench: LoaderBench) -> Html | None:
    """Show when each part of a sample began and ended, as a row with a bar."""
    spans = bench.sample
    if not spans:
        return None
    end = max(span.end_s for span in spans) or 1.0
    rows: list[list[Html | str]] = []
    for span in spans[:40]:
        kind = span.part if span.part in LOADER_COLORS else TRANSFORM
        left, width = 100 * span.start_s / end, 100 * (span.end_s - span.start_s) / end
        style = f"left:{left:.2f}%;width:{max(width, 0.4):.2f}%"
        drawn = tag("span", tag("i", class_=loader_class_of(kind), style=style), class_="step-bar")
        rows.append([span.part, drawn, format_seconds(span.end_s - span.start_s)])
    what = "a batch, which the data set reads as a whole" if bench.is_whole_batch else "a sample"
    inside = ", ".join(PARTS[name] for name in IN_LOADER[1:3])
    told = f"One of middle length: {what}. Its {inside} lie inside its fetch."
    shown = table(["part", "", "time"], rows, left=2, name="Parts of a sample")
    return joined_html([tag("p", told, class_="dim"), tag("div", shown, class_="waterfall")])
