"""Makes the blocks on what was beside the steps: time, machine, workers.

In: a RunDocument. Out: which part of the time trained, and what took the rest, in two lines at
most; who kept the cores busy; what the workers did.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from steptime.core.printable import printable
from steptime.core.units import (
    format_count,
    format_energy,
    format_percent,
    format_seconds,
    format_speedup,
)
from steptime.diagnose.ailments.all_ailments import ailment_of
from steptime.diagnose.ailments.contention import is_of_machine
from steptime.diagnose.values.finding import Diagnosis, Severity
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.wall_time import USEFUL, Checkpoints, WallPart, WallTime
from steptime.report.blocks.colors import color_of
from steptime.report.blocks.phrasing import joined
from steptime.report.blocks.values import Bar, Block, Cell, Labeled, TableBlock
from steptime.report.document.run_document import RunDocument, RunSums
from steptime.report.words.run import run_words
from steptime.report.words.run.advice import choose_headline, opening_findings

_WORTH_NAMING = 0.01
"""A part below this share of the whole is not named: readers search for what is large."""

_MOST_PARTS = 6

COLORS = {Severity.INFO: "green", Severity.WARNING: "yellow", Severity.CRITICAL: "red"}


def machine_blocks(m: Measurement, diagnosis: Diagnosis | None) -> list[Block]:
    """Say who kept the cores busy, and by what of the machine the run lost time."""
    host = m.host
    if host is None:
        return [Labeled("machine", "its load was not sampled", style="dim")]
    cores, ours = format_count(host.num_cores), format_count(host.job_cores)
    others = format_count(host.others_cores)
    line = Text(f"this run kept {ours} of {cores} cores busy, others {others}")
    head = None if diagnosis is None else choose_headline(diagnosis)
    lost = [f for f in opening_findings(diagnosis) if is_of_machine(f) and f is not head]
    if not lost:  # the one that the report opens with tells all
        return [Labeled("machine", line)]
    for finding in lost:
        row = ailment_of(finding)
        told = None if row is None or row.kind else run_words.fill_in(row.sentence, finding)
        line.append(", so steps take longer" if told is None else f"; {told[:-1]}")
    waited = [e.value for f in lost for e in f.evidence if e.name == "lost"]
    if waited:
        line.append(f"; it waited for a core for {format_percent(max(waited))} of the time")
    title, style = " and ".join(map(run_words.describe_heading, lost)), COLORS[lost[0].severity]
    return [Labeled("machine", Text.assemble((title, f"bold {style}"), ": ", line))]


def worker_blocks(m: Measurement) -> list[Block]:
    """Say what the DataLoader's workers do for a batch; return no lines if there are no workers."""
    workers = m.workers
    if workers is None:
        return []
    fetch = format_seconds(workers.fetch_s_per_batch)
    collate = format_seconds(workers.collate_s_per_batch)
    text = f"{workers.num_workers}; a batch takes one of them {fetch} to fetch"
    return [Labeled("workers", f"{text}, {collate} to collate")]


def wall_blocks(document: RunDocument) -> list[Block]:
    """Say which part of the run's time trained, and what took the rest, the largest first."""
    wall = document.measurement.wall_time
    if wall is None:
        return []
    beside = [part for part in wall.parts if part.name != USEFUL]
    told = [*_goodput(document.run, wall), *_named(beside, wall)]
    lines = [Labeled("beside", joined(map(printable, told)))] if told else []
    return lines + _checkpoint_lines(wall) + _cost_lines(document.run)


def _goodput(sums: RunSums | None, wall: WallTime) -> list[str]:
    if sums is None or sums.goodput_fraction is None:
        return []
    useful, whole = format_seconds(sums.useful_s), format_seconds(sums.wall_s)
    so_far = " so far" if wall.is_open else ""
    share = format_percent(sums.goodput_fraction)
    return [f"goodput {share} ({useful} of {whole}{so_far} trained)"]


def _named(parts: Sequence[WallPart], wall: WallTime) -> list[str]:
    """Return the larger parts in words, and the rest as a sum."""
    ordered = sorted(parts, key=lambda part: -part.total_s)
    large = [p for p in ordered if p.total_s >= _WORTH_NAMING * wall.total_s][:_MOST_PARTS]
    rest_s = sum(part.total_s for part in ordered[len(large) :])
    named = [_describe(part) for part in large]
    if named and rest_s >= _WORTH_NAMING * wall.total_s:
        named.append(f"others {format_seconds(rest_s)}")
    return named


def _describe(part: WallPart) -> str:
    facts = [] if part.num is None or part.num < 2 else [f"{part.num:,}x"]
    facts += [] if part.where is None else [part.where]
    told = f"{run_words.describe_wall_part(part.name)} {format_seconds(part.total_s)}"
    return f"{told} ({', '.join(facts)})" if facts else told


def _cost_lines(sums: RunSums | None) -> list[Block]:
    """Say what the run cost in money and energy, as far as that is known."""
    if sums is None:
        return []
    told = []
    if sums.cost is not None and sums.cost_beside is not None:
        told.append(f"{_money(sums.cost)} at {_money(sums.price_per_h or 0.0)} per hour")
        told.append(f"{_money(sums.cost_beside)} of it for no step that trained")
    if sums.energy_j is not None:
        told.append(f"the devices drew {format_energy(sums.energy_j)}")
    return [Labeled("cost", joined(told))] if told else []


def _money(value: float) -> str:
    return f"{value:,.2f}" if value >= 0.1 else f"{value:.2g}"


def _checkpoint_lines(wall: WallTime) -> list[Block]:
    """Say what a checkpoint is spent on, where they take a part of the run that is worth a line."""
    found = wall.checkpoints
    if found is None:
        return []
    told = []
    if found.num and found.total_s >= _WORTH_NAMING * wall.total_s:
        told = [f"each {format_seconds(found.total_s / found.num)}", *_shares(found)]
    if found.slowdown is not None:
        ratio = format_speedup(found.slowdown.estimate)
        told.append(f"steps beside asynchronous ones took {ratio} as long")
    return [Labeled("checkpoint", joined(told))] if told else []


def _shares(found: Checkpoints) -> list[str]:
    parts = {
        "gather": found.gather_s,
        "copy": found.copy_s,
        "serialize": found.serialize_s,
        "write": found.write_s,
        "other": found.other_s,
    }
    large = sorted(parts.items(), key=lambda part: -part[1])
    return [
        f"{name} {format_percent(value_s / found.total_s)}"
        for name, value_s in large
        if value_s >= _WORTH_NAMING * found.total_s
    ]


def wall_table(document: RunDocument) -> list[Block]:
    """Show what the whole time of the run was spent on, one row for each part."""
    wall = document.measurement.wall_time
    if wall is None or wall.total_s <= 0:
        return []
    rows = [_wall_cells(part, wall) for part in wall.parts]
    heading = ["part", "", "share", "time", "times"]
    return [TableBlock(heading, rows, left=2, name="Time of the run", kind="phases")]


def _wall_cells(part: WallPart, wall: WallTime) -> list[Cell]:
    share = part.total_s / wall.total_s
    name = Text(run_words.describe_wall_part(part.name))
    if part.where is not None:
        name.append(f" {printable(part.where)}", style="dim")
    return [
        name,
        Bar([(color_of(part.name), share)]),
        format_percent(share),
        format_seconds(part.total_s),
        "" if part.num is None else format_count(part.num),
    ]
