"""The processes that are kept from request to request, as the search knows them, and their price.

In: requests. Out: their results. Levers that cannot be switched need a process of their own: one
in which states are compared live, or two that run in turns. One process can compile only so many
states. What each request took teaches the ledger.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from steptime.levers.base import Facts
from steptime.tune.search.bench import Bench, ComparisonResult, LiveRequest
from steptime.tune.search.budget import BudgetLedger
from steptime.tune.search.proof.comparison_series import ComparisonSeries
from steptime.tune.search.rounds.live_groups import COMPILE, MAX_COMPILED_STATES, max_states
from steptime.tune.search.search_notes import Key, key_of, number
from steptime.tune.values.study_values import State


class LiveProcess:
    """What is known of the process that runs, if one does: its fixed levers, what it compiled.

    Or of the two that are kept and run in turns: there is never more than either.
    """

    def __init__(self, bench: Bench, ledger: BudgetLedger) -> None:
        self._bench = bench
        self._ledger = ledger
        self._fixed: Key | None = None
        self._kept: tuple[Key, Key] | None = None
        self._compiled: set[Key] = set()
        self._first_s: dict[tuple[Key, Key], float] = {}

    def forget(self) -> None:
        """Note that something else runs now: the next request starts a process."""
        self._fixed = self._kept = None

    def kept_cost_s(self, series: ComparisonSeries, num_pairs: int) -> float:
        """Predict what so many pairs of stretches of two kept processes take [s]."""
        return self._ledger.kept_pairs(num_pairs, num_starts=self.num_starts(series))

    def num_starts(self, series: ComparisonSeries) -> int:
        """How many processes a comparison of two kept ones starts."""
        return 0 if self._kept == _both(series) else 2

    def keep(self, series: ComparisonSeries) -> None:
        """Note that the two of a comparison wait for more."""
        self._kept = _both(series)

    def cost_s(self, pending: Sequence[ComparisonSeries], fixed: State, num_rounds: int) -> float:
        """Predict what so many rounds of these comparisons take [s]."""
        asked = [(one.state, one.asked) for one in pending]
        asked += [(pending[0].reference, min(one.asked for one in pending))] if pending else []
        new = [num for state, num in asked if any(a.name == COMPILE for a in state)]
        return self._ledger.blocks(
            num_rounds * (len(pending) + 1),
            num_starts=0 if self._fixed == key_of(fixed) else 1,
            num_compiles=new.count(0),
        )

    def needs_another(self, facts: Facts, states: Sequence[State]) -> bool:
        """Note states, and return whether they are too many to compile in the process that runs."""
        if max_states(facts, states) > MAX_COMPILED_STATES:
            return False
        new = {key_of(state) for state in states}
        is_full = len(self._compiled | new) > MAX_COMPILED_STATES
        self._compiled = new if is_full else self._compiled | new
        return is_full

    def compare(
        self,
        fixed: State,
        states: tuple[State, ...],
        num_rounds: int,
        *,
        is_fresh: bool = False,
        most_s: float,
    ) -> ComparisonResult:
        """Compare states in turns, and learn what it cost.

        Args:
            fixed: the levers that cannot be switched.
            states: the reference and the candidates, with their live levers.
            num_rounds: how often each has its turn.
            is_fresh: in a process that has just been started.
            most_s: when that much time is spent, it ends with what there is [s].
        """
        num_starts = 1 if is_fresh or self._fixed != key_of(fixed) else 0
        request = LiveRequest(
            fixed=fixed,
            states=states,
            num_rounds=num_rounds,
            is_fresh=is_fresh,
            most_s=number(most_s),
        )
        result = self._bench.compare_live(request)
        compiled_s = math.fsum(arm.compile_s for arm in result.arms)
        spent_s = self._ledger.spend(self._bench.time_left_s()) - compiled_s
        num_got = max((len(arm.log_ratios) for arm in result.arms), default=0)
        if result.ending.is_well:
            num_blocks = (num_got or num_rounds) * len(states)
            self._ledger.learn_blocks(spent_s, num_blocks, num_starts=num_starts)
        if compiled_s > 0:
            self._ledger.learn_compilation(max(arm.compile_s for arm in result.arms))
            if num_starts:
                self._learn_again(fixed, result)
        self._fixed, self._kept = key_of(fixed) if result.ending.is_well else None, None
        return result

    def _learn_again(self, fixed: State, result: ComparisonResult) -> None:
        """Learn from a new process what it compiled that an earlier one had compiled as well."""
        for arm in result.arms:
            if arm.compile_s <= 0:
                continue
            key = (key_of(fixed), key_of(arm.state))
            if key in self._first_s:
                self._ledger.learn_again(arm.compile_s / self._first_s[key])
            else:
                self._first_s[key] = arm.compile_s


def _both(series: ComparisonSeries) -> tuple[Key, Key]:
    return key_of(series.reference), key_of(series.state)
