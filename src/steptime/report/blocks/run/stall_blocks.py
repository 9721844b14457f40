"""Describes a stall in the terminal report: how long it was, and what each rank waited in.

In: a stall. Out: sentences. Ranks that wait alike share one; the document has the whole stacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steptime.core.units import format_count, format_seconds, format_speedup
from steptime.diagnose.ailments.ranks.desynced import describe_desync
from steptime.diagnose.values.finding import Shift
from steptime.measure.values.stall import Stall, StalledRank
from steptime.report.blocks.values import Block, Code, Fold, Heading, Headline, Items, TableBlock
from steptime.report.words.run.run_words import CHANGES, describe_phase

MAX_GROUPS = 4
"""Sentences of a stall; ranks wait at few places, because they run the same code."""

WAITS: Mapping[str, tuple[str, str]] = {
    "collective": ("waits in a collective", "wait in a collective"),
    "input": ("waits for data", "wait for data"),
    "lock": ("waits for a lock, a queue or a process", "wait for a lock, a queue or a process"),
    "disk": ("reads or writes a file", "read or write a file"),
    "sleep": ("sleeps", "sleep"),
    "compute": ("computes", "compute"),
}
"""What one rank does, and what several ranks do."""

_STANDS = ("stands", "stand")


def describe_stall(stall: Stall) -> tuple[str, ...]:
    """Say how long no step came, then where each rank was."""
    num_steps = max((one.num_steps for one in stall.ranks), default=0)
    usual = f"after {num_steps:,} steps of {format_seconds(stall.usual_step_s)}"
    if stall.duration_s is not None:
        first = f"no step for {format_seconds(stall.duration_s)} {usual}; then it went on"
    else:
        waited_s = max(0.0, stall.seen_unix_s - stall.began_unix_s)
        first = f"no step for {format_seconds(waited_s)} {usual} when its stacks were taken"
    lost = () if stall.desync is None else (describe_desync(stall.desync),)
    return (first, *lost, *describe_ranks(stall.ranks, stall.culprits))


def describe_ranks(ranks: Sequence[StalledRank], culprits: Sequence[int] = ()) -> tuple[str, ...]:
    """Return a sentence for all ranks that wait alike: in what they wait, where, and for whom."""
    groups: dict[tuple[object, ...], list[StalledRank]] = {}
    for one in ranks:
        key = (one.training, one.waits_in, one.where, _reason(one), one.rank in culprits)
        groups.setdefault(key, []).append(one)
    found = [_sentence(group, culprits) for group in groups.values()]
    left_out = len(found) - MAX_GROUPS
    return (*found[:MAX_GROUPS], *([f"and {left_out} more"] if left_out > 0 else []))


def _sentence(group: Sequence[StalledRank], culprits: Sequence[int]) -> str:
    one = group[0]
    reason = _reason(one)
    what = WAITS.get(one.waits_in or "", _STANDS)[len(group) > 1]
    where = f" at {one.where}" if one.where else ""
    is_late = one.rank in culprits
    for_whom = f", for {_name(culprits)}" if one.waits_in == "collective" and not is_late else ""
    text = f"{_subject(group)} {what}{where}{for_whom if culprits else ''}"
    return f"{_subject(group)}: no stack: {reason}" if reason else text


def _subject(group: Sequence[StalledRank]) -> str:
    if group[0].rank is None:
        return f"process {', '.join(str(one.pid) for one in group)}"
    name = _name([one.rank for one in group if one.rank is not None])
    training = group[0].training
    return name if training is None else f"training {training}, {name}"


def _name(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {format_ranks(ranks)}"


def format_ranks(ranks: Sequence[int]) -> str:
    """Return numbers in short, such as `0, 2-7`."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def _reason(one: StalledRank) -> str | None:
    """Say why there is no stack of the rank's main thread, if there is none."""
    if any(stack.frames for stack in one.stacks):
        return None
    return next((stack.missing for stack in one.stacks if stack.missing), None)


def stack_lines(one: StalledRank) -> tuple[str, ...]:
    """Return the stacks of a rank as Python shows a traceback, with the innermost call last."""
    lines: list[str] = []
    for stack in one.stacks:
        state = {True: ", active", False: ", idle", None: ""}[stack.is_active]
        lines.append(f"process {stack.pid}, thread {stack.thread or '?'}{state}")
        if stack.missing:
            lines.append(f"  no stack: {stack.missing}")
        lines += [
            f"  {frame.function}  {frame.file}:{frame.line}" for frame in reversed(stack.frames)
        ]
    return tuple(lines)


def stall_page(stalls: Sequence[Stall], *, started_unix_s: float) -> list[Block]:
    """Show each stall: how long it lasted, who waited for whom, and the stacks of every rank."""
    blocks: list[Block] = []
    for stall in stalls:
        first, *ranks = describe_stall(stall)
        at = format_seconds(max(0.0, stall.began_unix_s - started_unix_s))
        end = ", and the run never went on" if stall.duration_s is None else ""
        severity = "critical" if stall.duration_s is None else "warning"
        blocks.append(Headline("stall", f"{at} into the run", f"{first}{end}.", severity))
        blocks += [Items(ranks), *(_stacks(rank) for rank in stall.ranks if rank.stacks)]
    return blocks


def _stacks(rank: StalledRank) -> Block:
    who = "a process" if rank.rank is None else f"rank {rank.rank}"
    title = f"Stacks of {who}, process {rank.pid}, the innermost call last"
    return Fold(title, [Code("\n".join(stack_lines(rank)))])


def shift_table(shifts: Sequence[Shift]) -> list[Block]:
    """Show each lasting change of the step time, and what changed with it."""
    if not shifts:
        return []
    heading = ["from step", "rank", "what changed with it", "before", "after", "ratio (interval)"]
    rows = [
        [
            format_count(shift.index),
            str(shift.rank),
            ", ".join(map(describe_change, shift.causes)) or "no cause was observed",
            format_seconds(shift.before_s),
            format_seconds(shift.after_s),
            f"{format_speedup(shift.ratio.estimate)} ({shift.ratio.low:.2f} to "
            f"{shift.ratio.high:.2f})",
        ]
        for shift in shifts
    ]
    title = "Lasting changes of the step time"
    return [Heading(title), TableBlock(heading, rows, left=3, name=title)]


def describe_change(word: str) -> str:
    """Say what the machine word for the cause of a shift means."""
    if word.startswith("phase:"):
        return f"the time of {describe_phase(word.removeprefix('phase:'))}"
    return CHANGES.get(word, word)
