"""How long a whole run takes, as a forecast from its parts."""

import math
from dataclasses import replace

import pytest

from scripted_bench import ScriptedBench, make_lever
from steptime.core.interval import Interval
from steptime.levers.base import LoaderFacts
from steptime.measure.values.measurement import Span
from steptime.report.words.study.outcome_words import describe_whole_run
from steptime.tune.search.proof.whole_run import forecast_whole_run, unended_epoch
from steptime.tune.search.search import SearchOptions, search
from steptime.tune.trials.facts.loop_time import LoopPart, loop_step_s


def test_a_run_is_its_start_what_is_paid_once_and_its_loop():
    baseline = replace(
        ScriptedBench(startup_s=4.0).observe(),
        loop_step_s=Interval(estimate=0.05, low=0.0485, high=0.0515, n=5),
    )
    speedup = Interval(estimate=2.0, low=1.92, high=2.08, n=24)

    run = forecast_whole_run(baseline, speedup, 4000, one_off_s=10.0, start_s=1.0)

    assert (run.baseline.estimate, run.tuned.estimate) == (204.0, 115.0)
    assert run.baseline.high == pytest.approx(204.0 + 6.0)
    assert run.tuned.high == pytest.approx(115.0 + 100 * math.hypot(0.03, 0.04))
    assert describe_whole_run(run) == (
        "4,000 steps with the start: 3 min 24 s as written, 1 min 55 s tuned"
        " (1 min 50 s to 2 min 00 s); a forecast"
    )


def test_a_study_forecasts_a_run_whose_length_is_known():
    class Bench(ScriptedBench):
        def observe(self):
            loop = Interval(estimate=0.06, low=0.06, high=0.06, n=5)
            return replace(super().observe(), loop_step_s=loop)

    levers = (make_lever("lever"),)
    options = SearchOptions(levers=levers, run_steps=1000)
    found = search(Bench(gains={"lever": math.log(2)}), options)

    assert found.whole_run.baseline.estimate == pytest.approx(3.0 + 60.0)
    assert found.whole_run.tuned.estimate == pytest.approx(3.0 + 30.0, rel=0.02)
    assert search(Bench(), options).whole_run is None


def test_what_pays_from_the_second_epoch_on_has_its_first_one_as_written():
    loader = LoaderFacts(dataset="Photos", num_samples=1600, batch_size=16)
    observed = ScriptedBench(startup_s=4.0).observe()
    baseline = replace(
        observed,
        facts=replace(observed.facts, loaders=(loader,)),
        loop_step_s=Interval(estimate=0.1, low=0.1, high=0.1, n=5),
    )
    twice = Interval(estimate=2.0, low=2.0, high=2.0, n=24)
    options = {"one_off_s": 0.0, "start_s": 30.0, "is_later": True}

    run = forecast_whole_run(baseline, twice, 1000, **options)
    short = forecast_whole_run(baseline, twice, 50, **options)

    assert run.tuned.estimate == 4.0 + 100 * 0.1 + 900 * 0.05  # trials alone read ahead
    assert short.tuned.estimate == short.baseline.estimate


def test_an_epoch_that_no_trial_saw_end_is_said_and_its_start_counts_on_both_sides():
    class Bench(ScriptedBench):
        def observe(self):
            found = super().observe()
            loader = LoaderFacts(dataset="Clips", num_samples=1800, batch_size=4)
            start = Span(name="epoch_start", total_s=2.0, num_steps_touched=1, outside_s=2.0)
            return replace(
                found,
                facts=replace(found.facts, loaders=(loader,)),
                measurement=replace(
                    found.measurement, spans=(start,), counts_per_step={"batches": 2.0}
                ),
                loop_step_s=Interval(estimate=0.1, low=0.1, high=0.1, n=5),
            )

    bench = Bench(gains={"lever": math.log(2)}, startup_s=4.0)
    baseline = bench.observe()
    several = replace(baseline, measurement=replace(baseline.measurement, num_steps=225))
    speedup = Interval(estimate=2.0, low=2.0, high=2.0, n=24)

    run, other = (
        forecast_whole_run(one, speedup, 680, one_off_s=0.0, start_s=0.0)
        for one in (baseline, several)
    )
    found = search(bench, SearchOptions(levers=(make_lever("lever"),)))

    assert baseline.measurement.num_steps < 225 == unended_epoch(baseline).num_steps
    assert (run.baseline.estimate, run.tuned.estimate) == (4 + 68 + 3 * 2, 4 + 34 + 3 * 2)
    assert (other.baseline.estimate, other.tuned.estimate) == (72, 38)
    assert [it.facts for it in found.choices if it.code == "within_epoch"] == [
        {"steps": 225, "start_s": 2.0}
    ]


class Whole(ScriptedBench):
    """A command that comes to its end."""

    def observe(self):
        loop = Interval(estimate=0.06, low=0.06, high=0.06, n=5)
        return replace(super().observe(), loop_step_s=loop)


@pytest.mark.parametrize(
    ("run_steps", "whole_s", "is_measured"),
    [(1000, 70.0, True), (1000, None, False), (10**6, 70.0, False)],
)
def test_a_command_that_fits_is_run_to_its_end_both_ways(run_steps, whole_s, is_measured):
    bench = Whole(gains={"lever": math.log(2)}, whole_s=whole_s, startup_s=3.0)
    options = SearchOptions(levers=(make_lever("lever"),), run_steps=run_steps)

    run = search(bench, options).whole_run

    assert run.is_measured == is_measured
    if is_measured:
        assert (run.baseline.estimate, run.tuned.estimate) == (70.0, 35.0)
        assert describe_whole_run(run) == (
            "1,000 steps from start to end: 1 min 10 s as written, 35.0 s tuned"
            " (35.0 s to 35.0 s); measured in 2 runs each"
        )


def test_what_lies_between_steps_counts_in_the_loop():
    ends_s = [0.5]
    for number in range(60):
        ends_s.append(ends_s[-1] + (0.1 if number % 12 else 0.34))

    found = loop_step_s(LoopPart(first=0, ends_s=tuple(ends_s)), 2.0)

    assert found.estimate == pytest.approx(2 * 0.12)
    assert found.high - found.low < 1e-9  # each block has one of the long ones
    assert loop_step_s(LoopPart(first=50, ends_s=tuple(ends_s)), 1.0) is None


def test_the_loops_of_a_proof_say_more_than_one_window_of_the_baseline():
    baseline = replace(
        ScriptedBench(startup_s=4.0).observe(),
        loop_step_s=Interval(estimate=0.05, low=0.03, high=0.07, n=5),
    )
    twice = Interval(estimate=2.0, low=2.0, high=2.0, n=24)
    loops_s = (0.060, 0.061, 0.059, 0.060)

    def forecast(num_loops):
        return forecast_whole_run(
            baseline, twice, 1000, one_off_s=0.0, start_s=0.0, loops_s=loops_s[:num_loops]
        )

    assert forecast(2).baseline.estimate == 54.0
    assert forecast(4).baseline.estimate == pytest.approx(64.0)
    assert forecast(4).baseline.high == pytest.approx(64.0 + 3.182 * 0.000816 / 2 * 1000, rel=1e-3)
    assert forecast(4).tuned.estimate == pytest.approx(34.0)
