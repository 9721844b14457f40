"""Compares levers of the environment and of start-up between processes that take turns.

In: a `Lab` and offers in order. Out: the lab's best state, with the levers that helped. Two or
three levers fit a budget, so their order matters; each gets a few pairs, and more only if it may
still win.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from steptime.core.interval import Interval
from steptime.tune.search.comparison_series import ComparisonSeries
from steptime.tune.search.lab import Lab
from steptime.tune.search.live_groups import COMPILE
from steptime.tune.search.order import Offer
from steptime.tune.search.pairs import MIN_PAIRS, Worth, chain, to_speedup
from steptime.tune.search.search_notes import label, names_of, number, numbers_of
from steptime.tune.values.study_values import Applied, State

FIRST_PAIRS = 2
"""Each of several settings gets so many at first; only the best one gets more."""

EARLY_PAIRS = 4
"""After so many, what was not faster than the noise in any of them is given up."""

MAX_PAIRS = 12
"""Where time is left when all were tried, what is undecided gets so many."""


def has_time_for_turns(lab: Lab) -> bool:
    """Whether one lever at least can be compared between processes, and be proven."""
    ledger = lab.ledger
    return ledger.left_s > ledger.pairs(EARLY_PAIRS + MIN_PAIRS) + ledger.judgement()


def try_in_turns(lab: Lab, offers: Sequence[Offer], *, banned: Sequence[Applied]) -> None:
    """Add the levers that help together with the best state, in their order."""
    lab.phase = "process"
    for num_pairs in ((EARLY_PAIRS, MIN_PAIRS), (MAX_PAIRS,)):
        if not lab.best and num_pairs == (MAX_PAIRS,):
            break  # there is nothing to add to; what is open gets its pairs at the end
        for one in offers:
            settings = [setting for setting in one.settings if setting not in banned]
            if one.name not in {applied.name for applied in lab.best}:
                _try(lab, settings, num_pairs)


def _try(lab: Lab, settings: Sequence[Applied], num_pairs: Sequence[int]) -> None:
    """Compare one lever's settings with the best so far; add the best of them if it helps."""
    # Compiling again in each of a dozen processes would take the whole budget.
    reference = tuple(one for one in lab.best if one.name != COMPILE)
    # What gave way stays so, whatever more pairs say of the best.
    settings = [one for one in settings if not lab.notes.was_dropped((*reference, one))]
    if len(settings) > 1:
        for one in settings:
            if not lab.turns(reference, (*reference, one), FIRST_PAIRS):
                break
        settings = _best_first(lab, reference, settings)[:1]
    for one in settings:
        series = lab.known.between(reference, (*reference, one))
        for due in num_pairs:
            if series.is_over or _is_hopeless(lab, series):
                break
            lab.turns(reference, series.state, due)
        found = _decide(lab, series)
        if found is not None:
            lab.best, lab.best_gain = (*lab.best, one), chain(lab.best_gain, found)


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


def _decide(lab: Lab, series: ComparisonSeries) -> Interval | None:
    """What the lever gives, where it helps and that could be told; else None, with the reason."""
    name = series.state[-1].name
    middle, what = lab.yardstick.middle(series), lab.worth(series)
    if series.is_over or middle is None:
        if series.asked:
            lab.notes.choose("not_added", name, reason=series.ending.word)
        return None
    found = lab.log_speedup(series)
    seen = {"speedup": number(math.exp(middle)), "n": len(lab.yardstick.log_ratios(series))}
    facts = (seen if found is None else numbers_of(to_speedup(found))) | {
        "to": names_of(series.reference)
    }
    reason = "too_few_pairs" if what is None else what.value
    if not lab.yardstick.can_tell(series):
        others = series.others_cores
        reason = "cannot_tell"
        facts["others_cores"] = "unknown" if others is None else f"{others:.2g}"
    is_gain = reason == Worth.GAIN.value
    lab.notes.explain("process", series.state, series.reference, None if is_gain else reason)
    code = "added" if is_gain else "not_added"
    lab.notes.choose(code, name, **facts, **({} if is_gain else {"reason": reason}))
    return found if is_gain else None
