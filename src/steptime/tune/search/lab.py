"""Where the search asks: it remembers comparisons, pays for them, and survives a bad lever.

In: a `Bench` and full states. Out: what is known about each comparison so far. A lever that ends
its process loses only its own arm: the others are compared again without it. Nothing is asked
twice, so the search can run again from its beginning after a lever was refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from steptime.core.interval import Interval
from steptime.core.note import Fact
from steptime.levers.base import Facts, Lever
from steptime.tune.search.bench import (
    ArmResult,
    Baseline,
    Bench,
    ComparisonResult,
    WholeRequest,
)
from steptime.tune.search.budget import BudgetLedger
from steptime.tune.search.earlier_results import Experience
from steptime.tune.search.mechanism import PAYS_LATER
from steptime.tune.search.order import Offer, most_of
from steptime.tune.search.proof.comparison_series import ComparisonSeries, Confirmation, is_left_out
from steptime.tune.search.proof.known_comparisons import KnownComparisons
from steptime.tune.search.proof.pairs import Worth, interval, inverse, to_speedup
from steptime.tune.search.proof.quality import Quality
from steptime.tune.search.proof.whole_run import (
    NUM_RUNS,
    forecast_whole_run,
    measured_whole_run,
)
from steptime.tune.search.proof.yardstick import Yardstick
from steptime.tune.search.rounds.live_groups import live_groups
from steptime.tune.search.rounds.live_process import LiveProcess
from steptime.tune.search.search_notes import Key, Notes, SearchSummary, key_of
from steptime.tune.values.study_values import (
    Ending,
    FewPairs,
    Found,
    State,
    StudyOutcome,
    TrialEnd,
    Unproven,
    WholeRun,
)
from steptime.verify.values import Verdict

SCRIPT_OVER = "ends_too_soon"
"""Reason of a live comparison that is no lever's fault: the script was over before its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """What the user asked for: `levers` that may be tried, without those `excluded` by name.

    `later_s` is what later calls of the same study granted beyond `budget_s`, one after another.
    `experience` is what earlier studies of the same script found; it orders what is tried.
    `allows_changes`: the user wants to know of levers that change the training.
    """

    levers: tuple[Lever, ...]
    run_steps: int | None = None
    budget_s: float = 600.0
    later_s: tuple[float, ...] = ()
    excluded: tuple[str, ...] = ()
    experience: Experience = field(default_factory=Experience)
    allows_changes: bool = False


class Lab:
    """The state of a search: its bench, its budget, what it knows, and what it wrote down.

    `keep` is the share of the search's time that live levers leave for others; `put_forward` is a
    state to prove though nothing is known to help, `bold` are those that seemed the best of many,
    `taken_apart` says what was left of each; `noise_s` went to the A/A; `waiting` are levers that
    failed in earlier studies, and are tried where nothing else is proven. Once something
    `is_proven`, the rest of the budget goes to what may be better.
    """

    def __init__(
        self, bench: Bench, options: SearchOptions, tell: Callable[[SearchSummary], None]
    ) -> None:
        self.options = options
        self.ledger = BudgetLedger(options.budget_s, later_s=options.later_s)
        self.notes = Notes()
        self.offered: tuple[Offer, ...] = ()
        self.phase = "observe"
        self.is_live = True
        self.keep = 0.0
        self.best: State = ()
        self.best_gain: Interval | None = None
        self.baseline: Baseline | None = None
        self.is_interrupted = False
        self.is_proven = False
        self.confirmations: dict[Key, Confirmation] = {}
        self.noise_s = 0.0
        self.bench = bench
        self._tell = tell
        self._levers = {lever.name: lever for lever in options.levers}
        self.yardstick = Yardstick(self._levers)
        self.put_forward: State = ()
        self.whole: WholeRun | None = None
        self._seen: set[Key] = set()
        self._chained: dict[Key, tuple[State, Interval]] = {}  # gains that were put together
        self.price_of_proof: Callable[[State], float] = lambda state: 0.0
        self.bold: set[Key] = set()
        self.taken_apart: dict[Key, tuple[State, Interval]] = {}
        self.waiting: set[str] = set()
        self.small: tuple[Offer, ...] = ()  # between processes, below the noise as written
        self.known, self.process = KnownComparisons(), LiveProcess(bench, self.ledger)
        self.quality = Quality(bench, self.ledger, self._levers)

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

    def log_speedup(self, series: ComparisonSeries) -> Interval | None:
        """Its log speedup with interval, by the time that may judge it."""
        return self.yardstick.log_speedup(series)

    def worth(self, series: ComparisonSeries) -> Worth | None:
        """What a comparison says of its candidate; None where its pairs carry no interval."""
        return self.yardstick.worth(series)

    def floor_for(self, series: ComparisonSeries) -> float:
        """The noise floor of the time that judges it."""
        return self.yardstick.floor_for(series)

    def proof_of(self, state: State) -> ComparisonSeries | None:
        """The fresh repeats of a state, where there are any."""
        known = self.confirmations.get(key_of(state))
        return None if known is None else known.series

    def fixed_of(self, state: State) -> State:
        """The part of a state that cannot be switched in a process."""
        return tuple(one for one in state if not self._is_live(one.name))

    def live_of(self, state: State) -> State:
        """The part of a state that can be switched between two steps."""
        return tuple(one for one in state if self._is_live(one.name))

    def _is_live(self, name: str) -> bool:
        return self._levers[name].is_live(self.facts)

    def incumbent(self, *, above: float = -math.inf) -> State:
        """The fastest state that was seen to be faster and as good, and is not confirmed yet.

        The lower bound of its log speedup lies above `above`.
        """
        best: tuple[float, State] = (above, ())
        own = [one for one in self.known.begun if not one.reference and not one.is_over]
        seen = [(one.state, self.log_speedup(one), self.floor_for(one)) for one in own]
        seen += [(*one, self.yardstick.least_floor) for one in self._chained.values()]
        for state, found, floor in seen:
            key = key_of(state)
            if found is None or key in self.confirmations or not self.quality.has_passed(state):
                continue
            if found.low > math.log1p(floor):
                self._seen.add(key)  # and it stays so, unless it seems slower
            if key in self._seen and found.estimate > 0:
                best = max(best, (found.low, state), key=lambda it: it[0])
        return best[1]

    def put_forward_boldly(self, state: State) -> None:
        """Let a state be proven next though nothing is known for certain to help."""
        self.put_forward = state
        self.bold.add(key_of(state))

    # -- asking

    def observe(self) -> Baseline:
        """Run the command as written."""
        self.baseline = baseline = self.bench.observe()
        spent_s = self.ledger.spend(self.bench.time_left_s())
        run_s = spent_s if baseline.process_s is None else baseline.process_s
        operators = baseline.measurement.operators
        self.ledger.observed(
            run_s,
            startup_s=baseline.startup_s,
            step_s=self.step_s,
            num_operators=None if operators is None or operators.missing else operators.num,
        )
        self.yardstick.facts = baseline.facts
        self.notes.try_out("observe", (), ending=baseline.ending)
        self.note_end(baseline.ending)
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
        all_series = [self.known.live(reference, state) for state in states]
        due = [one for one in all_series if not one.is_over and one.asked < num_rounds]
        is_done = True
        for chunk in live_groups(self.facts, reference, due):
            rounds = max(num_rounds - one.asked for one in chunk)
            end_s = self.ledger.left_s - self.ledger.available(keep=keep)
            is_done = self._ask_live(chunk, rounds, end_s) and is_done
        return is_done

    def noise(self, num_rounds: int, *, most_s: float) -> None:
        """See that the command was compared with itself in one process, in so many rounds.

        However much that should cost, it ends when `most_s` are spent.
        """
        series, before_s = self.known.live((), ()), self.ledger.left_s
        if series.asked < num_rounds and not series.is_over:
            end_s = max(0.0, before_s - most_s)
            self._ask_live([series], num_rounds - series.asked, end_s, is_bounded=True)
        self.noise_s += before_s - self.ledger.left_s

    def live_afresh(self, state: State, num_rounds: int, *, most_s: float) -> ComparisonSeries:
        """Compare with the command as written in a process of its own, remembered nowhere."""
        series = ComparisonSeries(state=state, reference=())
        states = (self.fixed_of(state), self.live_of(state))
        result = self.process.compare((), states, num_rounds, is_fresh=True, most_s=most_s)
        self.note_end(result.ending)
        self._take(series, result, result.arms[0] if result.arms else None, num_rounds)
        return series

    def judge(self, state: State) -> Verdict:
        """Whether runs with the state train as well; asked once a state."""
        if not self.quality.is_judged(state):
            self.process.forget()
            verdict = self.quality.judge(state, self.facts)
            self.notes.try_out("quality", state, quality=verdict)
            if self.best_gain is not None and key_of(state) == key_of(self.best):
                self._chained[key_of(state)] = (state, self.best_gain)
            self.report()
        return self.quality.judge(state, self.facts)

    def judgement_s(self, state: State) -> float:
        """Predicted cost of judging a state [s]; nothing where its verdict is known."""
        return self.quality.cost_s(state, self.facts)

    # -- one question

    def _ask_live(
        self,
        chunk: Sequence[ComparisonSeries],
        num_rounds: int,
        end_s: float,
        *,
        is_bounded: bool = False,
    ) -> bool:
        """Ask for one group, and again for the rest where one of them ended the process.

        Of the time left, `end_s` are to be left afterwards. What `is_bounded` is begun though its
        end may not be reached by then.
        """
        pending, is_retry = list(chunk), False
        while pending and num_rounds > 0 and not self.is_interrupted:
            most_s = self.ledger.left_s - end_s
            fixed = self.fixed_of(pending[0].reference)
            cost_s = 0.0 if is_bounded else self.process.cost_s(pending, fixed, num_rounds)
            if self.ledger.is_closed or most_s <= 0 or cost_s > most_s:
                return False
            result = self._compare(pending, num_rounds, most_s=most_s)
            num_got = max((len(arm.log_ratios) for arm in result.arms), default=0)
            blamed = [one for one in pending if one.is_over]
            if not blamed and result.ending.is_well:
                return True
            is_short = num_got > 0 and result.ending.reason == SCRIPT_OVER
            if not blamed and not is_short and len(pending) > 1:
                # None was named: the one that ends a process of its own is the culprit.
                return not [one for one in pending if not self._ask_live([one], num_rounds, end_s)]
            if not blamed and not is_short and is_retry:
                pending[0].ending = result.ending
                self.write_down("live", pending[0])
                return True
            is_retry = not blamed and not is_short
            pending = [one for one in pending if not one.is_over]
            num_rounds -= num_got
        return not self.is_interrupted

    def _compare(
        self, pending: Sequence[ComparisonSeries], num_rounds: int, *, most_s: float
    ) -> ComparisonResult:
        """One request for a group, taken in and written down."""
        reference = pending[0].reference
        states = (self.live_of(reference), *(self.live_of(one.state) for one in pending))
        is_fresh = self.process.needs_another(self.facts, states)
        result = self.process.compare(
            self.fixed_of(reference), states, num_rounds, is_fresh=is_fresh, most_s=most_s
        )
        self.note_end(result.ending)
        arms = [*result.arms, *[None] * (len(pending) - len(result.arms))]
        for series, arm in zip(pending, arms, strict=True):
            self._take(series, result, arm, num_rounds)
            if series.state == series.reference:
                self.yardstick.take_live(series)
            self.write_down("live", series)
        self.report()
        return result

    def _take(
        self,
        series: ComparisonSeries,
        result: ComparisonResult,
        arm: ArmResult | None,
        num_rounds: int,
    ) -> None:
        """Take an arm's rounds into a comparison."""
        series.asked += num_rounds if arm is None else len(arm.log_ratios)
        series.reference_step_s = result.reference_step_s or series.reference_step_s
        if arm is not None:
            series.take(arm, result)

    def write_down(self, kind: str, series: ComparisonSeries) -> None:
        """Note what is known of a comparison as a trial: its interval, or the middle of few."""
        found, few = self.log_speedup(series), None
        middle = self.yardstick.middle(series) if found is None else None
        state, reference = series.state, series.reference
        if is_left_out(series) and not series.is_over:
            # What was left out is told as what it adds to the rest.
            state, reference = reference, state
            found, middle = None if found is None else inverse(found), middle and -middle
        if middle is not None:
            few = FewPairs(median=math.exp(middle), n=len(self.yardstick.log_ratios(series)))
        self.notes.try_out(
            kind, state, reference=reference, ending=series.ending, found=found, few=few
        )

    def note_end(self, ending: Ending) -> None:
        """After an interruption nothing more is asked; what was found so far remains."""
        if ending.end is TrialEnd.INTERRUPTED:
            self.is_interrupted = self.ledger.is_closed = True

    # -- reporting

    def report(self) -> None:
        """Say where the search is, and keep the time that what was seen needs to be proven."""
        seen = self.incumbent()
        self.ledger.proof_s = self.price_of_proof(seen) if seen else 0.0
        self._tell(
            SearchSummary(
                phase=self.phase,
                ended=self.notes.latest,
                best_state=self.best,
                best=None if self.best_gain is None else to_speedup(self.best_gain),
                left_s=self.ledger.granted_s,
                found=self.found(None),
            )
        )

    def found(
        self,
        outcome: StudyOutcome | None,
        *,
        reason: str | None = None,
        facts: Mapping[str, Fact] | None = None,
        recipe: State = (),
        proof: ComparisonSeries | None = None,
        break_even_steps: int | None = None,
        unproven: Unproven | None = None,
    ) -> Found:
        """The result as of now, with the recipe where one was proven by `proof`."""
        proven = None if proof is None else self.log_speedup(proof)
        loop = None if proof is None else interval(proof.loop)
        return Found(
            outcome=outcome,
            recipe=recipe,
            speedup=None if proven is None else to_speedup(proven),
            loop_speedup=None if loop is None else to_speedup(loop),
            noise_floor=self.yardstick.floor_that_judged(proof, self.known.alone),
            quality=self.quality.verdict_of(recipe),
            # It is shown with what it was compared with, because loads change meanwhile.
            baseline_step_s=(proof and proof.reference_step_s) or self.step_s,
            tuned_step_s=None if proof is None else self._tuned_step_s(proof),
            sample_unit=None if self.baseline is None else self.baseline.sample_unit,
            trials=self.notes.trials,
            not_tried=self.notes.not_tried(
                {one.name: most_of(one) for one in self.offered}, waiting=self.waiting
            ),
            choices=self.notes.choices,
            break_even_steps=break_even_steps,
            reason=reason,
            reason_facts=facts,
            unproven=unproven,
            whole_run=None if proof is None else self._whole_run(proof),
        )

    def _whole_run(self, proof: ComparisonSeries) -> WholeRun | None:
        """How long the run takes with what was proven, where its length was said."""
        if self.whole is not None:
            return self.whole
        found = interval(proof.loop) or self.log_speedup(proof)
        num_steps = self.options.run_steps
        if self.baseline is None or found is None or num_steps is None:
            return None
        return forecast_whole_run(
            self.baseline,
            to_speedup(found),
            num_steps,
            one_off_s=max(proof.compile_s, self.known.compile_s(proof.state)),
            start_s=proof.start_s,
            is_later=any(one.name in PAYS_LATER for one in proof.state),
            loops_s=sorted(self.known.loops_s),
        )

    def run_whole(self, proof: ComparisonSeries) -> None:
        """Run the command to its end both ways, where its length was said and that fits."""
        forecast = self._whole_run(proof)
        if forecast is None or self.is_interrupted:
            return
        expected_s = NUM_RUNS * (forecast.baseline.high + forecast.tuned.high)
        if expected_s > self.ledger.granted_s:
            return
        self.phase = "confirm"
        request = WholeRequest(state=proof.state, num_runs=NUM_RUNS, most_s=self.ledger.granted_s)
        result = self.bench.run_whole(request)
        self.ledger.spend(self.bench.time_left_s())
        self.whole = measured_whole_run(result, forecast.num_steps)
        self.report()

    def _tuned_step_s(self, proof: ComparisonSeries) -> float | None:
        """A step with what was proven [s]."""
        before_s, found = proof.reference_step_s or self.step_s, self.log_speedup(proof)
        if proof.candidate_step_s is not None or before_s is None or found is None:
            return proof.candidate_step_s
        return before_s * math.exp(-found.estimate)
