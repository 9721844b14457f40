"""Says what a machine reaches, as a table under its inventory, and how far the measuring has come.

In: an `Inventory` and `Ceilings`. Out: blocks. The interval of a provisional ceiling reaches up to
the fastest repetition, which other programs disturbed least.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from steptime.core.printable import printable
from steptime.core.units import format_count, format_percent, format_rate, format_seconds
from steptime.machine.values.ceiling_values import BenchProcess, Ceiling, Ceilings, find_part
from steptime.machine.values.inventory_values import Inventory
from steptime.report.blocks.machine.inventory_report import inventory_blocks
from steptime.report.blocks.phrasing import labeled
from steptime.report.blocks.values import Blank, Block, Cell, CommandLine, Labeled, TableBlock
from steptime.report.words.machine.machine_words import (
    AGAIN,
    describe_doubts,
    describe_kind,
    describe_next,
    describe_reason,
    describe_setting,
)

NEXT = "steptime run -- python train.py"


def machine_blocks(
    inventory: Inventory, found: Ceilings | None, *, age_s: float | None
) -> list[Block]:
    """Return the whole screen; `age_s` is how long ago the ceilings were measured [s]."""
    ceilings = [] if found is None else _ceilings(found, age_s)
    return [*inventory_blocks(inventory), *ceilings, Blank(), CommandLine(NEXT, "next")]


def _ceilings(found: Ceilings, age_s: float | None) -> list[Block]:
    measured = [one for one in found.ceilings if one.rate is not None]
    blocks: list[Block] = []
    if measured and found.bench is not None:
        blocks = [Blank(), _table(measured, found.bench), Blank()]
        blocks += labeled(("measured", _provenance(found, found.bench, age_s)))
        blocks += _doubts(measured, found.bench)
    note = None
    if found.missing is not None:
        why = describe_reason(found.missing)
        detail = f" ({found.detail})" if found.detail else ""
        lead = "not all could be measured" if measured else "nothing was measured"
        note = f"{lead}: {why}{detail}. {describe_next(found.missing)}"
    gaps = [f"{_name(one)}: {_reason(one)}" for one in found.ceilings if one.rate is None]
    return [*blocks, *labeled(("note", note), ("gaps", "; ".join(gaps)))]


def _table(measured: Sequence[Ceiling], bench: BenchProcess) -> TableBlock:
    """Return one row per ceiling, with its share of the datasheet where the datasheet is known."""
    shares = [_share(one, bench) for one in measured]
    has_shares = any(shares)
    rows: list[list[Cell]] = [
        [*_cells(one), *([share] if has_shares else []), _dim(describe_setting(one))]
        for one, share in zip(measured, shares, strict=True)
    ]
    heading = ["ceiling", "reached", "interval", "n", *(["datasheet"] if has_shares else []), "at"]
    return TableBlock(heading, rows, name="What the machine reaches", cut_last=True)


def _dim(text: str) -> Text:
    return Text(printable(text), style="dim")


def _cells(one: Ceiling) -> list[str]:
    """Return the name, median, interval and number of repetitions."""
    if one.rate is None:
        return [_name(one), "", "", ""]
    high = one.rate.high
    if one.is_provisional and one.best_rate is not None:
        high = one.best_rate
    reached = format_rate(one.rate.estimate, one.unit)
    ends = [format_rate(value, one.unit) for value in (one.rate.low, high)]
    units = {told.partition(" ")[2] for told in (reached, *ends)}
    if len(units) == 1:  # all share a unit: it is shown once, beside the median
        ends = [told.partition(" ")[0] for told in ends]
    return [_name(one), reached, " to ".join(ends), str(one.rate.n)]


def _name(one: Ceiling) -> str:
    """Return a name such as `matmul bf16`, with the device where the name does not imply it."""
    if one.device in ("cpu", "disk"):
        return describe_kind(one)
    ranks = "" if one.num_ranks is None else f" × {one.num_ranks}"
    return f"{describe_kind(one)} {printable(one.device)}{ranks}"


def _share(one: Ceiling, bench: BenchProcess) -> str:
    """Return the share of the datasheet's peak, or an empty string for an unknown device."""
    row = find_part(bench, one.device)
    if row is None or one.rate is None:
        return ""
    peak = None
    if one.kind == "matmul":
        peak = row.peak_flops_per_s.get(one.dtype or "")
    elif one.kind in ("copy", "triad"):
        peak = row.bandwidth_bytes_per_s
    return "" if peak is None else format_percent(one.rate.estimate / peak)


def _provenance(found: Ceilings, bench: BenchProcess, age_s: float | None) -> str:
    when = "" if age_s is None or age_s < 60 else f" {format_seconds(age_s)} ago"
    threads = f"{bench.num_threads} thread" + ("" if bench.num_threads == 1 else "s")
    return (
        f"in {format_seconds(found.took_s)}{when}, torch {printable(bench.torch_version)} of "
        f"{printable(bench.python)}, {threads}, wait policy {printable(bench.wait_policy)}"
    )


def _doubts(measured: Sequence[Ceiling], bench: BenchProcess) -> list[Block]:
    """Name the provisional ceilings, with what was seen of others; say so if that is not known."""
    if all(one.others_cores is None for one in measured):
        return labeled(("note", "this system does not tell whether others kept the cores busy"))
    doubted = [one for one in measured if one.is_provisional]
    if not doubted:
        return []
    by_reason: dict[str, list[str]] = {}
    for one in doubted:
        by_reason.setdefault(describe_doubts(one.state.doubts), []).append(_name(one))
    told = "; ".join(f"{', '.join(names)} ({why})" for why, names in by_reason.items())
    text = (
        f"provisional: {told}. Their intervals reach up to the fastest repetition, and nothing is "
        f"judged by them: the machine may reach more.{_others(doubted, bench)} {AGAIN}"
    )
    return [Labeled("not firm", text, style="yellow")]


def _others(doubted: Sequence[Ceiling], bench: BenchProcess) -> str:
    """Say how many cores others kept busy, if that is a reason."""
    busy = [one.others_cores or 0.0 for one in doubted if "others_busy" in one.state.doubts]
    if not busy:
        return ""
    return (
        f" Others kept up to {format_count(round(max(busy), 1))} of {bench.num_cores} cores busy."
    )


def _reason(one: Ceiling) -> str:
    """Say why there is no figure."""
    detail = f" ({printable(one.detail)})" if one.detail else ""
    return describe_reason(one.missing or "not_told") + detail


# -- while it runs


def live_told(device: str | None, name: str | None, *, left_s: float) -> str:
    """Return the live line: what is being measured, and how much time is left."""
    left = f"{format_seconds(round(left_s))} left"
    if name is None:
        return f"measuring · {left}"
    where = "" if device in (None, "cpu", "disk", "ranks") else f" on {device}"
    return f"measuring {name}{where} · {left}"


def describe_told(one: Ceiling) -> str:
    """Return one line about what was just measured."""
    if one.rate is None:
        return f"{_name(one)}: not measured, {describe_reason(one.missing or 'not_told')}"
    return f"{_name(one)}: {format_rate(one.rate.estimate, one.unit)}"
