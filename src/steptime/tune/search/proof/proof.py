"""Proves the best state: first its quality, then its speedup in fresh repeats.

In: a `Lab` and a way to build the best state without what was refused. Out: what was found, or
nothing. Where a state is refused, its levers are judged alone to find the culprits, and the search
continues without them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from steptime.core.interval import Interval
from steptime.tune.search.lab import Lab
from steptime.tune.search.mechanism import DOES_MORE, by_rounding
from steptime.tune.search.proof.comparison_series import Confirmation
from steptime.tune.search.proof.confirmation import (
    MAX_ATTEMPTS,
    affords,
    confirm,
    doubt,
    has_no_time,
    is_confirmed_live,
    is_faster,
    least_confirmation,
    may_go_on,
    numbers,
    overtime_s,
)
from steptime.tune.search.proof.pairs import MIN_PAIRS
from steptime.tune.search.proof.whole_run import unended_epoch
from steptime.tune.search.rounds.apart import split
from steptime.tune.search.rounds.live_groups import COMPILE
from steptime.tune.search.rounds.single_changes import is_in
from steptime.tune.search.search_notes import key_of, label, names_of, number
from steptime.tune.values.study_values import (
    Applied,
    State,
)
from steptime.verify.values import Outcome

Build = Callable[["Refused"], State]
"""The best state, its gain noted in the lab, without what was refused."""


@dataclass(slots=True)
class Refused:
    """What quality refused: levers with these settings, and whole states."""

    levers: list[Applied] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    last: State = ()
    """The state that was refused last, after what was to blame had been found."""

    def has(self, state: State) -> bool:
        """Whether the state, or a lever in it, was refused."""
        known = {key_of(one) for one in self.states}
        return key_of(state) in known or any(one in self.levers for one in state)


@dataclass(slots=True)
class Proven:
    """What is proven: the state, its repeats, what the search saw of it, and what was refused."""

    state: State
    known: Confirmation
    gain: Interval
    refused: Refused


def keep_for_proof(lab: Lab, state: State = ()) -> None:
    """Keep the time that the proof of a state should take; without one, of something on offer.

    Processes in turns take longer than live blocks, so a state with such levers keeps more.
    """
    alone = [(applied,) for one in lab.offered for applied in one.settings[:1]]
    states = [state] if state else alone
    judgement_s = max(lab.judgement_s(state) for state in states)
    confirmation_s = min(least_confirmation(lab, state) for state in states)
    lab.ledger.keep_for_proof(confirmation_s, judgement_s=judgement_s)


def prove(lab: Lab, build: Build) -> Proven | None:
    """Judge and confirm the best state, and the next best where it is refused.

    Returns:
        What is proven; None where nothing is.
    """
    refused = Refused()
    while state := _to_prove(lab, build, refused):
        known = confirm(lab, state)
        if known is None:
            _run_out(lab, state, "confirm")
            seen = _incumbent(lab)
            known = confirm(lab, seen) if seen else None
            state = seen or state
        if known is None:
            if not _go_on_with_less(lab, state, refused):
                break
            continue
        if is_faster(lab, known):
            if _is_good(lab, state, refused):
                gain = gain_of(lab, known) if lab.best != state else lab.best_gain
                state, known = _challenged(lab, state, known)
                say_confirmed(lab, state, known)
                return Proven(state, known, gain or gain_of(lab, known), refused)
            if lab.quality.is_judged(state):
                continue  # without what was refused
        if len(lab.confirmations) >= MAX_ATTEMPTS:
            if not _incumbent(lab):
                break
            continue
        leave_out = _go_on_with_less if has_no_time(lab, known) else _leave_processes_out
        if not leave_out(lab, state, refused):
            break
    return None


def _to_prove(lab: Lab, build: Build, refused: Refused) -> State:
    """The state that is confirmed next; once few may be, what was seen to be as good goes first."""
    if len(lab.confirmations) >= MAX_ATTEMPTS and (seen := _incumbent(lab)):
        return seen
    return _first_that_trains_as_well(lab, build, refused) or _incumbent(lab)


def _challenged(lab: Lab, state: State, known: Confirmation) -> tuple[State, Confirmation]:
    """What is proven, or what was seen to be faster yet and is proven in its turn."""
    proven = lab.log_speedup(known.series)
    while proven is not None and (other := lab.incumbent(above=proven.low)):
        if set(key_of(other)) <= set(key_of(state)) or not affords(lab, other, 0.0):
            break
        lab.notes.choose("challenged", None, state=names_of(other), proven=names_of(state))
        seen = confirm(lab, other)
        if seen is None:
            break
        found = lab.log_speedup(seen.series)
        if is_faster(lab, seen) and found is not None and found.estimate > proven.estimate:
            state, known, proven = other, seen, found
    return state, known


def _incumbent(lab: Lab) -> State:
    """What was seen to be faster and as good, where there is time to confirm it; else nothing."""
    state = lab.incumbent()
    return state if state and affords(lab, state, -overtime_s(lab)) else ()


def may_attempt(lab: Lab, state: State) -> bool:
    """Whether a state may be confirmed, or confirmed on."""
    known = lab.confirmations.get(key_of(state))
    if known is None:
        return len(lab.confirmations) < MAX_ATTEMPTS
    return doubt(lab, known) is None or may_go_on(lab, known)


def _next(lab: Lab, build: Build, refused: Refused) -> State:
    """The best state by what was measured, else the one that was put forward."""
    state = build(refused)
    state = _what_is_left(lab, state, refused) or state
    if state and may_attempt(lab, state):
        return state
    forward = lab.put_forward
    return forward if not refused.has(forward) and may_attempt(lab, forward) else ()


def _what_is_left(lab: Lab, best: State, refused: Refused) -> State:
    """The state that was refused, without what was to blame, where there was no time to measure it.

    Each of its levers gave something beside the others. It is empty where it holds no more than
    the best state does. A lever that does a part of what a refused one does takes its place.
    """
    for lost in ("", COMPILE):
        kept = [it for it in refused.last if it not in refused.levers and it.name != lost]
        less = {DOES_MORE.get(it.name) for it in refused.last if it in refused.levers}
        less -= {it.name for it in kept}
        offers = [offer for offer in lab.offered if offer.name in less]
        parts = [it for offer in offers for it in offer.settings if it not in refused.levers]
        state = (*kept, *parts[:1])
        reference = lab.fixed_of(state)
        is_more = set(key_of(best)) < set(key_of(state)) and not is_in(state, refused.states)
        is_new = is_more and lab.known.live(reference, state).asked < MIN_PAIRS
        if is_new and may_attempt(lab, state) and affords_both(lab, state):
            return state
    return ()


def _first_that_trains_as_well(lab: Lab, build: Build, refused: Refused) -> State:
    """The best state whose quality passes, or whose quality waits until it is confirmed.

    It waits where there is time for a confirmation and not for both: what was seen is worth more
    where it is certain, and the next call only has to judge it. The state is empty where there is
    none, or no time.
    """
    state = _next(lab, build, refused)
    while state:
        lab.phase = "quality"
        if not lab.quality.is_judged(state) and not affords_both(lab, state):
            if not (seen := _incumbent(lab)) and affords(lab, state, 0.0):
                return state
            _run_out(lab, state, "quality")
            if seen:
                return seen  # what was seen to be as good goes before what may be
            if not _go_on_with_less(lab, state, refused):
                return ()
        elif passes(lab, state):
            return state
        elif not find_culprits(lab, state, lab.judge(state).outcome, refused):
            return ()
        else:
            refused.last = state
        lower_reserve(lab, state)
        state = _next(lab, build, refused)
    return ()


def affords_both(lab: Lab, state: State) -> bool:
    """Whether there is time for judging a state and for its shortest confirmation, or almost.

    So is there for the confirmation of what was seen to be faster and as good, should it fail.
    """
    cost_s = lab.judgement_s(state) - overtime_s(lab)
    seen = lab.incumbent()
    return affords(lab, state, cost_s) and (not seen or affords(lab, seen, cost_s))


def passes(lab: Lab, state: State) -> bool:
    """Whether a state trains as well; note where it does not."""
    outcome = lab.judge(state).outcome
    if outcome is Outcome.PASS:
        return True
    lab.notes.choose("refused", state=names_of(state), outcome=outcome.value)
    lab.notes.explain("quality", state, (), _word(outcome))
    return False


def _is_good(lab: Lab, state: State, refused: Refused) -> bool:
    """Whether what is confirmed trains as well; judged now where that had to wait."""
    if lab.quality.is_judged(state):
        return True
    most_s = lab.ledger.left_s + overtime_s(lab)
    if lab.is_interrupted or most_s < lab.judgement_s(state):
        _run_out(lab, state, "quality")
        return False
    lab.phase = "quality"
    if passes(lab, state):
        return True
    if find_culprits(lab, state, lab.judge(state).outcome, refused):
        refused.last = state
    return False


def _go_on_with_less(lab: Lab, state: State, refused: Refused) -> bool:
    """Leave out what a proof has no time for; False if nothing is left then."""
    return _leave_compiling_out(lab, state, refused) or _leave_processes_out(lab, state, refused)


def _leave_compiling_out(lab: Lab, state: State, refused: Refused) -> bool:
    """Go on without compiling, which each process pays; False if the rest has no time either.

    What acts from the start of a process stays: it may give far more.
    """
    rest = tuple(one for one in state if one.name != COMPILE)
    is_paid_often = len(rest) < len(state) and not is_confirmed_live(lab, state)
    if not is_paid_often or not rest or not affords(lab, rest, 0.0):
        return False
    lab.notes.choose("not_compiled", COMPILE, state=names_of(rest))
    refused.levers += [it for one in lab.offered if one.name == COMPILE for it in one.settings]
    return True


def _leave_processes_out(lab: Lab, state: State, refused: Refused) -> bool:
    """Go on with the live levers alone, which one process can confirm; False if none are left."""
    fixed, live = lab.fixed_of(state), lab.live_of(state)
    if not fixed or not live:
        return False
    lab.notes.choose("live_levers_alone", state=names_of(live), without=names_of(fixed))
    refused.levers += fixed
    return True


def find_culprits(lab: Lab, state: State, outcome: Outcome, refused: Refused) -> bool:
    """Refuse the levers that are to blame, found by halving the state; all of it if none is.

    Where chance leaves the state open, so it does whatever rounds as much: all of it is refused.
    Where a half does not pass, its culprits are refused, and what is left is judged anew as the
    next best state. Where both halves pass, what gives less is refused as far as it harms beside
    the other.

    Returns:
        False where there was no time to find out, or nothing new was.
    """
    if hidden := lab.quality.hidden_with(state, _unrefused(lab, refused), lab.facts):
        for one in hidden:
            _leave_out(lab, one, outcome, refused)
        return True
    if len(state) == 1:
        _refuse(lab, state[0], outcome, refused)
        return True
    halves = split(state, 2)
    for half in halves:
        if not lab.quality.is_judged(half) and not affords_both(lab, half):
            _run_out(lab, half, "quality")
            return False
        found = lab.judge(half).outcome
        if found is not Outcome.PASS:
            lab.notes.explain("quality", half, (), _word(found))
            return find_culprits(lab, half, found, refused)
    if is_in(state, refused.states):
        return False  # what was built held it all the same
    refused.states.append(state)
    weaker, stronger = sorted(halves, key=lab.known.gain_of)
    _refuse_beside(lab, stronger, weaker, refused)
    return True


def _refuse_beside(lab: Lab, kept: State, more: State, refused: Refused) -> State:
    """Refuse those of some levers that harm beside what is kept, which they do together.

    Returns:
        What is kept, with the others. Where there is no time to tell them apart, all go.
    """
    parts = split(more, 2) if len(more) > 1 else []
    for part in parts:
        both = (*kept, *part)
        if not lab.quality.is_judged(both) and not affords_both(lab, both):
            parts = []
            break
        is_good = lab.judge(both).outcome is Outcome.PASS
        kept = both if is_good else _refuse_beside(lab, kept, part, refused)
    if not parts:
        for one in more:
            lab.notes.choose("harmful_together", one.name, state=names_of((*kept, one)))
            refused.levers.append(one)
    return kept


def _refuse(lab: Lab, one: Applied, outcome: Outcome, refused: Refused) -> None:
    """Leave a lever with its settings out from now on.

    Where it rounds too much, what rounds more goes with it, and halving finds how much may be
    rounded: each of the others would be put together, judged and blamed in its turn.
    """
    ladder = by_rounding(_unrefused(lab, refused))
    out = [one]
    if outcome is Outcome.FAIL and one in ladder:
        low, high = 0, ladder.index(one)
        while low < high:
            middle = (low + high) // 2
            state = (ladder[middle],)
            if not lab.quality.is_judged(state) and not affords_both(lab, state):
                break
            if lab.judge(state).outcome is Outcome.PASS:
                low = middle + 1
            else:
                high = middle
        out = ladder[high:]
    for it in out:
        _leave_out(lab, it, outcome, refused)


def _unrefused(lab: Lab, refused: Refused) -> list[Applied]:
    """All settings on offer that may still be part of a recipe."""
    return [it for offer in lab.offered for it in offer.settings if it not in refused.levers]


def _leave_out(lab: Lab, one: Applied, outcome: Outcome, refused: Refused) -> None:
    lab.notes.choose(_word(outcome), one.name, state=label(one))
    refused.levers.append(one)


def _word(outcome: Outcome) -> str:
    """Why a judged state is not kept."""
    return "harmful" if outcome is Outcome.FAIL else "quality_undecided"


def lower_reserve(lab: Lab, state: State) -> None:
    """From now on only what a judgement and the shortest confirmation need is kept back.

    Of the state; of something on offer where none is known.
    """
    states = [state] if state else [(one,) for offer in lab.offered for one in offer.settings[:1]]
    needed_s = max(lab.judgement_s(one) + least_confirmation(lab, one) for one in states)
    lab.ledger.reserve_s = min(lab.ledger.reserve_s, needed_s)


def _run_out(lab: Lab, state: State, phase: str) -> None:
    """Note that there is no time to prove a state."""
    lab.notes.choose("out_of_time", phase=phase, state=names_of(state))


def say_confirmed(lab: Lab, state: State, known: Confirmation) -> None:
    """Write down that a state is proven, with its numbers."""
    lab.notes.choose("confirmed", None, state=names_of(state), **numbers(lab, known.series))
    if lab.baseline is not None and (epoch := unended_epoch(lab.baseline)) is not None:
        start_s = number(epoch.start_s)
        lab.notes.choose("within_epoch", None, steps=epoch.num_steps, start_s=start_s)


def gain_of(lab: Lab, known: Confirmation) -> Interval:
    """The log speedup that a confirmation showed."""
    found = lab.log_speedup(known.series)
    assert found is not None
    return found
