"""Tries all live levers together first, then takes apart what harms or gives nothing.

In: a `Lab` and live offers. Out: the lab's best state. Small gains add up to one that the noise
does not hide; what each lever gives beside the others is told by leaving it out. Where the levers
together show no gain, they are measured one by one, and what gains is put together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from steptime.core.interval import Interval
from steptime.tune.search.lab import Lab
from steptime.tune.search.mechanism import DOES_MORE, MAY_SLOW_DOWN, one_of_each, with_instead
from steptime.tune.search.order import Offer
from steptime.tune.search.proof.comparison_series import ComparisonSeries
from steptime.tune.search.proof.pairs import MIN_PAIRS, Worth, chain, to_speedup, worth
from steptime.tune.search.rounds.apart import Apart, say_parts, split, take_apart
from steptime.tune.search.rounds.screen import (
    NOISE_ROUNDS,
    Champion,
    glance,
    is_told,
    rungs,
    screen,
)
from steptime.tune.search.rounds.single_changes import (
    Banned,
    is_in,
    pairs_beside,
    swaps,
    take_what_helps,
)
from steptime.tune.search.search_notes import names_of, numbers_of
from steptime.tune.values.study_values import Applied, State

LOOK_ROUNDS = 2
"""Rounds that show which half of a bundle ends the process."""

CLEARLY_HELPS = 0.05
"""A bundle that was put together unseen and seems to give as much is proven at once [log speedup]:
where steps are slow, fresh repeats say more than more of the same."""


def build_live(
    lab: Lab, offers: Sequence[Offer], *, fixed: State, banned: Sequence[Applied], states: Banned
) -> None:
    """Make the best of live levers over `fixed` the lab's best state.

    Args:
        lab: where to ask; its best state is `fixed` before.
        offers: live ones that compile nothing.
        fixed: what is on in all states.
        banned: settings that were refused.
        states: whole states that were refused.
    """
    lab.phase = "live"
    base = Base(fixed, lab.best_gain)
    seen = glance(lab, offers, fixed=fixed, banned=banned)
    members = _first_members(lab, offers, seen, fixed=fixed, banned=banned)
    is_seen = seen is not None
    if len(members) > 1 and _bundle(lab, members, base, states=states, is_seen=is_seen):
        _add_beside(lab, seen or [], told=members, states=states)
        return
    champions = screen(lab, offers, fixed=fixed, banned=banned)
    gainers = [one for one in champions if one.worth is Worth.GAIN]
    _take_first(lab, gainers, base, states=states)
    both = tuple(one.applied for one in gainers)
    if len(both) > 1:
        _bundle(lab, both, base, states=states, is_seen=True)
    if lab.best != fixed:
        _add_beside(lab, champions, told=both, states=states)


@dataclass(frozen=True, slots=True)
class Base:
    """What live levers are added to, and its own gain, where it has one."""

    state: State
    gain: Interval | None


def _first_members(
    lab: Lab,
    offers: Sequence[Offer],
    seen: Sequence[Champion] | None,
    *,
    fixed: State,
    banned: Sequence[Applied],
) -> State:
    """One setting of each family of levers: its best one, without those that are slower.

    One that slows down as easily as it helps has to seem faster. Where nothing was seen of them, it
    is the first one of each that can hardly slow down.
    """
    if seen is not None:
        least = math.log1p(lab.yardstick.least_floor)
        joining = [one for one in seen if _may_join(one, least)]
        gains = {one.applied.name: one.gain for one in joining}
        for one in joining:  # it goes behind what does less, where that may give as much
            less = DOES_MORE.get(one.applied.name, "")
            if any(it.applied.name == less and it.found.high >= one.gain for it in joining):
                gains[one.applied.name] = min(one.gain, math.nextafter(gains[less], -math.inf))
        best = one_of_each(
            [one.applied for one in sorted(joining, key=lambda it: -gains[it.applied.name])]
        )
        return tuple(one.applied for one in joining if one.applied in best)
    allowed = [[it for it in one.settings if it not in banned] for one in offers]
    firsts = [some[0] for some in allowed if some and some[0].name not in MAY_SLOW_DOWN]
    known = [lab.known.live(fixed, (*fixed, one)) for one in firsts]
    return one_of_each(
        [one for one, series in zip(firsts, known, strict=True) if not series.is_over]
    )


def _may_join(seen: Champion, least: float) -> bool:
    """Whether a lever is in the bundle, where the noise floor is `least` [log ratio].

    Time may not suffice to tell it apart: so what slows down as easily as it helps must seem to
    help beyond the noise. Others may help only together, though each alone seems slower.
    """
    if seen.applied.name in MAY_SLOW_DOWN:
        return seen.found.estimate > least
    return seen.found.high > 0


def _bundle(lab: Lab, members: State, base: Base, *, states: Banned, is_seen: bool) -> bool:
    """Compare all of them together, and take apart what harms; False where they show no gain."""
    members = _that_run(lab, _allowed(members, base, states), base)
    if len(members) < 2:
        return False
    series = _measure(lab, members, base, is_seen=is_seen)
    found = lab.log_speedup(series)
    if series.is_over or found is None:
        return False
    what = lab.worth(series) or Worth.UNCLEAR
    told = {**numbers_of(to_speedup(found)), "worth": what.value}
    lab.notes.choose("bundle", None, state=names_of(members), **told)
    if is_seen and found.low <= 0:
        lab.notes.explain("live", series.state, base.state, what.value)
        return False
    apart = take_apart(lab, base.state, members, found, banned=states)
    gain = _gain_of(lab, apart, members, base) if is_seen else apart.gain
    bias = lab.yardstick.bias_for(series)
    is_gain = worth(gain, lab.floor_for(series), bias=bias) is Worth.GAIN
    lab.notes.explain("live", series.state, base.state, None if is_gain else what.value)
    state = (*base.state, *apart.members)
    is_likely = not is_seen and gain.estimate >= CLEARLY_HELPS
    if is_gain or is_likely:
        say_parts(lab, apart)
    if is_gain:
        _show(lab, state, chain(base.gain, gain))
    elif is_likely:
        lab.put_forward_boldly(state)
    return is_gain


def _gain_of(lab: Lab, apart: Apart, members: State, base: Base) -> Interval:
    """What the members that stay give together, measured again where some went.

    What was dropped was chosen by the same data: the difference would flatter the rest.
    """
    if apart.members == members:
        return apart.gain
    found = lab.log_speedup(_measure(lab, apart.members, base, is_seen=True))
    return apart.gain if found is None else found


def _show(lab: Lab, state: State, gain: Interval) -> None:
    """Make it the lab's best where it is."""
    if lab.best_gain is None or gain.estimate > lab.best_gain.estimate:
        lab.best, lab.best_gain = state, gain


def _measure(lab: Lab, members: State, base: Base, *, is_seen: bool) -> ComparisonSeries:
    """Compare the bundle with what it is built on; beside an A/A where there is none yet."""
    state = (*base.state, *members)
    series = lab.known.live(base.state, state)
    states = _beside_noise(lab, base, state)
    for due in rungs(NOISE_ROUNDS) if is_seen else (MIN_PAIRS,):
        if not lab.live(base.state, states, due, keep=lab.keep):
            lab.notes.choose("out_of_time", phase="combining")
            break
        if is_told(lab, series):
            break
    if len(states) > 1 and lab.yardstick.is_live:
        lab.notes.note_floors(lab.yardstick.floors, lab.yardstick.num_same)
    return series


def _beside_noise(lab: Lab, base: Base, state: State) -> list[State]:
    """What is compared with the base: the A/A as well, where there is none yet."""
    return [state] if lab.yardstick.is_live else [base.state, state]


def _allowed(members: State, base: Base, states: Banned) -> State:
    """The members without the last ones, until they hold no state that was refused."""
    while members and is_in((*base.state, *members), states):
        members = members[:-1]
    return members


def _that_run(lab: Lab, members: State, base: Base) -> State:
    """The members without those that end the process: bisected, half by half."""
    if not members:
        return ()
    state = (*base.state, *members)
    series = lab.known.live(base.state, state)
    lab.live(base.state, _beside_noise(lab, base, state), LOOK_ROUNDS, keep=lab.keep)
    if not series.is_over:
        return members
    if len(members) == 1:
        return ()
    lab.notes.choose("bundle_fails", None, state=names_of(members), reason=series.ending.word)
    halves = [_that_run(lab, half, base) for half in split(members, 2)]
    whole = tuple(one for half in halves for one in half)
    # Where each half runs, they fail together: the first half has what was ranked first.
    return halves[0] if len(whole) == len(members) else whole


def _take_first(lab: Lab, gainers: Sequence[Champion], base: Base, *, states: Banned) -> None:
    """Make the lever that gives most by itself the lab's best."""
    for one in gainers:
        state = (*base.state, one.applied)
        if not is_in(state, states):
            _show(lab, state, chain(base.gain, one.found))
            speedup = numbers_of(to_speedup(one.found))["speedup"]
            lab.notes.choose("first", one.applied.name, speedup=speedup)
            return


def _add_beside(lab: Lab, champions: Sequence[Champion], *, told: State, states: Banned) -> None:
    """Try what is not in the best state beside it: single levers, other settings, pairs.

    What was `told` in a bundle is tried in a pair alone, with one that was not.
    """
    inside = {one.name for one in lab.best}
    out = [one for one in champions if one.applied.name not in inside]
    new = [one for one in out if one.applied not in told]
    hopeful = [one for one in new if one.worth is not Worth.SLOWER]
    take_what_helps(lab, [with_instead(lab.best, one.applied) for one in hopeful], banned=states)
    take_what_helps(lab, swaps(lab.best, champions), banned=states)
    if new:
        take_what_helps(lab, pairs_beside(lab.best, champions), banned=states)
