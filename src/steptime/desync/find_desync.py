"""Says how the ranks of a training lost each other, from what each of them called.

In: the newest calls of each rank, and where its stack is. Out: a `Desync`, or None where nothing
shows that they differ. Calls that cannot meet come first; then ranks that did not come to a call
at which others wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from steptime.desync.kinds_of_difference import find_left_out, kind_of_difference
from steptime.desync.mismatch import Mismatch, choose_right, find_mismatch, groups_of
from steptime.desync.recorded_calls import RankCalls, RankGroup, RecordedCall
from steptime.measure.values.desync import CollectiveCall, Desync

COLLECTIVE, INPUT = "collective", "input"
BACKWARD = "backward"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlace:
    """Where a rank is: what its stack waits in, at which line of the user's, and if it is gone.

    `in_backward` says that it waits inside a backward call, `is_seen` that its stack was taken.
    """

    rank: int
    waits_in: str | None = None
    where: str | None = None
    is_gone: bool = False
    in_backward: bool = False
    is_seen: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wait:
    """A call of a group at which some ranks wait, and the ranks that have not come to it."""

    call: RecordedCall
    waiting: tuple[int, ...]
    absent: tuple[int, ...]


def find_differing_calls(ranks: Sequence[RankCalls]) -> Desync | None:
    """Return the first calls that differ, from the calls alone: the ranks may all be gone."""
    found = find_mismatch(ranks)
    if found is None:
        return None
    by_rank = {one.rank: one for one in ranks}
    expected, called = found.expected, found.called
    model, culprit = by_rank[found.right[0]], by_rank[found.wrong[0]]
    earlier = find_left_out(model, culprit, found.group, expected.number)
    if earlier is not None:
        what, (expected, called) = "missing", earlier
    else:
        what = kind_of_difference(expected, called, model, culprit)
    return _told(what, found.wrong, found.right, culprit, called=called, expected=expected)


def find_desync(ranks: Sequence[RankCalls], places: Sequence[RankPlace]) -> Desync | None:
    """Return how ranks that stand still lost each other.

    Args:
        ranks: their calls, as far as there is a record of them.
        places: where each rank of the training is.
    """
    found = find_differing_calls(ranks)
    if found is not None:
        return found
    at = {place.rank: place for place in places}
    by_rank = {one.rank: one for one in ranks if one.rank in at}
    waits = [w for group in groups_of(ranks) if (w := _wait_in(group, by_rank, at)) is not None]
    return (
        _shifted(waits, by_rank)
        or _outside(waits, by_rank, at)
        or _crossed(waits, by_rank)
        or _beside_record(by_rank, at)
    )


# -- ranks that have not come


def _wait_in(
    group: RankGroup, ranks: Mapping[int, RankCalls], at: Mapping[int, RankPlace]
) -> _Wait | None:
    """Return the earliest call of a group at which ranks wait for others, if there is one."""
    last = {rank: ranks[rank].last_in(group) for rank in group.ranks if rank in ranks}
    waiting = {
        r: call for r, call in last.items() if call is not None and _waits(call, ranks[r], at[r])
    }
    if not waiting:
        return None
    number = min(call.number for call in waiting.values())
    absent = tuple(
        rank
        for rank in group.ranks
        if rank in at and ((call := last.get(rank)) is None or call.number < number)
    )
    ahead = [call for call in waiting.values() if call.number == number]
    who = tuple(rank for rank, call in waiting.items() if call.number == number)
    return _Wait(call=ahead[0], waiting=who, absent=absent) if absent else None


def _waits(call: RecordedCall, rank: RankCalls, place: RankPlace) -> bool:
    """Return whether a rank waits in its newest call of a group."""
    if rank.open_call is not None:
        return call.is_open
    return call.waits_later and place.waits_in == COLLECTIVE


def _shifted(waits: Sequence[_Wait], ranks: Mapping[int, RankCalls]) -> Desync | None:
    """Return a call that a rank left out long before; only the end of the loop showed it."""
    for wait in waits:
        model, group = ranks[wait.waiting[0]], wait.call.group
        for rank in wait.absent:
            last = ranks[rank].last_in(group) if rank in ranks else None
            if last is None:
                continue
            found = find_left_out(model, ranks[rank], group, last.number + 1)
            if found is not None:
                whole, shifted = found
                culprit, others = ranks[rank], wait.waiting
                return _told("missing", (rank,), others, culprit, called=shifted, expected=whole)
    return None


def _outside(
    waits: Sequence[_Wait], ranks: Mapping[int, RankCalls], at: Mapping[int, RankPlace]
) -> Desync | None:
    """Return the ranks that are in no collective while others wait for them."""
    for what in ("left", "data", "python"):
        for wait in waits:
            culprits = [rank for rank in wait.absent if _kind_outside(at[rank], ranks) == what]
            if culprits:
                expected = wait.call.told(
                    max((one.world_size for one in ranks.values()), default=len(at))
                )
                return _away(what, culprits, wait.waiting, expected, ranks, at)
    return None


def _kind_outside(place: RankPlace, ranks: Mapping[int, RankCalls]) -> str | None:
    """Return `left`, `data`, `python` or `unknown`; None for a rank that is in a collective."""
    if place.is_gone:
        return "left"
    own = ranks.get(place.rank)
    is_inside = own is not None and own.open_call is not None
    if is_inside or place.waits_in == COLLECTIVE:
        return None
    if not place.is_seen:
        return "unknown"  # it may reduce gradients, of which there is no record
    return "data" if place.waits_in == INPUT else "python"


def _away(
    what: str,
    culprits: Sequence[int],
    others: Sequence[int],
    expected: CollectiveCall | None,
    ranks: Mapping[int, RankCalls],
    at: Mapping[int, RankPlace],
) -> Desync:
    own = ranks.get(culprits[0])
    last = own.calls[-1].told(own.world_size) if own is not None and own.calls else None
    where = at[culprits[0]].where
    if where is None and what == "left" and last is not None:
        where = last.where
    return Desync(
        what=what,
        culprits=tuple(sorted(culprits)),
        others=tuple(sorted(others)),
        expected=expected,
        last=last,
        where=where,
    )


def _crossed(waits: Sequence[_Wait], ranks: Mapping[int, RankCalls]) -> Desync | None:
    """Return ranks that wait for each other in two groups."""
    for wait in waits:
        elsewhere = {
            rank: call
            for rank in wait.absent
            if rank in ranks and (call := ranks[rank].open_call) is not None
        }
        if not elsewhere:
            continue
        calls = dict.fromkeys(wait.waiting, wait.call) | elsewhere
        calls = {rank: ranks[rank].open_call or call for rank, call in calls.items()}
        sides = [sorted(wait.waiting), sorted(elsewhere)]
        right = tuple(choose_right(sides, calls, ranks))
        wrong = tuple(sorted(rank for rank in calls if rank not in right))
        found = Mismatch(group=wait.call.group, calls=calls, right=right, wrong=wrong)
        model, culprit = ranks[right[0]], ranks[wrong[0]]
        what = kind_of_difference(found.expected, found.called, model, culprit)
        return _told(what, wrong, right, culprit, called=found.called, expected=found.expected)
    return None


def _beside_record(ranks: Mapping[int, RankCalls], at: Mapping[int, RankPlace]) -> Desync | None:
    """Return what shows where some wait in collectives that have no record.

    These are gradients that DistributedDataParallel reduces, sends and receives, and all
    collectives of ranks without a record.
    """
    inside = [rank for rank in at if _kind_outside(at[rank], ranks) is None]
    if not inside:
        return None
    expected = _call_of(inside[0], ranks, at)
    for what in ("left", "data", "python"):
        culprits = [rank for rank in at if _kind_outside(at[rank], ranks) == what]
        if culprits:
            return _away(what, culprits, inside, expected, ranks, at)
    reducing = [rank for rank in inside if at[rank].in_backward and not _is_open(rank, ranks)]
    others = [rank for rank in inside if _is_open(rank, ranks)]
    if not reducing or not others or len(reducing) + len(others) != len(inside):
        return None
    right, wrong = (reducing, others) if len(reducing) >= len(others) else (others, reducing)
    called = _call_of(wrong[0], ranks, at)
    return Desync(
        what="operation",
        culprits=tuple(sorted(wrong)),
        others=tuple(sorted(right)),
        called=called,
        expected=_call_of(right[0], ranks, at),
        where=called.where,
    )


def _is_open(rank: int, ranks: Mapping[int, RankCalls]) -> bool:
    return rank in ranks and ranks[rank].open_call is not None


def _call_of(
    rank: int, ranks: Mapping[int, RankCalls], at: Mapping[int, RankPlace]
) -> CollectiveCall:
    """Return the call that a rank is in, as far as it is known."""
    own = ranks.get(rank)
    if own is not None and own.open_call is not None:
        return own.open_call.told(own.world_size)
    place = at[rank]
    return CollectiveCall(operation=BACKWARD if place.in_backward else None, where=place.where)


def _told(
    what: str,
    culprits: Sequence[int],
    others: Sequence[int],
    culprit: RankCalls,
    *,
    called: RecordedCall,
    expected: RecordedCall,
) -> Desync:
    before = [one for one in culprit.calls if one.serial < called.serial]
    # What was left out is where one must look, not what was called next.
    line = expected.where if what == "missing" else called.where
    return Desync(
        what=what,
        culprits=tuple(sorted(culprits)),
        others=tuple(sorted(others)),
        called=called.told(culprit.world_size),
        expected=expected.told(culprit.world_size),
        last=before[-1].told(culprit.world_size) if before else None,
        where=line,
    )
