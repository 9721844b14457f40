"""The search where things go wrong: bad levers, failed quality, no time, a study that goes on."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from design_cases import drawn
from scripted_bench import Noise, ScriptedBench, label_of, labels_of, make_lever, make_levers
from steptime.core.codec import from_json, to_json
from steptime.levers.base import Moment, Preserves
from steptime.tune.search.bench import (
    ArmResult,
    ComparisonResult,
    LiveRequest,
    PairLoad,
    ProcessRequest,
)
from steptime.tune.search.lab import Lab
from steptime.tune.search.proof.confirmation import doubt, least_confirmation
from steptime.tune.search.search import Found, SearchOptions, search
from steptime.tune.search.search_notes import key_of
from steptime.tune.values.study_values import WELL, Ending, Study, StudyOutcome, TrialEnd
from steptime.verify.lockstep import HIDDEN
from steptime.verify.values import Outcome, QualityCheck

log = math.log


def run(bench, *levers, budget_s=600.0, tell=lambda summary: None, **options):
    return search(bench, SearchOptions(levers=levers, budget_s=budget_s, **options), tell=tell)


def recipe(found):
    return [label_of(one) for one in found.recipe]


def codes(found, lever=None):
    return [choice.code for choice in found.choices if lever in (None, choice.lever)]


def trials(found, *labels, kind="live"):
    return [t for t in found.trials if t.kind == kind and labels_of(t.state) == set(labels)]


# -- levers that end their process

ENDS = (
    (TrialEnd.FAILED, "exit_1"),
    (TrialEnd.TIMED_OUT, "no_progress"),
    (TrialEnd.OUT_OF_MEMORY, "killed_for_memory"),
    (TrialEnd.DIVERGED, "not_finite"),
    (TrialEnd.FAILED, "fell_back_to_eager"),
)


@pytest.mark.parametrize("names_culprits", [True, False])
@pytest.mark.parametrize(("end", "reason"), ENDS)
def test_a_lever_that_ends_its_process_loses_its_own_arm_only(end, reason, names_culprits):
    bench = ScriptedBench(
        gains={"lever_1": log(1.3), "lever_2": log(2)},
        ends={"lever_2": (end, reason)},
        names_culprits=names_culprits,
    )
    found = run(bench, *make_levers(4))

    assert recipe(found) == ["lever_1"]
    bad = trials(found, "lever_2")[0]
    assert (bad.end, bad.reason) == (end, reason if names_culprits else bad.reason)
    assert trials(found, "lever_1")[0].speedup.n >= 8


def test_several_bad_levers_in_one_process_are_found_one_after_another():
    ends = {f"lever_{index}": (TrialEnd.FAILED, "exit_1") for index in (0, 2, 3)}
    found = run(ScriptedBench(gains={"lever_1": log(1.3)}, ends=ends), *make_levers(5))

    assert recipe(found) == ["lever_1"]
    assert [trials(found, name)[0].end for name in ends] == [TrialEnd.FAILED] * 3


def test_where_every_lever_fails_nothing_helps():
    ends = {f"lever_{index}": (TrialEnd.FAILED, "exit_1") for index in range(3)}
    found = run(ScriptedBench(ends=ends), *make_levers(3))

    assert found.outcome is StudyOutcome.NOTHING_HELPS


def test_a_lever_that_fails_between_processes_is_left_out():
    bench = ScriptedBench(ends={"allocator": (TrialEnd.FAILED, "exit_1")})
    found = run(bench, make_lever("allocator", moment=Moment.ENVIRONMENT))

    assert trials(found, "allocator", kind="confirm")[0].end is TrialEnd.FAILED
    assert found.outcome is StudyOutcome.NOTHING_HELPS


class Flaky(ScriptedBench):
    """Loses its first live comparison of a lever for no fault of the lever."""

    lost = 0

    def compare_live(self, request):
        if request.states != ((), ()) and self.lost < 1:
            self.lost += 1
            self.used_s += 5.0
            arms = tuple(
                ArmResult(state=state, log_ratios=(), cpu_log_ratios=(), ending=WELL)
                for state in request.states[1:]
            )
            return ComparisonResult(ending=Ending(end=TrialEnd.FAILED), arms=arms)
        return super().compare_live(request)


@pytest.mark.parametrize("count", [1, 3])
def test_a_process_that_dies_once_by_chance_costs_no_lever(count):
    found = run(Flaky(gains={"lever_0": log(1.3)}), *make_levers(count))

    assert recipe(found) == ["lever_0"]


class Short(ScriptedBench):
    """A script that is over after a few rounds, each time."""

    def compare_live(self, request):
        result = super().compare_live(replace(request, num_rounds=min(5, request.num_rounds)))
        over = Ending(end=TrialEnd.FAILED, reason="ends_too_soon")
        return replace(result, ending=over) if request.num_rounds > 5 else result


def test_a_script_that_is_soon_over_is_started_again_for_the_rest_of_the_rounds():
    found = run(Short(gains={"lever_0": log(1.3)}), *make_levers(2))

    assert recipe(found) == ["lever_0"] or found.reason == "too_few_repeats"
    assert trials(found, "lever_0")[0].speedup.n >= 8
    assert trials(found, "lever_0")[0].end is TrialEnd.FINISHED


class Empty(ScriptedBench):
    """Says nothing of any lever, though nothing failed."""

    def compare_live(self, request):
        result = super().compare_live(request)
        return result if request.states == ((), ()) else replace(result, arms=())


def test_a_lever_that_nothing_is_known_of_is_not_claimed():
    found = run(Empty(gains={"lever_0": log(3)}), *make_levers(2))

    assert found.recipe == ()


# -- quality


def test_a_fast_but_wrong_lever_is_refused_and_the_next_best_is_taken():
    bench = ScriptedBench(
        gains={"lever_0": log(2), "lever_1": log(1.3)}, harmful=frozenset({"lever_0"})
    )
    found = run(bench, *make_levers(2))

    assert recipe(found) == ["lever_1"]
    assert "harmful" in codes(found, "lever_0")
    assert trials(found, "lever_0", kind="quality")[0].reason == "harmful"


def test_of_a_fast_lever_that_is_refused_it_is_not_said_how_little_it_gives():
    bench = ScriptedBench(gains={"lever_0": log(2)}, harmful=frozenset({"lever_0"}))
    found = run(bench, *make_levers(2))

    assert (found.outcome, found.reason) == (StudyOutcome.NOTHING_HELPS, None)
    assert "rules_out" not in (found.reason_facts or {})


def test_a_wrong_setting_is_refused_and_another_of_the_lever_is_taken():
    lever = make_lever("autocast", settings=({"dtype": "fp16"}, {"dtype": "bf16"}))
    bench = ScriptedBench(
        gains={"autocast:fp16": log(2), "autocast:bf16": log(1.5)},
        harmful=frozenset({"autocast:fp16"}),
    )

    assert recipe(run(bench, lever)) == ["autocast:bf16"]


def test_a_lever_that_a_wrong_one_had_kept_out_comes_back():
    bench = ScriptedBench(
        gains={"autocast": log(1.7), "matmul": log(1.4)},
        together={frozenset({"autocast", "matmul"}): -log(1.4)},
        harmful=frozenset({"autocast"}),
    )

    assert recipe(run(bench, make_lever("autocast"), make_lever("matmul"))) == ["matmul"]


def test_levers_that_are_wrong_only_together_are_not_used_together():
    bench = ScriptedBench(
        gains={"lever_0": log(1.5), "lever_1": log(1.3)},
        outcome=lambda state: Outcome.FAIL if len(state) > 1 else Outcome.PASS,
    )
    found = run(bench, *make_levers(2))

    assert recipe(found) == ["lever_0"]
    assert "harmful_together" in codes(found, "lever_1")


def test_an_undecided_quality_is_no_success():
    bench = ScriptedBench(gains={"lever_0": log(2)}, outcome=lambda state: Outcome.INCONCLUSIVE)
    found = run(bench, *make_levers(1))

    assert found.outcome is StudyOutcome.NOTHING_HELPS
    assert trials(found, "lever_0", kind="quality")[0].reason == "quality_undecided"


def test_what_chance_leaves_open_is_asked_of_one_lever_that_rounds_and_not_of_each():
    rounding = {one.name for one in make_levers(4)}

    class ChaoticBench(ScriptedBench):
        def judge(self, state):
            verdict = super().judge(state)
            if not rounding & {one.name for one in state}:
                return verdict
            check = QualityCheck(
                name="lockstep", outcome=Outcome.INCONCLUSIVE, detail=f"{HIDDEN} 46%"
            )
            return replace(verdict, outcome=Outcome.INCONCLUSIVE, checks=(check,))

    gains = {name: log(1.2) for name in (*rounding, "exact")}
    bench = ChaoticBench(gains=gains)
    found = run(bench, *make_levers(4), make_lever("exact", preserves=Preserves.EXACT))

    assert recipe(found) == ["exact"]
    judged = [
        {one.name for one in trial.state} for trial in found.trials if trial.kind == "quality"
    ]
    assert sum(bool(rounding & names) for names in judged) == 1
    assert all("quality_undecided" in codes(found, name) for name in rounding)


WRONG = (
    "dropped_gradient", "half_learning_rate", "skipped_batches", "no_dropout", "shifted_labels",
    "unsynchronized_gradient", "half_batch", "stale_weights", "bf16_master_weights",
    "wrong_loss_scale", "frozen_norms", "skipped_evaluation", "stale_autocast", "silent_eager",
)  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_planted_wrong_lever_is_refused_each_time(name):
    for seed in range(20):
        bench = ScriptedBench(
            gains={name: log(1.3 + seed / 20)}, harmful=frozenset({name}), noise=Noise(), seed=seed
        )
        found = run(bench, make_lever(name), *make_levers(2))

        assert found.outcome is not StudyOutcome.FASTER
        assert name not in {one.name for one in found.recipe}
        assert "harmful" in codes(found, name)


@pytest.mark.parametrize("name", WRONG)
def test_a_planted_wrong_lever_does_not_spoil_the_right_one_beside_it(name):
    for seed in range(5):
        bench = ScriptedBench(
            gains={name: log(1.4), "lever_0": log(1.5)}, harmful=frozenset({name}), seed=seed
        )

        assert recipe(run(bench, make_lever(name), *make_levers(2))) == ["lever_0"]


# -- confirmation


class Lucky(ScriptedBench):
    """A lever looks fast while it is tried, and is not when it is confirmed."""

    def true_gain(self, state):
        latest = self.requests[-1] if self.requests else None
        is_fresh = isinstance(latest, LiveRequest) and latest.is_fresh
        is_proof = isinstance(latest, ProcessRequest) and latest.reference == ()
        return super().true_gain(state) * (0.0 if is_fresh or is_proof else 1.0)


def test_what_was_only_luck_is_not_confirmed_and_not_claimed():
    found = run(Lucky(gains={"lever_0": log(1.3)}, noise=Noise(sd=0.02)), *make_levers(1))

    assert found.outcome is StudyOutcome.NOTHING_HELPS
    assert found.recipe == ()
    assert trials(found, "lever_0", kind="confirm")[0].reason == "not_confirmed"


class Changing(ScriptedBench):
    """Each fresh process is another: in the last one the lever slows down a little."""

    count = 0

    def _gain(self, request, state):
        gain = super()._gain(request, state)
        return -gain / 6 if request.is_fresh and self.count % 3 == 2 else gain

    def compare_live(self, request):
        result = super().compare_live(request)
        self.count += request.is_fresh
        return result


def test_repeats_that_disagree_are_not_claimed():
    noise = Noise(sd=0.05, r=0.0, outliers=0.0, burst_rate=0.0)
    found = run(Changing(gains={"lever_0": 0.15}, noise=noise), *make_levers(1))

    assert found.outcome is StudyOutcome.TOO_NOISY
    assert found.reason == "repeats_disagree"


def test_helpers_that_are_wrong_only_all_together_are_used_one_by_one():
    bench = ScriptedBench(
        gains={"lever_0": log(1.5)},
        together={
            frozenset({"lever_0", "lever_1"}): log(1.3),
            frozenset({"lever_0", "lever_2"}): log(1.2),
        },
        outcome=lambda state: Outcome.FAIL if len(state) > 2 else Outcome.PASS,
    )

    assert recipe(run(bench, *make_levers(3))) == ["lever_0", "lever_1"]


class SilentTogether(ScriptedBench):
    """Nothing can be timed where two levers are on."""

    def compare_live(self, request):
        result = super().compare_live(request)
        is_both = any(len(state) > 1 for state in request.states)
        return replace(result, arms=()) if is_both else result


def test_levers_of_which_nothing_is_known_together_are_not_combined():
    bench = SilentTogether(gains={"lever_0": log(1.5), "lever_1": log(1.3)})

    assert recipe(run(bench, *make_levers(2))) == ["lever_0"]


class Voided(ScriptedBench):
    """All rounds of the confirmation come to nothing, but for one in the first process."""

    count = 0

    def compare_live(self, request):
        result = super().compare_live(request)
        if not request.is_fresh:
            return result
        self.count += 1
        num = 1 if self.count == 1 else 0
        arms = tuple(replace(arm, log_ratios=arm.log_ratios[:num]) for arm in result.arms)
        return replace(result, arms=arms)


def test_a_confirmation_of_a_few_rounds_confirms_nothing():
    found = run(Voided(gains={"lever_0": log(1.3)}), *make_levers(1))

    assert (found.outcome, found.reason) == (StudyOutcome.TOO_NOISY, "too_few_repeats")


def test_a_helper_that_is_wrong_beside_the_best_is_not_tried_there_again():
    bench = ScriptedBench(
        gains={"lever_0": log(1.5)},
        together={frozenset({"lever_0", "lever_1"}): log(1.2)},
        outcome=lambda state: Outcome.FAIL if len(state) > 1 else Outcome.PASS,
    )

    assert recipe(run(bench, *make_levers(3))) == ["lever_0"]


def test_a_lever_that_dies_in_the_confirmation_is_not_claimed():
    class Dying(ScriptedBench):
        def _end_of(self, state):
            is_fresh = isinstance(self.requests[-1], LiveRequest) and self.requests[-1].is_fresh
            return (TrialEnd.OUT_OF_MEMORY, "leak") if is_fresh and state else None

    found = run(Dying(gains={"lever_0": log(1.3)}), *make_levers(1))

    assert found.recipe == ()
    assert trials(found, "lever_0", kind="confirm")[0].end is TrialEnd.OUT_OF_MEMORY


def test_where_processes_cannot_confirm_the_live_levers_are_confirmed_alone():
    class Loaded(ScriptedBench):
        def compare_processes(self, request):
            result = super().compare_processes(request)
            is_proof = len(request.candidate) > 1 and request.reference == ()
            busy = PairLoad(reference=0.9, candidate=0.9)
            arms = tuple(replace(arm, loads=(busy,) * len(arm.loads)) for arm in result.arms)
            return replace(result, arms=arms, others_cores=0.9) if is_proof else result

    bench = Loaded(gains={"lever_0": log(1.4), "workers": log(1.2)})
    workers = make_lever("workers", moment=Moment.STARTUP, by_cpu=False)
    found = run(bench, *make_levers(1, by_cpu=False), workers)

    assert recipe(found) == ["lever_0"]
    assert "live_levers_alone" in codes(found)


def test_a_state_that_takes_too_long_to_confirm_gives_way_to_its_live_levers():
    class Slower(ScriptedBench):
        def compare_processes(self, request):
            # Its pairs take far longer than the first run did: the proof would, too.
            self.used_s += 250.0 if request.reference else 0.0
            return super().compare_processes(request)

    bench = Slower(gains={"lever_0": log(1.4), "workers": log(1.2)})
    found = run(bench, *make_levers(1), make_lever("workers", moment=Moment.STARTUP))

    assert recipe(found) == ["lever_0"]
    assert "out_of_time" in codes(found)
    assert bench.time_left_s() > 0


# -- time


def test_what_there_was_no_time_for_is_listed():
    levers = (*make_levers(12), make_lever("allocator", moment=Moment.ENVIRONMENT))
    found = run(ScriptedBench(step_s=2.0, startup_s=20.0, run_s=60.0, judge_s=400.0), *levers)

    assert {one.reason for one in found.not_tried} == {"no_time"}
    tried = {one.name for trial in found.trials if trial.speedup for one in trial.state}
    assert not tried & {one.name for one in found.not_tried}


def test_where_the_budget_does_not_even_reach_for_the_noise_nothing_is_claimed():
    found = run(ScriptedBench(run_s=599.5, gains={"lever_0": 1.0}), *make_levers(2))

    assert (found.outcome, found.reason) == (StudyOutcome.TOO_NOISY, "no_time")
    assert found.unproven.missing_s > 0
    assert {one.name for one in found.not_tried} == {"lever_0", "lever_1"}


def test_a_third_of_the_budget_is_left_for_the_proof():
    bench = ScriptedBench(gains={"lever_0": log(1.3)}, noise=Noise(), step_s=0.7, startup_s=10.0)
    left = []

    def note(summary):
        if summary.phase == "quality":
            left.append(summary.left_s + bench.judge_s)

    found = run(bench, *make_levers(8), tell=note)

    assert recipe(found) == ["lever_0"]
    assert left[0] > 150


def test_what_there_was_no_time_to_confirm_is_no_proof_that_nothing_helps():
    bench = ScriptedBench(gains={"lever_0": log(1.4)}, noise=Noise(), judge_s=640.0)

    found = run(bench, *make_levers(3))

    assert (found.outcome, found.reason) == (StudyOutcome.TOO_NOISY, "too_few_repeats")


def test_one_outlier_among_a_few_pairs_does_not_hide_a_large_gain():
    class Disturbed(ScriptedBench):
        def compare_live(self, request):
            result = super().compare_live(request)
            arms = [self._disturb(arm) for arm in result.arms]
            return replace(result, arms=tuple(arms))

        def _disturb(self, arm):
            is_first = any(one.name == "lever_0" for one in arm.state) and not self.was_disturbed
            self.was_disturbed = self.was_disturbed or is_first
            ratios = (-0.05, *arm.log_ratios[1:]) if is_first else arm.log_ratios
            return replace(arm, log_ratios=ratios)

        was_disturbed = False

    bench = Disturbed(gains={"lever_0": log(1.5)}, step_s=1.6, startup_s=4.0, judge_s=180.0)
    found = run(bench, *make_levers(2))

    assert recipe(found) == ["lever_0"]


def test_where_all_levers_together_are_too_dear_the_first_are_tried():
    # A script of a few steps is started again for each few rounds.
    class Short(ScriptedBench):
        def compare_live(self, request):
            self.used_s += 6.0 * request.num_rounds * len(request.states)
            return super().compare_live(request)

    bench = Short(gains={"lever_0": log(1.5)}, step_s=0.4)

    found = run(bench, *make_levers(6))
    assert "lever_0" in recipe(found)
    assert "not_told_apart" in codes(found)


class Cut(ScriptedBench):
    """The budget is spent after some questions; those that follow take their time, too."""

    last = 0
    spent_s = None

    def time_left_s(self):
        if len(self.requests) < self.last:
            return super().time_left_s()
        if self.spent_s is None:
            self.spent_s = self.used_s
        return self.spent_s - self.used_s - 1.0


def full_bench(kind=ScriptedBench, **options):
    return kind(
        gains={"lever_0": log(1.3), "s:2": log(1.2), "compile": log(1.2), "p:2": log(1.2)},
        together={frozenset({"lever_0", "s:2"}): -0.1},
        compile_s={"compile": 10.0},
        ends={"lever_1": (TrialEnd.FAILED, "exit_1")},
        harmful=frozenset({"s:2"}),
        noise=Noise(),
        **options,
    )


FULL = (
    *make_levers(3),
    make_lever("s", settings=({"x": 1}, {"x": 2}, {"x": 3})),
    make_lever("compile"),
    make_lever("p", moment=Moment.ENVIRONMENT, settings=({"n": 2}, {"n": 4})),
)


def as_study(found: Found) -> Study:
    """What the study's folder would hold."""
    return Study(
        study_id="s", command=("python", "train.py"), started_unix_s=0.0, ended_unix_s=None,
        tier="isolated", outcome=found.outcome, recipe=found.recipe, speedup=found.speedup,
        noise_floor=found.noise_floor, quality=found.quality,
        baseline_step_s=found.baseline_step_s, tuned_step_s=found.tuned_step_s,
        sample_unit=found.sample_unit, trials=found.trials, not_tried=found.not_tried,
        choices=found.choices, break_even_steps=found.break_even_steps,
    )  # fmt: skip


def assert_is_legal(found: Found) -> None:
    """Whatever happened: it can be written down, and nothing is claimed without its proof."""
    study = as_study(found)
    assert from_json(Study, json.loads(json.dumps(to_json(study)))) == study
    assert [trial.number for trial in found.trials] == list(range(len(found.trials)))
    if found.outcome is StudyOutcome.FASTER:
        assert found.recipe
        assert found.quality.outcome is Outcome.PASS
        assert found.speedup.low > 1 + found.noise_floor
    else:
        assert (found.recipe, found.speedup, found.quality) == ((), None, None)


def test_the_budget_may_run_out_at_any_question():
    bench = full_bench()
    run(bench, *FULL)
    assert len(bench.requests) > 12

    for last in range(len(bench.requests) + 1):
        told = []
        cut = full_bench(Cut)
        cut.last = last
        found = run(cut, *FULL, tell=told.append)

        assert_is_legal(found)
        assert cut.time_left_s() >= -0.1 * cut.budget_s  # what is begun may end so late
        for summary in told:
            assert_is_legal(summary.found)


CUT_OFF = Ending(end=TrialEnd.INTERRUPTED)


class Interrupted(ScriptedBench):
    """A trial is interrupted from outside after some questions."""

    last = 0

    def compare_live(self, request):
        result = super().compare_live(request)
        is_late = len(self.requests) >= self.last
        return replace(result, ending=CUT_OFF) if is_late else result

    def compare_processes(self, request):
        result = super().compare_processes(request)
        is_late = len(self.requests) >= self.last
        return replace(result, ending=CUT_OFF) if is_late else result


def test_an_interrupted_trial_is_the_last_one():
    bench = full_bench()
    run(bench, *FULL)

    for last in range(2, len(bench.requests) + 1):
        stopped = full_bench(Interrupted)
        stopped.last = last
        found = run(stopped, *FULL)

        assert_is_legal(found)
        later = stopped.requests[last:]
        assert sum(isinstance(one, (LiveRequest, ProcessRequest)) for one in later) <= 1
        if found.outcome is StudyOutcome.TOO_NOISY:
            assert found.reason in {"interrupted", "no_noise_floor"}


def test_what_is_proven_stays_so_where_the_search_for_more_is_interrupted():
    gains = {f"lever_{number}": log(1.05) for number in range(5)}
    levers, case = make_levers(6), {"gains": gains}
    bench, after = ScriptedBench(noise=Noise(), **case), []

    def note(summary):
        if "confirmed" in codes(summary.found):
            after.append(len(bench.requests))

    search(bench, SearchOptions(levers=levers, budget_s=bench.budget_s), tell=note)
    assert after
    for last in after:
        stopped = Interrupted(noise=Noise(), **case)
        stopped.last = last
        found = run(stopped, *levers)

        assert_is_legal(found)
        assert found.outcome is StudyOutcome.FASTER


# -- going on with a study


class Recording:
    """Writes down each answer, with the time that was left after it."""

    def __init__(self, bench, answers=()):
        self.bench = bench
        self.answers = list(answers)
        self.next = 0
        self.left_s = None

    def _answer(self, ask):
        if self.next == len(self.answers):
            answer = ask()
            self.answers.append((answer, self.bench.time_left_s()))
        answer, self.left_s = self.answers[self.next]
        self.next += 1
        return answer

    def observe(self):
        return self._answer(lambda: self.bench.observe())  # noqa: PLW0108

    def compare_live(self, request):
        return self._answer(lambda: self.bench.compare_live(request))

    def compare_processes(self, request):
        return self._answer(lambda: self.bench.compare_processes(request))

    def judge(self, state):
        return self._answer(lambda: self.bench.judge(state))

    def time_left_s(self):
        return self.left_s


def test_a_study_that_was_killed_goes_on_as_if_it_had_not_been():
    whole = Recording(full_bench())
    expected = run(whole, *FULL)

    for count in range(len(whole.answers)):
        # The world as it was when the study was killed: so many questions asked and paid for.
        world = full_bench()
        for request in whole.bench.requests[:count]:
            ask(world, request)
        assert run(Recording(world, whole.answers[:count]), *FULL) == expected

    assert run(Recording(None, whole.answers), *FULL) == expected


def ask(bench, request):
    if request == "observe":
        bench.observe()
    elif isinstance(request, LiveRequest):
        bench.compare_live(request)
    elif isinstance(request, ProcessRequest):
        bench.compare_processes(request)
    else:
        bench.judge(request)


def test_levers_between_processes_that_are_wrong_beside_others_end_no_search_in_a_circle():
    """Two pairs train worse; what is refused together must not be built again from one side."""
    pairs = [{"start_0", "lever_2"}, {"start_0", "lever_3"}]

    def outcome(state):
        names = {one.name for one in state}
        return Outcome.FAIL if any(pair <= names for pair in pairs) else Outcome.PASS

    gains = {"lever_1": log(1.1), "lever_2": log(1.03), "lever_3": log(1.4), "start_0": log(1.1)}
    bench = ScriptedBench(gains=gains, outcome=outcome, step_s=0.02, startup_s=2.8, run_s=7.5)
    found = run(bench, *make_levers(4), make_lever("start_0", moment=Moment.STARTUP))

    assert found.outcome is StudyOutcome.FASTER
    assert outcome(found.recipe) is Outcome.PASS
    assert bench.true_gain(found.recipe) >= log(1.4)


@pytest.mark.parametrize("seed", [*range(8), 160, 355])
def test_what_was_seen_to_be_faster_and_as_good_is_proven_or_refused(seed, monkeypatch):
    """Unless there was never the time for it, or what was proven has a higher lower bound."""
    seen, labs = {}, []
    report = Lab.report

    def look(lab):
        labs.append(lab)
        for series in lab.known.alone:
            found, state = lab.log_speedup(series), series.state
            if found is None or found.low <= math.log1p(lab.floor_for(series)):
                continue
            if lab.quality.has_passed(state) and lab.ledger.left_s >= least_confirmation(
                lab, state
            ):
                seen[key_of(state)] = found.low
        return report(lab)

    monkeypatch.setattr(Lab, "report", look)
    bench, levers = drawn(seed)
    found = run(bench, *levers, budget_s=bench.budget_s)

    proven = math.log(found.speedup.low) if found.recipe else 0.0
    refused = {
        key for key, known in labs[-1].confirmations.items() if doubt(labs[-1], known) is not None
    }
    own = set(key_of(found.recipe))
    assert not [
        low
        for key, low in seen.items()
        if key not in refused and low > proven and not set(key) <= own
    ]


class SlowedBeside(ScriptedBench):
    """In one process with the lever, the command as written is a fifth slower than by itself."""

    def compare_live(self, request):
        result = super().compare_live(request)
        slowed_s = 1.2 * self.step_s if request.is_fresh else self.step_s
        return replace(result, reference_step_s=slowed_s)


def test_what_one_state_costs_the_other_in_a_process_is_no_gain():
    def study(speedup):
        bench = SlowedBeside(gains={"lever_0": log(speedup)}, noise=Noise(), run_s=60.0)
        return run(bench, *make_levers(1))

    large, small = study(2.0), study(1.15)

    assert 1.6 < large.speedup.estimate < 1.75
    assert small.outcome is not StudyOutcome.FASTER
    assert "slowed_beside" in codes(large)
    assert "slowed_beside" in codes(small)


def test_where_one_state_slows_down_the_other_processes_of_their_own_decide():
    bench = SlowedBeside(gains={"lever_0": log(1.15)}, noise=Noise())
    found = run(bench, *make_levers(1))

    assert found.speedup.low < 1.15 < found.speedup.high
    assert found.speedup.n == 12  # pairs; what was seen within a process counts no more
    assert codes(found).count("slowed_beside") == 1


def test_what_one_process_shows_is_claimed_as_processes_show_it():
    """A gain of 8 % within a process, where one start differs from the next by more or less."""

    def study(process_sd):
        bench = ScriptedBench(gains={"lever_0": log(1.08)}, noise=Noise(process_sd=process_sd))
        return run(bench, *make_levers(1))

    told, hidden = study(0.01), study(0.1)

    assert "shown_between" in codes(told)
    assert told.speedup.n == trials(told, "lever_0", kind="confirm")[-1].speedup.n == 12
    assert hidden.outcome is StudyOutcome.TOO_NOISY
    assert hidden.reason == "not_confirmed"
    assert [label_of(one) for one in hidden.unproven.state] == ["lever_0"]


def test_processes_need_not_show_the_noise_floor_again_and_get_a_second_look():
    bench = ScriptedBench(gains={"lever_0": log(1.08)}, noise=Noise(process_sd=0.05))
    found = run(bench, *make_levers(1))

    within = next(one.facts for one in found.choices if one.code == "confirmed")
    assert within["low"] > 1 + within["noise_floor"]
    assert 1 < found.speedup.low < 1 + found.noise_floor
    assert found.speedup.n == 23


def test_a_proof_within_processes_stands_where_pairs_of_them_do_not_fit_or_tell():
    for more in ({"run_s": 60.0}, {"others_cores": 0.7}):
        bench = ScriptedBench(gains={"lever_0": log(1.3)}, **more)
        found = run(bench, *make_levers(1, by_cpu=False))

        assert found.outcome is StudyOutcome.FASTER
        assert "shown_between" not in codes(found)


def test_what_neighbors_cost_both_states_is_not_taken_off():
    bench = SlowedBeside(gains={"lever_0": log(2.0)}, noise=Noise(), others_cores=0.7)

    assert "slowed_beside" not in codes(run(bench, *make_levers(1)))
