"""What a rank usually calls next, from what it called before: a training repeats itself.

In: the calls of one rank. Out: the calls that followed where it last was at the same place.
"""

from __future__ import annotations

from collections.abc import Sequence

from steptime.desync.recorded_calls import RecordedCall

MAX_AHEAD = 256
"""Calls that are looked ahead: those of one step, or as many."""

Key = tuple[object, ...]


def key_of(call: RecordedCall) -> Key:
    """Return what is the same each time that the script is at the same place."""
    return (call.group, call.operation, call.elements, call.dtype, call.where)


def usual_next(before: Sequence[RecordedCall]) -> RecordedCall | None:
    """Return the call that usually follows these; None if nothing like it was seen."""
    place = _same_place([key_of(one) for one in before])
    return None if place is None else before[place]


def usual_after(before: Sequence[RecordedCall], call: RecordedCall) -> tuple[RecordedCall, ...]:
    """Return what usually follows a call that was made after these, up to the same call again."""
    keys, own = [key_of(one) for one in before], key_of(call)
    places = [place for place, key in enumerate(keys) if key == own]
    if not places:
        return ()
    best = max(places, key=lambda place: (_common(keys[:place], keys), place))
    found: list[RecordedCall] = []
    # The turn that this call belongs to may be cut short; an earlier one is whole.
    for one in before[best + 1 : best + 1 + MAX_AHEAD]:
        if key_of(one) == own:
            break
        found.append(one)
    return tuple(found)


def _same_place(keys: Sequence[Key]) -> int | None:
    """Return the place before which the calls were most like all of these, the newest of them."""
    best, found = 0, None
    for place in range(len(keys) - 1, 0, -1):
        num = _common(keys[:place], keys)
        if num > best:
            best, found = num, place
        if best == place:
            break  # nothing earlier can have more in common
    return found


def _common(some: Sequence[Key], others: Sequence[Key]) -> int:
    """Return how many calls at the end of both are the same, up to a number that decides."""
    num = 0
    for one, other in zip(reversed(some), reversed(others), strict=False):
        if one != other or num >= MAX_AHEAD:
            break
        num += 1
    return num
