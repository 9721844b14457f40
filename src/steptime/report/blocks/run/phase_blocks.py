"""Makes the tables of a run's report: phases with their bars and lines, ranks.

In: phases and ranks. Out: blocks. In a row, share and time are of the same statistic: the mean.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from steptime.core.printable import printable
from steptime.core.units import format_count, format_percent, format_seconds
from steptime.measure.values.measurement import (
    INNER_PHASES,
    PHASES,
    Measurement,
    Phase,
    RankSummary,
)
from steptime.report.blocks.colors import color_of
from steptime.report.blocks.phrasing import joined
from steptime.report.blocks.values import Bar, Blank, Block, Cell, Labeled, TableBlock
from steptime.report.words.run import run_words

COMPUTE = ("forward", "loss", "forward_and_loss", "backward", "gradient_processing", "optimizer")
"""The phases in which the model's arithmetic is done."""

_WAITS = ("input_wait", *INNER_PHASES, "process_wait", "h2d", "communication", "sync")
_ORDER = ("input_wait", *INNER_PHASES, *(name for name in PHASES if name != "input_wait"))
_ABSENT = "–"

_ENOUGH = 8
"""Samples of a line that make it the place of the time between the phases."""


def phase_blocks(
    m: Measurement, *, small_fraction: float = 0.0, most: int | None = None
) -> list[Block]:
    """Return one row per phase with its bar, in the order of the step; others share a line.

    Parts of `input_wait` have no row where they are small.
    """
    seen = sorted((p for p in m.phases if p.median_s is not None), key=phase_place)
    ordered = sorted(seen, key=lambda phase: -(phase.fraction or 0.0))[:most]
    large = [p for p in seen if p in ordered and (p.fraction or 0.0) >= small_fraction]
    small = [p for p in seen if p not in large and p.name not in INNER_PHASES and p.fraction]
    blocks = [_table(large, m)] if large else []
    if small:
        parts = [f"{run_words.describe_phase(p.name)} {_seconds(p.mean_s)}" for p in small]
        blocks.append(Labeled("the rest", joined(parts), max_lines=1 if most else None))
    return blocks


def phase_place(phase: Phase) -> int:
    """Return where a phase stands in the order of a step."""
    return _ORDER.index(phase.name) if phase.name in _ORDER else len(_ORDER)


def _table(phases: Sequence[Phase], m: Measurement) -> Block:
    has_device = any(p.device_mean_s is not None for p in phases)
    places = {site.what: printable(site.place) for site in reversed(m.sites)} | _between(m)
    has_place = any(phase.name in places for phase in phases)
    heading = ["phase", "mean", "share", "CPU", *(["device"] if has_device else [])]
    heading += [*(["line"] if has_place else []), ""]
    rows = [
        [
            *_cells(phase, has_device=has_device),
            *([Text(places.get(phase.name, ""), style="dim")] if has_place else []),
            _bar(phase),
        ]
        for phase in phases
    ]
    return TableBlock(heading, rows, name="Phases of a step", kind="phases")


def _between(m: Measurement) -> dict[str, str]:
    """Return the line where most of the time between the other phases goes, if it was sampled."""
    lines = () if m.spent is None else m.spent.lines
    other = next((one for one in lines if one.what == "other" and one.num_samples >= _ENOUGH), None)
    return {} if other is None else {"other": printable(other.place)}


def _cells(phase: Phase, *, has_device: bool) -> list[Cell]:
    indent = "  " if phase.name in INNER_PHASES else ""
    return [
        indent + run_words.describe_phase(phase.name),
        _seconds(phase.mean_s),
        _ABSENT if phase.fraction is None else format_percent(phase.fraction),
        _seconds(phase.cpu_mean_s),
        *([_seconds(phase.device_mean_s)] if has_device else []),
    ]


def _bar(phase: Phase) -> Bar:
    tone = "yellow" if phase.name in _WAITS else "cyan"
    return Bar([(color_of(phase.name), phase.fraction or 0.0)], tone=tone)


def _seconds(value_s: float | None) -> str:
    return _ABSENT if value_s is None else format_seconds(value_s)


def rank_blocks(ranks: Sequence[RankSummary], *, limit: int | None = None) -> list[Block]:
    """Return one row per rank; if there are too many, those that wait least for the others.

    Processes without a process group do not wait; each row ends with the line that steps there.
    """
    if len(ranks) < 2:
        return []
    shown = sorted(sorted(ranks, key=_communication_s)[:limit], key=lambda r: r.rank)
    longest_s = max((sum(_outer(rank).values()) for rank in shown), default=0.0) or 1.0
    are_alone = all(rank.world_size == 1 for rank in ranks)
    first, last = ("process", ["trains at"]) if are_alone else ("rank", [])
    heading = [first, "steps", "step", "input wait", "compute", "communication", "CPU", *last, ""]
    rows: list[list[Cell]] = [
        [
            *_rank_cells(rank),
            *([printable(rank.where or "-")] if are_alone else []),
            Bar([(color_of(n), s / longest_s) for n, s in _outer(rank).items()]),
        ]
        for rank in shown
    ]
    left_out = len(ranks) - len(shown)
    more = f"more ranks, which wait longer for the others: {left_out}"
    return [
        Blank(),
        TableBlock(heading, rows, name="Ranks", kind="phases"),
        *([Labeled("", more, style="dim")] if left_out else []),
    ]


def _communication_s(rank: RankSummary) -> float:
    """Return how long a rank waits for the others; a rank where this is not known comes last."""
    waited_s = _sum_of(rank, ("communication",))
    return float("inf") if waited_s is None else waited_s


def _outer(rank: RankSummary) -> dict[str, float]:
    phases = sorted(rank.phases, key=phase_place)
    return {p.name: p.median_s for p in phases if p.median_s and p.name not in INNER_PHASES}


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


def unseen_blocks(m: Measurement) -> list[Block]:
    """Say what was not observed, grouped by reason in one paragraph."""
    groups: dict[str, list[str]] = {}
    for phase in sorted(m.phases, key=phase_place):
        if phase.median_s is None and phase.missing not in run_words.OBVIOUS:
            reason = "" if phase.missing is None else run_words.describe_missing(phase.missing)
            groups.setdefault(reason, []).append(run_words.describe_phase(phase.name))
    parts = [", ".join(names) + (f" ({why})" if why else "") for why, names in groups.items()]
    return [Labeled("not seen", "; ".join(parts), style="dim")] if parts else []
