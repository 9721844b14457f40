"""Live levers together: built up greedily, each addition compared with the best so far.

In: a `Lab` and what each lever gives alone. Out: the best state found. Gains alone say nothing of
gains together: two levers may cancel, and one may help only with another.
"""

from __future__ import annotations

from collections.abc import Sequence

from steptime.core.study import Applied, State
from steptime.tune.lab import Lab, Series
from steptime.tune.notes import key_of, label, names_of, number, numbers_of
from steptime.tune.pairs import MIN_PAIRS, Worth, to_speedup, worth
from steptime.tune.screen import NOISE_ROUNDS, Champion, earns, rounds_wanted


def combine(
    lab: Lab, champions: Sequence[Champion], *, fixed: State, banned: Sequence[State] = ()
) -> tuple[State, float]:
    """The best state of live levers over `fixed`, and its log speedup over it.

    Args:
        lab: where to ask.
        champions: the best setting of each lever, largest gain first.
        fixed: what is on in all states and cannot be switched.
        banned: states that were refused.
    """
    gainers = [one for one in champions if one.worth is Worth.GAIN]
    others = [one for one in champions if one.worth in (Worth.NOTHING, Worth.UNCLEAR)]
    best, gain = _build(lab, gainers, fixed=fixed, banned=banned)
    if best == fixed:
        return best, gain
    left = [one for one in gainers if one.applied not in best]
    other, other_gain = _build_other(lab, left, than=gain, fixed=fixed, banned=banned)
    if other_gain > gain:
        lab.notes.choose("exchanged", state=names_of(other), instead_of=names_of(best))
        best, gain = other, other_gain
    return _add_helpers(lab, others, best, gain, banned=banned)


def _build(
    lab: Lab, gainers: Sequence[Champion], *, fixed: State, banned: Sequence[State]
) -> tuple[State, float]:
    """Add one lever after another, in the order of their gains, where each beats the best."""
    best, gain = fixed, 0.0
    for one in gainers:
        state = (*best, one.applied)
        if _is_in(state, banned):
            continue
        if best == fixed:
            best, gain = state, one.gain
            lab.best, lab.best_gain = best, gain
            lab.notes.choose("first", one.applied.name, speedup=number(one.gain))
            continue
        added = add(lab, best, one.applied, alone=one, rounds=rounds_wanted(lab, fixed))
        if added is not None:
            best, gain = state, gain + added
            lab.best, lab.best_gain = best, gain
    return best, gain


def _build_other(
    lab: Lab,
    left: Sequence[Champion],
    *,
    than: float,
    fixed: State,
    banned: Sequence[State],
) -> tuple[State, float]:
    """The levers that the best would not take, together, where they promise more than it."""
    if len(left) < 2 or sum(one.gain for one in left) <= than:
        return fixed, 0.0
    lab.notes.choose("without_the_first", levers=names_of(tuple(one.applied for one in left)))
    before = lab.best, lab.best_gain
    other, gain = _build(lab, left, fixed=fixed, banned=banned)
    if gain <= than:
        lab.best, lab.best_gain = before
    return other, gain


def _add_helpers(
    lab: Lab, others: Sequence[Champion], best: State, gain: float, *, banned: Sequence[State]
) -> tuple[State, float]:
    """Try once, beside the best, each lever that gave nothing alone: it may help with others."""
    states = [(*best, one.applied) for one in others if not _is_in((*best, one.applied), banned)]
    lab.live(best, states, MIN_PAIRS)
    promising = []
    for series in (lab.live_series(best, state) for state in states):
        found = None if series.is_over else lab.quantity(series)
        if found is None:
            continue
        what = worth(found, lab.floor_for(series))
        if what in (Worth.GAIN, Worth.UNCLEAR):
            promising.append((found.median, series.state))
        else:
            lab.notes.explain("live", series.state, best, what.value)
    for _, state in sorted(promising, key=lambda it: -it[0]):
        applied = state[-1]
        if _is_in((*best, applied), banned):
            continue
        rounds = rounds_wanted(lab, lab.fixed_of(best))
        added = add(lab, best, applied, alone=None, rounds=rounds)
        if added is not None:
            best, gain = (*best, applied), gain + added
            lab.best, lab.best_gain = best, gain
    return best, gain


def _is_in(state: State, states: Sequence[State]) -> bool:
    """Whether the state is one of those, in whatever order its levers stand."""
    return key_of(state) in {key_of(one) for one in states}


def add(
    lab: Lab, best: State, applied: Applied, *, alone: Champion | None, rounds: int
) -> float | None:
    """Compare the best with and without one lever more.

    One that gained alone must be faster and its median above the noise; one that did not must
    have its whole interval there, for many such are tried.

    Returns:
        The log speedup it adds, None where it was not added.
    """
    series = lab.live_series(best, (*best, applied))
    for due in (NOISE_ROUNDS, rounds):
        if not lab.live(best, [series.state], due):
            lab.notes.choose("out_of_time", applied.name, phase="combining")
            break
        found = lab.quantity(series)
        if series.is_over or (
            found is not None and worth(found, lab.floor_for(series)) is not Worth.UNCLEAR
        ):
            break
    return _decide(lab, series, alone)


def _decide(lab: Lab, series: Series, alone: Champion | None) -> float | None:
    """Whether the last lever of a state stays, and why."""
    found, name = lab.quantity(series), series.state[-1].name
    if series.is_over or found is None or found.n < MIN_PAIRS:
        lab.notes.choose("not_added", name, reason=series.reason or series.end.value)
        return None
    what = worth(found, lab.floor_for(series))
    is_enough = what is Worth.GAIN or (
        alone is not None and found.low > 0 and found.median > lab.floor_for(series)
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
    if not earns(lab, series, found.median):
        return None
    lab.notes.explain("live", series.state, series.reference, None)
    lab.notes.choose("added", name, **facts)
    return found.median
