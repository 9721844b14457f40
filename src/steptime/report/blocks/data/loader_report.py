"""Makes the report of what a loader costs: the bound, the parts of a batch, the curve, a sample.

In: a `LoaderBench`. Out: blocks. Words come from `loader_words`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from steptime.core.interval import Interval
from steptime.core.units import format_count, format_percent, format_seconds, format_speedup
from steptime.measure.values.loader_bench import (
    CONSUMER,
    IN_LOADER,
    TRANSFORM,
    LoaderBench,
    LoaderPart,
)
from steptime.report.blocks.colors import color_of
from steptime.report.blocks.phrasing import joined, labeled, sections
from steptime.report.blocks.values import (
    Bar,
    Block,
    Cell,
    CommandLine,
    Curve,
    Fold,
    Headline,
    Items,
    LinePlot,
    Section,
    Sheet,
    TableBlock,
    Tile,
    Tiles,
)
from steptime.report.words.data import loader_words as words


def loader_report(bench: LoaderBench, *, levers: Collection[str]) -> Sheet:
    """Return the report of a bench; `levers` are the names of those that there are."""
    parts = (
        ("", _answer(bench)),
        ("A batch by part", _parts(bench)),
        ("Batches per second by workers", _curve(bench)),
        ("What to know", labeled(*(("note", note) for note in words.describe_notes(bench)))),
    )
    if bench.loader is None:
        return Sheet(kind="data bench", parts=sections(parts[:1]))
    commands = [
        CommandLine(command, "" if number else "next", "try what relieves it: ")
        for number, command in enumerate(words.next_commands(bench, levers=levers))
    ]
    told = [*sections(parts), *([Section("", commands)] if commands else [])]
    return Sheet(kind="data bench", command=bench.command, parts=told)


def _answer(bench: LoaderBench) -> list[Block]:
    title, _, rest = words.describe_bottleneck(bench).partition(". ")
    is_calm = bench.bottleneck in (None, CONSUMER)
    answer = Headline("result", title.rstrip("."), severity="info" if is_calm else "warning")
    if bench.loader is None:
        return [answer, *labeled(("", rest))]
    others = words.describe_others(bench.others) if bench.others else None
    return [
        answer,
        *labeled(
            ("", rest),
            ("loader", words.describe_loader(bench.loader)),
            ("not timed", others),
            ("step", joined(_step(bench))),
            ("waits", joined(_waits(bench))),
        ),
        _tiles(bench),
    ]


def _step(bench: LoaderBench) -> list[str]:
    parts = [
        f"{format_seconds(time.estimate)} ({_within(time)}) {name} (n {time.n})"
        for name, time in _times(bench)
    ]
    if bench.loader_s is not None:
        parts.append(f"{format_seconds(bench.loader_s)} to make a batch in one process")
    return parts or ["not timed"]


def _times(bench: LoaderBench) -> Iterator[tuple[str, Interval]]:
    for name, time in (("with the loader", bench.step_s), ("with a kept batch", bench.consumer_s)):
        if time is not None:
            yield name, time


def _within(time: Interval) -> str:
    return f"{format_seconds(time.low)} to {format_seconds(time.high)}"


def _waits(bench: LoaderBench) -> list[str]:
    parts = []
    if bench.wait_s is not None and bench.wait_p99_s is not None:
        p99 = format_seconds(bench.wait_p99_s)
        parts.append(f"{format_seconds(bench.wait_s)} per step, p99 {p99}")
    if bench.first_batch_s is not None:
        parts.append(f"first batch after {format_seconds(bench.first_batch_s)}")
    if (cpu := words.per_sample(bench)) is not None:
        parts.append(cpu)
    return parts or ["not timed"]


def _tiles(bench: LoaderBench) -> Tiles:
    tiles = [
        Tile(f"step {name}", format_seconds(time.estimate), f"{_within(time)}, n {time.n}")
        for name, time in _times(bench)
    ]
    if bench.bound is not None:
        low, high = format_speedup(bench.bound.low), format_speedup(bench.bound.high)
        value = format_speedup(bench.bound.estimate)
        tiles.insert(0, Tile("upper bound", value, f"{low} to {high}"))
    if bench.wait_p99_s is not None:
        tiles.append(Tile("p99 wait", format_seconds(bench.wait_p99_s), "for a batch"))
    return Tiles(tiles)


# -- parts


def _parts(bench: LoaderBench) -> list[Block]:
    """List the parts of a batch, and below `transform` each transform."""
    if not bench.parts:
        return []
    seen = [part for part in bench.parts if part.wall_s]
    longest = max((part.wall_s or 0.0 for part in seen), default=0.0) or 1.0
    rows = [row for part in seen for row in _rows(part, bench, longest)]
    heading = ("a batch, in one process", "", "wall", "share", "CPU", "cold")
    unseen = [
        f"{words.PARTS[part.name]} ({words.describe_reason(part.missing)})"
        for part in bench.parts
        if part not in seen
    ]
    meanings = [f"{words.PARTS[name]}: {told}" for name, told in words.MEANINGS.items()]
    return [
        TableBlock(heading, rows, left=2, name="Parts of a batch", kind="gains"),
        *labeled(("not seen", joined(unseen))),
        Fold("What each part is", [Items(meanings)]),
    ]


def _rows(part: LoaderPart, bench: LoaderBench, longest: float) -> Iterator[tuple[Cell, ...]]:
    wall_s, color = part.wall_s or 0.0, color_of(part.name)
    share = _share(wall_s, bench) if part.name in IN_LOADER else ""
    times = (_seconds(wall_s), share, _seconds(part.cpu_s), _seconds(part.cold_wall_s))
    yield (words.PARTS[part.name], Bar([(color, wall_s / longest)]), *times)
    if part.name != TRANSFORM:
        return
    for one in bench.transforms:
        name = f"  {one.name}" + (f" ({words.short_place(one.place)})" if one.place else "")
        bar = Bar([(color, one.wall_s / longest)])
        yield name, bar, _seconds(one.wall_s), _share(one.wall_s, bench), _seconds(one.cpu_s), ""


def _seconds(time_s: float | None) -> str:
    return "" if time_s is None else format_seconds(time_s)


def _share(time_s: float, bench: LoaderBench) -> str:
    return format_percent(time_s / bench.loader_s) if bench.loader_s else ""


# -- workers


def _curve(bench: LoaderBench) -> list[Block]:
    """Draw batches per second by workers, with the training's own pace as a level."""
    told = labeled(("workers", words.describe_workers(bench)))
    if not bench.curve:
        return told
    points = [(float(one.num_workers), one.batches_per_s) for one in bench.curve]
    top = 1.15 * max(rate for _, rate in points)
    step = bench.consumer_s
    pace = 1 / step.estimate if step is not None and step.estimate > 0 else None
    levels = [] if pace is None or pace > 3 * top else [(f"the training: {_rate(pace)}", pace)]
    how = "measured" if bench.curve[0].is_measured else "predicted"
    title = f"batches per second of the loader alone by workers, {how}"
    plot = LinePlot(
        title[0].upper() + title[1:],
        [Curve("the loader", points, has_marks=True)],
        levels=levels,
        x_name="worker processes",
        y_range=(0.0, max(top, *(1.15 * value for _, value in levels))) if levels else (0.0, top),
    )
    listed = joined([title, *(f"{workers:g}: {_rate(rate)}" for workers, rate in points)])
    return [plot, *told, *labeled(("", listed))]


def _rate(batches_per_s: float) -> str:
    return format_count(float(f"{batches_per_s:.3g}"))
