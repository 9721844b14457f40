"""Shows the waterfall of a step and the roofline of its operators, as lines and words.

In: a `Waterfall` and a `Roofline`. Out: blocks, and the words that page
and plots share. Each part is always shown with its arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from rich.text import Text

from steptime.core.printable import printable
from steptime.core.units import (
    format_flops,
    format_percent,
    format_rate,
    format_seconds,
    format_speedup,
    format_value,
)
from steptime.diagnose.values.reach_values import (
    Exceeded,
    Roofline,
    RooflinePoint,
    Roofs,
    Term,
    Waterfall,
    WaterfallPart,
)
from steptime.report.blocks.colors import color_of
from steptime.report.blocks.phrasing import joined
from steptime.report.blocks.values import (
    Bar,
    Blank,
    Block,
    Cell,
    CommandLine,
    Curve,
    Labeled,
    LinePlot,
    TableBlock,
)
from steptime.report.blocks.work.work_blocks import REASONS
from steptime.report.words.machine.machine_words import AGAIN, describe_doubts
from steptime.report.words.run.run_words import describe_phase
from steptime.report.words.run.show_words import show_command

PARTS: Mapping[str, str] = {
    "arithmetic": "arithmetic",
    "ceiling": "below the peak",
    "precision": "precision not used",
    "threads": "threads not used",
    "recomputation": "recomputation",
    "shape": "matmul shapes",
    "bandwidth": "memory bandwidth",
    "slow_operators": "slow operators",
    "device_operators": "slow operators",
    "launch": "launching, Python",
    "loss": "loss",
    "input": "input wait",
    "process_wait": "process wait",
    "rollout": "rollout",
    "preprocessing": "preparing batches",
    "copies": "copies to device",
    "communication": "communication",
    "sync": "sync stalls",
    "gradient_processing": "gradient processing",
    "optimizer": "optimizer",
    "script": "the script's code",
    "contention": "other programs",
    "unexplained": "unexplained",
}

# Why there is no picture, beside the reasons why nothing is counted.
MISSING: Mapping[str, str] = {
    **REASONS,
    "no_ceilings": "what this machine reaches has not been measured",
    "no_ceilings_of_device": "no ceiling of the device that the run trained on was measured",
    "no_operator_times": "the operators were counted without their times",
    "no_device_times": "the device's own times were not seen",
    "no_roof": "no ceiling of its type was measured",
    "no_bytes_moved": "its operators move nothing",
    "operators_by_cpu_time": "operators were timed by the CPU time of one of several threads, and "
    "phases by wall time, which do not compare; a new run times both alike",
}

LACKING: Mapping[str, str] = {
    "ceiling_memory": "a measured bandwidth of memory",
    "host_load": "the load of the machine",
    "waits_off_core": "what the process waited for while it was off its core",
    "complete_count": "a whole count: there is more arithmetic than was counted",
    "true_ceilings": "ceilings measured on a quiet machine: operators beat them",
    "firm_ceilings": "ceilings that are firm",
    "quiet_machine": "a quiet machine: others kept it full during the run",
}

_SMALLEST, _LARGEST = 10.0, 46.0  # diameters of marks [pixels]
_MARGIN = 3.0  # the axes extend this many times beyond what is drawn

_MIN_SHOWN = 0.02
"""The fraction of a step that a part needs to appear in the one line of the ordinary report."""


def describe_part(name: str) -> str:
    """Return the name of a part for people."""
    return PARTS.get(name, name.replace("_", " "))


def describe_missing(word: str) -> str:
    """Say why there is no picture."""
    return MISSING.get(word, word.replace("_", " "))


def format_intensity(flop_a_byte: float) -> str:
    """Return an arithmetic intensity, such as `0.0814`, `42.2` or `80,000`."""
    return f"{flop_a_byte:.3g}" if flop_a_byte < 999.5 else f"{flop_a_byte:,.0f}"


def describe_exceeded(found: Exceeded) -> str:
    """Say that a class of operators beat a roof, and why; the caller adds a command."""
    fact = f"{found.name} ran at {format_speedup(found.ratio)} the {found.roof} roof"
    why = "It was measured on a busy machine, or its data came from a cache"
    if found.roof == "memory":
        why = "No cache holds what these operators move, so it was measured on a busy machine"
    if found.roof == "compute":
        why = (
            "It is that of matmul: measured on a busy machine, or these kernels do better "
            "or need less than is counted (Winograd)"
        )
    return f"{fact}: the roof is too low. {why}. To measure again"


def describe_doubt(waterfall: Waterfall) -> str:
    """Say why the picture is inconclusive, as a sentence."""
    if waterfall.provisional and not waterfall.exceeded:
        return "the roofs behind it are provisional, so no verdict rests on it."
    if waterfall.lacking == ("quiet_machine",):
        return "several threads computed beside other programs, so its times are partly theirs."
    return "more than 10 % of the step is unexplained, or beats its roof."


def describe_lacking(word: str) -> str:
    """Name a signal that would have explained more."""
    if word.startswith("ceiling_") and word not in LACKING:
        return f"a measured ceiling of {word.removeprefix('ceiling_')}"
    return LACKING.get(word, word.replace("_", " "))


def describe_arithmetic(part: WaterfallPart) -> str:
    """Return text such as `work ÷ ceiling: work 330 MFLOP, ceiling bf16 210 GFLOPS`."""
    terms = ", ".join(f"{term.name.replace('_', ' ')} {_value(term)}" for term in part.terms)
    text = f"{part.formula}: {terms}" if terms else part.formula
    classes = ", ".join(f"{n} {format_seconds(s)}" for n, s in list(part.classes.items())[:3])
    return printable(f"{text} ({classes})" if classes else text)


def _value(term: Term) -> str:
    if term.unit.endswith("_per_s"):
        return format_rate(term.value, term.unit)
    return format_flops(term.value) if term.unit == "flops" else format_value(term.value, term.unit)


def describe_step(waterfall: Waterfall) -> str:
    """Name the step and the one clock of all parts, with what that clock does not show."""
    step = format_seconds(waterfall.step_time_s or 0.0)
    if waterfall.clock != "cpu":
        return f"a step of {step}, all parts in wall time"
    waits = ", ".join(
        f"{describe_phase(name)} {format_seconds(s)}" for name, s in waterfall.waits.items()
    )
    wall = "" if waterfall.wall_s is None else f" ({format_seconds(waterfall.wall_s)} of wall time)"
    without = f"; not in it, for waiting takes no CPU time: {waits}" if waits else ""
    return (
        f"a step of {step}, all parts in CPU time{wall}, because other programs kept the machine "
        f"full{without}"
    )


def describe_gain(part: WaterfallPart) -> str:
    """Say between which times removing the cause would shorten the step; empty if not known."""
    gain = part.gain
    if gain is None:
        return ""
    low, high = gain.low_s, gain.high_s
    if high <= 0:
        return "removed, the step would not become shorter"
    least = format_seconds(low) if low > 0 else "nothing"
    return f"removed, the step would become shorter by {least} to {format_seconds(high)}"


def describe_provisional(names: Iterable[str], roofs: Roofs | None) -> str:
    """Name provisional roofs with their doubts: `memory (measured while other programs ran)`."""
    told = []
    for name in names:
        doubts = () if roofs is None else roofs.doubts.get(name, ())
        told.append(f"{name} ({describe_doubts(doubts or ('exceeded',))})")
    return ", ".join(told)


def describe_start(waterfall: Waterfall) -> str:
    """Say what the picture begins with."""
    dtype = printable(waterfall.dtype or "")
    if waterfall.begins_at == "datasheet":
        return f"the datasheet's dense peak in {dtype}"
    if waterfall.begins_at == "given":
        return f"the peak in {dtype} that you gave (--peak)"
    return f"the measured ceiling of matmul in {dtype}, because no datasheet's peak is known"


# -- blocks


def roof_blocks(
    waterfall: Waterfall | None, *, run_id: str, store: str | None = None
) -> list[Block]:
    """Return the one line of an ordinary report: the largest parts, or how to get the picture."""
    if waterfall is None:
        return []
    how = show_command(run_id, option="--waterfall", store=store)
    if waterfall.missing in _UNMEASURED:
        text = "not known: `steptime machine` measures what this machine reaches; then "
        return [CommandLine(how, "roof", Text(text, style="dim"))]
    if waterfall.missing is not None or not waterfall.step_time_s:
        return []
    large = sorted(waterfall.parts, key=lambda part: -part.time_s)
    named = [
        f"{describe_part(part.name)} {format_percent(part.time_s / waterfall.step_time_s)}"
        for part in large
        if part.time_s >= _MIN_SHOWN * waterfall.step_time_s
    ]
    head = "" if waterfall.is_conclusive else "INCONCLUSIVE: "
    if waterfall.provisional:
        head = f"INCONCLUSIVE, ceilings are provisional ({', '.join(waterfall.provisional)}): "
    if waterfall.clock == "cpu":
        head += "of CPU time, "
    return [CommandLine(how, "roof", printable(head) + joined([*named[:5], ""]))]


def waterfall_blocks(waterfall: Waterfall, roofs: Roofs | None) -> list[Block]:
    """Return the whole picture: each part with its arithmetic."""
    step_s = waterfall.step_time_s
    if waterfall.missing is not None or not step_s:
        reason = describe_missing(waterfall.missing or "no_steady_steps")
        act = CommandLine("steptime machine", lead="measure it:")
        is_open = waterfall.missing in _UNMEASURED
        return [Labeled("waterfall", f"not drawn: {reason}"), *([act] if is_open else [])]
    rows, notes, begun_s = list[list[Cell]](), list[str](), 0.0
    for part in waterfall.parts:
        color = color_of(part.name)
        tone = "yellow" if part.name == "unexplained" else "cyan"
        bar = Bar([(color, part.time_s / step_s)], begun_s / step_s, tone)
        name = Text(describe_part(part.name), style="bold")
        rows.append([name, bar, format_seconds(part.time_s), format_percent(part.time_s / step_s)])
        notes.append(" · ".join(filter(None, (describe_arithmetic(part), describe_gain(part)))))
        begun_s += part.time_s
    heading = ["part", "", "time", "share"]
    return [
        Labeled("waterfall", f"{describe_step(waterfall)}; from {describe_start(waterfall)}"),
        Blank(),
        TableBlock(heading, rows, 2, "Waterfall of a step", "waterfall", notes=notes),
        Blank(),
        *_verdict(waterfall, roofs),
    ]


_UNMEASURED = ("no_ceilings", "no_ceilings_of_device")


def _verdict(waterfall: Waterfall, roofs: Roofs | None) -> list[Block]:
    """Say whether the picture can be believed, and what speaks against it."""
    lines: list[Block] = []
    if waterfall.provisional:
        text = f"provisional: {describe_provisional(waterfall.provisional, roofs)}. {AGAIN}"
        lines.append(Labeled("not firm", printable(text), style="yellow"))
    for one in waterfall.exceeded[:3]:
        text = f"{describe_exceeded(one)}: steptime machine --fresh"
        lines.append(Labeled("exceeded", printable(text), style="yellow"))
    if not waterfall.is_conclusive:
        named = ", ".join(describe_lacking(word) for word in waterfall.lacking)
        text = f"INCONCLUSIVE: {describe_doubt(waterfall)}"
        lines.append(Labeled("verdict", text + (f" Lacking: {named}." if named else "")))
    return lines


def roofline_blocks(roofline: Roofline) -> list[Block]:
    """Return each class of operators under the roofs."""
    if not roofline.points:
        reason = describe_missing(roofline.missing or "not_counted")
        return [Labeled("roofline", f"not drawn: {reason}")]
    heading = ("class", "roof", "time", "share", "FLOP/byte", "reached", "of it")
    rows = [_point_cells(point) for point in roofline.points]
    return [
        Labeled("roofline", describe_roofs(roofline)),
        TableBlock(heading, rows, left=2, name="Operators under the roofs"),
    ]


def describe_roofs(roofline: Roofline) -> str:
    """Give the rates of the roofs, and what to know about them."""
    roofs = roofline.roofs
    if roofs is None:
        return f"without roofs: {describe_missing(roofline.missing or 'no_ceilings')}"
    parts = [
        f"{name} {format_rate(rate, 'flops_per_s')}" for name, rate in roofs.run_flops_per_s.items()
    ]
    if roofs.bytes_per_s is not None:
        parts.append(f"memory {format_rate(roofs.bytes_per_s, 'bytes_per_s')}")
    if roofs.run_threads is not None and roofs.num_threads is not None:
        parts.append(f"{roofs.run_threads} of {roofs.num_threads} threads")
    if doubted := [name for name in (*roofs.run_flops_per_s, "memory") if name in roofs.doubts]:
        parts.append(f"provisional: {describe_provisional(doubted, roofs)}")
    return printable(" · ".join(parts))


def _point_cells(point: RooflinePoint) -> tuple[str, ...]:
    return (
        point.name,
        point.roof or "–",
        "–" if point.time_s is None else format_seconds(point.time_s),
        "–" if point.fraction is None else format_percent(point.fraction),
        "–" if point.intensity is None else format_intensity(point.intensity),
        describe_reached(point),
        "–" if point.position is None else format_percent(point.position),
    )


def describe_reached(point: RooflinePoint) -> str:
    """Return the rate against the binding roof: bytes under that of memory, else arithmetic."""
    if point.roof == "compute" and point.flops_per_s is not None:
        return format_rate(point.flops_per_s, "flops_per_s")
    if point.bytes_per_s is not None:
        return format_rate(point.bytes_per_s, "bytes_per_s")
    return "–"


def roofline_plot(roofline: Roofline) -> list[Block]:
    """Draw rates over intensity, both logarithmic; a mark's area is its share of the time.

    A line for memory ends at the highest ceiling; provisional ones are dashed. A class without
    arithmetic has no place; without roofs, or a class that was timed, nothing is drawn.
    """
    roofs = roofline.roofs
    timed = [one for one in roofline.points if one.flops_per_s and one.intensity]
    if roofs is None or not timed:
        return []
    reached = [one.flops_per_s or 1.0 for one in timed]
    top, used = max(roofs.run_flops_per_s.values()), {one.dtype for one in timed}
    rates = {n: r for n, r in roofs.run_flops_per_s.items() if n in used or r == top}
    ridge = [top / roofs.bytes_per_s] if roofs.bytes_per_s else []
    xs = [*(one.intensity or 1.0 for one in timed), *ridge]
    low, high = min(xs) / _MARGIN, max(xs) * _MARGIN
    ends = (min(reached) / _MARGIN, max(top, *reached) * _MARGIN)
    curves = []
    if roofs.bytes_per_s:
        begin, rate = max(low, ends[0] / roofs.bytes_per_s), roofs.bytes_per_s
        line = [(begin, begin * rate), (ridge[0], top)]
        curves.append(_roof("memory", format_rate(rate, "bytes_per_s"), line, roofs))
    for name, rate in sorted(rates.items(), key=lambda item: -item[1]):
        line = [(rate / roofs.bytes_per_s if roofs.bytes_per_s else low, rate), (high, rate)]
        curves.append(_roof(name, format_rate(rate, "flops_per_s"), line, roofs))
    curves += [_circle(one) for one in timed]
    without = [one.name for one in roofline.points if one.time_s and not one.intensity]
    plot = LinePlot(
        "Roofline",
        curves,
        x_name="arithmetic intensity [FLOP per byte]",
        y_unit="flops_per_s",
        note=f"Without a place, for they compute nothing: {', '.join(without)}." if without else "",
        y_range=ends,
        x_range=(low, high),
        is_log=True,
        is_log_x=True,
    )
    return [plot]


def _roof(name: str, rate: str, line: list[tuple[float, float]], roofs: Roofs) -> Curve:
    is_doubted = name in roofs.doubts
    told = f"{name} {rate}{' (provisional)' if is_doubted else ''}"
    color = color_of(name)
    return Curve(told, line, color=color, is_dashed=is_doubted, width=2)


def _circle(one: RooflinePoint) -> Curve:
    """Return the mark of a class of operators, with its time, rate and headroom."""
    share = "" if one.fraction is None else f" ({format_percent(one.fraction)} of operators)"
    told = [
        f"{one.name}: {format_seconds(one.time_s or 0.0)} per step{share}",
        describe_reached(one),
        "" if one.position is None else f"{format_percent(one.position)} of {one.roof}'s roof",
        describe_headroom(one),
    ]
    return Curve(
        one.name,
        [(one.intensity or 1.0, one.flops_per_s)],
        color=color_of(one.name),
        has_line=False,
        has_marks=True,
        mark_size=max(_SMALLEST, _LARGEST * math.sqrt(one.fraction or 0.0)),
        tips=[", ".join(filter(None, told))],
    )


def describe_headroom(point: RooflinePoint) -> str:
    """Say how much of a step would be saved by reaching the roof."""
    if point.headroom_s is None:
        return describe_missing(point.missing or "no_roof")
    return f"{format_seconds(point.headroom_s)} less per step at the roof"
