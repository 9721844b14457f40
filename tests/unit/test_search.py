"""The search end to end, over benches that answer from a table: what it finds."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import pytest

from scripted_bench import (
    NOISES,
    Noise,
    ScriptedBench,
    label_of,
    labels_of,
    make_lever,
    make_levers,
)
from steptime.diagnose.values.finding import BottleneckKind
from steptime.levers.base import Facts, Moment
from steptime.tune.search.bench import LiveRequest, ProcessRequest
from steptime.tune.search.search import SearchOptions, search
from steptime.tune.values.study_values import StudyOutcome, TrialEnd

log = math.log
between = partial(make_lever, moment=Moment.STARTUP)


def run(bench: ScriptedBench, *levers, **options):
    return search(bench, SearchOptions(levers=levers, budget_s=bench.budget_s, **options))


def recipe(found):
    return [label_of(one) for one in found.recipe]


def codes(found, lever=None):
    return [choice.code for choice in found.choices if lever in (None, choice.lever)]


def reasons(found):
    return {one.name: one.reason for one in found.not_tried}


def trials(found, *labels, kind="live"):
    """Trials of exactly these levers."""
    return [t for t in found.trials if t.kind == kind and labels_of(t.state) == set(labels)]


# -- single levers


def test_a_lever_that_helps_is_found_and_proven():
    found = run(ScriptedBench(gains={"lever_1": log(1.3)}), *make_levers(4))

    assert found.outcome is StudyOutcome.FASTER
    assert recipe(found) == ["lever_1"]
    assert found.speedup.low < 1.3 < found.speedup.high
    assert found.quality.outcome.value == "PASS"
    assert found.tuned_step_s == pytest.approx(found.baseline_step_s / 1.3, rel=0.02)


class SavingBench(ScriptedBench):
    """The loop gains half of what its steps gain, in log time."""

    def compare_live(self, request):
        return self._with_loop(super().compare_live(request))

    def compare_processes(self, request):
        return self._with_loop(super().compare_processes(request))

    def _with_loop(self, result):
        arms = [
            replace(arm, loop_log_ratios=tuple(value / 2 for value in arm.log_ratios))
            for arm in result.arms
        ]
        return replace(result, arms=tuple(arms))


def test_the_whole_loop_is_told_from_the_pairs_of_the_proof():
    bench = SavingBench(gains={"lever_1": log(1.44)}, noise=Noise(process_sd=0.01))
    found = run(bench, *make_levers(3))

    assert found.speedup.estimate == pytest.approx(1.44, rel=0.02)
    assert found.loop_speedup.estimate == pytest.approx(1.2, rel=0.01)
    assert found.loop_speedup.n == found.speedup.n


def test_a_loop_that_was_not_observed_has_no_speedup():
    assert run(ScriptedBench(gains={"lever_1": log(1.4)}), *make_levers(3)).loop_speedup is None


def test_levers_that_do_nothing_are_not_claimed():
    found = run(ScriptedBench(noise=Noise()), *make_levers(6))

    assert found.outcome is StudyOutcome.NOTHING_HELPS
    assert (found.recipe, found.speedup, found.quality) == ((), None, None)


def test_a_lever_that_slows_down_is_said_to():
    found = run(ScriptedBench(gains={"lever_0": log(0.8)}), *make_levers(1))

    assert found.outcome is StudyOutcome.NOTHING_HELPS
    assert trials(found, "lever_0")[0].reason == "slower"


def test_the_best_of_a_lever_s_settings_is_found_and_the_others_are_stopped_early():
    gains = {f"threads:{n}": gain for n, gain in ((1, 0.1), (2, 0.3), (4, 0.2), (8, -0.5))}
    lever = make_lever("threads", settings=tuple({"n": n} for n in (1, 2, 4, 8)))
    found = run(ScriptedBench(gains=gains), lever)

    assert recipe(found) == ["threads:2"]
    ends = {label: trials(found, label)[0].end for label in gains}
    assert ends.pop("threads:2") is TrialEnd.FINISHED
    assert set(ends.values()) == {TrialEnd.PRUNED}


def test_a_setting_that_cannot_win_any_more_gets_no_more_rounds():
    lever = make_lever("threads", settings=({"n": 1}, {"n": 2}, {"n": 4}))
    bench = ScriptedBench(gains={"threads:1": 0.5, "threads:2": 0.0, "threads:4": 0.01})
    found = run(bench, lever)

    assert {trials(found, f"threads:{n}")[0].reason for n in (2, 4)} == {"pruned"}


def test_the_noise_floor_comes_first_and_is_the_study_s_own():
    bench = ScriptedBench(noise=Noise())
    found = run(bench, *make_levers(2))

    first = bench.requests[1]
    assert isinstance(first, LiveRequest)
    assert first.states == ((), ())
    assert 0.01 < found.noise_floor < 0.1


def test_a_headroom_below_the_noise_is_not_tried():
    bench = ScriptedBench(
        noise=Noise(), phases={"forward": 0.5, "optimizer": 0.005, "other": 0.495}
    )
    found = run(bench, make_lever("fused", phases=("optimizer",)), make_lever("autocast"))

    assert reasons(found)["fused"] == "headroom_below_noise"
    assert not any("fused" in labels_of(trial.state) for trial in found.trials)


def test_what_gives_less_than_the_noise_rides_in_the_bundle_with_another():
    bench = ScriptedBench(
        gains={"fused": log(1.03), "autocast": log(1.3)},
        noise=Noise(sd=0.3),
        phases={"forward": 0.5, "optimizer": 0.04, "other": 0.46},
    )
    fused = make_lever("fused", phases=("optimizer",))
    found = run(replace(bench), fused, make_lever("autocast"))
    alone = run(replace(bench), fused)

    assert found.noise_floor > 0.05
    assert any({"fused", "autocast"} <= labels_of(trial.state) for trial in found.trials)
    assert reasons(alone)["fused"] == "headroom_below_noise"


@pytest.mark.parametrize(("share", "is_tried"), [(0.04, True), (0.01, False), (None, False)])
def test_what_acts_from_the_start_and_knows_that_it_saves_little_has_its_turn_too(share, is_tried):
    bench = ScriptedBench(
        gains={"allocator": log(1.07), "autocast": log(1.6)},
        noise=Noise(sd=0.15),
        phases={"forward": 0.5, "optimizer": 0.01, "other": 0.49},
    )
    allocator = between("allocator", phases=("optimizer",) if share is None else ("forward",))
    saves = None if share is None else lambda facts: share
    found = run(bench, replace(allocator, saves=saves), make_lever("autocast"))

    assert found.noise_floor > 0.05
    assert bool(trials(found, "autocast", "allocator", kind="process")) == is_tried
    assert (reasons(found).get("allocator") == "headroom_below_noise") != is_tried


def test_a_burst_at_the_beginning_does_not_refuse_what_may_give_much():
    bench = ScriptedBench(noise=Noise(sd=1.5), phases={"forward": 0.5, "other": 0.5})
    found = run(bench, make_lever("autocast", phases=("forward",)))

    assert reasons(found).get("autocast") != "headroom_below_noise"
    assert found.outcome is StudyOutcome.TOO_NOISY


# -- levers together


def test_levers_that_help_independently_are_all_kept():
    gains = {"lever_0": log(1.2), "lever_1": log(1.5), "lever_2": log(1.1)}
    found = run(ScriptedBench(gains=gains), *make_levers(4))

    assert recipe(found) == ["lever_1", "lever_0", "lever_2"]
    assert found.speedup.estimate == pytest.approx(1.98, rel=0.02)


def test_of_two_levers_that_cancel_the_better_one_stays():
    bench = ScriptedBench(
        gains={"lever_0": log(1.4), "lever_1": log(1.5)},
        together={frozenset({"lever_0", "lever_1"}): -log(1.4 * 1.5)},
    )
    found = run(bench, *make_levers(2))

    assert recipe(found) == ["lever_1"]


def test_a_lever_that_helps_only_with_another_is_found():
    bench = ScriptedBench(
        gains={"lever_0": log(1.4)}, together={frozenset({"lever_0", "lever_2"}): log(1.2)}
    )
    found = run(bench, *make_levers(3))

    assert recipe(found) == ["lever_0", "lever_2"]


def test_two_levers_that_the_best_one_keeps_out_are_tried_without_it():
    bench = ScriptedBench(
        gains={"lever_0": log(1.4), "lever_1": log(1.3), "lever_2": log(1.3)},
        together={
            frozenset({"lever_0", "lever_1"}): -log(1.3),
            frozenset({"lever_0", "lever_2"}): -log(1.3),
        },
    )
    found = run(bench, *make_levers(3))

    assert sorted(recipe(found)) == ["lever_1", "lever_2"]
    assert "dropped" in codes(found, "lever_0")


def test_where_the_others_together_are_no_better_the_first_stays():
    bench = ScriptedBench(
        gains={"lever_0": log(1.4), "lever_1": log(1.3), "lever_2": log(1.3)},
        together={
            frozenset(pair): -log(1.3)
            for pair in (("lever_0", "lever_1"), ("lever_0", "lever_2"), ("lever_1", "lever_2"))
        },
    )
    found = run(bench, *make_levers(3))

    assert recipe(found) == ["lever_0"]


# -- compiled models


def compiled_states(bench):
    return [
        len(request.states)
        for request in bench.requests
        if isinstance(request, LiveRequest)
        and (
            bench.facts.uses_compile
            or any(one.name == "compile" for state in request.states for one in state)
        )
    ]


def test_a_compiled_model_has_at_most_four_live_states_at_a_time():
    facts = Facts(torch_version="2.13.0", uses_compile=True)
    bench = ScriptedBench(gains={"lever_3": log(1.3)}, facts=facts)
    found = run(bench, *make_levers(9))

    assert max(compiled_states(bench)) == 4
    assert recipe(found) == ["lever_3"]


def test_one_process_never_compiles_more_than_four_states():
    facts = Facts(torch_version="2.13.0", uses_compile=True)
    bench = ScriptedBench(facts=facts)
    run(bench, *make_levers(9))

    seen: set[frozenset[str]] = set()
    for request in bench.requests:
        if isinstance(request, LiveRequest):
            seen = set() if request.is_fresh else seen
            seen |= {labels_of(state) for state in request.states}
            assert len(seen) <= 4


def test_our_own_compile_is_tried_apart_from_the_others():
    bench = ScriptedBench(gains={"compile": log(1.3)}, compile_s={"compile": 20.0})
    found = run(bench, *make_levers(6), make_lever("compile"))

    assert max(compiled_states(bench)) <= 4
    assert recipe(found) == ["compile"]
    # 50 ms become 38.5 ms: 11.5 ms a step earn 20 s in 1,733 steps.
    assert found.break_even_steps == pytest.approx(1733, rel=0.1)


def test_a_compilation_that_the_run_is_too_short_for_is_left_out_with_the_reason():
    bench = ScriptedBench(
        gains={"compile": log(1.3), "lever_0": log(1.1)}, compile_s={"compile": 20.0}
    )
    found = run(bench, *make_levers(1), make_lever("compile"), run_steps=1000)

    assert recipe(found) == ["lever_0"]
    trial = trials(found, "compile", "lever_0")[0]
    assert trial.reason == "not_earned"
    assert trial.facts["run_steps"] == 1000
    assert found.break_even_steps is None


def test_a_run_of_unknown_length_is_assumed_and_the_assumption_is_said():
    bench = ScriptedBench(gains={"compile": log(1.3)}, compile_s={"compile": 20.0})
    found = run(bench, make_lever("compile"))

    choice = next(one for one in found.choices if one.code == "earned")
    assert choice.facts["is_assumed"] is True
    assert choice.facts["run_steps"] == 36000


def test_compiling_must_earn_its_cost_beside_the_best_too():
    # Alone it saves 11 ms a step; beside the other, whose steps are short, 2 ms.
    bench = ScriptedBench(
        gains={"compile": log(1.3), "lever_0": log(2)},
        together={frozenset({"compile", "lever_0"}): log(1.05) - log(1.3)},
        compile_s={"compile": 20.0},
    )
    found = run(bench, *make_levers(1), make_lever("compile"), run_steps=5000)

    assert recipe(found) == ["lever_0"]
    assert "not_earned" in codes(found, "compile")


# -- levers between processes


def preloading(*, run_steps: int | None = None):
    """Samples that are made once: 20 s before the first step, and each is 25 ms shorter."""
    bench = ScriptedBench(
        gains={"preloaded_samples": log(2), "lever_0": log(1.1)}, start_s={"preloaded_samples": 20}
    )
    lever = make_lever("preloaded_samples", moment=Moment.STARTUP)
    return run(bench, *make_levers(1), lever, run_steps=run_steps)


def test_what_is_done_before_the_first_step_is_told_as_steps_that_earn_it_back():
    found = preloading()

    assert "preloaded_samples" in recipe(found)
    assert found.break_even_steps == pytest.approx(800, rel=0.2)


def test_fewer_threads_go_once_the_samples_need_no_workers():
    both = frozenset({"num_threads", "preloaded_samples"})
    bench = ScriptedBench(
        gains={"num_threads": log(1.1), "preloaded_samples": log(1.3), "lever_0": log(1.1)},
        together={both: -log(1.2)},
        start_s={"preloaded_samples": 0.1},
    )
    found = run(
        bench,
        *make_levers(1),
        make_lever("num_threads"),
        make_lever("preloaded_samples", moment=Moment.STARTUP),
    )

    assert sorted(recipe(found)) == ["lever_0", "preloaded_samples"]


def test_fewer_threads_go_once_operators_are_compiled():
    bench = ScriptedBench(
        gains={"num_threads": log(1.1), "compile": log(1.5), "lever_0": log(1.2)},
        together={frozenset({"num_threads", "compile"}): -log(1.25)},
        compile_s={"compile": 15.0},
    )
    found = run(bench, make_lever("num_threads"), make_lever("compile"), *make_levers(1))

    assert recipe(found) == ["lever_0", "compile"]
    assert "left_out" in codes(found, "num_threads")


def test_fewer_threads_stay_where_they_help_what_is_compiled_too():
    bench = ScriptedBench(
        gains={"num_threads": log(1.1), "compile": log(1.5)}, compile_s={"compile": 15.0}
    )
    found = run(bench, make_lever("num_threads"), make_lever("compile"))

    assert sorted(recipe(found)) == ["compile", "num_threads"]


def test_a_run_that_is_too_short_for_it_does_without():
    found = preloading(run_steps=500)

    assert recipe(found) == ["lever_0"]
    assert "not_earned" in codes(found, "preloaded_samples")


def test_a_lever_of_the_environment_is_compared_between_processes():
    bench = ScriptedBench(gains={"allocator": log(1.2)})
    found = run(bench, make_lever("allocator", moment=Moment.ENVIRONMENT))

    assert recipe(found) == ["allocator"]
    assert found.tuned_step_s == pytest.approx(0.05 / 1.2)
    assert trials(found, "allocator", kind="confirm")[0].speedup.n >= 6


def test_settings_between_processes_are_narrowed_down_after_two_pairs():
    bench = ScriptedBench(gains={"workers:2": log(1.2), "workers:4": log(1.5)})
    found = run(bench, between("workers", settings=({"n": 2}, {"n": 4})))

    assert recipe(found) == ["workers:4"]
    dropped = trials(found, "workers:2", kind="process")[0]
    assert (dropped.speedup, dropped.few.n) == (None, 2)  # two pairs are no interval
    assert dropped.few.median == pytest.approx(1.2, rel=0.05)


def test_levers_between_processes_are_compared_beside_the_best_live_ones():
    bench = ScriptedBench(gains={"lever_0": log(1.4), "allocator": log(1.2)})
    found = run(bench, *make_levers(1), between("allocator"))

    assert recipe(found) == ["lever_0", "allocator"]
    request = next(one for one in bench.requests if isinstance(one, ProcessRequest))
    assert labels_of(request.reference) == {"lever_0"}


def test_the_lever_against_the_bottleneck_goes_first_and_live_ones_follow_beside_it():
    bench = ScriptedBench(
        gains={"workers": log(3), "lever_0": log(1.2)},
        kind=BottleneckKind.INPUT_BOUND,
        phases={"input_wait": 0.7, "forward": 0.1, "backward": 0.1, "optimizer": 0.1},
    )
    workers = between("workers", phases=("input_wait",), relieves=("INPUT_BOUND",))
    found = run(bench, *make_levers(1), workers)

    assert recipe(found) == ["workers", "lever_0"]
    assert "processes_first" in codes(found)
    fixed = [one.fixed for one in bench.requests if isinstance(one, LiveRequest)]
    assert labels_of(fixed[-1]) == {"workers"}


def test_on_a_busy_machine_wall_time_between_processes_tells_nothing():
    bench = ScriptedBench(gains={"workers": log(1.5)}, others_cores=0.7)
    found = run(bench, between("workers", by_cpu=False))

    assert (found.outcome, found.reason) == (StudyOutcome.TOO_NOISY, "cannot_tell")
    assert trials(found, "workers", kind="confirm")[0].reason == "cannot_tell"
    choice = next(one for one in found.choices if one.code == "not_confirmed")
    assert choice.facts["others_cores"] == "0.7"


def test_a_load_that_was_not_observed_is_not_taken_for_none():
    bench = ScriptedBench(gains={"workers": log(1.5)}, others_cores=None)
    found = run(bench, between("workers", by_cpu=False))

    choice = next(one for one in found.choices if one.code == "not_confirmed")
    assert choice.facts["others_cores"] == "unknown"


def test_on_a_busy_machine_cpu_time_judges_a_lever_that_allows_it():
    bench = ScriptedBench(gains={"allocator": log(1.5)}, others_cores=0.7)

    assert recipe(run(bench, between("allocator", by_cpu=True))) == ["allocator"]


def test_cpu_time_never_judges_a_device_s_work():
    facts = Facts(torch_version="2.13.0", device="cuda")
    bench = ScriptedBench(gains={"allocator": log(1.5)}, others_cores=9.0, facts=facts)

    assert run(bench, between("allocator", by_cpu=True)).recipe == ()


def test_without_cpu_times_wall_time_judges_alone():
    class NoCpu(ScriptedBench):
        def compare_live(self, request):
            result = super().compare_live(request)
            arms = tuple(replace(arm, cpu_log_ratios=()) for arm in result.arms)
            return replace(result, arms=arms)

    found = run(NoCpu(gains={"lever_0": log(1.3)}, others_cores=1.0), *make_levers(1))

    assert recipe(found) == ["lever_0"]
    assert next(c for c in found.choices if c.code == "confirmed").facts["judged_by"] == "wall"


def test_compiling_is_left_out_while_processes_are_compared_and_confirmed_with_them():
    bench = ScriptedBench(
        gains={"compile": log(1.4), "allocator": log(1.3)}, compile_s={"compile": 20.0}
    )
    found = run(bench, make_lever("compile"), between("allocator"))

    asked = [one for one in bench.requests if isinstance(one, ProcessRequest)]
    # The last two are its confirmation: one pair shows what compiling takes again.
    assert all("compile" not in labels_of(one.candidate) for one in asked[:-2])
    assert labels_of(asked[-1].candidate) == {"compile", "allocator"}
    assert sorted(recipe(found)) == ["allocator", "compile"]


def test_where_levers_cannot_be_switched_all_are_compared_between_processes():
    bench = ScriptedBench(gains={"lever_0": log(1.4)}, live_end=TrialEnd.FAILED)
    found = run(bench, *make_levers(2))

    assert recipe(found) == ["lever_0"]
    assert "no_noise_floor" in codes(found)
    assert "noise_floor" in codes(found)
    assert trials(found, "lever_0", kind="confirm")[0].speedup.n >= 6


# -- endings without a lever


def test_where_nothing_applies_nothing_is_run_but_the_command():
    bench = ScriptedBench()
    found = run(bench, make_lever("fused", applies="It is fused already."))

    assert (found.outcome, found.reason) == (StudyOutcome.NOTHING_HELPS, "nothing_applies")
    assert bench.requests == ["observe"]


def test_a_command_that_fails_as_written_has_no_outcome():
    bench = ScriptedBench(baseline_end=TrialEnd.FAILED)
    found = run(bench, *make_levers(2))

    assert (found.outcome, found.reason) == (None, "failed")
    assert len(found.trials) == 1


def test_noise_that_hides_an_effect_worth_having_is_too_noisy():
    bench = ScriptedBench(noise=NOISES["wild"], budget_s=120.0, seed=2)
    found = run(bench, *make_levers(3))

    assert (found.outcome, found.reason) == (StudyOutcome.TOO_NOISY, "noise_floor")


def test_in_more_time_the_same_noise_lets_it_be_said_that_nothing_helps():
    found = run(ScriptedBench(noise=NOISES["wild"], seed=2), *make_levers(3))

    assert (found.outcome, found.reason) == (StudyOutcome.NOTHING_HELPS, None)
    assert found.reason_facts["rules_out"] <= max(0.1, found.noise_floor)


def test_noise_does_not_keep_a_large_effect_from_being_shown():
    noise = Noise(sd=0.6, r=0.6, outliers=0.1, burst_rate=0.05, burst_length=30)
    found = run(ScriptedBench(noise=noise, gains={"lever_1": log(4)}), *make_levers(3))

    assert recipe(found) == ["lever_1"]


# -- what is told


def test_each_answer_is_told_with_a_study_so_far():
    bench, told = ScriptedBench(gains={"lever_0": log(1.4)}), []
    options = SearchOptions(levers=make_levers(2), budget_s=600.0)
    found = search(bench, options, tell=told.append)

    assert [one.phase for one in told][:2] == ["observe", "live"]
    assert {one.phase for one in told} == {"observe", "live", "quality", "confirm"}
    assert told[-1].best.estimate == pytest.approx(1.4, rel=0.05)
    assert labels_of(told[-1].best_state) == {"lever_0"}
    assert told[-1].left_s == bench.time_left_s()
    assert all(one.found.outcome is None for one in told)
    assert told[-1].ended == found.trials[-1]


def test_the_same_answers_give_the_same_study():
    bench = ScriptedBench(gains={"lever_0": log(1.2)}, noise=Noise(), seed=3)
    levers = make_levers(4)

    first, second = (run(replace(bench, requests=[], used_s=0.0), *levers) for _ in range(2))
    assert first == second
