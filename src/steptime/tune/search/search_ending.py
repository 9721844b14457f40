"""Ends a search that proved nothing: nothing helps, or what could not be told, and why.

In: a `Lab` whose time is spent, or for which nothing is open. Out: what was found. Where something
is open, it says what was seen and how much time is missing, by the noise that was seen.
"""

from __future__ import annotations

import math

from steptime.core.note import Fact
from steptime.tune.search.lab import Lab
from steptime.tune.search.order import Offer
from steptime.tune.search.proof.comparison_series import ComparisonSeries, Confirmation
from steptime.tune.search.proof.confirmation import doubt, is_faster, least_confirmation
from steptime.tune.search.proof.pairs import MIN_PAIRS, Worth, pairs_for, to_speedup
from steptime.tune.search.rounds.going_on import (
    EFFECT,
    LEAST_TOLD,
    MOST_HIDDEN,
    limit_of,
    open_ones,
    untold,
)
from steptime.tune.search.rounds.live_groups import COMPILE
from steptime.tune.search.search_notes import number
from steptime.tune.values.study_values import FewPairs, Found, StudyOutcome, Unproven

MARGIN = 0.8
"""Of the distance from the noise floor to the middle: the half width that a proof should have."""

PROOF_STARTS = 3
"""Processes that a live proof starts."""

LONGEST_S = 24 * 3600.0
"""Where more would be missing, time is not what is missing."""

HIDING = frozenset(
    {"not_confirmed", "too_few_repeats", "cannot_tell", "repeats_disagree", "no_noise_floor"}
)
"""Reasons of a confirmation that leave an effect possible, if its interval does."""

Facts = dict[str, Fact]


def end(lab: Lab) -> Found:
    """Nothing was proven: nothing helps, or an effect worth looking for could hide."""
    for known in lab.confirmations.values():
        is_faster(lab, known)  # says why not, as it is known in the end
    proofs = [one for one in lab.confirmations.values() if _is_open(lab, one)]
    some = [one for one in open_ones(lab) if not _is_settled(lab, one)]
    late = [one for one in untold(lab) if one.name != COMPILE]
    reason = _why(lab, proofs, some, late)
    facts = _facts(lab, reason, [*(one.series for one in proofs), *some])
    lab.best, lab.best_gain = (), None
    lab.notes.choose("ends", None, **{**facts, "reason": reason or "nothing_helps"})
    if reason is None:
        return lab.found(StudyOutcome.NOTHING_HELPS, facts=facts or None)
    unproven = _unproven(lab, proofs, some, late)
    return lab.found(StudyOutcome.TOO_NOISY, reason=reason, facts=facts or None, unproven=unproven)


def _why(
    lab: Lab, proofs: list[Confirmation], some: list[ComparisonSeries], late: list[Offer]
) -> str | None:
    """Why it could not be told whether something helps; None where it could."""
    if lab.is_interrupted:
        return "interrupted"
    if proofs:
        return doubt(lab, proofs[0]) or "quality_not_judged"
    if some:
        if any(lab.worth(one) is Worth.GAIN for one in some):
            return "too_few_repeats"
        if not any(lab.yardstick.can_tell(one) for one in some):
            return "cannot_tell"
        is_large = LEAST_TOLD * lab.yardstick.least_floor >= EFFECT
        return "noise_floor" if is_large else "undecided"
    same = lab.known.live((), ())
    if late and same.is_over and not lab.known.begun:
        return same.ending.word
    return "no_time" if late else None


def _is_open(lab: Lab, known: Confirmation) -> bool:
    series = known.series
    if lab.quality.is_refused(series.state):
        return False
    reason, found = doubt(lab, known), lab.log_speedup(series)
    if reason in (None, "repeats_disagree"):
        return True
    could_help = found is None or found.high > math.log1p(limit_of(lab))
    return reason in HIDING and could_help


def _is_settled(lab: Lab, series: ComparisonSeries) -> bool:
    """Whether it showed nothing, and can hide so little that it is enough to say how much."""
    found, middle = lab.log_speedup(series), lab.yardstick.middle(series)
    if found is None or middle is None or not lab.yardstick.can_deny(series):
        return False
    shows_nothing = middle < min(math.log1p(EFFECT) / 2, math.log1p(lab.floor_for(series)))
    return shows_nothing and found.high <= math.log1p(MOST_HIDDEN)


def _facts(lab: Lab, reason: str | None, seen: list[ComparisonSeries]) -> Facts:
    """The numbers behind the ending."""
    if reason is None:
        alone = lab.known.alone
        refused = [one for one in alone if lab.quality.is_refused(one.state)]
        if any(lab.worth(one) is Worth.GAIN for one in refused):
            return {}  # it is faster, and not known to train as well
        kept = [one for one in alone if not lab.notes.was_dropped(one.state)]
        told = [lab.proof_of(one.state) or one for one in kept]
        highs = [found.high for one in told if (found := lab.log_speedup(one))]
        return {"rules_out": number(max(0.0, math.expm1(max(highs))))} if highs else {}
    same = lab.known.live((), ())
    if reason == same.ending.word and same.is_over:
        return dict(same.ending.facts or {})
    busy = [one.others_cores for one in seen if one.others_cores is not None]
    others = max(busy, default=None)
    if others is None or lab.yardstick.is_quiet(others):
        return {}
    return {"others_cores": number(others)}


# -- what was seen


def _unproven(
    lab: Lab, proofs: list[Confirmation], some: list[ComparisonSeries], late: list[Offer]
) -> Unproven | None:
    """The most promising state, and the time that is missing for it."""
    seen = [one.series for one in proofs] or some
    for series in seen:
        middle = lab.yardstick.middle(series)
        if middle is not None and middle > 0:
            found = lab.log_speedup(series)
            few = FewPairs(median=math.exp(middle), n=len(lab.yardstick.log_ratios(series)))
            return Unproven(
                state=series.state,
                speedup=None if found is None else to_speedup(found),
                few=few if found is None else None,
                missing_s=_missing_s(lab, series, is_proof=bool(proofs)),
            )
    if seen or not late:
        return None
    state = late[0].settings[:1]
    missing_s = lab.judgement_s(state) + least_confirmation(lab, state) - lab.ledger.left_s
    return Unproven(state=state, missing_s=max(missing_s, lab.ledger.pairs(1)))


def _missing_s(lab: Lab, series: ComparisonSeries, *, is_proof: bool) -> float | None:
    """Time beyond the budget that should settle it [s]; None where time alone would not."""
    quality_s = lab.judgement_s(series.state)
    found = lab.log_speedup(series)
    if not lab.yardstick.may_tell(series):
        return None
    values = lab.yardstick.log_ratios(series)
    share = len(values) / max(1, len(series.wall))
    if found is None:
        num = 2 * MIN_PAIRS
    else:
        gap = found.estimate - math.log1p(lab.floor_for(series))
        if gap <= 0:
            return None
        num = max(MIN_PAIRS, pairs_for(found, MARGIN * gap))
    had = len(values) if is_proof else 0
    due = math.ceil(max(0, num - had) / max(share, 1 / MIN_PAIRS))
    if series.is_between:
        price_s = lab.ledger.pairs(max(1, due))
    else:
        price_s = lab.ledger.blocks(2 * max(MIN_PAIRS, due), num_starts=PROOF_STARTS)
    price_s = max(price_s, least_confirmation(lab, series.state))
    missing_s = max(price_s / 2, quality_s + price_s - max(0.0, lab.ledger.left_s))
    return missing_s if missing_s <= LONGEST_S else None
