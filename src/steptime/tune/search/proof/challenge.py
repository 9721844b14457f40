"""Goes on once something is proven: a state that gives more, or a part of it that gives as much.

In: a `Lab`, what is proven, and a way to build the best state. Out: what is proven in the end,
shown between processes where there is time: only they differ as a user's own runs do.
"""

from __future__ import annotations

import math

from steptime.core.interval import Interval
from steptime.tune.search.budget import break_even_steps
from steptime.tune.search.lab import Lab
from steptime.tune.search.mechanism import PAID_ONCE
from steptime.tune.search.proof.comparison_series import ComparisonSeries, Confirmation
from steptime.tune.search.proof.confirmation import (
    between_s,
    confirm,
    is_faster,
    look,
    look_again,
    numbers,
)
from steptime.tune.search.proof.pairs import half_width
from steptime.tune.search.proof.proof import (
    Build,
    Proven,
    affords_both,
    find_culprits,
    gain_of,
    passes,
    say_confirmed,
)
from steptime.tune.search.search_notes import key_of, names_of
from steptime.tune.values.study_values import Found, State, StudyOutcome


def challenge(lab: Lab, build: Build, proven: Proven) -> bool:
    """Prove what the search finds beyond what is proven, or that a part of it is enough.

    What is proven is replaced only by what was judged and confirmed itself.

    Returns:
        False where nothing more is found, or there is no time to prove it.
    """
    state, gain, refused = build(proven.refused), lab.best_gain, proven.refused
    if gain is None or not _promises_more(lab, state, gain, proven):
        return False
    if not lab.quality.is_judged(state) and not affords_both(lab, state):
        return False
    lab.phase = "quality"
    if not passes(lab, state):
        return find_culprits(lab, state, lab.judge(state).outcome, refused)
    lab.notes.choose("challenged", None, state=names_of(state), proven=names_of(proven.state))
    known = confirm(lab, state)
    if known is None:
        return False
    if is_faster(lab, known) and _is_better(lab, state, known, proven):
        say_confirmed(lab, state, known)
        proven.state, proven.known, proven.gain = state, known, gain
    return True


def _promises_more(lab: Lab, state: State, gain: Interval, proven: Proven) -> bool:
    """Whether a state seems to give more than what is proven, or as much with fewer levers."""
    if not state or key_of(state) in lab.confirmations:
        return False
    if _is_part(state, proven.state):
        return gain.high >= proven.gain.low
    least = max(math.log1p(lab.yardstick.least_floor), half_width(gain) / 2)
    return gain.estimate > proven.gain.estimate + least


def _is_better(lab: Lab, state: State, known: Confirmation, proven: Proven) -> bool:
    """Whether a confirmed state takes the place; a part of it, where it seems to give as much."""
    found, before = gain_of(lab, known), gain_of(lab, proven.known)
    if _is_part(state, proven.state):
        return found.high >= before.estimate
    return found.estimate > before.estimate


def _is_part(state: State, other: State) -> bool:
    return set(key_of(state)) < set(key_of(other))


def is_shown_between(lab: Lab, proven: Proven) -> bool:
    """Show what was proven within processes between them, too, where that fits and can be told.

    How one process with a state differs from the next is in no interval of blocks that take turns
    in one. Only what is proven is shown, so it makes no claim that was not there.

    Returns:
        False where processes refuse it: their interval does not exclude that it gives nothing.
    """
    state = proven.state
    if proven.known.series.is_between or lab.ledger.left_s < between_s(lab, state):
        return True
    series = ComparisonSeries(state=state, reference=(), is_between=True)
    known = Confirmation(series=series, is_second=True)
    look(lab, known)
    look_again(lab, known)
    found = lab.log_speedup(known.series)
    is_told = found is not None and lab.yardstick.can_tell(series)
    if lab.is_interrupted or series.is_over or not is_told:
        return True
    lab.confirmations[key_of(state)] = proven.known = known
    if not is_faster(lab, known):
        return False
    lab.notes.choose("shown_between", None, state=names_of(state), **numbers(lab, series))
    return True


def faster(lab: Lab, proven: Proven) -> Found:
    """The study found something, and proved it."""
    state, series = proven.state, proven.known.series
    if untold := lab.notes.not_told_apart(state):
        lab.notes.choose("not_told_apart", None, state=names_of(untold))
    found = gain_of(lab, proven.known)
    one_off_s = max(series.compile_s, lab.known.compile_s(state), series.start_s)
    has_cost = any(one.name in PAID_ONCE for one in state) and one_off_s > 0
    steps = None
    if has_cost and lab.step_s is not None:
        steps = math.ceil(break_even_steps(one_off_s, lab.step_s, found.estimate))
    lab.run_whole(series)
    return lab.found(StudyOutcome.FASTER, recipe=state, proof=series, break_even_steps=steps)
