"""Divides the window's time on the host: operators by class and by name, Python, gaps.

In: a `Trace`. Out: a `HostProfile`, and the class of each operator. An operator's own time is its
time outside the operators that it calls. Where threads work at once, an instant counts for the
thread that trains.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from steptime.measure.profile.operator_classes import OTHER, WHOLE, class_of_operator
from steptime.measure.profile.profile_trace import Op, PythonCall, Trace
from steptime.measure.profile.time_layers import (
    Piece,
    Span,
    layered,
    length,
    merged,
    outside,
    without,
)
from steptime.measure.values.model.profiled import (
    CLASSES,
    ClassTime,
    Gap,
    HostProfile,
    OperatorTime,
    ThreadTime,
)

NS = 1e-9

MAX_OPERATORS, MAX_GAPS = 30, 5
"""The profile lists the operators with the most time; the trace has the rest."""

_LOADER = "enumerate(DataLoader)#"

IsUsers = Callable[[str], bool]
"""A test whether a file, as a trace names it, is the user's."""


@dataclass(slots=True)
class _Thread:
    """The operators of a thread, the class of each, and their own time in pieces."""

    number: int
    ops: Sequence[Op]
    kinds: list[str | None]
    pieces: list[Piece] = field(default_factory=list)
    top: list[Op] = field(default_factory=list)
    loader: list[Span] = field(default_factory=list)
    num_inside: int = 0

    @property
    def is_communication(self) -> bool:
        """Return whether the thread does nothing but exchange data."""
        return all(self.kinds[what] == "communication" for _, _, what in self.pieces)


def fold_host(trace: Trace, *, is_users: IsUsers) -> tuple[HostProfile, dict[int, tuple[str, str]]]:
    """Return the host's profile, and the class and name of operators by their number."""
    threads = [_walk(number, ops, trace) for number, ops in trace.threads.items()]
    threads.sort(key=lambda one: (one.number != trace.training_thread, one.is_communication))
    rows, offsets = _number_rows(threads)
    pieces = layered(
        [(start, end, what + offset) for start, end, what in one.pieces]
        for one, offset in zip(threads, offsets, strict=True)
    )
    window = trace.end - trace.start
    busy = merged((start, end) for start, end, _ in pieces)
    gaps = list(outside(busy, trace.start, trace.end))
    loader = merged(span for one in threads for span in one.loader)
    waiting = sum(end - start for start, end, _ in without([(*s, 0) for s in loader], busy))
    tops = sorted(top for one in threads for top in one.top)
    inside = [(max(start, trace.start), min(end, trace.end)) for start, end in trace.syncs]
    host = HostProfile(
        window_s=window * NS,
        python_s=length(gaps) * NS,
        loader_s=waiting * NS,
        sync_s=length(merged(inside)) * NS,
        num_gaps=len(gaps),
        median_gap_s=median(end - start for start, end in gaps) * NS if gaps else None,
        longest_gaps=_longest(gaps, tops),
        num_operators=sum(one.num_inside for one in threads),
        classes=sum_classes([(s, e, rows[w][1]) for s, e, w in pieces], _count(threads), window),
        operators=_sum_operators(threads, trace, is_users),
        threads=tuple(_describe(one, trace) for one in threads if one.pieces),
    )
    return host, {op.number: (kind, op.name) for op, kind in rows if op.number >= 0}


def sum_classes(
    pieces: Sequence[tuple[int, int, str]], numbers: Counter[str], window: int
) -> tuple[ClassTime, ...]:
    """Return the time of each class that has any, the most first; pieces do not overlap."""
    sums = dict.fromkeys(CLASSES, 0)
    for start, end, kind in pieces:
        sums[kind] += end - start
    found = [
        ClassTime(
            name=kind,
            time_s=ns * NS,
            fraction=ns / window if window else 0.0,
            num=numbers[kind],
        )
        for kind, ns in sums.items()
        if ns or numbers[kind]
    ]
    return tuple(sorted(found, key=lambda one: -one.time_s))


def _walk(number: int, ops: Sequence[Op], trace: Trace) -> _Thread:
    """Follow calls and returns, cut at the window's ends."""
    thread = _Thread(number=number, ops=ops, kinds=[None] * len(ops))
    stack: list[int] = []
    ends: list[int] = []
    cursor = trace.start

    def emit(what: int, end: int) -> None:
        nonlocal cursor
        op, begin, cursor = ops[what], cursor, max(cursor, end)
        if end <= begin:
            return
        if not op.is_range or thread.kinds[what] == "communication":
            thread.pieces.append((begin, end, what))

    for index, op in enumerate(ops):
        start = min(max(op.start, trace.start), trace.end)
        while stack and ends[-1] <= start:
            emit(stack.pop(), ends.pop())
        if stack:
            emit(stack[-1], start)
        cursor = start
        parent = stack[-1] if stack else None
        end = min(op.end, ends[-1] if ends else trace.end)
        thread.kinds[index] = _kind(op, None if parent is None else thread.kinds[parent])
        if op.name.startswith(_LOADER):
            thread.loader.append((start, end))
        if not op.is_range:
            thread.num_inside += 1
            if parent is None or all(ops[each].is_range for each in stack):
                thread.top.append(op)
        stack.append(index)
        ends.append(end)
    while stack:
        emit(stack.pop(), ends.pop())
    return thread


def _kind(op: Op, around: str | None) -> str | None:
    """Return an operator's class by its name, unless the operator around it claims its parts."""
    if around in WHOLE:
        return around
    return class_of_operator(op.name) or around


def _number_rows(threads: Sequence[_Thread]) -> tuple[list[tuple[Op, str]], list[int]]:
    """Return all operators in one list, and where each thread's operators begin in it."""
    rows: list[tuple[Op, str]] = []
    offsets = []
    for one in threads:
        offsets.append(len(rows))
        rows += [(op, kind or OTHER) for op, kind in zip(one.ops, one.kinds, strict=True)]
    return rows, offsets


def _count(threads: Sequence[_Thread]) -> Counter[str]:
    """Return the number of operators by class, for those with time of their own."""
    counts: Counter[str] = Counter()
    for one in threads:
        counts.update(one.kinds[what] or OTHER for what in {piece[2] for piece in one.pieces})
    return counts


def _longest(gaps: Sequence[Span], tops: Sequence[Op]) -> tuple[Gap, ...]:
    """Return the longest gaps, with the operators around them."""
    starts, by_end = [op.start for op in tops], sorted(tops, key=lambda op: op.end)
    ends = [op.end for op in by_end]
    found = []
    for start, end in sorted(gaps, key=lambda gap: gap[0] - gap[1])[:MAX_GAPS]:
        before, after = bisect_right(ends, start), bisect_left(starts, end)
        found.append(
            Gap(
                time_s=(end - start) * NS,
                after=by_end[before - 1].name if before else "",
                before=tops[after].name if after < len(tops) else "",
            )
        )
    return tuple(found)


def _sum_operators(
    threads: Sequence[_Thread], trace: Trace, is_users: IsUsers
) -> tuple[OperatorTime, ...]:
    """Return the own time and the number of operators by name and class."""
    times: Counter[tuple[str, str]] = Counter()
    numbers: Counter[tuple[str, str]] = Counter()
    shapes: dict[tuple[str, str], Counter[str]] = {}
    places: dict[tuple[str, str], Counter[str]] = {}
    for one in threads:
        own: Counter[int] = Counter()
        for start, end, what in one.pieces:
            own[what] += end - start
        find = _places(trace.calls.get(one.number, ()), is_users)
        for what, ns in own.items():
            op = one.ops[what]
            key = op.name, one.kinds[what] or OTHER
            times[key] += ns
            numbers[key] += 1
            if op.shapes is not None:
                shapes.setdefault(key, Counter())[op.shapes] += ns
            if (place := find(op.start)) is not None:
                places.setdefault(key, Counter())[place] += ns
    return tuple(
        OperatorTime(
            name=key[0],
            kind=key[1],
            num=numbers[key],
            self_s=ns * NS,
            shapes=_most(shapes.get(key)),
            where=_most(places.get(key)),
        )
        for key, ns in times.most_common(MAX_OPERATORS)
    )


def _most(counted: Counter[str] | None) -> str | None:
    return counted.most_common(1)[0][0] if counted else None


def _places(calls: Sequence[PythonCall], is_users: IsUsers) -> Callable[[int], str | None]:
    """Return what finds the user's innermost function that was running at a time."""
    users = [call for call in calls if is_users(call.name.partition("(")[0])]
    if not users:
        return lambda _: None
    ops = [Op(call.start, call.end, call.name, -1) for call in users]
    step = Op(min(op.start for op in ops), max(op.end for op in ops), "", -1)
    walked = _walk(0, ops, Trace(threads={}, steps=(step,), training_thread=0))
    pieces = sorted(walked.pieces)
    starts = [piece[0] for piece in pieces]

    def find(at: int) -> str | None:
        place = bisect_right(starts, at) - 1
        is_inside = place >= 0 and at < pieces[place][1]
        return users[pieces[place][2]].name if is_inside else None

    return find


def _describe(thread: _Thread, trace: Trace) -> ThreadTime:
    if thread.number == trace.training_thread:
        name = "training"
    elif thread.is_communication:
        name = "communication"
    elif any(op.name.startswith("autograd::engine") for op in thread.ops):
        name = "backward"
    else:
        name = "other"
    busy = sum(end - start for start, end, _ in thread.pieces)
    return ThreadTime(name=name, busy_s=busy * NS, num_operators=thread.num_inside)
