"""The search: from what applies to what is proven, as a function of a `Bench`.

In: a bench and options. Out: `Found`, everything in a study that the search decides. The answers of
the bench determine it: it uses no clock, no disk and no chance. After each answer it says where it
is. docs/explanation/how-we-tune.md explains how levers are ordered, measured, combined and
confirmed, and lists the machine words of choices and reasons.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from steptime.tune.search.bench import Bench
from steptime.tune.search.earlier_results import ordered
from steptime.tune.search.lab import Lab, SearchOptions
from steptime.tune.search.mechanism import MAY_SLOW_DOWN
from steptime.tune.search.order import Offer, most_of, offer, split_by_headroom
from steptime.tune.search.proof.challenge import challenge, faster, is_shown_between
from steptime.tune.search.proof.confirmation import (
    between_s,
    cheapest_proof,
    least_confirmation,
)
from steptime.tune.search.proof.proof import (
    Proven,
    Refused,
    keep_for_proof,
    prove,
)
from steptime.tune.search.queue import Action, ActionKind, next_action, promise_much
from steptime.tune.search.rounds.bundle import build_live
from steptime.tune.search.rounds.going_on import go_on, go_on_with_more, untold
from steptime.tune.search.rounds.live_groups import COMPILE
from steptime.tune.search.rounds.screen import NOISE_ROUNDS, calibrate, can_be_live
from steptime.tune.search.rounds.single_changes import take_what_helps
from steptime.tune.search.rounds.turns import (
    go_further,
    share_cores_again,
    try_in_turns,
)
from steptime.tune.search.search_ending import end
from steptime.tune.search.search_notes import SearchSummary, names_of, number
from steptime.tune.values.study_values import NEEDS_PROOF, Applied, Found, State, StudyOutcome

__all__ = ["Found", "SearchOptions", "SearchSummary", "search"]


MOST_FLOOR = 0.25
"""A noise floor above it is a burst that may pass: what may give more is tried all the same."""

LEAST_RIDE = 0.02
"""What a lever may give at least to be tried beside live ones, below their noise as well: a live
lever, or one between processes that says by the facts how much it saves."""

SHOWN_SHARE = 0.5
"""Of what is left after a proof: what showing it between processes may take of it."""

MOST_IDLE = 8
"""Turns in which nothing was asked: what is put forward then cannot be afforded."""


def _tell_nobody(summary: SearchSummary) -> None:
    """Says nothing, for a search that nobody watches."""


def search(
    bench: Bench, options: SearchOptions, *, tell: Callable[[SearchSummary], None] = _tell_nobody
) -> Found:
    """Try the levers and prove the best state.

    Args:
        bench: what answers.
        options: what the user asked for.
        tell: called after each answer.

    Returns:
        What was found; its outcome is None where the command itself did not run.
    """
    lab = Lab(bench, options, tell)
    lab.price_of_proof = partial(least_confirmation, lab)
    baseline = lab.observe()
    if not baseline.ending.is_well:
        return lab.found(None, reason=baseline.ending.word)
    offers, refused = offer(
        options.levers,
        baseline,
        excluded=options.excluded,
        allows_changes=options.allows_changes,
    )
    lab.notes.leave_out(refused)
    lab.offered = offers
    if not offers:
        waits = any(one.reason == NEEDS_PROOF for one in refused)
        reason = NEEDS_PROOF if waits else "nothing_applies"
        lab.notes.choose("ends", reason=reason)
        return lab.found(StudyOutcome.NOTHING_HELPS, reason=reason)
    lab.is_live = any(one.is_live for one in offers) and calibrate(lab)
    keep_for_proof(lab)
    offers, waiting = _ordered(lab, _worth_trying(lab, offers))
    num_idle, left_s = 0, lab.ledger.granted_s
    while True:
        proven = prove(lab, partial(_build, lab, offers))
        if proven is not None:
            lab.is_proven = True
            while _may_find_more(lab, proven):
                if not challenge(lab, partial(_build, lab, offers), proven):
                    break
            if is_shown_between(lab, proven):
                return faster(lab, proven)
            lab.is_proven = False
        num_idle = num_idle + 1 if lab.ledger.granted_s == left_s else 0
        left_s = lab.ledger.granted_s
        if num_idle > MOST_IDLE:
            return end(lab)
        if waiting:
            offers, waiting = (*offers, *waiting), ()
            lab.waiting = set()
        elif not go_on(lab) and not go_on_with_more(lab):
            return end(lab)


def _worth_trying(lab: Lab, offers: Sequence[Offer]) -> tuple[Offer, ...]:
    """The offers whose headroom is above the noise, with their order written down."""
    # Once the bottleneck is gone, the shares of all else are larger.
    first = next_action(lab, offers)
    early = first.offers if first is not None and first.kind is ActionKind.PROCESS else ()
    gone = max((one.headroom or 0.0 for one in early if one.is_aimed), default=0.0)
    floor = _noise_floor(lab)
    kept, refused = split_by_headroom(offers, floor, speedup=1 / (1 - gone))
    if lab.is_live and any(one.is_live for one in kept):
        # What gives little rides in the bundle of live levers, where small gains add up; what acts
        # from the start is tried after it, when the rest of a step is shorter.
        small = [one for one in offers if _can_ride(one) and one.name not in MAY_SLOW_DOWN]
        riders, _ = split_by_headroom(small, min(floor, LEAST_RIDE), speedup=1 / (1 - gone))
        kept = tuple(one for one in offers if one in kept or one in riders)
        refused = tuple(it for it in refused if it.name not in {one.name for one in kept})
    lab.notes.leave_out(refused)
    lab.small = tuple(one for one in offers if one not in kept and not one.is_live)
    if kept and lab.baseline is not None:
        kind = lab.baseline.diagnosis.kind.value
        lab.notes.choose("ordered", bottleneck=kind, levers=", ".join(one.name for one in kept))
    for one in kept:
        _say_offered(lab, one)
    return kept


def _noise_floor(lab: Lab) -> float:
    return min(lab.yardstick.least_floor, MOST_FLOOR)


def _say_offered(lab: Lab, one: Offer, *, speedup: float = 1.0) -> None:
    """Note that a lever is tried, with what it may give where the rest is so much faster."""
    most = most_of(one, speedup=speedup)
    told = "unknown" if most is None else number(most)
    lab.notes.choose("offered", one.name, headroom=told, is_aimed=one.is_aimed)


def _can_ride(one: Offer) -> bool:
    return one.is_live or (one.headroom is not None and one.lever.saves is not None)


def _ordered(lab: Lab, offers: Sequence[Offer]) -> tuple[tuple[Offer, ...], tuple[Offer, ...]]:
    """The offers as the diagnosis and earlier studies order them, and those that wait."""
    first, waiting = ordered(offers, lab.options.experience)
    if lab.options.experience.studies:
        lab.notes.choose(
            "learned",
            studies=len(lab.options.experience.studies),
            helped=names_of(lab.options.experience.helped) or "nothing",
            waits=", ".join(one.name for one in waiting) or "nothing",
        )
    lab.waiting = {one.name for one in waiting}
    return first, waiting


def _build(lab: Lab, offers: Sequence[Offer], refused: Refused) -> State:
    """The best state by what was measured, without what was refused."""
    _build_once(lab, offers, refused)
    return lab.best


def _build_once(lab: Lab, offers: Sequence[Offer], refused: Refused) -> None:
    lab.best, lab.best_gain = (), None
    is_live = any(one.is_live and lab.is_live for one in offers)
    if not is_live and (only := _only_setting(offers)) and not refused.has(only):
        lab.best = only
        return
    left, undecided = [*offers], dict[str, list[Applied]]()
    while action := next_action(lab, left):
        if action.kind is not ActionKind.LIVE and _trains_worse(lab, action.price_s):
            return  # the proof finds what is to blame, and has the best built without it
        if action.kind is ActionKind.LIVE:
            others = [one for one in left if one not in action.offers]
            most_s = action.most_s if promise_much(lab, others) else math.inf
            lab.keep = lab.ledger.all_but(most_s)
            rest = _not_in(lab.best, action.offers)
            if rest:
                build_live(lab, rest, fixed=lab.best, banned=refused.levers, states=refused.states)
            lab.keep = 0.0
            if not can_be_live(lab):
                lab.is_live = False
                _build_once(lab, offers, refused)
                return
        elif action.kind is ActionKind.COMPILE:
            _compile_too(lab, action.offers[0], refused)
        else:
            undecided |= _try_processes(lab, action, offers, left, refused)
        left = [one for one in left if one not in action.offers]
        left += _grown(lab, offers)
        offers = (*offers, *(one for one in left if one not in offers))
        if lab.best:
            keep_for_proof(lab, lab.best)
    go_further(lab, undecided, states=refused.states)
    if lab.best:
        keep_for_proof(lab, lab.best)


def _try_processes(
    lab: Lab, action: Action, offers: Sequence[Offer], left: Sequence[Offer], refused: Refused
) -> dict[str, list[Applied]]:
    """Try levers between processes; those that are live share the cores with them."""
    live = [one for one in offers if one.is_live and lab.is_live and one.name != COMPILE]
    if any(one in left for one in live):
        lab.notes.choose("processes_first", levers=", ".join(one.name for one in action.offers))
    return try_in_turns(lab, action.offers, live=live, banned=refused.levers, states=refused.states)


def _grown(lab: Lab, offers: Sequence[Offer]) -> list[Offer]:
    """What was below the noise as written, and is not in what the others leave of a step."""
    if lab.best_gain is None:
        return []
    floor = _noise_floor(lab)
    speedup = math.exp(max(0.0, lab.best_gain.estimate))
    small = [one for one in lab.small if one not in offers]
    grown = list(split_by_headroom(small, floor, speedup=speedup)[0])
    lab.notes.take_in([one.name for one in grown])
    for one in grown:
        _say_offered(lab, one, speedup=speedup)
    return grown


def _trains_worse(lab: Lab, price_s: float) -> bool:
    """Whether the best state is refused for its quality; asked where that costs less than a price.

    What comes next would be wasted beside a state that cannot stay. The whole that they make is
    judged again, so this is one whole run more.
    """
    if not lab.best:
        return False
    if not lab.quality.is_judged(lab.best):
        more_s, before_s = lab.ledger.judgement(num_runs=1), lab.ledger.left_s
        if more_s > price_s or not lab.ledger.affords(more_s):
            return False
        lab.phase = "quality"
        lab.judge(lab.best)
        # It was to be made once the search is over, of the time that is kept for that.
        lab.ledger.reserve_s = max(0.0, lab.ledger.reserve_s - (before_s - lab.ledger.left_s))
    return lab.quality.is_refused(lab.best)


def _compile_too(lab: Lab, compiling: Offer, refused: Refused) -> None:
    """Add compiling to the best state, where it helps and there is time for it."""
    if fitting := _that_fit_beside(lab, compiling):
        states = [(*lab.best, one) for one in fitting if one not in refused.levers]
        if take_what_helps(lab, states, banned=refused.states):
            share_cores_again(lab)


def _may_find_more(lab: Lab, proven: Proven) -> bool:
    """Whether more may be found beside what is proven, or less of it be enough, and be proven."""
    if lab.is_interrupted or not (untold(lab) or len(lab.live_of(proven.state)) > 1):
        return False
    proof_s = lab.ledger.judgement(num_runs=1) + cheapest_proof(lab, proven.state)
    shown_s = 0.0 if proven.known.series.is_between else between_s(lab, proven.state)
    left_s = lab.ledger.granted_s
    return left_s > proof_s + (shown_s if shown_s <= SHOWN_SHARE * left_s else 0.0)


def _not_in(state: State, offers: Sequence[Offer]) -> list[Offer]:
    """The offers of levers that the state does not have."""
    names = {one.name for one in state}
    return [one for one in offers if one.name not in names]


def _only_setting(offers: Sequence[Offer]) -> State:
    """The only state there is to choose; the proof of it is all that is to be measured."""
    settings = [setting for one in offers for setting in one.settings]
    return tuple(settings) if len(settings) == 1 else ()


def _that_fit_beside(lab: Lab, lever: Offer) -> State:
    """As many settings that compile as fit into the time: to try them, and to prove one.

    They are ordered by what compiling takes. One that was compiled once fits, for its answer is
    there.
    """
    asked = [one for one in lever.settings if lab.known.live(lab.best, (*lab.best, one)).asked]
    if asked:
        return tuple(asked)
    compile_s = lab.ledger.compilation()
    proof_s = max(lab.ledger.reserve_s, lab.judgement_s((*lab.best, lever.settings[0])))
    left_s = lab.ledger.left_s - proof_s - compile_s
    for number_of in range(len(lever.settings), 0, -1):
        price_s = number_of * compile_s + lab.ledger.blocks(
            (number_of + 1) * NOISE_ROUNDS, num_starts=1
        )
        if lab.ledger.affords(price_s) and price_s <= left_s:
            return lever.settings[:number_of]
    facts = {"price_s": number(price_s + compile_s), "left_s": number(max(0.0, left_s))}
    lab.notes.choose("too_expensive", lever.name, **facts)
    return ()
