"""Makes the blocks on the steps of a run: how many, how long, how fast, which are excluded."""

from __future__ import annotations

import math
from collections.abc import Iterable

from rich.text import Text

from steptime.core.printable import printable
from steptime.core.process_end import RunState
from steptime.core.units import format_bytes, format_count, format_percent, format_seconds
from steptime.measure.values.measurement import Measurement
from steptime.report.blocks.run.stall_blocks import describe_stall
from steptime.report.blocks.values import Block, Labeled, Tile, Tiles
from steptime.report.document.run_document import RunDocument, Throughput
from steptime.report.words.run import step_words
from steptime.report.words.run.answer_words import describe_asked

_MAX_ASKED = 3


def step_time_blocks(m: Measurement, *, is_brief: bool = False) -> list[Block]:
    """Say how long a step takes, with its interval."""
    if m.steady is None or m.steady.step_time_s is None:
        return []
    time, cpu = m.steady.step_time_s, m.steady.step_cpu_s
    # The CPU time of steps that were only timed is known of all together.
    of_mean = " in a mean step" if any(n.code == "watched_in_bursts" for n in m.notes) else ""
    line = Text.assemble(
        (format_seconds(time.estimate), "bold"),
        f"  {step_words.describe_median(time)}",
        "" if cpu is None or is_brief else f" · CPU {format_seconds(cpu.estimate)}{of_mean}",
    )
    return [Labeled("step time", line)]


def throughput_blocks(found: Throughput | None) -> list[Block]:
    """Say how many tokens, images or samples per second the steps train on, where it is known."""
    if found is None:
        return []
    rate, interval = step_words.describe_throughput(found)
    return [Labeled("throughput", Text.assemble((rate, "bold"), f"  {interval}"))]


def count_blocks(m: Measurement, *, is_brief: bool = False) -> list[Block]:
    """Say how many steps there are, which of them are excluded, and how they differ."""
    if m.num_steps == 0:
        return [Labeled("steps", "none was seen", style="bold")]
    number, on_ranks = step_words.describe_ranks(m)
    details = " · ".join(_details(m, is_brief=is_brief))
    line = Text.assemble((number, "bold"), on_ranks, f"; {details}" if details else "")
    return [Labeled("steps", line)]


def _details(m: Measurement, *, is_brief: bool) -> Iterable[str]:
    if m.steady is not None:
        yield step_words.describe_counted(m.steady, m.num_steps, is_brief=is_brief)
        if is_brief:
            return
    if m.num_optimizer_updates != m.num_steps:
        yield f"{m.num_optimizer_updates:,} optimizer updates"
    if m.num_backwards != m.num_optimizer_updates:
        yield f"{m.num_backwards:,} backward passes"
    if m.num_skipped_updates:
        yield f"{m.num_skipped_updates:,} updates skipped by the gradient scaler"
    if m.period is not None and m.period > 1:
        yield f"kinds of step repeat every {m.period}"


def loop_blocks(m: Measurement, *, limit: int | None = None) -> list[Block]:
    """Say what each of several loops in one process does; the report is about one of them."""
    lines: list[Block] = []
    for loop in m.loops[:limit]:
        told = " (this report)" if loop.is_shown else ""
        text = f"{loop.number}{told}: {step_words.describe_loop(loop)}"
        lines.append(Labeled("" if lines else "loops", printable(text)))
    return lines + more_blocks("loops", len(m.loops) - len(lines))


def per_step_blocks(m: Measurement) -> list[Block]:
    """Say how often a mean step does what is counted, and what the watching costs."""
    lines: list[Block] = []
    if text := step_words.describe_counts(m):
        lines.append(Labeled("per step", text))
    if m.overhead is not None:
        cost = f"Steptime itself took {format_seconds(m.overhead.cpu_s_per_step)} of CPU per step"
        share = m.overhead.fraction
        cost += "" if share is None else f" ({format_percent(share)} of the step's)"
        lines.append(Labeled("overhead", cost))
    return lines


def stall_blocks(m: Measurement) -> list[Block]:
    """Say where each rank was in the worst stall; the end of a finished run is not a stall."""
    has_finished = m.end.state is RunState.FINISHED
    stalls = [s for s in m.stalls if s.duration_s is not None or not has_finished]
    if not stalls:
        return []
    worst = max(stalls, key=lambda one: one.duration_s or math.inf)
    texts = [*describe_stall(worst)]
    if len(stalls) > 1:
        texts.append(f"more stalls: {len(stalls) - 1}")
    styles = ["yellow"] + [""] * len(texts)
    return [
        Labeled("" if i else "stalled", printable(text), style=styles[i])
        for i, text in enumerate(texts)
    ]


def asked_blocks(m: Measurement) -> list[Block]:
    """Name the steps that do not count because `steptime attach` looked at them."""
    parts = list(map(describe_asked, m.asked[:_MAX_ASKED]))
    if len(m.asked) > len(parts):
        parts.append(f"and {len(m.asked) - len(parts):,} more")
    text = f"{', '.join(parts)}; these steps are in no figure"
    return [Labeled("asked", text)] if parts else []


def more_blocks(what: str, count: int) -> list[Block]:
    """Say how many more there are in the document."""
    text = f"more {what} in the document of --json: {count}"
    return [Labeled("", text, style="dim")] if count > 0 else []


def tiles(run: RunDocument, *, energy_j: float | None = None) -> list[Block]:
    """Return the few numbers that people look for first; `energy_j` is the energy of a step [J]."""
    m, found = run.measurement, list[Tile]()
    if m.steady is not None and m.steady.step_time_s is not None:
        time = m.steady.step_time_s
        reach = f"{format_seconds(time.low)} to {format_seconds(time.high)}"
        found.append(Tile("step time", format_seconds(time.estimate), reach))
    if run.throughput is not None:
        rate = step_words.describe_throughput(run.throughput)[0]
        number, _, unit = rate.rpartition(" ")
        found.append(Tile("throughput", number, unit))
    counted = "" if m.steady is None else f"{m.steady.num_steps:,} counted"
    found.append(Tile("steps", format_count(m.num_steps), counted))
    if m.num_ranks > 1:
        found.append(Tile("ranks", format_count(m.num_ranks)))
    waits = next((p for p in m.phases if p.name == "input_wait" and p.fraction is not None), None)
    if waits is not None:
        found.append(Tile("input wait", format_percent(waits.fraction or 0.0), "of a step"))
    if m.host is not None:
        detail = f"of {m.host.num_cores} cores; others {format_count(m.host.others_cores)}"
        found.append(Tile("kept busy", format_count(m.host.job_cores), detail))
    peak = max((r.host_memory.peak_bytes for r in m.ranks if r.host_memory), default=None)
    if peak is not None:
        found.append(Tile("peak RSS", format_bytes(peak), "of one rank"))
    if energy_j is not None:
        found.append(Tile("energy", f"{energy_j:.3g} J", "of the devices, per step"))
    return [Tiles(found)]
