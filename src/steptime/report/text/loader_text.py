"""Shows what a loader costs, on one screen for people.

In: a `LoaderBench`. Out: lines of labeled blocks; the last one is the next command.
"""

from __future__ import annotations

from collections.abc import Collection

from rich.console import Console
from rich.text import Text

from steptime.core.interval import Interval
from steptime.core.units import format_count, format_percent, format_seconds
from steptime.data.values.tf_data_values import TfData
from steptime.measure.values.loader_bench import IN_LOADER, TRANSFORM, LoaderBench, LoaderPart
from steptime.report.blocks.phrasing import joined
from steptime.report.text.page import Page, columns, page_of
from steptime.report.words.loader_words import (
    PARTS,
    describe_bottleneck,
    describe_loader,
    describe_notes,
    describe_others,
    describe_reason,
    describe_workers,
    next_commands,
    per_sample,
    short_place,
)
from steptime.report.words.tf_data_words import describe_tf_data

_BAR = 16


def render_loader(bench: LoaderBench, *, console: Console, levers: Collection[str]) -> None:
    """Print the report.

    Args:
        bench: what was measured.
        console: where it is printed.
        levers: the names of those that there are.
    """
    page = page_of(console)
    page.write(loader_lines(bench, page=page, levers=levers))


def render_tf_data(found: TfData, *, cwd: str, console: Console) -> None:
    """Print what tf.data's own statistics say; files below `cwd` are named from there."""
    page = page_of(console)
    page.write([Text(), *(Text(line) for line in describe_tf_data(found, cwd=cwd))])


def loader_lines(bench: LoaderBench, *, page: Page, levers: Collection[str]) -> list[Text]:
    """Return the lines of the report."""
    lines = page.block("result", describe_bottleneck(bench), style="bold")
    if bench.loader is None:
        return lines
    lines += page.block("loader", describe_loader(bench.loader))
    if bench.others:
        lines += page.block("not timed", describe_others(bench.others))
    lines += page.block("step", joined(_step(bench)))
    lines += page.block("waits", joined(_waits(bench)))
    if bench.parts:
        lines += [Text(), *_table(bench, page), Text()]
        lines += page.block("not seen", joined(_unseen(bench)))
    if (told := describe_workers(bench)) is not None:
        lines += page.block("workers", told)
    if bench.curve:
        lines += page.block("", joined(_curve(bench)))
    for note in describe_notes(bench):
        lines += page.block("note", note)
    return [*lines, *_next(bench, page, levers)]


def _step(bench: LoaderBench) -> list[str]:
    parts = []
    for name, time in (("with the loader", bench.step_s), ("with a kept batch", bench.consumer_s)):
        if time is not None:
            parts.append(f"{_within(time)} {name} (n {time.n})")
    if bench.loader_s is not None:
        parts.append(f"{format_seconds(bench.loader_s)} to make a batch in one process")
    return parts or ["not timed"]


def _within(time: Interval) -> str:
    low, high = format_seconds(time.low), format_seconds(time.high)
    return f"{format_seconds(time.estimate)} ({low} to {high})"


def _waits(bench: LoaderBench) -> list[str]:
    parts = []
    if bench.wait_s is not None and bench.wait_p99_s is not None:
        parts.append(
            f"{format_seconds(bench.wait_s)} a step, p99 {format_seconds(bench.wait_p99_s)}"
        )
    if bench.first_batch_s is not None:
        parts.append(f"first batch after {format_seconds(bench.first_batch_s)}")
    if (cpu := per_sample(bench)) is not None:
        parts.append(cpu)
    return parts or ["not timed"]


def _table(bench: LoaderBench, page: Page) -> list[Text]:
    """Return a row for each part of a batch, and below `transform` one for each transform."""
    longest = max((part.wall_s or 0.0 for part in bench.parts), default=0.0) or 1.0
    total = bench.loader_s or 0.0
    rows = [["a batch, in one process", "", "wall", "share", "CPU", "cold"]]
    for part in bench.parts:
        if not part.wall_s:
            continue
        rows.append(_row(part, page.bar((part.wall_s or 0.0) / longest, _BAR), total))
        if part.name == TRANSFORM:
            for one in bench.transforms:
                bar = page.bar(one.wall_s / longest, _BAR)
                name = f"  {one.name}" + (f" ({short_place(one.place)})" if one.place else "")
                times = [format_seconds(one.wall_s), _share(one.wall_s, total)]
                rows.append([name, bar, *times, format_seconds(one.cpu_s), ""])
    return columns(rows, left=2)


def _unseen(bench: LoaderBench) -> list[str]:
    """Return the parts that are not in the table, and why."""
    return [
        f"{PARTS[part.name]} ({describe_reason(part.missing)})"
        for part in bench.parts
        if not part.wall_s
    ]


def _row(part: LoaderPart, bar: str, total_s: float) -> list[str]:
    wall_s = part.wall_s or 0.0
    return [
        PARTS[part.name],
        bar,
        format_seconds(wall_s),
        _share(wall_s, total_s) if part.name in IN_LOADER else "",
        "" if part.cpu_s is None else format_seconds(part.cpu_s),
        "" if part.cold_wall_s is None else format_seconds(part.cold_wall_s),
    ]


def _share(time_s: float, total_s: float) -> str:
    return format_percent(time_s / total_s) if total_s else ""


def _curve(bench: LoaderBench) -> list[str]:
    how = "measured" if bench.curve[0].is_measured else "predicted"
    points = [
        f"{one.num_workers}: {format_count(float(f'{one.batches_per_s:.3g}'))}"
        for one in bench.curve
    ]
    return [f"batches/s of the loader alone by workers, {how}", *points]


def _next(bench: LoaderBench, page: Page, levers: Collection[str]) -> list[Text]:
    commands = next_commands(bench, levers=levers)
    if not commands:
        return []
    lines: list[Text] = []
    for command in commands:
        lines += page.with_command("" if lines else "next", Text("try what relieves it: "), command)
    return lines
