"""How long a whole run takes, as a forecast from its parts."""

import math
from dataclasses import replace

import pytest

from scripted_bench import ScriptedBench, make_lever
from steptime.core.interval import Interval
from steptime.report.words.study.outcome_words import describe_whole_run
from steptime.tune.search.proof.whole_run import forecast_whole_run
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


def test_what_lies_between_steps_counts_in_the_loop():
    ends_s = [0.5]
    for number in range(60):
        ends_s.append(ends_s[-1] + (0.1 if number % 12 else 0.34))

    found = loop_step_s(LoopPart(first=0, ends_s=tuple(ends_s)), 2.0)

    assert found.estimate == pytest.approx(2 * 0.12)
    assert found.high - found.low < 1e-9  # each block has one of the long ones
    assert loop_step_s(LoopPart(first=50, ends_s=tuple(ends_s)), 1.0) is None
