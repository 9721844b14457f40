"""Compares levers of the environment and of start-up between processes that take turns.

In: a `Lab` and offers in order. Out: the lab's best state, with the levers that helped. Two or
three levers fit a budget, so their order matters; each gets a few pairs, and more only if it may
still win.
"""

from __future__ import annotations

from collections.abc import Sequence

from steptime.core.interval import Interval
from steptime.tune.search.comparison_series import ComparisonSeries
from steptime.tune.search.lab import COMPILE, Lab
from steptime.tune.search.order import Offer
from steptime.tune.search.pairs import MIN_PAIRS, Worth, chain, to_speedup, worth
from steptime.tune.search.search_notes import label, names_of, numbers_of
from steptime.tune.values.study_values import Applied, State

FIRST_PAIRS = 2
"""Each of several settings gets so many at first; only the best one gets more."""

EARLY_PAIRS = 4
"""After so many, what is not faster than the noise is given up."""

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
        for one in offers:
            settings = [setting for setting in one.settings if setting not in banned]
            if one.name not in {applied.name for applied in lab.best}:
                _try(lab, settings, num_pairs)


def _try(lab: Lab, settings: Sequence[Applied], num_pairs: Sequence[int]) -> None:
    """Compare one lever's settings with the best so far; add the best of them if it helps."""
    # Compiling again in each of a dozen processes would take the whole budget.
    reference = tuple(one for one in lab.best if one.name != COMPILE)
    if len(settings) > 1:
        for one in settings:
            if not lab.turns(reference, (*reference, one), FIRST_PAIRS):
                break
        settings = _best_first(lab, reference, settings)[:1]
    for one in settings:
        series = lab.turns_series(reference, (*reference, one))
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
        series = lab.turns_series(reference, (*reference, one))
        found = None if series.is_over else lab.log_speedup(series)
        if found is not None:
            known.append((found.estimate, one))
    ranked = [one for _, one in sorted(known, key=lambda it: -it[0])]
    for one in ranked[1:]:
        lab.notes.explain("process", (*reference, one), reference, "halved")
        lab.notes.choose("halved", one.name, state=label(one))
    return ranked


def _is_hopeless(lab: Lab, series: ComparisonSeries) -> bool:
    """Whether more pairs would change nothing: it cannot be told here, or is no gain already."""
    found = lab.log_speedup(series)
    if found is None or found.n < EARLY_PAIRS:
        return False
    what = worth(found, lab.floor_for(series))
    return not can_tell(lab, series) or what in (Worth.NOTHING, Worth.SLOWER)


def _decide(lab: Lab, series: ComparisonSeries) -> Interval | None:
    """What the lever gives, where it helps and that could be told; else None, with the reason."""
    name = series.state[-1].name
    found = lab.log_speedup(series)
    if series.is_over or found is None:
        if series.asked:
            lab.notes.choose("not_added", name, reason=series.ending.word)
        return None
    facts = numbers_of(to_speedup(found)) | {"to": names_of(series.reference)}
    reason: str | None = worth(found, lab.floor_for(series)).value
    if not can_tell(lab, series):
        reason = "cannot_tell"
        facts["others_cores"] = (
            "unknown" if series.others_cores is None else f"{series.others_cores:.2g}"
        )
    elif reason == Worth.GAIN.value and found.n < EARLY_PAIRS:
        reason = Worth.UNCLEAR.value
    is_gain = reason == Worth.GAIN.value
    lab.notes.explain("process", series.state, series.reference, None if is_gain else reason)
    code = "added" if is_gain else "not_added"
    lab.notes.choose(code, name, **facts, **({} if is_gain else {"reason": reason or ""}))
    return found if is_gain else None


def can_tell(lab: Lab, series: ComparisonSeries) -> bool:
    """Whether a comparison between processes can be judged here.

    By CPU time where all levers allow it; by wall time where others left the machine alone.
    """
    return lab.is_by_cpu(series) or lab.is_quiet(series.others_cores)
