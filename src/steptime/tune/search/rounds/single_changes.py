"""Tries single changes of the best state: one lever more, another setting, a pair of levers.

In: a `Lab` and states that differ from its best one. Out: the best state with what helps. What
levers give alone does not say what they give together: one may help only with another.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from steptime.core.interval import Interval
from steptime.tune.search.lab import Lab
from steptime.tune.search.mechanism import are_related, one_of_each, with_instead
from steptime.tune.search.proof.comparison_series import ComparisonSeries
from steptime.tune.search.proof.pairs import MIN_PAIRS, Worth, chain, to_speedup
from steptime.tune.search.rounds.screen import (
    MAX_ROUNDS,
    NOISE_ROUNDS,
    Champion,
    earns,
    is_told,
    rungs,
)
from steptime.tune.search.search_notes import key_of, names_of, numbers_of
from steptime.tune.values.study_values import State

CLOSE = 0.15
"""How far a setting may be behind the best of its lever [log speedup] and still be tried for it."""

MAX_PAIRS_BESIDE = 6
"""Pairs of levers that are tried beside the best state, those that lost least alone first."""

Banned = Sequence[State]
"""States that were refused."""


def is_in(state: State, states: Sequence[State]) -> bool:
    """Whether the state is one of those, or holds one; the order of its levers does not matter."""
    own = set(key_of(state))
    return any(set(key_of(one)) <= own for one in states)


def swaps(best: State, champions: Sequence[Champion]) -> list[State]:
    """The best state with another setting of one lever that was nearly as good alone.

    Of levers that it would not take too: another setting may go with the others.
    """
    states = []
    for one in champions:
        rest = tuple(it for it in best if not are_related(it.name, one.applied.name))
        close = [
            applied
            for applied, found in one.rest
            if found.high >= one.gain - CLOSE and applied not in best
        ]
        is_candidate = len(rest) < len(best) or one.worth is Worth.GAIN
        states += [(*rest, applied) for applied in close[:1] if is_candidate]
    return states


def pairs_beside(best: State, champions: Sequence[Champion]) -> list[State]:
    """The best state with two levers more that it does not have: they may help only together."""
    inside = {one.name for one in best}
    out = [one for one in champions if one.applied.name not in inside]
    pairs = itertools.combinations(sorted(out, key=lambda one: -one.gain), 2)
    states = [(*best, a.applied, b.applied) for a, b in pairs]
    return [state for state in states if one_of_each(state) == state][:MAX_PAIRS_BESIDE]


def take_what_helps(
    lab: Lab, states: Sequence[State], *, banned: Banned, most_rounds: int = MAX_ROUNDS
) -> bool:
    """Try states that differ from the best by one lever, one setting or a pair; take what gains.

    Each has `most_rounds` at most.

    Returns:
        Whether one was taken.
    """
    best = lab.best
    states = [state for state in states if not is_in(state, banned)]
    if not states:
        return False
    lab.live(best, states, MIN_PAIRS, keep=lab.keep)
    promising = []
    for series in (lab.known.live(best, state) for state in states):
        found = None if series.is_over else lab.log_speedup(series)
        if found is None:
            continue
        what = lab.worth(series) or Worth.UNCLEAR
        lab.notes.explain("live", series.state, best, what.value)
        if what in (Worth.GAIN, Worth.UNCLEAR) and found.estimate > 0:
            promising.append((found.estimate, tuple(a for a in series.state if a not in best)))
    for _, added in sorted(promising, key=lambda it: -it[0]):
        state = lab.best
        for one in added:
            state = with_instead(state, one)
        if is_in(state, banned):
            continue
        gain = _add(lab, lab.best, state, most_rounds)
        if gain is not None:
            lab.best, lab.best_gain = state, chain(lab.best_gain, gain)
    return lab.best != best


def _add(lab: Lab, best: State, state: State, most_rounds: int) -> Interval | None:
    """Compare the best with a state that has one lever, its last, more or set otherwise.

    Its whole interval must lie above the noise, for many such are tried.

    Returns:
        The log speedup it adds, None where it was not added.
    """
    series = lab.known.live(best, state)
    for due in (it for it in rungs(NOISE_ROUNDS) if it <= max(NOISE_ROUNDS, most_rounds)):
        # Enough rounds to see a difference cost less than a pair of processes.
        keep = lab.keep / 2 if due == NOISE_ROUNDS else lab.keep
        if not lab.live(best, [series.state], due, keep=keep):
            lab.notes.choose("out_of_time", state[-1].name, phase="combining")
            break
        if is_told(lab, series):
            break
    return _decide(lab, series)


def _decide(lab: Lab, series: ComparisonSeries) -> Interval | None:
    """Whether the last lever of a state stays, and why."""
    found, name = lab.log_speedup(series), series.state[-1].name
    if series.is_over or found is None or found.n < MIN_PAIRS:
        lab.notes.choose("not_added", name, reason=series.ending.word)
        return None
    what = lab.worth(series) or Worth.UNCLEAR
    facts = numbers_of(to_speedup(found)) | {"to": names_of(series.reference)}
    if what is not Worth.GAIN:
        lab.notes.explain("live", series.state, series.reference, what.value)
        lab.notes.choose("not_added", name, reason=what.value, **facts)
        return None
    if not earns(lab, series, found.estimate):
        return None
    lab.notes.explain("live", series.state, series.reference, None)
    lab.notes.choose("added", name, **facts)
    return found
