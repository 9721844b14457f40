"""Combines live levers: adds one after another, and compares each addition with the best so far.

In: a `Lab` and what each lever gives alone. Out: the lab's best state. What levers give alone does
not say what they give together: two may cancel each other, and one may help only with another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from steptime.core.interval import Interval
from steptime.tune.search.comparison_series import ComparisonSeries
from steptime.tune.search.lab import Lab
from steptime.tune.search.pairs import MIN_PAIRS, Worth, chain, to_speedup
from steptime.tune.search.screen import NOISE_ROUNDS, Champion, earns, is_told, rungs
from steptime.tune.search.search_notes import key_of, label, names_of, number, numbers_of
from steptime.tune.values.study_values import State

MAX_SWAPS = 2
"""How often all settings are tried again where levers interact."""

CLOSE = 0.15
"""How far a setting may be behind the best of its lever [log speedup] and still be tried for it."""

Banned = Sequence[State]
"""States that were refused."""


def combine(lab: Lab, champions: Sequence[Champion], *, fixed: State, banned: Banned = ()) -> None:
    """Make the best of live levers over `fixed` the lab's best state.

    Args:
        lab: where to ask; its best state is `fixed` before.
        champions: the best setting of each lever, largest gain first.
        fixed: what is on in all states and cannot be switched.
        banned: states that were refused.
    """
    gainers = [one for one in champions if one.worth is Worth.GAIN]
    before = lab.best_gain
    first = _build(lab, gainers, before, fixed=fixed, banned=banned)
    if first is None:
        return
    left = [one for one in gainers if one.applied not in first.state]
    other = None
    if len(left) > 1 and math.fsum(one.gain for one in left) > first.gain.estimate:
        lab.notes.choose("without_the_first", levers=names_of(tuple(one.applied for one in left)))
        other = _build(lab, left, before, fixed=fixed, banned=banned)
    if other is not None and other.gain.estimate > first.gain.estimate:
        states = {"state": names_of(other.state), "instead_of": names_of(first.state)}
        lab.notes.choose("exchanged", **states)
    others = [one for one in champions if one.worth in (Worth.NOTHING, Worth.UNCLEAR)]
    # One that gave nothing alone may help with others.
    _take_what_helps(lab, [(*lab.best, one.applied) for one in others], banned=banned)
    if first.interacts:
        for _ in range(MAX_SWAPS):
            if not _take_what_helps(lab, _swaps(lab.best, champions), banned=banned):
                break


@dataclass(frozen=True, slots=True)
class Built:
    """A state and its log speedup over what it was built on."""

    state: State
    gain: Interval
    interacts: bool = False
    """A lever gave less together with the others than alone."""


def _build(
    lab: Lab,
    gainers: Sequence[Champion],
    before: Interval | None,
    *,
    fixed: State,
    banned: Banned,
) -> Built | None:
    """Add one lever after another, in the order of their gains, where each beats the best."""
    best: Built | None = None
    for one in gainers:
        state = (*(fixed if best is None else best.state), one.applied)
        if _is_in(state, banned):
            continue
        if best is None:
            best = Built(state, one.found)
            _show(lab, before, best)
            lab.notes.choose("first", one.applied.name, speedup=number(math.exp(one.gain)))
            continue
        added = _add(lab, best.state, state, alone=one)
        series = lab.known.live(best.state, state)
        interacts = best.interacts or _interacts(lab.log_speedup(series), one)
        best = Built(best.state, best.gain, interacts)
        if added is not None:
            best = Built(state, chain(best.gain, added), interacts)
            _show(lab, before, best)
    return best


def _show(lab: Lab, before: Interval | None, built: Built) -> None:
    """Make it the lab's best where it is."""
    gain = chain(before, built.gain)
    if lab.best_gain is None or gain.estimate > lab.best_gain.estimate:
        lab.best, lab.best_gain = built.state, gain


def _swaps(best: State, champions: Sequence[Champion]) -> list[State]:
    """The best state with another setting of one lever that was nearly as good alone.

    Of levers that it would not take too: another setting may go with the others.
    """
    states = []
    for one in champions:
        rest = tuple(applied for applied in best if applied.name != one.applied.name)
        close = [
            applied
            for applied, found in one.rest
            if found.high >= one.gain - CLOSE and applied not in best
        ]
        is_candidate = len(rest) < len(best) or one.worth is Worth.GAIN
        states += [(*rest, applied) for applied in close[:1] if is_candidate]
    return states


def _take_what_helps(lab: Lab, states: Sequence[State], *, banned: Banned) -> bool:
    """Try states that differ from the best by one lever or one setting; take those that gain.

    Returns:
        Whether one was taken.
    """
    best = lab.best
    states = [state for state in states if not _is_in(state, banned)]
    lab.live(best, states, MIN_PAIRS, keep=lab.keep)
    promising = []
    for series in (lab.known.live(best, state) for state in states):
        found = None if series.is_over else lab.log_speedup(series)
        if found is None:
            continue
        what = lab.worth(series) or Worth.UNCLEAR
        lab.notes.explain("live", series.state, best, what.value)
        if what in (Worth.GAIN, Worth.UNCLEAR):
            promising.append((found.estimate, series.state[-1]))
    for _, applied in sorted(promising, key=lambda it: -it[0]):
        others = tuple(one for one in lab.best if one.name != applied.name)
        if _is_in((*others, applied), banned):
            continue
        added = _add(lab, lab.best, (*others, applied), alone=None)
        if added is not None:
            lab.best, lab.best_gain = (*others, applied), chain(lab.best_gain, added)
    return lab.best != best


def _interacts(found: Interval | None, alone: Champion) -> bool:
    """Whether a lever gave less together with others than alone, as far as can be seen."""
    return found is not None and found.estimate < alone.found.low


def _is_in(state: State, states: Sequence[State]) -> bool:
    """Whether the state is one of those; the order of its levers does not matter."""
    return key_of(state) in {key_of(one) for one in states}


def _add(lab: Lab, best: State, state: State, *, alone: Champion | None) -> Interval | None:
    """Compare the best with a state that has one lever, its last, more or set otherwise.

    One that gained alone must be faster and its median above the noise; one that did not must
    have its whole interval there, for many such are tried.

    Returns:
        The log speedup it adds, None where it was not added.
    """
    series = lab.known.live(best, state)
    for due in rungs(NOISE_ROUNDS):
        # Enough rounds to see a difference cost less than a pair of processes.
        keep = lab.keep / 2 if due == NOISE_ROUNDS else lab.keep
        if not lab.live(best, [series.state], due, keep=keep):
            lab.notes.choose("out_of_time", state[-1].name, phase="combining")
            break
        if is_told(lab, series):
            break
    return _decide(lab, series, alone)


def _decide(lab: Lab, series: ComparisonSeries, alone: Champion | None) -> Interval | None:
    """Whether the last lever of a state stays, and why."""
    found, name = lab.log_speedup(series), series.state[-1].name
    if series.is_over or found is None or found.n < MIN_PAIRS:
        lab.notes.choose("not_added", name, reason=series.ending.word)
        return None
    what = lab.worth(series) or Worth.UNCLEAR
    is_enough = what is Worth.GAIN or (
        alone is not None and found.low > 0 and found.estimate > lab.floor_for(series)
    )
    facts = numbers_of(to_speedup(found)) | {"to": names_of(series.reference)}
    if alone is not None:
        facts["alone"] = numbers_of(to_speedup(alone.found))["speedup"]
        if found.high < alone.found.low or found.low > alone.found.high:
            lab.notes.choose("interaction", name, state=label(series.state[-1]), **facts)
    if not is_enough:
        lab.notes.explain("live", series.state, series.reference, what.value)
        lab.notes.choose("not_added", name, reason=what.value, **facts)
        return None
    if not earns(lab, series, found.estimate):
        return None
    lab.notes.explain("live", series.state, series.reference, None)
    lab.notes.choose("added", name, **facts)
    return found
