"""The search: from what applies to what is proven, as a function of a `Bench`.

In: a bench and options. Out: `Found`, everything in a study that the search decides. The answers of
the bench determine it: it uses no clock, no disk and no chance. After each answer it says where it
is. docs/explanation/how-we-tune.md explains how levers are ordered, measured, combined and
confirmed, and lists the machine words of choices and reasons.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from steptime.tune.search.bench import Bench
from steptime.tune.search.combine import combine
from steptime.tune.search.lab import Lab, SearchOptions
from steptime.tune.search.order import Offer, offer, split_by_headroom
from steptime.tune.search.pairs import Worth
from steptime.tune.search.proof import EFFECT, Refused, keep_for_proof, lower_reserve, prove
from steptime.tune.search.screen import calibrate, calibrate_between, screen, sharpen
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
    lab.is_live = calibrate(lab)
    if not lab.is_live and not calibrate_between(lab):
        lab.notes.choose("ends", reason="no_noise_floor")
        return lab.found(StudyOutcome.TOO_NOISY, reason="no_noise_floor")
    keep_for_proof(lab)
    offers = _worth_trying(lab, offers)
    return prove(lab, lambda refused: _build(lab, offers, refused))


def _worth_trying(lab: Lab, offers: Sequence[Offer]) -> tuple[Offer, ...]:
    """The offers whose headroom is above the noise, with their order written down."""
    live = [one for one in offers if one.is_live and lab.is_live]
    early = _that_come_first(live, [one for one in offers if one not in live])
    # Once the bottleneck is gone, the shares of all else are larger.
    gone = max((one.headroom or 0.0 for one in early), default=0.0)
    kept, refused = split_by_headroom(offers, min(lab.floors.values()), speedup=1 / (1 - gone))
    lab.notes.leave_out(refused)
    for one in kept:
        share = "unknown" if one.headroom is None else number(1 / (1 - one.headroom))
        lab.notes.choose("offered", one.name, headroom=share, is_aimed=one.is_aimed)
    return kept


def _build(lab: Lab, offers: Sequence[Offer], refused: Refused) -> State:
    """The best state by what was measured, without what was refused."""
    live = [one for one in offers if one.is_live and lab.is_live]
    others = [one for one in offers if one not in live]
    early = _that_come_first(live, others)
    late = [one for one in others if one not in early]
    lab.best, lab.best_gain = (), None
    if early:
        lab.notes.choose("processes_first", levers=", ".join(one.name for one in early))
        try_in_turns(lab, early, banned=refused.levers)
    if live:
        fixed, lab.keep = lab.best, KEEP_FOR_PROCESSES if late and has_time_for_turns(lab) else 0.0
        champions = screen(lab, live, fixed=fixed, banned=refused.levers)
        if not any(one.worth is Worth.GAIN for one in champions):
            lower_reserve(lab, ())
            if sharpen(lab, live, fixed=fixed, least=math.log1p(EFFECT)):
                champions = screen(lab, live, fixed=fixed, banned=refused.levers)
        combine(lab, champions, fixed=fixed, banned=refused.states)
    lab.keep = 0.0
    try_in_turns(lab, late, banned=refused.levers)
    return lab.best


def _that_come_first(live: Sequence[Offer], others: Sequence[Offer]) -> list[Offer]:
    """Levers between processes that relieve the bottleneck, where no live one gives as much."""
    most = max((one.headroom or 0.0 for one in live), default=math.inf)
    return [one for one in others if one.is_aimed and (one.headroom or 0.0) > most]
