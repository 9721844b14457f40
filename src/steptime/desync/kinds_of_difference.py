"""Names the difference between what a rank called and what the others called in its place.

In: both calls, and what both ranks called before. Out: a machine word of `Desync.what`.
"""

from __future__ import annotations

from collections.abc import Sequence

from steptime.desync.mismatch import calls_before, is_alike
from steptime.desync.recorded_calls import RankCalls, RankGroup, RecordedCall
from steptime.desync.usual_order import key_of, usual_after


def kind_of_difference(
    expected: RecordedCall, called: RecordedCall, model: RankCalls, culprit: RankCalls
) -> str:
    """Return `order`, `missing`, `group`, `operation` or `shape`.

    Args:
        expected: what the others called.
        called: what the culprit called instead.
        model: a rank that called `expected`.
        culprit: the rank that called `called`.
    """
    since = [one for one in model.calls if one.serial > expected.serial]
    upcoming = since or usual_after(calls_before(model, expected), expected)
    later = [one for one in culprit.calls if one.serial > called.serial]
    if any(_is_same(one, expected) for one in later) and _place_in(upcoming, called) is not None:
        return "order"  # it called both, without waiting in between
    if found := _by_upcoming(expected, called, upcoming):
        return found
    if called.group != expected.group and _is_similar(called, expected):
        return "group"
    return "operation" if called.operation != expected.operation else "shape"


def _by_upcoming(
    expected: RecordedCall, called: RecordedCall, upcoming: Sequence[RecordedCall]
) -> str | None:
    """Return `missing` or `order` if the call is one that the others make later."""
    if called.where is not None and any(key_of(one) == key_of(called) for one in upcoming):
        # A loop over tensors calls all of them at one line. Whoever leaves one out calls the next;
        # whoever calls a later one has another order.
        is_next = key_of(upcoming[0]) == key_of(called)
        return "missing" if is_next or called.where != expected.where else "order"
    if called.where == expected.where and called.where is not None:
        return None
    return None if _place_in(upcoming, called) is None else "order"


def _place_in(calls: Sequence[RecordedCall], call: RecordedCall) -> int | None:
    return next((place for place, one in enumerate(calls) if _is_same(one, call)), None)


def _is_same(one: RecordedCall, other: RecordedCall) -> bool:
    """Return whether both are the same call, at whichever line."""
    return key_of(one)[:-1] == key_of(other)[:-1]


def _is_similar(one: RecordedCall, other: RecordedCall) -> bool:
    """Return whether one call is meant, which only has another group."""
    return is_alike(one, other) or (one.where is not None and one.where == other.where)


def find_left_out(
    model: RankCalls, culprit: RankCalls, group: RankGroup, number: int
) -> tuple[RecordedCall, RecordedCall] | None:
    """Return a call that was left out before the calls differed, and what was called instead.

    Where two calls of the same kind and size follow each other, leaving one out shifts all that
    come after; nothing hangs until the next one differs. It shows in their lines.

    Args:
        model: a rank that made all calls.
        culprit: the rank that may have left one out.
        group: the group in which they differ.
        number: the number of the calls that differ.
    """
    whole, shifted = model.in_group(group), culprit.in_group(group)
    common = sorted(n for n in whole if n in shifted and n <= number)
    first = next((n for n in common if _differ_in_line(whole[n], shifted[n])), None)
    if first is None or first == number:
        return None
    pairs = [(shifted.get(n), whole.get(n + 1)) for n in range(first, number)]
    is_shifted = all(
        one is not None and other is not None and key_of(one) == key_of(other)
        for one, other in pairs
    )
    return (whole[first], shifted[first]) if is_shifted else None


def _differ_in_line(one: RecordedCall, other: RecordedCall) -> bool:
    return one.where is not None and other.where is not None and one.where != other.where
