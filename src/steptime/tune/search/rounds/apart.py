"""Takes a bundle apart: what each lever gives beside the others, told by leaving it out.

In: a `Lab` and a state whose levers were compared together. Out: those that stay. What harms goes,
and what gives nothing; what could not be told apart stays and is named. Where time is short,
levers are left out in groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from steptime.core.interval import Interval
from steptime.tune.search.lab import Lab
from steptime.tune.search.proof.pairs import chain, half_width, inverse, to_speedup
from steptime.tune.search.rounds.single_changes import Banned, is_in
from steptime.tune.search.search_notes import Key, key_of, names_of, numbers_of
from steptime.tune.values.study_values import Applied, State

PRECISE = 0.02
"""Half width of log ratios at which a lever is told apart: it helps for certain, or it goes."""

LEAST_ROUNDS = 24
"""With fewer, only harm is told: with several levers, chance shows a small gain too often."""

SURE_ROUNDS = 48
"""With fewer, a gain that looks certain is measured on."""

PART_ERROR = 0.01
"""How often the interval of one part may miss the truth: there are several, looked at again."""

ROUNDS, NUM_BEFORE = (8, LEAST_ROUNDS, SURE_ROUNDS, 96), 2
"""Rungs: harm is seen in the first one, small gains in the last. The first two come before
something is proven, the others after it, within what is left."""

LEAST_GAIN = 0.005
"""Log speedup: what gives less is no line of a recipe, however certain it is."""

RIDES, RIDES_AT_LAST = 0.5, 0.8
"""Of the half width: what cannot be told apart stays if its middle lies that far above no change,
further where all rounds were made. One in nine that do nothing does so, then one in thirty."""

KEEP_WHILE_APART = 0.25
"""Of the search's time, kept for what comes after."""

Group = tuple[Applied, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """Levers of a state, and their log speedup beside the others."""

    group: Group
    found: Interval


Told = dict[Key, Part]


@dataclass(frozen=True, slots=True)
class Apart:
    """What stays of a bundle, its log speedup over what it was added to, and that of its parts."""

    members: State
    gain: Interval
    told: Told


def take_apart(lab: Lab, fixed: State, members: State, gain: Interval, *, banned: Banned) -> Apart:
    """The members that stay, and what is known of them.

    Args:
        lab: where to ask.
        fixed: what is on in all states.
        members: what is taken apart.
        gain: log speedup of all members.
        banned: states that were refused; none of them is left.
    """
    told: Told = {}
    whole = key_of((*fixed, *members))
    if whole in lab.taken_apart and _num_fitting(lab) < len(members):
        return Apart(*lab.taken_apart[whole], told)  # less would be told than before
    while len(members) > 1 and (groups := _groups(lab, members, told)):
        _tell(lab, (*fixed, *members), groups, told)
        out = _next_out(lab, fixed, members, told)
        if out is None or is_in((*fixed, *_without(members, out.group)), banned):
            break
        gain = chain(gain, inverse(out.found))
        members = _without(members, out.group)
        told = {key: it for key, it in told.items() if _is_of(it, members) and it.found.low > 0}
    lab.taken_apart[whole] = (members, gain)
    return Apart(members, gain, told)


def split(members: Sequence[Applied], num: int) -> list[Group]:
    """The members in so many groups of neighbors, the first ones a little larger."""
    size, more = divmod(len(members), num)
    groups, at = [], 0
    for index in range(num):
        until = at + size + (index < more)
        groups.append(tuple(members[at:until]))
        at = until
    return [group for group in groups if group]


def _groups(lab: Lab, members: State, told: Told) -> list[Group]:
    """What is left out at a time: each lever where time allows, else as many groups as fit."""
    fitting = _num_fitting(lab)
    if fitting < 2:
        return []
    open_ones = [one for one in members if key_of((one,)) not in told]
    singles = len(open_ones) <= fitting or len(members) == 2
    return [(one,) for one in open_ones] if singles else split(members, fitting)


def _num_fitting(lab: Lab) -> int:
    """Parts for whose first rung there is time."""
    left_s = lab.ledger.available(keep=_keep(lab))
    return int(left_s / lab.ledger.blocks(ROUNDS[0], num_starts=0)) - 1


def _keep(lab: Lab) -> float:
    return max(lab.keep, KEEP_WHILE_APART)


def _tell(lab: Lab, state: State, groups: Sequence[Group], told: Told) -> None:
    """Note what each group gives beside the others, until it is clear or time is short."""
    for due in ROUNDS if lab.is_proven else ROUNDS[:NUM_BEFORE]:
        unclear = [one for one in groups if not _is_clear(told.get(key_of(one)))]
        if not unclear:
            break
        states = [_without(state, one) for one in unclear]
        for rest in states:
            lab.known.live(state, rest).error = PART_ERROR
        is_done = lab.live(state, states, due, keep=_keep(lab))
        for group, rest in zip(unclear, states, strict=True):
            series = lab.known.live(state, rest)
            found = None if series.is_over else lab.log_speedup(series)
            if found is not None:
                told[key_of(group)] = Part(group, inverse(found))
        if not is_done:
            lab.notes.choose("out_of_time", phase="combining")
            break
        if any(one.found.high < 0 for one in told.values()):
            break  # what harms goes first: beside it, the others may look otherwise


def _is_clear(part: Part | None) -> bool:
    """Whether more rounds would change nothing of what is done with it."""
    if part is None:
        return False
    found = part.found
    if found.high < 0 or half_width(found) <= PRECISE:
        return True
    return found.n >= (SURE_ROUNDS if found.low > 0 else LEAST_ROUNDS) and not _is_open(found)


def _is_open(found: Interval) -> bool:
    """Whether it seems to help and may yet not."""
    return found.low <= 0 < found.estimate


def _next_out(lab: Lab, fixed: State, members: State, told: Told) -> Part | None:
    """What goes: the most harmful group, else those that show nothing; None where all stay."""
    here = sorted(
        (one for one in told.values() if _is_of(one, members)), key=lambda one: one.found.estimate
    )
    harmful = [one for one in here if one.found.high < 0]
    if harmful:
        _say(lab, "dropped", harmful[0], reason="slower")
        return harmful[0]
    idle = [one for one in here if not _rides(one.found)]
    if not idle:
        return None
    out = _all_idle(lab, (*fixed, *members), idle, told)
    if out is None and not lab.is_proven and half_width(idle[0].found) > PRECISE:
        return None  # it may give a little: that is told once something is proven
    out = out or idle[0]
    _say(lab, "dropped", out, reason="no_gain")
    return out


def _all_idle(lab: Lab, state: State, idle: Sequence[Part], told: Told) -> Part | None:
    """All groups that show nothing, where they give nothing together either; else None.

    One of two levers that do the same is needed, though either can be left out.
    """
    whole = tuple(one for one in state if any(one in part.group for part in idle))
    if len(idle) == 1 or len(whole) == len(state):
        return None
    _tell(lab, state, [whole], told)
    part = told.get(key_of(whole))
    return part if part is not None and not _rides(part.found) else None


def _rides(found: Interval) -> bool:
    """Whether a lever stays: it helps, or may well do so where that could not be told apart."""
    if found.estimate <= LEAST_GAIN:
        return False
    if found.low > 0:
        return True
    if half_width(found) <= PRECISE:
        return False
    share = RIDES_AT_LAST if found.n >= ROUNDS[-1] else RIDES
    return found.n < LEAST_ROUNDS or found.estimate > share * half_width(found)


def say_parts(lab: Lab, apart: Apart) -> None:
    """Write down what each lever that stays gives, where that is told."""
    for one in apart.members:
        part = apart.told.get(key_of((one,)))
        if part is not None and part.found.low > 0 and part.found.n >= LEAST_ROUNDS:
            _say(lab, "kept", part)


def _say(lab: Lab, code: str, part: Part, **more: str) -> None:
    facts = {**numbers_of(to_speedup(part.found)), **more, "state": names_of(part.group)}
    lab.notes.choose(code, part.group[0].name if len(part.group) == 1 else None, **facts)


def _without(state: State, group: Group) -> State:
    return tuple(one for one in state if one not in group)


def _is_of(part: Part, members: State) -> bool:
    return all(one in members for one in part.group)
