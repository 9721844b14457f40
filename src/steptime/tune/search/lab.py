"""Where the search asks: it remembers comparisons, pays for them, and survives a bad lever.

In: a `Bench` and full states. Out: what is known about each comparison so far. A lever that ends
its process loses only its own arm: the others are compared again without it. Nothing is asked
twice, so the search can run again from its beginning after a lever was refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from steptime.core.interval import Interval
from steptime.levers.base import Facts, Lever, Moment
from steptime.tune.search.bench import (
    ArmResult,
    Baseline,
    Bench,
    ComparisonResult,
    LiveRequest,
    ProcessRequest,
)
from steptime.tune.search.budget import BudgetLedger
from steptime.tune.search.comparison_series import ComparisonSeries
from steptime.tune.search.order import Offer
from steptime.tune.search.pairs import MIN_FLOOR, MIN_PAIRS, interval, to_speedup
from steptime.tune.search.search_notes import Found, Key, Notes, SearchSummary, key_of
from steptime.tune.values.study_values import Ending, State, StudyOutcome, TrialEnd
from steptime.verify.values import Verdict

MAX_LIVE_STATES = 8
"""In one process: with more, the reference's blocks lie too far from a state's own."""

MAX_COMPILED_STATES = 4
"""Sixteen states made eight graphs, then torch's recompile limit and silent eager."""

SCRIPT_OVER = "ends_too_soon"
"""Reason of a live comparison that is no lever's fault: the script was over before its end."""

COMPILE = "compile"
"""Name of the lever that compiles the model."""

QUIET_FRACTION = 0.05
"""Of the cores: others that took less did not decide a comparison between processes."""

MIN_QUIET_CORES = 0.1
"""On a small machine: below it, wall times of a quiet and of this machine agreed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """What the user asked for: `levers` that may be tried, without those `excluded` by name."""

    levers: tuple[Lever, ...]
    run_steps: int | None = None
    budget_s: float = 600.0
    excluded: tuple[str, ...] = ()


class Lab:
    """The state of a search: its bench, its budget, what it knows, and what it wrote down.

    `keep` is the share of the search's time that live levers leave for those between processes.
    """

    def __init__(
        self, bench: Bench, options: SearchOptions, tell: Callable[[SearchSummary], None]
    ) -> None:
        self.options = options
        self.ledger = BudgetLedger(options.budget_s)
        self.notes = Notes()
        self.floors: dict[bool, float] = {}
        self.offered: tuple[Offer, ...] = ()
        self.phase = "observe"
        self.is_live = True
        self.keep = 0.0
        self.best: State = ()
        self.best_gain: Interval | None = None
        self.baseline: Baseline | None = None
        self.is_interrupted = False
        self.has_run_out = False
        self._bench = bench
        self._tell = tell
        self._levers = {lever.name: lever for lever in options.levers}
        self._live: dict[tuple[Key, Key], ComparisonSeries] = {}
        self._turns: dict[tuple[Key, Key], ComparisonSeries] = {}
        self._verdicts: dict[Key, Verdict] = {}
        self._running: Key | None = None
        self._compiled: set[Key] = set()

    # -- what is known

    @property
    def facts(self) -> Facts:
        """Of script and machine, once the baseline ran."""
        assert self.baseline is not None
        return self.baseline.facts

    @property
    def step_s(self) -> float | None:
        """A step of the command as written [s]."""
        steady = None if self.baseline is None else self.baseline.measurement.steady
        return None if steady is None or steady.step_time_s is None else steady.step_time_s.estimate

    @property
    def floor(self) -> float:
        """The noise floor by wall time, the least one before it is known."""
        return self.floors.get(False, MIN_FLOOR)

    @property
    def compared_alone(self) -> tuple[ComparisonSeries, ...]:
        """Levers alone that were compared with the command as written and did not fail."""
        known = (*self._live.values(), *self._turns.values())
        return tuple(one for one in known if len(one.state) == 1 and not one.reference and one.wall)

    def live_series(self, reference: State, state: State) -> ComparisonSeries:
        """What is known of a comparison in one process."""
        key = (key_of(reference), key_of(state))
        return self._live.setdefault(key, ComparisonSeries(state=state, reference=reference))

    def turns_series(self, reference: State, state: State) -> ComparisonSeries:
        """What is known of a comparison between processes."""
        key = (key_of(reference), key_of(state))
        return self._turns.setdefault(key, ComparisonSeries(state=state, reference=reference))

    def is_by_cpu(self, series: ComparisonSeries) -> bool:
        """Whether CPU time judges: others are busy, and all that differs declares that it may.

        Never on an accelerator, whose work is not in the process's CPU time.
        """
        if self.facts.device != "cpu" or not series.cpu or self.is_quiet(series.others_cores):
            return False
        same = set(key_of(series.state)) & set(key_of(series.reference))
        differing = {name for name, _ in {*key_of(series.state), *key_of(series.reference)} - same}
        return all(self._levers[name].judged_by_cpu_time for name in differing)

    def is_quiet(self, others_cores: float | None) -> bool:
        """Whether others left the machine alone; not where that was not observed."""
        limit = max(MIN_QUIET_CORES, QUIET_FRACTION * self.facts.num_cores)
        return others_cores is not None and others_cores <= limit

    def log_speedup(self, series: ComparisonSeries) -> Interval | None:
        """Its log speedup with interval, by the time that may judge it."""
        return interval(series.cpu if self.is_by_cpu(series) else series.wall)

    def floor_for(self, series: ComparisonSeries) -> float:
        """The noise floor of the time that judges it."""
        return self.floors.get(self.is_by_cpu(series), self.floor)

    def fixed_of(self, state: State) -> State:
        """The part of a state that cannot be switched in a process."""
        return tuple(one for one in state if self._levers[one.name].moment is not Moment.LIVE)

    def live_of(self, state: State) -> State:
        """The part of a state that can be switched between two steps."""
        return tuple(one for one in state if self._levers[one.name].moment is Moment.LIVE)

    def compile_s(self, state: State) -> float:
        """One-off compile time of a state: the most seen for it, else for a part of it."""
        own = [s.compile_s for s in self._live.values() if key_of(s.state) == key_of(state)]
        names = {one.name for one in state}
        parts = [s.compile_s for s in self._live.values() if {one.name for one in s.state} <= names]
        return max(own, default=0.0) or max(parts, default=0.0)

    # -- asking

    def observe(self) -> Baseline:
        """Run the command as written."""
        self.baseline = baseline = self._bench.observe()
        spent_s = self.ledger.spend(self._bench.time_left_s())
        run_s = spent_s if baseline.process_s is None else baseline.process_s
        self.ledger.observed(run_s, startup_s=baseline.startup_s, step_s=self.step_s)
        self.notes.try_out("observe", (), ending=baseline.ending)
        self._note_end(baseline.ending)
        self.report()
        return baseline

    def live(
        self, reference: State, states: Sequence[State], num_rounds: int, *, keep: float = 0.0
    ) -> bool:
        """See that each state was compared with the reference in `num_rounds` rounds.

        All of them have the same levers that are not live. `keep` is the share of the search's
        time that is left to others.

        Returns:
            False where the time left did not allow it.
        """
        all_series = [self.live_series(reference, state) for state in states]
        due = [one for one in all_series if not one.is_over and one.asked < num_rounds]
        is_done = True
        for chunk in self._chunks(reference, due):
            rounds = max(num_rounds - one.asked for one in chunk)
            is_done = self._ask_live(chunk, rounds, keep) and is_done
        return is_done

    def live_afresh(self, state: State, num_rounds: int) -> ComparisonSeries:
        """Compare with the command as written in a process of its own, remembered nowhere."""
        series = ComparisonSeries(state=state, reference=())
        fixed = self.fixed_of(state)
        states = (fixed, self.live_of(state))
        result = self._request_live((), states, num_rounds, is_fresh=True)
        self._take(series, result, result.arms[0] if result.arms else None, num_rounds)
        return series

    def turns(self, reference: State, state: State, num_pairs: int) -> bool:
        """See that the state was compared with the reference in `num_pairs` pairs of processes.

        Returns:
            False where the time left did not allow it.
        """
        series = self.turns_series(reference, state)
        due = num_pairs - series.asked
        if due <= 0 or series.is_over:
            return True
        cost_s = self.ledger.pairs(due)
        # What is found so must be confirmed so.
        proof_s = self.ledger.judgement() + self.ledger.pairs(MIN_PAIRS)
        if not self.ledger.affords(cost_s) or self.ledger.left_s < cost_s + proof_s:
            return False
        self.turns_into(series, due)
        found = self.log_speedup(series)
        self.notes.try_out("process", state, reference=reference, ending=series.ending, found=found)
        self.report()
        return True

    def turns_into(self, series: ComparisonSeries, num_pairs: int) -> None:
        """Ask for pairs of processes and take them in."""
        request = ProcessRequest(
            reference=series.reference, candidate=series.state, num_pairs=num_pairs
        )
        self._running = None
        result = self._bench.compare_processes(request)
        self.ledger.learn_pairs(self.ledger.spend(self._bench.time_left_s()), num_pairs)
        self._note_end(result.ending)
        series.asked += num_pairs
        series.reference_step_s = result.reference_step_s
        for arm in result.arms:
            series.take(arm, result.others_cores)

    def judge(self, state: State) -> Verdict:
        """Whether runs with the state train as well; asked once a state."""
        key = key_of(state)
        if key not in self._verdicts:
            self._running = None
            self._verdicts[key] = verdict = self._bench.judge(state)
            self.ledger.learn_judgement(self.ledger.spend(self._bench.time_left_s()))
            self.notes.try_out("quality", state, quality=verdict)
            self.report()
        return self._verdicts[key]

    def is_judged(self, state: State) -> bool:
        """Whether the state's verdict is known."""
        return key_of(state) in self._verdicts

    # -- one question

    def max_states(self, states: Sequence[State]) -> int:
        """How many states one process may hold, the reference among them."""
        is_compiled = self.facts.uses_compile or any(
            one.name == COMPILE for state in states for one in state
        )
        return MAX_COMPILED_STATES if is_compiled else MAX_LIVE_STATES

    def _chunks(
        self, reference: State, due: Sequence[ComparisonSeries]
    ) -> list[list[ComparisonSeries]]:
        """The comparisons in groups that one process may hold, compiled ones apart."""
        groups: list[list[ComparisonSeries]] = []
        for is_compiled in (False, True):
            some = [s for s in due if any(one.name == COMPILE for one in s.state) is is_compiled]
            size = self.max_states([reference, *(one.state for one in some)]) - 1
            groups += [some[i : i + size] for i in range(0, len(some), size)]
        return groups

    def _ask_live(self, chunk: Sequence[ComparisonSeries], num_rounds: int, keep: float) -> bool:
        """Ask for one group, and again for the rest where one of them ended the process."""
        pending, is_retry = list(chunk), False
        while pending and num_rounds > 0 and not self.is_interrupted:
            if not self.ledger.affords(self._cost(pending, num_rounds), keep=keep):
                return False
            result = self._compare(pending, num_rounds)
            num_got = max((len(arm.log_ratios) for arm in result.arms), default=0)
            blamed = [one for one in pending if one.is_over]
            if not blamed and result.ending.is_well:
                return True
            is_short = num_got > 0 and result.ending.reason == SCRIPT_OVER
            if not blamed and not is_short and len(pending) > 1:
                # None was named: the one that ends a process of its own is the culprit.
                return not [one for one in pending if not self._ask_live([one], num_rounds, keep)]
            if not blamed and not is_short and is_retry:
                pending[0].ending = result.ending
                self._write_down(pending[0])
                return True
            is_retry = not blamed and not is_short
            pending = [one for one in pending if not one.is_over]
            num_rounds -= num_got
        return not self.is_interrupted

    def _cost(self, pending: Sequence[ComparisonSeries], num_rounds: int) -> float:
        """Predicted cost of a group [s]."""
        new = [one for one in pending if any(a.name == COMPILE for a in one.state)]
        is_started = self._running == key_of(self.fixed_of(pending[0].reference))
        return self.ledger.blocks(
            num_rounds * (len(pending) + 1),
            num_starts=0 if is_started else 1,
            num_compiles=sum(one.asked == 0 for one in new),
        )

    def _compare(self, pending: Sequence[ComparisonSeries], num_rounds: int) -> ComparisonResult:
        """One request for a group, taken in and written down."""
        reference = pending[0].reference
        states = (self.live_of(reference), *(self.live_of(one.state) for one in pending))
        is_fresh = self._is_full(states)
        result = self._request_live(self.fixed_of(reference), states, num_rounds, is_fresh=is_fresh)
        arms = [*result.arms, *[None] * (len(pending) - len(result.arms))]
        for series, arm in zip(pending, arms, strict=True):
            self._take(series, result, arm, num_rounds)
            self._write_down(series)
        self.report()
        return result

    def _is_full(self, states: Sequence[State]) -> bool:
        """Whether the process that runs has compiled so many states that these need another."""
        if self.max_states(states) > MAX_COMPILED_STATES:
            return False
        new = {key_of(state) for state in states}
        is_full = len(self._compiled | new) > MAX_COMPILED_STATES
        self._compiled = new if is_full else self._compiled | new
        return is_full

    def _request_live(
        self, fixed: State, states: tuple[State, ...], num_rounds: int, *, is_fresh: bool = False
    ) -> ComparisonResult:
        """Ask, and learn what it cost."""
        running = key_of(fixed)
        num_starts = 1 if is_fresh or self._running != running else 0
        result = self._bench.compare_live(
            LiveRequest(fixed=fixed, states=states, num_rounds=num_rounds, is_fresh=is_fresh)
        )
        compiled_s = math.fsum(arm.compile_s for arm in result.arms)
        spent_s = self.ledger.spend(self._bench.time_left_s()) - compiled_s
        if result.ending.is_well:
            self.ledger.learn_blocks(spent_s, num_rounds * len(states), num_starts=num_starts)
        self._running = running if result.ending.is_well else None
        self._note_end(result.ending)
        return result

    def _take(
        self,
        series: ComparisonSeries,
        result: ComparisonResult,
        arm: ArmResult | None,
        num_rounds: int,
    ) -> None:
        """Take an arm's rounds into a comparison."""
        is_whole = result.ending.is_well or arm is None
        series.asked += num_rounds if is_whole or arm is None else len(arm.log_ratios)
        series.reference_step_s = result.reference_step_s or series.reference_step_s
        if arm is not None:
            series.take(arm, result.others_cores)

    def _write_down(self, series: ComparisonSeries) -> None:
        """Note a live comparison as a trial."""
        reference, found = series.reference, self.log_speedup(series)
        self.notes.try_out(
            "live", series.state, reference=reference, ending=series.ending, found=found
        )

    def _note_end(self, ending: Ending) -> None:
        """After an interruption nothing more is asked; what was found so far remains."""
        if ending.end is TrialEnd.INTERRUPTED:
            self.is_interrupted = self.ledger.is_closed = True

    # -- reporting

    def report(self) -> None:
        """Say where the search is."""
        self._tell(
            SearchSummary(
                phase=self.phase,
                ended=self.notes.latest,
                best_state=self.best,
                best=None if self.best_gain is None else to_speedup(self.best_gain),
                left_s=self.ledger.left_s,
                found=self.found(None),
            )
        )

    def found(
        self,
        outcome: StudyOutcome | None,
        *,
        reason: str | None = None,
        recipe: State = (),
        proof: ComparisonSeries | None = None,
        break_even_steps: int | None = None,
    ) -> Found:
        """The result as of now, with the recipe where one was proven by `proof`."""
        proven = None if proof is None else self.log_speedup(proof)
        return Found(
            outcome=outcome,
            recipe=recipe,
            speedup=None if proven is None else to_speedup(proven),
            noise_floor=self.floors.get(False) if proof is None else self.floor_for(proof),
            quality=self._verdicts.get(key_of(recipe)) if recipe else None,
            # It is shown with what it was compared with, because loads change meanwhile.
            baseline_step_s=(proof and proof.reference_step_s) or self.step_s,
            tuned_step_s=None if proof is None else self._tuned_step_s(proof),
            sample_unit=None if self.baseline is None else self.baseline.sample_unit,
            trials=self.notes.trials,
            not_tried=self.notes.not_tried([one.name for one in self.offered]),
            choices=self.notes.choices,
            break_even_steps=break_even_steps,
            reason=reason,
        )

    def _tuned_step_s(self, proof: ComparisonSeries) -> float | None:
        """A step with what was proven [s]."""
        before_s, found = proof.reference_step_s or self.step_s, self.log_speedup(proof)
        if proof.candidate_step_s is not None or before_s is None or found is None:
            return proof.candidate_step_s
        return before_s * math.exp(-found.estimate)
