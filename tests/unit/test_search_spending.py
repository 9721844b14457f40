"""What a study does with its time: nothing is left while something is open."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import takewhile

import pytest

from crowded_bench import CASES
from scripted_bench import Noise, ScriptedBench, label_of, labels_of, make_lever, make_levers
from steptime.diagnose.values.finding import BottleneckKind
from steptime.levers.base import Facts, LoaderFacts, Moment, Preserves
from steptime.tune.search.bench import LiveRequest, PairLoad, ProcessRequest
from steptime.tune.search.budget import BudgetLedger
from steptime.tune.search.proof.quality import Quality
from steptime.tune.search.search import SearchOptions, search
from steptime.tune.values.study_values import Applied, StudyOutcome

log = math.log
HEAVY = Noise(sd=0.6, r=0.6, outliers=0.1, burst_rate=0.05, burst_length=30)


def run(bench, *levers, **options):
    return search(bench, SearchOptions(levers=levers, budget_s=bench.budget_s, **options))


def study(name, seed):
    bench = CASES[name].bench(seed)
    return bench, run(bench, *CASES[name].levers)


def between(name, **more):
    more = {"moment": Moment.STARTUP, "preserves": Preserves.EXACT, "by_cpu": False} | more
    return make_lever(name, **more)


# -- the budget


@pytest.mark.parametrize("run_s", [5.0, 10.0])
def test_what_needs_processes_is_found_first_and_has_time_to_be_confirmed(run_s):
    bench = ScriptedBench(
        gains={"workers": log(2.2)},
        kind=BottleneckKind.INPUT_BOUND,
        phases={"input_wait": 0.5, "forward": 0.2, "backward": 0.2, "optimizer": 0.1},
        noise=Noise(sd=0.1, r=0.3),
        step_s=0.02,
        startup_s=6.0,
        run_s=run_s,
        judge_s=60.0,
        budget_s=300.0,
    )
    workers = between("workers", phases=("input_wait",), relieves=("INPUT_BOUND",))
    found = run(bench, *make_levers(6), workers)

    assert found.outcome is StudyOutcome.FASTER
    assert bench.used_s <= 1.1 * bench.budget_s


@pytest.mark.parametrize("name", CASES)
def test_a_study_that_proves_nothing_has_used_its_budget_or_left_nothing_open(name):
    num_wrong = 0
    for seed in range(3):
        bench, found = study(name, seed)
        if found.outcome is StudyOutcome.TOO_NOISY:
            assert bench.used_s >= 0.9 * bench.budget_s
        # What does nothing is in a recipe only where it is said that it was not told apart, but for
        # the interval of a part that misses the truth: one in a hundred looks.
        said = " ".join(c.facts["state"] for c in found.choices if c.code == "not_told_apart")
        needless = {one.name for one in found.recipe} - set(CASES[name].truth)
        num_wrong += not all(one in said for one in needless)
    assert num_wrong <= 1


@pytest.mark.parametrize(
    "name", ["transformer, bf16", "cache of a data set alone, 4 minutes", "whole batches"]
)
def test_what_helps_beside_busy_neighbors_is_proven_in_the_time(name):
    proven = [study(name, seed)[1].outcome is StudyOutcome.FASTER for seed in range(4)]

    assert sum(proven) >= 3


def test_the_a_a_of_a_slow_script_is_made_beside_the_levers():
    bench = ScriptedBench(gains={"lever_0": log(2)}, step_s=12.0, startup_s=20.0, judge_s=60.0)
    found = run(bench, *make_levers(2))

    first = next(one for one in bench.requests if isinstance(one, LiveRequest))
    assert [labels_of(state) for state in first.states] == [set(), set(), {"lever_0", "lever_1"}]
    assert any(trial.state and trial.kind == "live" for trial in found.trials)


def test_a_lever_that_is_alone_is_proven_at_once():
    bench = ScriptedBench(gains={"cache": log(1.5)}, budget_s=240.0, run_s=12.0)
    found = run(bench, between("cache"))

    assert [label_of(one) for one in found.recipe] == ["cache"]
    assert [trial.kind for trial in found.trials] == ["observe", "quality", "confirm"]


# -- compiling


def first_asked(bench, name):
    asked = [one for one in bench.requests if isinstance(one, LiveRequest)]
    return next(
        (i for i, one in enumerate(asked) if any(a.name == name for s in one.states for a in s)),
        None,
    )


def test_compiling_is_tried_after_all_others():
    bench = ScriptedBench(gains={"lever_2": log(1.3)}, compile_s={"compile": 20.0})
    run(bench, make_lever("compile"), *make_levers(3))

    assert first_asked(bench, "compile") > first_asked(bench, "lever_2")


AIMED = tuple(
    between(name, phases=("input_wait",), relieves=("INPUT_BOUND",))
    for name in ("workers", "fetch")
)


def input_bound(*, process_sd, **more):
    """A script that waits for data, and two levers that shorten the wait."""
    return ScriptedBench(
        kind=BottleneckKind.INPUT_BOUND,
        phases={"input_wait": 0.6, "forward": 0.2, "backward": 0.1, "optimizer": 0.1},
        noise=Noise(sd=0.02, process_sd=process_sd),
        **more,
    )


def test_what_gives_little_beside_much_is_not_lost_in_the_noise_of_processes():
    def keeps_both(seed):
        gains = {"workers": log(2.2), "fetch": log(1.1)}
        bench = input_bound(gains=gains, process_sd=0.12, run_s=8.0, seed=seed)
        found = run(bench, make_lever("lever_0"), *AIMED)
        return {label_of(one) for one in found.recipe} == {"workers", "fetch"}

    assert sum(map(keeps_both, range(10))) >= 9


def test_compiling_is_tried_before_what_is_undecided_gets_more_pairs():
    bench = input_bound(
        gains={"workers": log(2.2), "fetch": log(1.03), "compile": log(1.4)},
        compile_s={"compile": 20.0},
        process_sd=0.08,
        run_s=5.0,
    )
    run(bench, make_lever("compile"), *AIMED)

    asked = bench.requests
    compiling = next(
        i
        for i, one in enumerate(asked)
        if isinstance(one, LiveRequest) and any("compile" in labels_of(s) for s in one.states)
    )
    pairs = [one for one in asked[:compiling] if isinstance(one, ProcessRequest)]
    assert sum(one.num_pairs for one in pairs) <= 4 + 6 + 2  # together, and without either


def test_compiling_whose_price_does_not_fit_is_left_out_and_the_price_is_said():
    bench = ScriptedBench(gains={"lever_0": log(1.3)}, compile_s={"compile": 150.0}, budget_s=120.0)
    found = run(bench, make_lever("compile"), *make_levers(2))

    choice = next(one for one in found.choices if one.code == "too_expensive")
    assert choice.facts["price_s"] > choice.facts["left_s"]
    assert first_asked(bench, "compile") is None
    assert [label_of(one) for one in found.recipe] == ["lever_0"]


def test_only_as_many_settings_are_compiled_as_fit():
    settings = tuple({"scope": scope} for scope in ("blocks", "model", "tuned"))
    bench = ScriptedBench(gains={"lever_0": log(1.3)}, compile_s={"compile": 60.0}, budget_s=180.0)
    found = run(bench, make_lever("compile", settings=settings), *make_levers(2))

    tried = {
        one.settings["scope"] for t in found.trials for one in t.state if one.name == "compile"
    }
    assert tried == {"blocks"}


# -- by what a comparison between processes is judged


class Beside(ScriptedBench):
    """Others take so much beside the reference and beside the candidate, in turns of the loads."""

    loads = ((0.7, 0.7),)

    def compare_processes(self, request):
        result = super().compare_processes(request)
        arm = result.arms[0]
        pairs = [self.loads[i % len(self.loads)] for i in range(len(arm.log_ratios))]
        loads = tuple(PairLoad(reference=a, candidate=b) for a, b in pairs)
        return replace(result, arms=(replace(arm, loads=loads),), others_cores=0.7)


def test_quiet_pairs_judge_where_others_come_and_go():
    bench = Beside(gains={"workers": log(1.5)})
    bench.loads = ((0.0, 0.0), (0.7, 0.0))
    found = run(bench, between("workers"))

    assert [label_of(one) for one in found.recipe] == ["workers"]
    assert next(c for c in found.choices if c.code == "confirmed").facts["judged_by"] == "quiet"


def besides(name):
    return replace(between(name), judged_beside_others=True)


def test_beside_constant_neighbors_wall_time_proves_what_they_can_only_hide():
    found = run(Beside(gains={"workers": log(1.5)}), besides("workers"))

    assert [label_of(one) for one in found.recipe] == ["workers"]
    assert found.noise_floor >= 0.1  # what it may have gained at their cost


def test_what_it_gains_at_the_neighbors_cost_is_not_claimed():
    bench = Beside(gains={"workers": log(1.5)})
    bench.loads = ((0.9, 0.5),)
    found = run(bench, besides("workers"))

    assert (found.outcome, found.reason) == (StudyOutcome.TOO_NOISY, "cannot_tell")


def test_cpu_time_does_not_judge_the_reading_that_workers_do():
    reading = between("whole", by_cpu=True, phases=("input_wait",))

    def facts(num_workers):
        loader = LoaderFacts(dataset="Images", num_workers=num_workers)
        return Facts(torch_version="2.13.0", num_cores=2, loaders=(loader,))

    for num_workers, is_proven in ((0, True), (2, False)):
        bench = ScriptedBench(gains={"whole": 0.5}, others_cores=0.7, facts=facts(num_workers))
        assert bool(run(bench, reading).recipe) is is_proven


def test_cpu_time_does_not_deny_what_may_save_waiting():
    cache = between("cache", by_cpu=True, phases=("fetch",))
    other = between("other", by_cpu=True, phases=("collate",))
    loaders = (LoaderFacts(dataset="Images"),)
    facts = Facts(torch_version="2.13.0", num_cores=2, loaders=loaders)

    found = run(ScriptedBench(others_cores=0.7, facts=facts), cache, *make_levers(1))
    assert found.outcome is StudyOutcome.TOO_NOISY
    found = run(ScriptedBench(others_cores=0.7, facts=facts), other, *make_levers(1))
    assert found.outcome is StudyOutcome.NOTHING_HELPS


# -- what is said in the end


def test_what_was_seen_and_the_missing_time_are_said():
    bench = ScriptedBench(gains={"lever_0": log(1.5)}, judge_s=400.0, step_s=2.0, startup_s=20.0)
    bench = replace(bench, budget_s=200.0)
    found = run(bench, *make_levers(2))

    assert found.outcome is StudyOutcome.TOO_NOISY
    assert "lever_0" in labels_of(found.unproven.state)
    assert found.unproven.speedup.low > 1.3
    assert found.unproven.missing_s > 0


def test_the_floor_that_is_shown_is_the_one_that_judged():
    found = run(ScriptedBench(noise=HEAVY, others_cores=0.9), *make_levers(3))

    by = next(c for c in reversed(found.choices) if c.code == "noise_floor").facts
    assert found.noise_floor == pytest.approx(by["cpu"], rel=1e-3)
    assert by["cpu"] < by["wall"]


def test_nothing_helps_says_what_is_ruled_out():
    found = run(ScriptedBench(noise=Noise()), *make_levers(4))

    assert found.outcome is StudyOutcome.NOTHING_HELPS
    assert 0 <= found.reason_facts["rules_out"] <= 0.1


def test_the_load_of_others_is_named_where_it_cannot_be_told():
    found = run(ScriptedBench(gains={"w": log(1.5)}, others_cores=0.7), between("w"))

    assert (found.reason, found.reason_facts["others_cores"]) == ("cannot_tell", 0.7)


# -- looks


def looks(bench):
    proofs = [one for one in bench.requests if isinstance(one, ProcessRequest)]
    return [one.num_pairs for one in proofs if not one.reference]


def test_a_confirmation_that_is_open_goes_on_in_looks_that_must_clear_a_stricter_bar():
    noise = replace(Noise(), process_sd=0.3)
    script = {"budget_s": 1200.0, "run_s": 8.0, "seed": 4}
    bench = ScriptedBench(gains={"cache": log(1.5)}, noise=noise, **script)
    found = run(bench, between("cache"))

    assert len(looks(bench)) > 1
    assert looks(bench)[1] >= looks(bench)[0]
    assert found.outcome is StudyOutcome.FASTER
    assert found.speedup.n == sum(looks(bench))


def test_looks_do_not_make_a_claim_of_nothing():
    noise = replace(Noise(), process_sd=0.1)
    claims = [
        run(ScriptedBench(noise=noise, seed=seed, run_s=4.0), between("cache")).recipe
        for seed in range(60)
    ]

    assert not any(claims)


# -- more time


def granted(bench, *levers, later_s):
    first = bench.budget_s
    bench.budget_s = first + sum(later_s)
    return search(bench, SearchOptions(levers=levers, budget_s=first, later_s=tuple(later_s)))


def test_with_the_missing_time_the_same_study_proves_it_and_repeats_nothing():
    def slow():
        script = {"step_s": 2.0, "startup_s": 20.0, "judge_s": 300.0}
        return ScriptedBench(gains={"lever_0": log(1.5)}, budget_s=150.0, **script)

    short, long = slow(), slow()
    before = run(short, *make_levers(2))
    after = granted(long, *make_levers(2), later_s=(before.unproven.missing_s,))

    assert before.outcome is StudyOutcome.TOO_NOISY
    assert "lever_0" in labels_of(after.recipe)
    assert long.requests[: len(short.requests)] == short.requests
    assert len(long.requests) > len(short.requests)


def test_time_that_is_not_needed_is_not_taken():
    bench = ScriptedBench(gains={"lever_0": log(1.5)}, budget_s=600.0)
    found = granted(bench, *make_levers(2), later_s=(600.0,))

    assert found.outcome is StudyOutcome.FASTER
    assert bench.used_s < 600.0


class Compiling(ScriptedBench):
    """Compiles in each process with a state that does."""

    def compare_processes(self, request):
        result = super().compare_processes(request)
        for _ in range(max(len(result.arms[0].log_ratios), 1)):
            self.used_s += self._compiling_s(request.candidate)
        return result

    def _pairs_in_time(self, request):
        compile_s = max(self.compile_s.get(one.name, 0.0) for one in request.candidate)
        pair_s = 2 * self.run_s + self.again * compile_s
        fitting = request.num_pairs if request.most_s is None else request.most_s // pair_s
        return min(request.num_pairs, max(1, int(fitting)))


def test_two_kept_processes_find_it_and_fresh_ones_prove_it():
    bench = ScriptedBench(gains={"workers": log(1.3)}, startup_s=8.0, may_keep_two=True)
    found = run(bench, between("workers"), between("cache"))

    asked = [one for one in bench.requests if isinstance(one, ProcessRequest)]
    assert [one.name for one in found.recipe] == ["workers"]
    assert asked[0].is_kept
    assert [one.is_kept for one in asked] == sorted((one.is_kept for one in asked), reverse=True)
    assert not asked[-1].is_kept
    num_kept = len(
        {(labels_of(one.reference), labels_of(one.candidate)) for one in asked if one.is_kept}
    )
    assert bench.num_processes == 2 * num_kept + 2 * found.speedup.n


def test_what_two_processes_happen_to_be_like_is_not_claimed():
    noise = replace(Noise(), process_sd=0.08)
    levers = between("cache"), between("workers")
    lucky = (ScriptedBench(noise=noise, seed=seed, may_keep_two=True) for seed in range(40))

    assert sum(bool(run(bench, *levers).recipe) for bench in lucky) <= 1


def test_what_compiles_is_proven_between_processes_though_each_of_them_compiles():
    def is_proven(seed):
        bench = Compiling(
            gains={"workers": log(1.3), "num_threads": log(1.1), "compile": log(1.4)},
            together={frozenset({"num_threads", "compile"}): -log(1.25)},
            compile_s={"compile": 25.0},
            noise=Noise(sd=0.03, process_sd=0.05),
            run_s=6.0,
            judge_s=80.0,
            seed=seed,
        )
        levers = (make_lever("num_threads"), make_lever("compile"), between("wait_policy"))
        found = run(bench, between("workers"), between("fetch"), *levers)
        # A real bench ends pairs in time; this one says how many seconds are missing.
        return found.outcome is StudyOutcome.FASTER and bench.used_s <= 1.2 * bench.budget_s

    assert all(map(is_proven, range(6)))


@pytest.mark.parametrize("seed", range(4))
def test_where_the_step_waits_for_input_no_minutes_go_to_threads_beside_it(seed):
    """Steps of 0.6 s: a round costs as much as a stretch of two kept processes."""
    bench = ScriptedBench(
        gains={"workers": log(1.5)},
        together={frozenset({"workers", "num_threads"}): log(1.05)},
        phases={"input_wait": 0.85, "forward": 0.15},
        kind=BottleneckKind.INPUT_BOUND,
        step_s=0.6,
        run_s=18.0,
        may_keep_two=True,
        noise=Noise(sd=0.1, process_sd=0.05),
        seed=seed,
    )
    phases, relieves = ("input_wait", "epoch_start"), ("INPUT_BOUND",)
    workers = between("workers", phases=phases, relieves=relieves)
    found = run(bench, workers, make_lever("num_threads"), *make_levers(4))

    asked = list(takewhile(lambda one: not isinstance(one, ProcessRequest), bench.requests))
    rounds = [one.num_rounds for one in asked if isinstance(one, LiveRequest) and one.fixed]
    assert "workers" in {one.name for one in found.recipe}
    assert sum(rounds) <= 24


def test_what_gives_much_is_proven_without_the_compiling_that_leaves_no_time():
    def recipe(seed):
        bench = Compiling(
            gains={"fetch": log(2.6), "compile": log(1.09)},
            compile_s={"compile": 60.0},
            noise=Noise(sd=0.03, process_sd=0.08),
            run_s=8.0,
            judge_s=120.0,
            seed=seed,
        )
        found = run(bench, between("fetch"), make_lever("compile"), between("wait_policy"))
        assert "not_compiled" in [one.code for one in found.choices]
        return found.outcome, [one.name for one in found.recipe]

    assert [recipe(seed) for seed in range(4)] == [(StudyOutcome.FASTER, ["fetch"])] * 4


@pytest.mark.parametrize(
    ("again", "recipe"), [(0.1, ["fetch", "compile"]), (1.0, ["fetch"])], ids=["kept", "anew"]
)
def test_one_pair_shows_whether_what_was_compiled_is_kept_for_the_next_process(again, recipe):
    bench = Compiling(
        gains={"fetch": log(1.6), "compile": log(1.3)},
        compile_s={"compile": 60.0},
        again=again,
        noise=Noise(sd=0.03, process_sd=0.06),
        judge_s=80.0,
    )
    found = run(bench, between("fetch"), make_lever("compile"), between("wait_policy"))

    assert found.outcome is StudyOutcome.FASTER
    assert [one.name for one in found.recipe] == recipe
    assert bench.used_s <= 1.1 * bench.budget_s
    asked = next(
        one
        for one in bench.requests
        if isinstance(one, ProcessRequest) and "compile" in {lever.name for lever in one.candidate}
    )
    assert asked.num_pairs == 1


@pytest.mark.parametrize("gain", [1.4, 1.0], ids=["helps", "gives nothing"])
def test_another_number_of_workers_is_tried_where_no_samples_are_made_before(gain):
    bench = ScriptedBench(gains={"preloaded_samples": log(gain), "dataloader": log(1.1)})
    found = run(bench, between("dataloader"), between("preloaded_samples"))

    asked = [one for one in bench.requests if isinstance(one, ProcessRequest)]
    assert labels_of(asked[0].candidate) == {"preloaded_samples"}
    known = {one.name: one.reason for one in found.not_tried}
    if gain > 1:
        assert [one.name for one in found.recipe] == ["preloaded_samples"]
        assert known == {"dataloader": "needless"}
    else:
        assert [one.name for one in found.recipe] == ["dataloader"]
        assert known == {}


def test_samples_that_need_no_workers_are_tried_without_the_one_thread_that_left_them_a_core():
    bench = ScriptedBench(
        gains={"num_threads": log(1.2), "preloaded_samples": log(1.6), "lever_0": log(1.2)},
        together={frozenset({"num_threads", "preloaded_samples"}): -log(1.5)},
        noise=Noise(sd=0.05, process_sd=0.05),
    )
    late = {"relieves": ("INPUT_BOUND",)}
    levers = [between(name, **late) for name in ("dataloader", "preloaded_samples")]
    found = run(bench, make_lever("num_threads"), *make_levers(1), *levers)

    assert sorted(one.name for one in found.recipe) == ["lever_0", "preloaded_samples"]
    asked = [one for one in bench.requests if isinstance(one, ProcessRequest)]
    assert labels_of(asked[0].reference) == {"num_threads", "lever_0"}
    assert labels_of(asked[0].candidate) == {"preloaded_samples", "lever_0"}


@pytest.mark.parametrize("seed", range(1, 4))
def test_what_was_below_the_noise_is_tried_once_the_rest_of_a_step_is_short(seed):
    bench = ScriptedBench(
        gains={"fused": log(2.5), "preloaded_samples": log(1.3)},
        noise=Noise(sd=0.3, process_sd=0.03),
        phases={"input_wait": 0.06, "forward": 0.4, "backward": 0.4, "optimizer": 0.14},
        seed=seed,
    )
    late = between("preloaded_samples", phases=("input_wait",), relieves=("INPUT_BOUND",))
    found = run(bench, make_lever("fused"), late)

    assert sorted(one.name for one in found.recipe) == ["fused", "preloaded_samples"]
    assert not found.not_tried


def test_a_judgement_is_priced_by_the_runs_that_it_takes():
    """States of one roundoff share the perturbed runs, and all states the command's own two."""
    levers = {
        "exact": make_lever("exact", preserves=Preserves.EXACT),
        "low": replace(make_lever("low"), roundoff=lambda settings: 2.0**-8),
        "high": make_lever("high"),
    }
    bench, ledger = ScriptedBench(), BudgetLedger(600.0)
    ledger.observed(10.0, startup_s=0.0, step_s=1.0)
    quality = Quality(bench, ledger, levers)
    run_s = ledger.judgement(1)

    def price(name):
        return quality.cost_s((Applied(name=name, settings={}),), bench.facts) / run_s

    assert [price(name) for name in levers] == pytest.approx([3, 5, 5])
    quality.judge((Applied(name="low", settings={}),), bench.facts)
    run_s = ledger.judgement(1)
    assert [price(name) for name in levers] == pytest.approx([1, 0, 3])
