"""Makes the tables of the terminal report: phases with their bars, ranks, and the list of runs.

In: phases, ranks, rows of the store. Out: lines of aligned columns.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from steptime.core.printable import printable
from steptime.core.process_end import ProcessEnd
from steptime.core.units import format_count, format_percent, format_seconds
from steptime.measure.values.measurement import (
    INNER_PHASES,
    PHASES,
    Measurement,
    Phase,
    RankSummary,
)
from steptime.measure.values.run_summary import RunSummary
from steptime.report.text.page import Page, columns, joined, page_of, shortened
from steptime.report.words import run_words
from steptime.report.words.advice import describe_opening
from steptime.report.words.show_words import show_command

COMPUTE = ("forward", "loss", "forward_and_loss", "backward", "gradient_processing", "optimizer")
"""The phases in which the model's arithmetic is done."""

_WAITS = ("input_wait", *INNER_PHASES, "process_wait", "h2d", "communication", "sync")
_ORDER = ("input_wait", *INNER_PHASES, *(name for name in PHASES if name != "input_wait"))
MAX_RUNS = 1000
"""More rows take more than a second to lay out, and nobody reads as many."""

_MIN_BAR, _MIN_COMMAND = 10, 8
_ABSENT = "-"


def phase_lines(phases: Sequence[Phase], *, page: Page, small_fraction: float) -> list[Text]:
    """Return one row per phase with its bar, in the order of the step; small ones share the last.

    Parts of `input_wait` have no line where they are small.
    """
    seen = sorted((p for p in phases if p.median_s is not None), key=phase_place)
    large = [p for p in seen if (p.fraction or 0.0) >= small_fraction]
    small = [p for p in seen if p not in large and p.name not in INNER_PHASES and p.fraction]
    lines = _with_bars(large, page) if large else []
    if small:
        parts = [f"{run_words.describe_phase(p.name)} {_seconds(p.mean_s)}" for p in small]
        lines += page.block("the rest", joined(parts))
    return lines


def phase_place(phase: Phase) -> int:
    """Return where a phase stands in the order of a step."""
    return _ORDER.index(phase.name) if phase.name in _ORDER else len(_ORDER)


def _with_bars(phases: Sequence[Phase], page: Page) -> list[Text]:
    has_device = any(p.device_mean_s is not None for p in phases)
    heading = ["a step's time", "mean", "share", "CPU", "device"]
    rows = [heading, *(_phase_cells(p) for p in phases)]
    lines = columns([row if has_device else row[:-1] for row in rows])
    width = max(_MIN_BAR, page.width - lines[0].cell_len - 2)
    for line, phase in zip(lines[1:], phases, strict=True):
        style = "yellow" if phase.name in _WAITS else "cyan"
        line.append("  " + page.bar(phase.fraction or 0.0, width), style=style)
    return lines


def _phase_cells(phase: Phase) -> list[str]:
    indent = "  " if phase.name in INNER_PHASES else ""
    return [
        indent + run_words.describe_phase(phase.name),
        _seconds(phase.mean_s),
        _ABSENT if phase.fraction is None else format_percent(phase.fraction),
        _seconds(phase.cpu_mean_s),
        _seconds(phase.device_mean_s),
    ]


def _seconds(value_s: float | None) -> str:
    return _ABSENT if value_s is None else format_seconds(value_s)


def rank_lines(ranks: Sequence[RankSummary], *, page: Page, limit: int) -> list[Text]:
    """Return one row per rank; if there are too many, those that wait least for the others.

    Processes without a process group do not wait; each row ends with the line that steps there.
    """
    shown = sorted(sorted(ranks, key=_communication_s)[:limit], key=lambda r: r.rank)
    heading = ["rank", "steps", "step", "input wait", "compute", "communication", "CPU"]
    cells = [_rank_cells(r) for r in shown]
    if all(rank.world_size == 1 for rank in ranks):
        heading = ["process", *heading[1:], "trains at"]
        cells = [
            [*row, printable(rank.where or "-")] for row, rank in zip(cells, shown, strict=True)
        ]
    lines = columns([heading, *cells])
    if len(ranks) > limit:
        left_out = f"more ranks, which wait longer for the others: {len(ranks) - limit}"
        lines.append(Text(left_out, style="dim"))
    return [Text(), *lines]


def _communication_s(rank: RankSummary) -> float:
    """Return how long a rank waits for the others; a rank where this is not known comes last."""
    waited_s = _sum_of(rank, ("communication",))
    return float("inf") if waited_s is None else waited_s


def _rank_cells(rank: RankSummary) -> list[str]:
    return [
        str(rank.rank),
        format_count(rank.num_steps),
        _seconds(rank.step_time_s.estimate if rank.step_time_s else None),
        _seconds(_sum_of(rank, ("input_wait",))),
        _seconds(_sum_of(rank, COMPUTE)),
        _seconds(_sum_of(rank, ("communication",))),
        _seconds(rank.step_cpu_s.estimate if rank.step_cpu_s else None),
    ]


def _sum_of(rank: RankSummary, names: Sequence[str]) -> float | None:
    """Return the sum of the medians of the observed phases, or None if none was observed."""
    medians = [p.median_s for p in rank.phases if p.name in names and p.median_s is not None]
    return sum(medians) if medians else None


def unseen_lines(m: Measurement, page: Page) -> list[Text]:
    """Say what was not observed, grouped by reason in one paragraph."""
    groups: dict[str, list[str]] = {}
    for phase in sorted(m.phases, key=phase_place):
        if phase.median_s is None and phase.missing not in run_words.OBVIOUS:
            reason = "" if phase.missing is None else run_words.describe_missing(phase.missing)
            groups.setdefault(reason, []).append(run_words.describe_phase(phase.name))
    parts = [", ".join(names) + (f" ({why})" if why else "") for why, names in groups.items()]
    return page.block("not seen", "; ".join(parts), style="dim") if parts else []


def runs_table(rows: Sequence[RunSummary], *, console: Console, store: str | None = None) -> None:
    """Print the list of runs as given, and the next command; of very many, only the first ones.

    On a terminal a long command is cut; in a pipe it is whole. `store` is the folder that holds the
    store, if that is not the one of this folder.
    """
    page = page_of(console)
    if not rows:
        page.write([Text("no runs yet; make one:"), Text("  steptime run -- python train.py")])
        return
    heading = ["run", "end", "diagnosis", "steps", "step time"]
    num_older, rows = max(0, len(rows) - MAX_RUNS), rows[:MAX_RUNS]
    lines = columns([heading, *(_run_cells(row) for row in rows)], left=3)
    width = max(_MIN_COMMAND, console.width - lines[0].cell_len - 2)
    lines[0].append("  command")
    for line, row in zip(lines[1:], rows, strict=True):
        command = shlex.join(row.command)
        command = shortened(command, width) if console.is_terminal else printable(command)
        line.append(f"  {command}")
    if num_older:
        left_out = f"older runs that are not shown: {num_older:,}; `steptime list --json` has all"
        lines.append(Text(left_out, style="dim"))
    show = show_command(rows[0].run_id, store=store)
    page.write([*lines, Text(), Text(f"  {show}", style="bold")])


def _run_cells(row: RunSummary) -> list[str]:
    steps = _ABSENT if row.num_steps is None else format_count(row.num_steps)
    is_alone = row.num_trainings is None or row.num_trainings < 2
    return [
        row.run_id,
        run_words.describe_short_end(
            ProcessEnd(state=row.state, exit_code=row.exit_code, signal=row.signal)
        ),
        describe_opening(row.kind, row.opens_with) or _ABSENT,
        steps if is_alone else f"{steps} (1 of {row.num_trainings})",
        _seconds(row.step_time_s),
    ]
