"""The part of the page on what the watch saw: times the run stood still, and lasting changes.

In: Stalls and Shifts. Out: markup, with the stacks of every rank folded away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steptime.core.stall import Shift, Stall, StalledRank, ThreadStack
from steptime.core.units import format_count, format_seconds, format_speedup
from steptime.report.html_tags import Html, joined_html, table, tag
from steptime.report.words import describe_phase

WAITS: Mapping[str, str] = {
    "collective": "in an exchange between ranks",
    "input": "for data",
    "lock": "for a lock",
    "disk": "for a disk",
    "sleep": "asleep",
    "compute": "computing",
}

CAUSES: Mapping[str, str] = {
    "neighbor": "other processes of the machine took more of its cores",
    "cpu_clock": "the cores' clock changed",
    "device_clock": "the device's clock changed",
    "throttle": "the device was held down",
    "page_cache": "the page cache shrank",
    "memory": "the run's memory changed",
    "swap": "memory was read back from swap",
    "disk": "the run read more from a disk",
    "input_size": "the batches changed their size",
}


def stalls_part(stalls: Sequence[Stall], *, started_unix_s: float) -> Html | None:
    """Each time the run stood still: for how long, who waited for whom, and the stacks."""
    if not stalls:
        return None
    return joined_html([_stall(stall, started_unix_s) for stall in stalls])


def _stall(stall: Stall, started_unix_s: float) -> Html:
    at = format_seconds(max(0.0, stall.began_unix_s - started_unix_s))
    ended = (
        "and the run never went on"
        if stall.duration_s is None
        else f"for {format_seconds(stall.duration_s)}"
    )
    text = f"{at} into the run no step came {ended}; a step takes {_usual(stall)}."
    heading = ["rank", "steps", "waits", "at"]
    rows = [
        [
            "?" if rank.rank is None else str(rank.rank),
            format_count(rank.num_steps),
            _waits(rank, stall),
            tag("code", rank.where) if rank.where else "",
        ]
        for rank in stall.ranks
    ]
    return tag(
        "div",
        tag("p", tag("b", _culprits(stall)), " ", text),
        table(heading, rows, left=4, name="Ranks that stood still"),
        *[_stacks(rank) for rank in stall.ranks if rank.stacks],
        class_="card warning",
    )


def _usual(stall: Stall) -> str:
    return format_seconds(stall.usual_step_s)


def _culprits(stall: Stall) -> str:
    if not stall.culprits:
        return "The run stood still."
    late = ", ".join(map(str, stall.culprits))
    return f"The others waited for rank {late}."


def _waits(rank: StalledRank, stall: Stall) -> str:
    words = "not known" if rank.waits_in is None else WAITS.get(rank.waits_in, rank.waits_in)
    return f"{words} (the others wait for it)" if rank.rank in stall.culprits else words


def _stacks(rank: StalledRank) -> Html:
    who = "a process" if rank.rank is None else f"rank {rank.rank}"
    parts = [_stack(stack) for stack in rank.stacks]
    title = tag("summary", f"Stacks of {who} (process {rank.pid})")
    return tag("details", title, *parts)


def _stack(stack: ThreadStack) -> Html:
    title = tag("p", f"thread {stack.thread}" + (", the main one" if stack.is_main else ""))
    if stack.missing is not None:
        return joined_html([title, tag("p", f"no stack: {stack.missing}", class_="dim")])
    lines = [f"{f.function}  {f.file}:{f.line}" for f in stack.frames]
    return joined_html([title, tag("pre", joined_html(lines, between="\n"))])


def shifts_part(shifts: Sequence[Shift]) -> Html | None:
    """Each lasting change of the step time, and what changed with it."""
    if not shifts:
        return None
    heading = ["from step", "rank", "what changed with it", "before", "after", "ratio (interval)"]
    rows = [
        [
            format_count(shift.index),
            str(shift.rank),
            "; ".join(map(describe_shift_cause, shift.causes)) or "nothing that was observed",
            format_seconds(shift.before_s),
            format_seconds(shift.after_s),
            f"{format_speedup(shift.ratio)} ({shift.low:.2f} to {shift.high:.2f})",
        ]
        for shift in shifts
    ]
    return table(heading, rows, left=3, name="Lasting changes of the step time")


def describe_shift_cause(word: str) -> str:
    """What a machine word for the cause of a shift means."""
    if word.startswith("phase:"):
        return f"{describe_phase(word.removeprefix('phase:'))} took longer"
    return CAUSES.get(word, word)
