"""How long a whole run takes, as a forecast from its parts."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from scripted_bench import ScriptedBench, make_lever
from steptime.core.interval import Interval
from steptime.levers.base import LoaderFacts
from steptime.measure.tried.trial_lines import TaggedUpdate
from steptime.measure.values.measurement import Span
from steptime.report.words.study.outcome_words import describe_whole_run
from steptime.tune.search.bench import EpochGap
from steptime.tune.search.proof.whole_run import forecast_whole_run, unended_epoch
from steptime.tune.search.search import SearchOptions, search
from steptime.tune.trials.bounds import SeesEpochEnd
from steptime.tune.trials.facts.loop_time import (
    LoopPart,
    find_epoch,
    loop_part,
    loop_ratio,
    loop_step_s,
    mean_update_s,
)
from steptime.tune.trials.trial_watch import Tick


def test_a_run_is_its_start_what_is_paid_once_and_its_loop():
    baseline = replace(
        ScriptedBench(startup_s=4.0).observe(),
        loop_step_s=Interval(estimate=0.05, low=0.0485, high=0.0515, n=5),
    )
    speedup = Interval(estimate=2.0, low=1.92, high=2.08, n=24)

    run = forecast_whole_run(baseline, speedup, 4000, one_off_s=10.0, start_s=1.0)

    assert (run.baseline.estimate, run.tuned.estimate) == (204.0, 115.0)
    reach = 0.03 * math.sqrt(2)  # of the mean, and of one more process
    assert run.baseline.high == pytest.approx(204.0 + 200 * reach)
    assert run.tuned.high == pytest.approx(115.0 + 100 * math.hypot(reach, 0.04))
    assert describe_whole_run(run) == (
        "4,000 steps with the start: 3 min 24 s as written, 1 min 55 s tuned"
        " (1 min 49 s to 2 min 01 s); a forecast"
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


def test_further_processes_say_how_much_another_one_may_differ():
    baseline = replace(
        ScriptedBench(startup_s=4.0).observe(),
        loop_step_s=Interval(estimate=0.05, low=0.045, high=0.055, n=5),
        loops_s=(0.05,),
    )
    twice = Interval(estimate=2.0, low=2.0, high=2.0, n=24)

    def forecast(*loops_s):
        run = forecast_whole_run(baseline, twice, 1000, one_off_s=0.0, start_s=0.0, loops_s=loops_s)
        return run.baseline, run.tuned

    alike, _ = forecast(0.05, 0.05)
    apart, tuned = forecast(0.06, 0.04)

    assert (alike.estimate, apart.estimate, tuned.estimate) == (54.0, 54.0, 29.0)
    own_s2, reach = 4 * (0.005 / 2.776) ** 2, 2.365 * math.sqrt(1 + 1 / 4) * 1000
    assert alike.high == pytest.approx(54.0 + reach * math.sqrt(own_s2 / 7))
    assert apart.high == pytest.approx(54.0 + reach * math.sqrt((own_s2 + 2 * 0.01**2) / 7))
    blind = forecast_whole_run(
        replace(baseline, loop_step_s=None), twice, 9, one_off_s=0.0, start_s=0.0
    )
    assert blind is None


def make_updates(num, step_s, *, epoch=25, gap_s=2.0):
    """Updates of a process, with an evaluation after each epoch."""
    return tuple(
        TaggedUpdate(
            number=n, experiment=0, round=0, state=0, counts=False, num_samples=4,
            wall_ns=round(step_s * 1e9), cpu_ns=None, is_after_gap=n % epoch == 0,
            end_ns=round(((n + 1) * step_s + n // epoch * gap_s) * 1e9),
        )
        for n in range(num)
    )  # fmt: skip


def test_gaps_between_epochs_count_at_the_rate_at_which_they_come():
    measurement = replace(ScriptedBench().observe().measurement, steady=None)
    written, epoch = make_updates(60, 0.1), EpochGap(num_steps=25, gap_s=pytest.approx(2.0))
    found = find_epoch(written, 1.0)

    assert found == epoch
    assert find_epoch(written[:25], 1.0) is None
    early = find_epoch([replace(it, is_after_gap=it.number == 25) for it in written], 1.0)
    assert early.num_steps == 60 - 25  # it did not come again
    assert find_epoch(make_updates(60, 0.1, epoch=4), 1.0) is None  # each window holds many

    part = loop_part(written, measurement, epoch=found)
    blind = loop_part(written[:20], measurement, epoch=found)
    faster = loop_part(make_updates(20, 0.05), measurement, epoch=found)

    assert [mean_update_s(it) for it in (part, blind)] == pytest.approx([0.18, 0.18])
    assert math.exp(loop_ratio(blind, faster)) == pytest.approx(0.18 / 0.13)
    step_s = loop_step_s(part, 1.0)
    assert step_s.estimate == pytest.approx(0.18)
    assert step_s.high - step_s.low < 1e-9  # no block has a gap of its own


def test_an_epoch_that_was_seen_to_end_counts_as_often_as_it_ends():
    baseline = replace(
        ScriptedBench(startup_s=4.0).observe(),
        loop_step_s=Interval(estimate=0.18, low=0.18, high=0.18, n=5),
        epoch=EpochGap(num_steps=25.0, gap_s=2.0),
    )
    speedup = Interval(estimate=0.18 / 0.13, low=0.18 / 0.13, high=0.18 / 0.13, n=24)

    whole, part, short = (
        forecast_whole_run(baseline, speedup, num, one_off_s=0.0, start_s=0.0)
        for num in (100, 110, 20)
    )

    assert (whole.baseline.estimate, whole.tuned.estimate) == (22.0, 17.0)
    assert (part.baseline.estimate, part.tuned.estimate) == pytest.approx((23.0, 17.5))
    assert (short.baseline.estimate, short.tuned.estimate) == pytest.approx((6.0, 5.0))
    assert whole.tuned.low == pytest.approx(17.0 - 8 * (1 - 0.13 / 0.18))  # if they gain as much


@pytest.mark.parametrize(
    ("num_steps", "starts", "is_over"),
    [
        (40, (), False),
        (20, (), False),  # the window itself
        (60, (), True),  # its length is not what its loader says
        (43, (42,), True),
        (40, (30,), False),  # an evaluation within it
        (60, (20,), False),  # a search for a learning rate before it
        (64, (20, 62), True),
    ],
)
def test_a_command_is_watched_until_an_epoch_ends_where_that_is_near(num_steps, starts, is_over):
    ticks = [
        Tick(n, 0, 0.5 * n, 0.5, 0.0, starts_epoch=n in starts) for n in range(num_steps)
    ]  # 20 s, more than the window of a budget of ten minutes
    loader = {"num_samples": 84, "batch_size": 2}
    watch = SimpleNamespace(first=SimpleNamespace(ticks=ticks), facts={"loaders": [loader]})

    assert SeesEpochEnd(600.0)(watch) is is_over
    if not is_over and num_steps == 40:
        watch.facts["loaders"] = [{"num_samples": 10**6, "batch_size": 2}]
        assert SeesEpochEnd(600.0)(watch)  # its end is too far away
