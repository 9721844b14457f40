"""Spends what is left of a budget where something is open.

In: a `Lab` after a search that proved nothing. Out: one more thing that was asked. Open is what may
give an effect worth having for all that is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from steptime.tune.search.lab import Lab
from steptime.tune.search.order import Offer
from steptime.tune.search.proof.comparison_series import ComparisonSeries
from steptime.tune.search.proof.confirmation import (
    affords,
    doubt,
    least_confirmation,
    look,
    may_go_on,
)
from steptime.tune.search.proof.pairs import MIN_PAIRS, Worth
from steptime.tune.search.proof.proof import lower_reserve, may_attempt
from steptime.tune.search.rounds.live_groups import COMPILE
from steptime.tune.search.rounds.process_turns import num_pairs_left, turns
from steptime.tune.search.rounds.screen import NOISE_ROUNDS, sharpen_noise
from steptime.tune.search.search_notes import key_of
from steptime.tune.values.study_values import State, Trial

EFFECT = 0.10
"""The effect that a study is to find: what may give as much, for all that is known, is open."""

MOST_HIDDEN = 0.20
"""Where the noise floor is larger than the effect, gains up to it are not told from nothing; above
this one it would say too little that nothing helps."""

LEAST_TOLD = 2
"""Times the noise floor: a lever's interval is about as wide as that of the A/A, and its lower
end must lie above the floor."""


def go_on(lab: Lab) -> bool:
    """Ask for one thing more; False where nothing is open, or nothing fits into what is left."""
    if lab.is_interrupted:
        return False
    if not lab.ledger.is_released:
        # Nothing awaits a proof: what was kept for it is spent on what was not tried yet.
        lab.ledger.is_released = True
        lower_reserve(lab, ())
        return True
    lab.ledger.reserve_s = 0.0
    some = open_ones(lab)
    if some and not lab.yardstick.floors and sharpen_noise(lab):
        return True
    steps = (_put_forward, _sharpen)
    return any(step(lab, some) for step in steps) or _try_what_is_left(lab) or _wait_for_quiet(lab)


def go_on_with_more(lab: Lab) -> bool:
    """Take in the time that a later call granted; False where none did.

    What the proof of the most promising state takes is kept for it.
    """
    if lab.is_interrupted or not lab.ledger.extend():
        return False
    lab.ledger.is_released = False
    proofs = [one.series.state for one in lab.confirmations.values() if may_go_on(lab, one)]
    states = [*proofs, *(one.state for one in open_ones(lab))]
    cost_s = [lab.judgement_s(state) + least_confirmation(lab, state) for state in states[:1]]
    lab.ledger.reserve_s = min(lab.ledger.left_s, sum(cost_s))
    return True


# -- what is open


def open_ones(lab: Lab) -> list[ComparisonSeries]:
    """What may give the effect for all that is known; the largest gain first."""
    latest: dict[object, ComparisonSeries] = {}
    for series in lab.known.begun:
        if _is_open(lab, series):
            latest.setdefault(key_of(series.state), series)
    return sorted(latest.values(), key=lambda one: -(lab.yardstick.middle(one) or 0.0))


def _is_open(lab: Lab, series: ComparisonSeries) -> bool:
    """Whether a comparison with the command as written leaves the effect possible."""
    if series.is_over or series.reference or lab.notes.was_dropped(series.state):
        return False
    if key_of(series.state) in lab.confirmations or lab.quality.is_refused(series.state):
        return False
    found, what = lab.log_speedup(series), lab.worth(series)
    if len(series.state) > 1 and (lab.yardstick.middle(series) or 0.0) < math.log1p(EFFECT) / 2:
        return False  # its levers are open by themselves, as long as they are
    if found is None or what is None:
        return True
    if what in (Worth.GAIN, Worth.SLOWER):
        return what is Worth.GAIN
    return found.high > math.log1p(limit_of(lab)) or not lab.yardstick.can_deny(series)


def limit_of(lab: Lab) -> float:
    """The gain that is to be excluded before it is said that nothing helps."""
    floor = lab.yardstick.floor_that_judged(None, lab.known.alone) or EFFECT
    return max(EFFECT, min(floor, MOST_HIDDEN))


def untried(lab: Lab) -> list[Offer]:
    """Offers of which nothing is known, which were on at most while others were compared."""
    tried = {one.name for trial in lab.notes.trials for one in _in_question(lab, trial)}
    dropped = lab.notes.left_out | lab.waiting
    return [one for one in lab.offered if one.name not in tried and one.name not in dropped]


def _in_question(lab: Lab, trial: Trial) -> State:
    """What a trial tells of: not what one process cannot switch."""
    return lab.live_of(trial.state) if trial.kind == "live" and lab.is_live else trial.state


def untold(lab: Lab) -> list[Offer]:
    """Offers that were tried with others alone, or not at all: what they give is not known."""
    timed = [one for one in lab.notes.trials if one.kind != "quality"]
    told = {name for trial in timed if (name := _only_difference(trial)) is not None}
    dropped = lab.notes.left_out
    return [one for one in lab.offered if one.name not in told and one.name not in dropped]


def _only_difference(trial: Trial) -> str | None:
    """The lever in which a trial differs from its reference, where it is one."""
    names = {one.name for one in trial.state if one not in trial.reference}
    return names.pop() if len(names) == 1 else None


# -- what is asked


def _put_forward(lab: Lab, some: Sequence[ComparisonSeries]) -> bool:
    """Let the most promising state be proven: fresh repeats sharpen it, and make the claim."""
    for series in some:
        middle = lab.yardstick.middle(series) or 0.0
        if middle < math.log1p(EFFECT) / 2:
            return False
        is_told = lab.yardstick.may_tell(series)
        if lab.worth(series) is not Worth.GAIN:
            lab.bold.add(key_of(series.state))
        if is_told and may_attempt(lab, series.state) and affords(lab, series.state, 0.0):
            lab.put_forward = series.state
            return True
    return False


def _sharpen(lab: Lab, some: Sequence[ComparisonSeries]) -> bool:
    """Ask for more of what is open: of all in one process, else of what may give the most."""
    told = [one for one in some if lab.yardstick.may_tell(one)] or list(some)
    live = [one for one in told if not one.is_between]
    is_floor = bool(live) and LEAST_TOLD * lab.yardstick.least_floor >= EFFECT
    if is_floor and sharpen_noise(lab):
        return True
    if live:
        due = max(NOISE_ROUNDS, 2 * min(one.asked for one in live))
        fewest = [one for one in live if one.asked < due]
        fitting = _rounds_that_fit(lab, len(fewest))
        due = min(due, min(one.asked for one in fewest) + fitting)
        before = [one.asked for one in live]
        lab.live((), [one.state for one in fewest], due)
        if [one.asked for one in live] != before:
            return True
    between = sorted((one for one in told if one.is_between), key=lambda one: -_reach(lab, one))
    for series in between:
        more = min(num_pairs_left(lab, series), max(2, series.asked // 2))
        if more >= 1 and turns(lab, (), series.state, series.asked + more):
            return True
    return False


def _reach(lab: Lab, series: ComparisonSeries) -> float:
    """How much it may give for all that is known; without bound where no interval is known."""
    found = lab.log_speedup(series)
    return math.inf if found is None else found.high


def _wait_for_quiet(lab: Lab) -> bool:
    """Ask on where only a quiet moment is missing."""
    for known in lab.confirmations.values():
        is_waiting = not known.series.is_over and doubt(lab, known) == "cannot_tell"
        if is_waiting and look(lab, known):
            return True
    return False


def _rounds_that_fit(lab: Lab, num_states: int) -> int:
    left_s = lab.ledger.available() - lab.ledger.blocks(0, num_starts=1)
    return max(0, math.floor(left_s / lab.ledger.blocks(num_states + 1, num_starts=0)))


def _try_what_is_left(lab: Lab) -> bool:
    """Try what there was no time for: to prove it at once, else as far as the time reaches."""
    for one in untold(lab):
        state: State = one.settings[:1]
        if one.is_live and lab.is_live:
            fitting = _rounds_that_fit(lab, 1)
            is_asked = one.name != COMPILE and fitting > 0
            if is_asked and lab.live((), [state], min(fitting, MIN_PAIRS)):
                return True
            continue
        is_new = one in untried(lab)
        if is_new and may_attempt(lab, state) and affords(lab, state, lab.judgement_s(state)):
            lab.put_forward = state
            return True
        fitting = min(MIN_PAIRS, num_pairs_left(lab))
        if fitting and turns(lab, (), state, fitting):
            return True
    return False
