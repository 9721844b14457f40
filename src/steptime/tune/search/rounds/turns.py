"""Compares levers of the environment and of start-up between processes that take turns.

In: a `Lab` and offers in order. Out: the lab's best state, with the levers that helped. Several of
them are tried together first, because few pairs fit a budget; then each is left out for a few
pairs. What shows no gain together is tried one by one, in order.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from steptime.core.interval import Interval
from steptime.tune.search.lab import Lab
from steptime.tune.search.mechanism import (
    NEVER_FIRST,
    PAID_ONCE,
    SHARES_CORES,
    SPARES,
    one_of_each,
    with_instead,
)
from steptime.tune.search.order import Offer
from steptime.tune.search.proof.comparison_series import ComparisonSeries
from steptime.tune.search.proof.pairs import MIN_PAIRS, Worth, chain, to_speedup
from steptime.tune.search.proof.yardstick import INPUT_PHASES
from steptime.tune.search.rounds.apart import split
from steptime.tune.search.rounds.live_groups import COMPILE
from steptime.tune.search.rounds.process_turns import num_pairs_left, pairs_s, turns
from steptime.tune.search.rounds.screen import NOISE_ROUNDS, earns, is_told, rungs
from steptime.tune.search.rounds.single_changes import Banned, is_in, take_what_helps
from steptime.tune.search.search_notes import label, names_of, number, numbers_of
from steptime.tune.values.study_values import Applied, NotTried, State

FIRST_PAIRS = 2
"""Each of several settings gets so many at first; only the best one gets more."""

EARLY_PAIRS = 4
"""After so many, what was not faster than the noise in any of them is given up."""

FIRST_LOOK = (EARLY_PAIRS, MIN_PAIRS)

MAX_PAIRS = 12
"""Where time is left when all were tried, what is undecided gets so many."""

LEAST_TOGETHER = 2
"""Levers that are compared together first. Together, what gives little stays unless it is seen to
give nothing; one by one, a few pairs could not tell it from nothing."""

FAR_SLOWER = 0.9
"""Speedup alone, for certain below it: one thread of two, where operators keep both busy."""

STAYS = 0.5
"""Of the noise floor: what gives less beside the others, or less than a standard error, in the few
pairs there are, goes."""


def try_in_turns(
    lab: Lab,
    offers: Sequence[Offer],
    *,
    live: Sequence[Offer] = (),
    banned: Sequence[Applied],
    states: Banned = (),
) -> dict[str, list[Applied]]:
    """Add the levers that help together with the best state, in their order.

    Args:
        lab: where to ask.
        offers: levers between processes, the best first.
        live: levers that are tried again beside them.
        banned: settings that were refused.
        states: whole states that were refused.

    Returns:
        The levers' settings of which more pairs may tell more: `go_further`.
    """
    lab.phase, before = "process", lab.best
    left = {one.name: [it for it in one.settings if it not in banned] for one in offers}
    left = {name: some for name, some in left.items() if some and name not in _names(lab.best)}
    # What must be earned by the length of the run is judged by itself; so is what gives little,
    # which a few pairs beside others cannot tell from nothing.
    alone = PAID_ONCE | NEVER_FIRST
    firsts = one_of_each([some[0] for name, some in left.items() if name not in alone])
    if firsts and num_pairs_left(lab) >= EARLY_PAIRS:
        beside = live if any(map(_is_about_input, offers)) else ()
        for one in _together(lab, firsts, beside, banned=banned, states=states):
            left[one.name].remove(one)  # its other settings may still do more
    most = {it: left[it] for it in left if it not in NEVER_FIRST}
    _try_each(lab, most, FIRST_LOOK, states=states)
    if any(one not in before for one in lab.best):
        share_cores_again(lab)
    return left


def _is_about_input(one: Offer) -> bool:
    """Whether it may leave the cores to others, or take them: an allocator does neither."""
    return bool(INPUT_PHASES & set(one.lever.phases))


def go_further(lab: Lab, left: Mapping[str, Sequence[Applied]], *, states: Banned) -> None:
    """Give what is undecided more pairs, and then what gives little its first.

    No state that holds one of the refused `states` is tried.
    """
    before, lab.phase = lab.best, "process"
    little = {name: some for name, some in left.items() if name in NEVER_FIRST}
    if lab.best:  # else there is nothing to add to; what is open gets its pairs at the end
        more = {name: some for name, some in left.items() if name not in little}
        _try_each(lab, more, (*FIRST_LOOK, MAX_PAIRS), states=states)
    _try_each(lab, little, FIRST_LOOK, states=states)
    if any(one not in before for one in lab.best):
        share_cores_again(lab)


def share_cores_again(lab: Lab) -> None:
    """Leave out what shares the cores where the best state is faster without it now.

    One thread beside four workers may help; once the samples need no workers, it costs a core. So
    it does once operators are compiled into a few large ones, which many threads share better.
    """
    for one, found in _that_share_in_vain(lab, lab.best):
        seen = {"speedup": number(math.exp(-found.estimate)), "n": found.n}
        lab.notes.choose("left_out", one.name, reason=Worth.SLOWER.value, **seen)
        lab.best = tuple(it for it in lab.best if it != one)
        lab.best_gain = chain(lab.best_gain, found)


def _that_share_in_vain(lab: Lab, state: State) -> list[tuple[Applied, Interval]]:
    """What shares the cores where that costs more than it gives; the gain of leaving it out."""
    lab.phase, out = "live", []
    for one in [it for it in state if it.name in SHARES_CORES and lab.is_live]:
        series = _without(lab, _uncompiled(state), one)
        found = None if series.is_over else lab.log_speedup(series)
        if found is not None and found.high < math.log(FAR_SLOWER):
            continue
        if lab.worth(series) is not Worth.GAIN and COMPILE in _names(state):
            series = _without(lab, state, one)
            found = None if series.is_over else lab.log_speedup(series)
        if found is not None and lab.worth(series) is Worth.GAIN:
            out.append((one, found))
    return out


def _without(lab: Lab, state: State, one: Applied) -> ComparisonSeries:
    """Compare a state with itself without one of its levers, as far as there is time."""
    without = tuple(it for it in state if it != one)
    series = lab.known.live(state, without)
    for due in rungs(NOISE_ROUNDS):
        if not lab.live(state, [without], due, keep=lab.keep) or is_told(lab, series):
            break
    return series


def _names(state: State) -> set[str]:
    return {one.name for one in state}


# -- together


def _together(
    lab: Lab,
    members: State,
    live: Sequence[Offer],
    *,
    banned: Sequence[Applied],
    states: Banned,
) -> State:
    """Compare the best state with all members added; make what is left of them the best.

    Returns:
        The members of which enough is known: what stays, what was left out for it, and all of them
        where they show nothing together.
    """
    reference = _uncompiled(lab.best)
    before, gain_before = lab.best, lab.best_gain
    beside = _live_beside(lab, members, live, banned=banned)
    is_small = len(members) < LEAST_TOGETHER and beside == reference
    if is_small or is_in((*beside, *members), states):
        return ()
    members = _that_run(lab, reference, beside, members)
    series = lab.known.between(reference, (*beside, *members))
    if not members or not _is_faster(lab, series):
        return members if len(members) > 1 and _is_nothing(lab, series) else ()
    kept = _leave_out(lab, beside, members)
    found = lab.log_speedup(series)
    compiled = tuple(one for one in before if one.name == COMPILE)
    lab.best = (*beside, *compiled, *kept)
    lab.best_gain = gain_before if found is None else chain(gain_before, found)
    return members


def _uncompiled(state: State) -> State:
    """Compiling again in each of a dozen processes would take the whole budget."""
    return tuple(one for one in state if one.name != COMPILE)


def _live_beside(
    lab: Lab, members: State, live: Sequence[Offer], *, banned: Sequence[Applied]
) -> State:
    """The best live levers beside the members, which are not compared yet.

    What shares the cores with them may help beside them alone: one thread with one worker.
    """
    best, gain = lab.best, lab.best_gain
    reference = _uncompiled(best)
    wanted = [one for one in live if one.name in SHARES_CORES]
    states = [
        (*members, *(it for it in reference if it.name != setting.name), setting)
        for one in wanted
        for setting in one.settings
        if setting not in banned and setting not in reference and not _is_far_slower(lab, setting)
    ]
    if not states or not lab.is_live:
        return reference
    lab.best = (*members, *reference)
    # The members are not known to give anything: what goes beside them may not cost more.
    look_s = pairs_s(lab, lab.known.between(reference, lab.best), MIN_PAIRS)
    most_rounds = math.floor(look_s / lab.ledger.blocks(2, num_starts=0))
    take_what_helps(lab, states, banned=(), most_rounds=most_rounds)
    found = tuple(one for one in lab.best if one not in members)
    lab.best, lab.best_gain, lab.phase = best, gain, "process"
    return found


def _is_far_slower(lab: Lab, setting: Applied) -> bool:
    """Whether it slows down so much without the members that they cannot make it up."""
    alone = lab.known.live((), (setting,))
    found = None if alone.is_over else lab.log_speedup(alone)
    return found is not None and found.n >= MIN_PAIRS and found.high < math.log(FAR_SLOWER)


def _that_run(lab: Lab, reference: State, beside: State, members: State) -> State:
    """The members without those that end the process: bisected, half by half."""
    if not members:
        return ()
    series = lab.known.between(reference, (*beside, *members))
    turns(lab, reference, series.state, 1 if len(members) == 1 else FIRST_PAIRS)
    if not series.is_over:
        return members
    if len(members) == 1:
        return ()
    reason = series.ending.word
    lab.notes.choose("bundle_fails", None, state=names_of(members), reason=reason)
    halves = [_that_run(lab, reference, beside, half) for half in split(members, 2)]
    whole = tuple(one for half in halves for one in half)
    return halves[0] if len(whole) == len(members) else whole


def _is_faster(lab: Lab, series: ComparisonSeries) -> bool:
    """Whether all of them together seem to give more than the noise; note it."""
    for due in (FIRST_PAIRS, EARLY_PAIRS, MIN_PAIRS):
        if series.is_over or not turns(lab, series.reference, series.state, due):
            break
        if due >= EARLY_PAIRS and _is_hopeless(lab, series):
            break
        if due == EARLY_PAIRS and _is_clear(lab, series):
            break
    middle = None if series.is_over else lab.yardstick.middle(series)
    if middle is None:
        return False
    ratios, found = lab.yardstick.log_ratios(series), lab.log_speedup(series)
    seen = {"speedup": number(math.exp(middle)), "n": len(ratios)}
    is_gain = _is_clear(lab, series) or (found is not None and lab.worth(series) is Worth.GAIN)
    is_gain = is_gain and lab.yardstick.can_tell(series)
    reason = None if is_gain else "too_few_pairs" if found is None else Worth.UNCLEAR.value
    lab.notes.choose("bundle_in_turns", None, state=names_of(series.added), **seen)
    lab.notes.explain("process", series.state, series.reference, reason)
    return is_gain


def _is_nothing(lab: Lab, series: ComparisonSeries) -> bool:
    """Whether they changed as good as nothing: none of them is worth more pairs than others."""
    ratios = lab.yardstick.log_ratios(series)
    if series.is_over or len(ratios) < EARLY_PAIRS or not lab.yardstick.can_deny(series):
        return False
    least = math.log1p(lab.floor_for(series))
    middle = lab.yardstick.middle(series)
    return middle is not None and abs(middle) <= least


def _is_clear(lab: Lab, series: ComparisonSeries) -> bool:
    """Whether each of four pairs shows more than the noise."""
    ratios = lab.yardstick.log_ratios(series)
    least = math.log1p(lab.floor_for(series))
    return len(ratios) >= EARLY_PAIRS and min(ratios) > least


def _leave_out(lab: Lab, beside: State, members: State) -> State:
    """The members without those whose leaving out makes it no slower, in a few pairs each.

    What is ranked last is left out first; what there is no time for stays.
    """
    for one in reversed(members):
        if len(members) == 1:
            break
        state = (*beside, *members)
        without = tuple(it for it in state if it != one)
        series = lab.known.between(state, without)
        for due in (FIRST_PAIRS, EARLY_PAIRS, MIN_PAIRS):
            if not turns(lab, state, without, due) or series.is_over:
                break
            if abs(_middle(lab, series)) > math.log1p(lab.floor_for(series)) + _error(lab, series):
                break
        middle = None if series.is_over else lab.yardstick.middle(series)
        if middle is None:
            continue
        seen = {"speedup": number(math.exp(-middle)), "n": len(lab.yardstick.log_ratios(series))}
        least = max(STAYS * math.log1p(lab.floor_for(series)), _error(lab, series))
        if -middle <= least:
            members = tuple(it for it in members if it != one)
            reason = Worth.SLOWER.value if middle > 0 else Worth.NOTHING.value
            lab.notes.choose("left_out", one.name, reason=reason, **seen)
        else:
            lab.notes.choose("stays", one.name, **seen)
    return members


def _middle(lab: Lab, series: ComparisonSeries) -> float:
    return lab.yardstick.middle(series) or 0.0


def _error(lab: Lab, series: ComparisonSeries) -> float:
    """The standard error of the mean of its log ratios; 0 of one pair, which has none."""
    ratios = lab.yardstick.log_ratios(series)
    return statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else 0.0


# -- one by one


def _try_each(
    lab: Lab,
    left: Mapping[str, Sequence[Applied]],
    num_pairs: Sequence[int],
    *,
    states: Banned,
) -> None:
    """Compare the settings of each lever that the best state does not have, in their order.

    What another lever may spare comes last, and only where that did not help.
    """
    spared = {SPARES.get(name) for name in left}
    for name in sorted(left, key=lambda name: name in spared):
        if name in {SPARES.get(kept) for kept in _names(lab.best)}:
            lab.notes.leave_out([NotTried(name=name, reason="needless")])
        elif name not in _names(lab.best):
            _try(lab, left[name], num_pairs, states=states)


def _try(
    lab: Lab, settings: Sequence[Applied], num_pairs: Sequence[int], *, states: Banned
) -> None:
    """Compare one lever's settings with the best so far; add the best of them if it helps."""
    # Compiling again in each of a dozen processes would take the whole budget.
    reference = tuple(one for one in lab.best if one.name != COMPILE)
    # What gave way stays so, whatever more pairs say of the best.
    settings = [one for one in settings if not lab.notes.was_dropped((*reference, one))]
    settings = [one for one in settings if not is_in(with_instead(reference, one), states)]
    if len(settings) > 1:
        for one in settings:
            if not turns(lab, reference, (*reference, one), FIRST_PAIRS):
                break
        settings = _best_first(lab, reference, settings)[:1]
    for one in settings:
        crowded = _crowded(lab, reference, one)
        beside = tuple(it for it in reference if it not in crowded)
        series = lab.known.between(reference, with_instead(beside, one))
        for due in num_pairs:
            if series.is_over or _is_hopeless(lab, series) or _is_clear(lab, series):
                break
            turns(lab, reference, series.state, due)
        if _is_kept(lab, series):
            found = lab.log_speedup(series)
            lab.best = with_instead(tuple(it for it in lab.best if it not in crowded), one)
            lab.best_gain = lab.best_gain if found is None else chain(lab.best_gain, found)


def _crowded(lab: Lab, reference: State, one: Applied) -> State:
    """What helps in a state because workers take the cores, and costs one once they need none.

    A lever that spares them is tried without it: beside one thread it would give little.
    """
    if one.name not in SPARES:
        return ()
    found = tuple(it for it, _ in _that_share_in_vain(lab, (*reference, one)))
    lab.phase = "process"
    return found


def _best_first(lab: Lab, reference: State, settings: Sequence[Applied]) -> list[Applied]:
    """The settings that were compared, the fastest first; the others are said to be dropped."""
    known = []
    for one in settings:
        series = lab.known.between(reference, (*reference, one))
        middle = None if series.is_over else lab.yardstick.middle(series)
        if middle is not None:
            known.append((middle, one))
    ranked = [one for _, one in sorted(known, key=lambda it: -it[0])]
    for one in ranked[1:]:
        lab.notes.explain("process", (*reference, one), reference, "halved")
        lab.notes.choose("halved", one.name, state=label(one))
    return ranked


def _is_hopeless(lab: Lab, series: ComparisonSeries) -> bool:
    """Whether more pairs would change nothing: it cannot be told here, or gives nothing in each."""
    if len(series.wall) < EARLY_PAIRS:
        return False
    least = math.log1p(lab.floor_for(series))
    return not lab.yardstick.may_tell(series) or max(lab.yardstick.log_ratios(series)) <= least


def _is_kept(lab: Lab, series: ComparisonSeries) -> bool:
    """Whether the lever helps, as far as that could be told; note why, or why not."""
    name = series.state[-1].name
    middle, what = lab.yardstick.middle(series), lab.worth(series)
    if series.is_over or middle is None:
        if series.asked:
            lab.notes.choose("not_added", name, reason=series.ending.word)
        return False
    found = lab.log_speedup(series)
    seen = {"speedup": number(math.exp(middle)), "n": len(lab.yardstick.log_ratios(series))}
    facts = (seen if found is None else numbers_of(to_speedup(found))) | {
        "to": names_of(series.reference)
    }
    is_clear = what is None and _is_clear(lab, series)
    reason = Worth.GAIN.value if is_clear else "too_few_pairs" if what is None else what.value
    if not lab.yardstick.can_tell(series):
        others = series.others_cores
        reason = "cannot_tell"
        facts["others_cores"] = "unknown" if others is None else f"{others:.2g}"
    is_gain = reason == Worth.GAIN.value
    if is_gain and name in PAID_ONCE and not earns(lab, series, middle):
        return False
    lab.notes.explain("process", series.state, series.reference, None if is_gain else reason)
    code = "added" if is_gain else "not_added"
    lab.notes.choose(code, name, **facts, **({} if is_gain else {"reason": reason}))
    return is_gain
