"""Asks whether states train as well, once each, and knows what asking costs.

In: a bench and states. Out: verdicts. The runs of the command as written serve all states of a
class and a roundoff, so only the first judgement of each makes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steptime.levers.base import Facts, Lever
from steptime.tune.search.bench import Bench
from steptime.tune.search.budget import RUNS_OF_REPEATS, BudgetLedger
from steptime.tune.search.search_notes import Key, key_of
from steptime.tune.trials.judging import claim_of
from steptime.tune.values.study_values import Applied, State
from steptime.verify.judge_quality import is_hidden
from steptime.verify.protocol import AGAIN, BASELINE, CANDIDATE, DOUBLE, plan_runs
from steptime.verify.values import Outcome, Verdict

ONCE = (BASELINE, AGAIN, CANDIDATE, DOUBLE)


class Quality:
    """The verdicts so far."""

    def __init__(self, bench: Bench, ledger: BudgetLedger, levers: Mapping[str, Lever]) -> None:
        self._bench = bench
        self._ledger = ledger
        self._levers = levers
        self._verdicts: dict[Key, Verdict] = {}
        self._made: set[str] = set()  # runs of the command as written, by their names

    def judge(self, state: State, facts: Facts) -> Verdict:
        """Whether runs with the state train as well; asked once a state."""
        key = key_of(state)
        if key not in self._verdicts:
            due = self._due(state, facts)
            self._verdicts[key] = self._bench.judge(state)
            self._made |= set(due) - {CANDIDATE}
            spent_s = self._ledger.spend(self._bench.time_left_s())
            self._ledger.learn_judgement(spent_s, _price_of(due))
        return self._verdicts[key]

    def is_judged(self, state: State) -> bool:
        """Whether the state's verdict is known."""
        return key_of(state) in self._verdicts

    def has_passed(self, state: State) -> bool:
        """Whether the state was judged, and trains as well."""
        verdict = self._verdicts.get(key_of(state))
        return verdict is not None and verdict.outcome is Outcome.PASS

    def is_refused(self, state: State) -> bool:
        """Whether the state, or one of its levers alone, was judged and did not pass."""
        parts = (key_of(state), *(key_of((one,)) for one in state))
        known = [self._verdicts[part] for part in parts if part in self._verdicts]
        return any(verdict.outcome is not Outcome.PASS for verdict in known)

    def verdict_of(self, state: State) -> Verdict | None:
        """The state's verdict where it is known."""
        return self._verdicts.get(key_of(state)) if state else None

    def hidden_with(self, state: State, known: Sequence[Applied], facts: Facts) -> list[Applied]:
        """Those of some settings that chance leaves as open as the state, which was judged."""
        if not is_hidden(self._verdicts[key_of(state)]):
            return []
        open_ = claim_of(state, self._levers, facts)
        claims = [(it, claim_of((it,), self._levers, facts)) for it in known]
        return [
            it
            for it, claim in claims
            if claim.preserves is open_.preserves
            and claim.roundoff >= open_.roundoff
            and claim.reorders >= open_.reorders
        ]

    def cost_s(self, state: State, facts: Facts) -> float:
        """Predicted cost of judging a state [s]; nothing where its verdict is known."""
        if self.is_judged(state):
            return 0.0
        return self._ledger.judgement(_price_of(self._due(state, facts)))

    def _due(self, state: State, facts: Facts) -> list[str]:
        """The whole runs that judging a state takes, by their names."""
        claim = claim_of(state, self._levers, facts)
        plan = plan_runs(
            claim.preserves.value, roundoff=claim.roundoff, num_updates=1, reorders=claim.reorders
        )
        return [one.name for one in plan if one.name not in self._made]


def _price_of(due: Sequence[str]) -> int:
    """What runs take, in whole runs of the command: the one in float64 is short."""
    once = sum(name in ONCE and name != DOUBLE for name in due)
    return once + (RUNS_OF_REPEATS if any(name not in ONCE for name in due) else 0)
