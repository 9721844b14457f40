"""The search: from what applies to what is proven, as a function of a `Bench`.

In: a bench and options. Out: `Found`, everything in a study that the search decides. The answers of
the bench determine it: it uses no clock, no disk and no chance. After each answer it says where it
is. docs/explanation/how-we-tune.md explains how levers are ordered, measured, combined and
confirmed, and lists the machine words of choices and reasons.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from steptime.tune.search.bench import Bench
from steptime.tune.search.combine import combine
from steptime.tune.search.going_on import go_on, go_on_with_more
from steptime.tune.search.lab import Lab, SearchOptions
from steptime.tune.search.live_groups import COMPILE
from steptime.tune.search.order import Offer, expected_headroom, offer, split_by_headroom
from steptime.tune.search.proof import Refused, keep_for_proof, prove
from steptime.tune.search.screen import NOISE_ROUNDS, Champion, calibrate, screen
from steptime.tune.search.search_ending import end
from steptime.tune.search.search_notes import Found, SearchSummary, number
from steptime.tune.search.turns import has_time_for_turns, try_in_turns
from steptime.tune.values.study_values import State, StudyOutcome

__all__ = ["Found", "SearchOptions", "SearchSummary", "search"]


KEEP_FOR_PROCESSES = 0.4
"""Of the search's time, where levers can only be tried between processes: two of them or so."""


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
    baseline = lab.observe()
    if not baseline.ending.is_well:
        return lab.found(None, reason=baseline.ending.word)
    offers, refused = offer(options.levers, baseline, excluded=options.excluded)
    lab.notes.leave_out(refused)
    lab.offered = offers
    if not offers:
        lab.notes.choose("ends", reason="nothing_applies")
        return lab.found(StudyOutcome.NOTHING_HELPS, reason="nothing_applies")
    lab.is_live = any(one.is_live for one in offers) and calibrate(lab)
    keep_for_proof(lab)
    offers = _worth_trying(lab, offers)
    while True:
        found = prove(lab, lambda refused: _build(lab, offers, refused))
        if found is not None:
            return found
        if not go_on(lab) and not go_on_with_more(lab):
            return end(lab)


def _worth_trying(lab: Lab, offers: Sequence[Offer]) -> tuple[Offer, ...]:
    """The offers whose headroom is above the noise, with their order written down."""
    live = [one for one in offers if one.is_live and lab.is_live]
    early = _that_come_first(live, [one for one in offers if one not in live])
    # Once the bottleneck is gone, the shares of all else are larger.
    gone = max((one.headroom or 0.0 for one in early), default=0.0)
    kept, refused = split_by_headroom(offers, lab.yardstick.least_floor, speedup=1 / (1 - gone))
    lab.notes.leave_out(refused)
    for one in kept:
        share = "unknown" if one.headroom is None else number(1 / (1 - one.headroom))
        lab.notes.choose("offered", one.name, headroom=share, is_aimed=one.is_aimed)
    return kept


def _build(lab: Lab, offers: Sequence[Offer], refused: Refused) -> State:
    """The best state by what was measured, without what was refused."""
    live = [one for one in offers if one.is_live and lab.is_live]
    cheap = [one for one in live if one.name != COMPILE]
    others = [one for one in offers if one not in live]
    early = _that_come_first(live, others)
    late = [one for one in others if one not in early]
    lab.best, lab.best_gain = (), None
    if not live and (only := _only_setting(offers)) and not refused.has(only):
        return only
    if early:
        lab.notes.choose("processes_first", levers=", ".join(one.name for one in early))
        try_in_turns(lab, early, banned=refused.levers)
    fixed, gain = lab.best, lab.best_gain
    champions: list[Champion] = []
    if cheap:
        lab.keep = KEEP_FOR_PROCESSES if late and has_time_for_turns(lab) else 0.0
        champions = screen(lab, cheap, fixed=fixed, banned=refused.levers)
        combine(lab, champions, fixed=fixed, banned=refused.states)
        lab.keep = 0.0
    try_in_turns(lab, late, banned=refused.levers)
    compiling = [one for one in live if one.name == COMPILE]
    compiling = [_that_fits_beside(lab, one, fixed) for one in compiling]
    if compiling and compiling[0].settings:
        champions += screen(lab, compiling, fixed=fixed, banned=refused.levers)
        champions.sort(key=lambda one: -one.gain)
        lab.best, lab.best_gain = fixed, gain
        combine(lab, champions, fixed=fixed, banned=refused.states)
        try_in_turns(lab, late, banned=refused.levers)
    return lab.best


def _only_setting(offers: Sequence[Offer]) -> State:
    """The only state there is to choose; the proof of it is all that is to be measured."""
    settings = [setting for one in offers for setting in one.settings]
    return tuple(settings) if len(settings) == 1 else ()


def _that_fits_beside(lab: Lab, lever: Offer, fixed: State) -> Offer:
    """As many settings that compile as fit into the time: to try them, and to prove one.

    They are ordered by what compiling takes. One that was compiled once fits, for its answer is
    there.
    """
    asked = [one for one in lever.settings if lab.known.live(fixed, (*fixed, one)).asked]
    if asked:
        return replace(lever, settings=tuple(asked))
    compile_s = lab.ledger.compilation()
    proof_s = max(lab.ledger.reserve_s, lab.judgement_s((*lab.best, lever.settings[0])))
    left_s = lab.ledger.left_s - proof_s - compile_s
    for number_of in range(len(lever.settings), 0, -1):
        price_s = number_of * compile_s + lab.ledger.blocks(
            (number_of + 1) * NOISE_ROUNDS, num_starts=1
        )
        if lab.ledger.affords(price_s) and price_s <= left_s:
            return replace(lever, settings=lever.settings[:number_of])
    facts = {"price_s": number(price_s + compile_s), "left_s": number(max(0.0, left_s))}
    lab.notes.choose("too_expensive", lever.name, **facts)
    return replace(lever, settings=())


def _that_come_first(live: Sequence[Offer], others: Sequence[Offer]) -> list[Offer]:
    """Levers between processes that relieve the bottleneck, where no live one gives as much."""
    most = max(map(expected_headroom, live), default=math.inf)
    known = [(one, one.headroom) for one in others if one.is_aimed and one.headroom is not None]
    return [one for one, share in known if share > most]
