"""What the search asks next: of all that it may try, what promises most for its price.

In: a `Lab` and the offers that were not tried yet. Out: one action with its levers. Ties go to the
cheaper action, then to the alphabet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from steptime.tune.search.lab import Lab
from steptime.tune.search.mechanism import NEVER_FIRST, SHARES_CORES
from steptime.tune.search.order import MAX_HEADROOM_FRACTION, Offer, expected_headroom
from steptime.tune.search.proof.comparison_series import ComparisonSeries
from steptime.tune.search.proof.confirmation import cheapest_proof, overtime_s
from steptime.tune.search.rounds.live_groups import COMPILE
from steptime.tune.search.rounds.process_turns import pairs_s
from steptime.tune.search.rounds.screen import NOISE_ROUNDS, live_s
from steptime.tune.search.rounds.turns import EARLY_PAIRS

PART_OF_HEADROOM = 0.25
"""What a lever is expected to give of its headroom, which is an upper bound: what relieves the
bottleneck comes close to it, others seldom give half of it, and every other one nothing."""

LITTLE_OF_HEADROOM = 0.02
"""The same of levers whose bound is all that operators take."""

OF_COMPILING = 0.25
"""The same of compiling: it was worth its time on four of 24 public scripts."""


MOST_OF_PRICE = 3.0
"""Times its price: what live levers may take while others wait, where much noise asks for more."""


class ActionKind(Enum):
    """How an action is asked."""

    LIVE = "live"
    """Together, in one process that switches them between steps."""
    PROCESS = "process"
    """Between processes in turns."""
    COMPILE = "compile"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Levers that are tried together: the log speedup that may be hoped for, and the price [s]."""

    kind: ActionKind
    offers: tuple[Offer, ...]
    hope: float
    price_s: float

    @property
    def most_s(self) -> float:
        """What it may take while others wait [s]."""
        return self.price_s * (MOST_OF_PRICE if self.kind is ActionKind.LIVE else 1.0)

    @property
    def rank(self) -> tuple[float, float, str]:
        """What sorts actions, the best one first."""
        return (
            -self.hope / max(self.price_s, 1e-9),
            self.price_s,
            min(one.name for one in self.offers),
        )


def next_action(lab: Lab, offers: Sequence[Offer]) -> Action | None:
    """Return what is asked next; None where nothing is left.

    What promises more at a higher price goes first where there is no time for it afterwards.
    """
    due = sorted(_actions(lab, offers), key=lambda it: it.rank)
    if not due:
        return None
    left_s = lab.ledger.granted_s
    best = due[0]
    for one in due[1:]:
        needed_s = one.price_s + _proof_s(lab, one)
        if one.hope > best.hope and left_s - best.most_s < needed_s <= left_s:
            best = one
    return best


def _actions(lab: Lab, offers: Sequence[Offer]) -> list[Action]:
    """What may be asked: levers between processes that promise more than all else go together."""
    others = _live_actions(lab, offers)
    first = min(others, key=lambda it: it.rank, default=None)
    single = [_between(lab, one) for one in offers if not _is_live(lab, one)]
    single.sort(key=lambda it: it.rank)
    groups = [[one for one in single if first is None or one.rank < first.rank]]
    groups.append([one for one in single if one not in groups[0]])
    for group in filter(None, groups):
        members = {one.offers[0].name for one in group}
        together = tuple(one for one in offers if one.name in members)
        others.append(replace(group[0], offers=together))
    return others


def _proof_s(lab: Lab, action: Action) -> float:
    state = action.offers[0].settings[:1]
    return lab.judgement_s(state) + cheapest_proof(lab, state) - overtime_s(lab)


def _live_actions(lab: Lab, offers: Sequence[Offer]) -> list[Action]:
    live = [one for one in offers if _is_live(lab, one)]
    cheap = tuple(one for one in live if one.name != COMPILE)
    found = []
    if cheap:
        hope = max(_hope(lab, one) for one in cheap)
        price_s = live_s(lab, cheap)
        found.append(Action(kind=ActionKind.LIVE, offers=cheap, hope=hope, price_s=price_s))
    for one in live:
        # Beside it other levers give something else, in each of its processes at another price.
        if one.name == COMPILE and not cheap:
            price_s = lab.ledger.compilation() + lab.ledger.blocks(2 * NOISE_ROUNDS, num_starts=1)
            hope = _hope(lab, one)
            found.append(Action(kind=ActionKind.COMPILE, offers=(one,), hope=hope, price_s=price_s))
    return found


def _between(lab: Lab, one: Offer) -> Action:
    price_s = pairs_s(lab, ComparisonSeries(state=(), reference=()), EARLY_PAIRS)
    return Action(kind=ActionKind.PROCESS, offers=(one,), hope=_hope(lab, one), price_s=price_s)


def promise_much(lab: Lab, offers: Sequence[Offer]) -> bool:
    """Return whether one of them may give more than the noise: time is kept for it."""
    least = math.log1p(lab.yardstick.least_floor)
    return any(_hope(lab, one) > least for one in offers)


def _is_live(lab: Lab, one: Offer) -> bool:
    return one.is_live and lab.is_live


def _hope(lab: Lab, one: Offer) -> float:
    """The log speedup that may be hoped for beside what was found so far."""
    gained = 0.0 if lab.best_gain is None else max(0.0, lab.best_gain.estimate)
    share = min(MAX_HEADROOM_FRACTION, math.exp(gained) * expected_headroom(one))
    part = 1.0 if one.is_aimed else PART_OF_HEADROOM
    if one.name == COMPILE:
        part = OF_COMPILING
    elif one.name in NEVER_FIRST | SHARES_CORES:
        part = LITTLE_OF_HEADROOM
    return -math.log1p(-part * share)
