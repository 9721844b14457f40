"""Asks whether states train as well, once each, and knows what asking costs.

In: a bench and states. Out: verdicts. The runs of the command as written serve all states of a
class, so only the first judgement makes them.
"""

from __future__ import annotations

from collections.abc import Mapping

from steptime.levers.base import Facts, Lever, Preserves
from steptime.tune.search.bench import Bench
from steptime.tune.search.budget import RUNS_A_JUDGEMENT, RUNS_OF_EXACT, BudgetLedger
from steptime.tune.search.search_notes import Key, key_of
from steptime.tune.values.study_values import State
from steptime.verify.values import Outcome, Verdict


class Quality:
    """The verdicts so far."""

    def __init__(self, bench: Bench, ledger: BudgetLedger, levers: Mapping[str, Lever]) -> None:
        self._bench = bench
        self._ledger = ledger
        self._levers = levers
        self._verdicts: dict[Key, Verdict] = {}
        self._judged: set[Preserves] = set()

    def judge(self, state: State, facts: Facts) -> Verdict:
        """Whether runs with the state train as well; asked once a state."""
        key = key_of(state)
        if key not in self._verdicts:
            num_runs = self._num_runs(state, facts)
            self._verdicts[key] = self._bench.judge(state)
            self._judged.add(self._class_of(state, facts))
            self._ledger.learn_judgement(self._ledger.spend(self._bench.time_left_s()), num_runs)
        return self._verdicts[key]

    def is_judged(self, state: State) -> bool:
        """Whether the state's verdict is known."""
        return key_of(state) in self._verdicts

    def is_refused(self, state: State) -> bool:
        """Whether the state, or one of its levers alone, was judged and did not pass."""
        parts = (key_of(state), *(key_of((one,)) for one in state))
        known = [self._verdicts[part] for part in parts if part in self._verdicts]
        return any(verdict.outcome is not Outcome.PASS for verdict in known)

    def verdict_of(self, state: State) -> Verdict | None:
        """The state's verdict where it is known."""
        return self._verdicts.get(key_of(state)) if state else None

    def cost_s(self, state: State, facts: Facts) -> float:
        """Predicted cost of judging a state [s]; nothing where its verdict is known."""
        if self.is_judged(state):
            return 0.0
        return self._ledger.judgement(self._num_runs(state, facts))

    def _num_runs(self, state: State, facts: Facts) -> int:
        """Whole runs that judging a state takes: the command's own are made once."""
        own = self._class_of(state, facts)
        if own in self._judged:
            return 1
        num = RUNS_OF_EXACT if own is Preserves.EXACT else RUNS_A_JUDGEMENT
        return num - (RUNS_OF_EXACT - 1 if self._judged else 0)

    def _class_of(self, state: State, facts: Facts) -> Preserves:
        """EXACT where each of its levers is that here; all others take as many runs."""
        classes = set()
        for one in state:
            lever = self._levers[one.name]
            # By its word: an outside lever's enumeration is another object.
            classes.add(Preserves(lever.class_here(facts, one.settings) or lever.preserves))
        return Preserves.EXACT if classes <= {Preserves.EXACT} else Preserves.NUMERIC
