"""Levers are tried together first and then taken apart: what is found, dropped and said."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from design_cases import BF16, CASES, useless
from scripted_bench import (
    QUIET,
    ScriptedBench,
    label_of,
    labels_of,
    make_lever,
    make_levers,
)
from steptime.levers.base import Facts, Moment
from steptime.tune.search.bench import LiveRequest, ProcessRequest
from steptime.tune.search.search import SearchOptions, search
from steptime.tune.values.study_values import Applied, StudyOutcome, TrialEnd
from steptime.verify.values import Outcome

log = math.log

# The least mean share of the reachable gain that three studies of a kind find; the benchmark
# search_design.py has 200 of each.
LEAST = {
    "five small gains": 0.8,
    "five small gains, heavy noise": 0.4,
    "a pair that helps only together": 0.6,
    "a pair of which each alone is slower": 0.6,
    "steps of 5 s, 10 minutes": 0.3,
    "steps of 5 s, one slower": 0.5,
}


def run(bench, *levers, **options):
    return search(bench, SearchOptions(levers=levers, budget_s=bench.budget_s, **options))


def labels(found):
    return {label_of(one) for one in found.recipe}


def said(found, code):
    return [choice for choice in found.choices if choice.code == code]


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].best])
def test_most_of_what_can_be_gained_is_found(name):
    case, shares = CASES[name], []
    for seed in range(3):
        bench = case.bench(seed)
        found = run(bench, *case.levers)
        shares.append(bench.true_gain(found.recipe) / case.reachable)

        untold = " ".join(str(c.facts["state"]) for c in said(found, "not_told_apart"))
        told = {c.lever for code in ("kept", "added", "first") for c in said(found, code)}
        for one in useless(case, bench, found.recipe):
            assert one.partition(":")[0] in untold or one.partition(":")[0] in told

    assert sum(shares) / 3 >= LEAST.get(name, 0.75)


@pytest.mark.parametrize("name", [name for name in CASES if not CASES[name].best])
def test_where_nothing_helps_nothing_is_claimed(name):
    for seed in range(3):
        assert run(CASES[name].bench(seed), *CASES[name].levers).recipe == ()


# -- what each lever gives


def test_what_each_lever_gives_beside_the_others_is_a_trial():
    gains = {"lever_0": log(1.2), "lever_1": log(1.1)}
    found = run(ScriptedBench(gains=gains), *make_levers(2))

    parts = [t for t in found.trials if t.kind == "live" and len(t.reference) == 1]
    assert {label_of(t.reference[0]): round(t.speedup.estimate, 1) for t in parts} == {
        "lever_0": 1.1,
        "lever_1": 1.2,
    }
    assert {labels_of(t.state) for t in parts} == {frozenset(gains)}


def test_of_two_levers_that_do_the_same_one_stays():
    bench = ScriptedBench(
        gains={"lever_0": log(1.3), "lever_1": log(1.3)},
        together={frozenset({"lever_0", "lever_1"}): -log(1.3)},
    )
    found = run(bench, *make_levers(3))

    assert len(found.recipe) == 1
    assert found.speedup.low > 1.25


def test_what_could_not_be_told_apart_is_named():
    case = CASES["steps of 5 s, 20 minutes"]
    found = run(case.bench(0), *case.levers)

    assert found.outcome is StudyOutcome.FASTER
    assert {
        name for name in labels(found) if name in said(found, "not_told_apart")[-1].facts["state"]
    }


def test_a_slow_script_makes_its_a_a_beside_the_bundle():
    case = CASES["steps of 5 s, 10 minutes"]
    bench = case.bench(0)
    run(bench, *case.levers)

    first = next(one for one in bench.requests if isinstance(one, LiveRequest))
    assert [len(state) for state in first.states] == [0, 0, 6]


def test_fewer_threads_are_in_no_bundle_that_was_put_together_unseen():
    threads = make_lever("num_threads", settings=({"num_threads": 1},))
    script = {"step_s": 5.0, "startup_s": 20.0, "run_s": 65.0, "judge_s": 300.0}
    bench = ScriptedBench(gains={"lever_0": log(1.5)}, budget_s=1200.0, **script)
    run(bench, *make_levers(3), threads)

    first = next(one for one in bench.requests if isinstance(one, LiveRequest))
    assert "num_threads:1" not in labels_of(first.states[-1])


# -- between processes


def test_levers_between_processes_are_compared_together_first():
    gains = {f"start_{i}": log(1.15) for i in range(3)}
    levers = [make_lever(name, moment=Moment.STARTUP) for name in gains]
    bench = ScriptedBench(gains=gains, run_s=7.0)
    found = run(bench, *levers)

    first = next(one for one in bench.requests if isinstance(one, ProcessRequest))
    assert labels_of(first.candidate) == set(gains)
    assert labels(found) == set(gains)
    assert {choice.lever for choice in said(found, "stays")} == set(gains)


def test_those_that_end_their_process_are_found_by_halving():
    gains = {f"start_{i}": log(1.15) for i in range(4)}
    levers = [make_lever(name, moment=Moment.STARTUP) for name in gains]
    ends = {"start_2": (TrialEnd.FAILED, "exit_code")}
    bench = ScriptedBench(gains=gains, ends=ends, run_s=5.0, budget_s=900.0)
    found = run(bench, *levers)

    assert labels(found) == set(gains) - {"start_2"}
    assert said(found, "bundle_fails")


# -- quality


def test_a_lever_that_changes_the_numbers_is_found_by_halving():
    gains = {f"lever_{i}": log(1.1) for i in range(8)}
    bench = ScriptedBench(gains=gains, noise=QUIET, harmful=frozenset({"lever_5"}))
    judged = []
    judge = bench.judge
    bench.judge = lambda state: judged.append(len(state)) or judge(state)
    found = run(bench, *make_levers(8))

    assert labels(found) == set(gains) - {"lever_5"}
    assert [choice.lever for choice in said(found, "harmful")] == ["lever_5"]
    assert len(judged) <= 8
    assert (judged[0], judged[-1]) == (8, 7)


def test_nothing_is_compared_between_processes_beside_what_trains_worse():
    gains = {"lever_0": log(1.4), "lever_1": log(1.2), "allocator": log(1.2)}
    bench = ScriptedBench(gains=gains, noise=QUIET, harmful=frozenset({"lever_0"}))
    found = run(bench, *make_levers(2), make_lever("allocator", moment=Moment.ENVIRONMENT))

    assert labels(found) == {"lever_1", "allocator"}
    between = [trial for trial in found.trials if trial.kind == "process"]
    assert between
    assert not [trial for trial in between if "lever_0" in labels_of(trial.state)]


def test_what_is_left_of_a_refused_state_is_proven_where_nothing_can_be_measured_again():
    gains = {f"lever_{i}": log(1.1) for i in range(4)} | {"lever_4": log(1.4)}
    bench = ScriptedBench(
        gains=gains, noise=QUIET, step_s=4.0, harmful=frozenset({"lever_4"}), judge_s=60.0
    )
    found = run(bench, *make_levers(5))

    assert [choice.lever for choice in said(found, "harmful")] == ["lever_4"]
    assert labels(found) == set(gains) - {"lever_4"}


def test_a_lever_that_does_less_takes_the_place_of_a_refused_one():
    gains = {"module_precision": log(1.5), "autocast": log(1.4), "lever_0": log(1.1)}
    bench = ScriptedBench(
        gains=gains,
        together={frozenset({"module_precision", "autocast"}): -log(1.4)},
        noise=QUIET,
        step_s=4.0,
        harmful=frozenset({"module_precision"}),
        judge_s=80.0,
    )
    levers = [make_lever(name) for name in gains]
    found = run(bench, *levers)

    assert labels(found) == {"autocast", "lever_0"}


def test_levers_that_are_wrong_only_together_lose_one():
    bench = ScriptedBench(
        gains={f"lever_{i}": log(1.2) for i in range(4)},
        outcome=lambda state: Outcome.FAIL if len(state) > 3 else Outcome.PASS,
    )

    assert len(run(bench, *make_levers(4)).recipe) == 3


# -- time


def test_the_diagnosis_and_the_order_that_follows_are_said():
    found = run(ScriptedBench(gains={"lever_0": log(1.3)}), *make_levers(2))

    assert said(found, "ordered")[0].facts == {
        "bottleneck": "COMPUTE_BOUND",
        "levers": "lever_0, lever_1",
    }


def test_a_compiled_model_is_taken_apart_with_four_states_a_process():
    facts = Facts(torch_version="2.13.0", uses_compile=True)
    bench = replace(ScriptedBench(gains={"lever_3": log(1.3)}), facts=facts)
    found = run(bench, *make_levers(9))

    sizes = [len(one.states) for one in bench.requests if isinstance(one, LiveRequest)]
    assert max(sizes) == 4
    assert labels(found) == {"lever_3"}


@pytest.mark.parametrize("seed", range(4))
def test_of_two_levers_that_do_the_same_the_one_that_does_more_goes(seed):
    bench = ScriptedBench(
        gains={"autocast": log(1.5), "module_precision": log(1.5), "lever_0": log(1.2)},
        together={frozenset({"autocast", "module_precision"}): -log(1.5)},
        seed=seed,
    )
    found = run(bench, make_lever("autocast"), make_lever("module_precision"), *make_levers(1))

    assert labels(found) == {"autocast", "lever_0"}


def bf16_bench(**more):
    """Each of them gives the whole gain, and two of them no more."""
    gains = {"matmul_precision": log(1.2), "module_precision": log(1.3), "autocast": log(1.35)}
    together = {
        frozenset({"matmul_precision", "module_precision"}): -log(1.2),
        frozenset({"matmul_precision", "autocast"}): -log(1.2),
        frozenset({"module_precision", "autocast"}): -log(1.3),
    }
    # a setting has its own label, and the gain of its lever
    gains = {
        label_of(Applied(name=name, settings=one)): gains[name]
        for name, settings in BF16.items()
        for one in settings
    }
    return ScriptedBench(gains=gains | {"lever_0": log(1.15)}, together=together, **more)


def bf16_levers():
    return [make_lever(name, settings=some) for name, some in BF16.items()] + [*make_levers(1)]


def test_of_levers_that_round_the_same_numbers_a_state_has_one():
    bench = bf16_bench()
    found = run(bench, *bf16_levers())

    states = [one for request in bench.requests for one in getattr(request, "states", ())]
    assert max(sum(one.name in BF16 for one in state) for state in states) == 1
    assert labels(found) == {"autocast:bf16", "lever_0"}


@pytest.mark.parametrize("seed", range(3))
def test_where_bf16_trains_worse_it_is_not_judged_in_every_spelling(seed):
    harmful = frozenset({"module_precision", "autocast"})
    bench = bf16_bench(harmful=harmful, seed=seed)
    found = run(bench, *bf16_levers())

    assert labels(found) == {"matmul_precision:medium", "lever_0"}
    judged = [one for one in bench.requests if isinstance(one, tuple) and one]
    assert len(judged) <= 6
    assert "autocast" in {choice.lever for choice in said(found, "harmful")}
