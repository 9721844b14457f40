"""Finds the first call at which the ranks of a group differ.

In: the calls of several ranks. Out: a `Mismatch`, with the ranks by what they called. Sizes are
compared only where the operation demands that they are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from steptime.desync.recorded_calls import RankCalls, RankGroup, RecordedCall
from steptime.desync.usual_order import key_of, usual_next

SIZED = (
    "all_reduce",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "all_gather_into_tensor",
    "reduce_scatter_tensor",
)
"""Operations whose tensor has the same size and type on all ranks. all_gather and all_to_all may be
uneven, and objects have no size of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """Calls of one number in one group that cannot meet; `right` are the ranks taken as a model."""

    group: RankGroup
    calls: Mapping[int, RecordedCall]
    right: tuple[int, ...]
    wrong: tuple[int, ...]

    @property
    def expected(self) -> RecordedCall:
        """The call of the ranks that are taken as a model."""
        return self.calls[self.right[0]]

    @property
    def called(self) -> RecordedCall:
        """The call of the first rank that differs."""
        return self.calls[self.wrong[0]]


def is_alike(one: RecordedCall, other: RecordedCall) -> bool:
    """Return whether two calls can meet."""
    if one.operation != other.operation:
        return False
    if one.operation not in SIZED:
        return True
    sizes, types = (one.elements, other.elements), (one.dtype, other.dtype)
    return (None in sizes or sizes[0] == sizes[1]) and (None in types or types[0] == types[1])


def find_mismatch(ranks: Sequence[RankCalls]) -> Mismatch | None:
    """Return the first calls that differ, in the group where the first rank came to it first."""
    found = []
    for group in groups_of(ranks):
        one = _in_group(group, [rank for rank in ranks if rank.rank in group.ranks])
        if one is not None:
            found.append(one)
    return min(found, key=lambda m: min(call.serial for call in m.calls.values()), default=None)


def groups_of(ranks: Sequence[RankCalls]) -> list[RankGroup]:
    """Return the groups in which these ranks called, in the order in which they did."""
    return list(dict.fromkeys(call.group for rank in ranks for call in rank.calls))


def _in_group(group: RankGroup, ranks: Sequence[RankCalls]) -> Mismatch | None:
    own = {one.rank: calls for one in ranks if (calls := one.in_group(group))}
    if len(own) < 2:
        return None
    first = max(min(calls) for calls in own.values())  # older calls may be written over
    last = max(max(calls) for calls in own.values())
    for number in range(first, last + 1):
        calls = {rank: known[number] for rank, known in own.items() if number in known}
        if calls and not _meet(calls):
            return _split(group, calls, {one.rank: one for one in ranks})
    return None


def _meet(calls: Mapping[int, RecordedCall]) -> bool:
    model, *others = calls.values()
    return all(is_alike(model, other) for other in others)


def _split(
    group: RankGroup, calls: Mapping[int, RecordedCall], ranks: Mapping[int, RankCalls]
) -> Mismatch:
    sides: list[list[int]] = []
    for rank in sorted(calls):
        side = next((s for s in sides if is_alike(calls[s[0]], calls[rank])), None)
        if side is None:
            sides.append([rank])
        else:
            side.append(rank)
    right = choose_right(sides, calls, ranks)
    wrong = tuple(rank for rank in sorted(calls) if rank not in right)
    return Mismatch(group=group, calls=calls, right=tuple(right), wrong=wrong)


def choose_right(
    sides: Sequence[Sequence[int]],
    calls: Mapping[int, RecordedCall],
    ranks: Mapping[int, RankCalls],
) -> Sequence[int]:
    """Return the side that is taken as a model.

    It is the side of most ranks, else the one that calls what it usually calls next, else the one
    that did so where their lines parted, before equal calls hid it, else that of the lowest rank.
    """
    total = sum(map(len, sides))
    most = max(sides, key=len)
    if 2 * len(most) > total:
        return most
    usual = [side for side in sides if _is_usual(ranks[side[0]], calls[side[0]])]
    if len(usual) > 1:
        parted = _parted([side[0] for side in usual], calls, ranks)
        usual = [side for side in usual if _is_usual(ranks[side[0]], parted[side[0]])]
    return usual[0] if len(usual) == 1 else min(sides, key=min)


def _parted(
    some: Sequence[int], calls: Mapping[int, RecordedCall], ranks: Mapping[int, RankCalls]
) -> Mapping[int, RecordedCall]:
    """Return the first calls of one number that these ranks made at different lines."""
    own = {rank: ranks[rank].in_group(calls[rank].group) for rank in some}
    common = set.intersection(*(set(known) for known in own.values()))
    for number in sorted(common):
        met = {rank: known[number] for rank, known in own.items()}
        if len({call.where for call in met.values()}) > 1:
            return met
    return calls


def _is_usual(rank: RankCalls, call: RecordedCall) -> bool:
    expected = usual_next(calls_before(rank, call))
    return expected is not None and key_of(expected) == key_of(call)


def calls_before(rank: RankCalls, call: RecordedCall) -> tuple[RecordedCall, ...]:
    """Return what a rank called before a call of its own."""
    return tuple(one for one in rank.calls if one.serial < call.serial)
