"""Whether a training ends as good over seeds: planted truths, power, and what is refused."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from steptime.errors import RunsError
from steptime.report.words.study.verify_words import (
    REASONS,
    SUMMARIES,
    describe_diverged,
    describe_same,
)
from steptime.verify.convergence import judge_training as judging
from steptime.verify.convergence.judge_training import curve_of, judge_training
from steptime.verify.convergence.statistics import (
    gain_of,
    margin_decided,
    permuted_p,
    runs_needed,
    sd_for_planning,
)
from steptime.verify.convergence.summaries import area_of, crossing_of, slope_of
from steptime.verify.values import Outcome
from steptime.verify.values.seed_runs import Margin, TrainingQuestion, TrainingRun, Unit

pytest.importorskip("scipy")
numpy = pytest.importorskip("numpy")

POINTS = tuple(float(100 * number) for number in range(1, 11))


def a_run(arm: str, seed: int, final: float, *, seconds: float = 10.0) -> TrainingRun:
    """A loss that falls to `final`, by a hundredth of a point's length at its end."""
    values = tuple(final + 0.1 * (1 - at / 1000) for at in POINTS)
    return TrainingRun(arm=arm, seed=str(seed), points=POINTS, values=values, seconds=seconds)


def runs_of(reference: Sequence[float], candidate: Sequence[float]) -> list[TrainingRun]:
    ours = [a_run("reference", number, one) for number, one in enumerate(reference)]
    return ours + [a_run("candidate", number, one) for number, one in enumerate(candidate)]


def finals(middle: float, sd: float, num_runs: int) -> list[float]:
    """Numbers with exactly this mean and standard deviation."""
    spread = numpy.linspace(-1, 1, num_runs)
    return list(middle + sd * spread / spread.std(ddof=1))


def ask(amount: float, unit: Unit = Unit.METRIC, **more: object) -> TrainingQuestion:
    return TrainingQuestion(margin=Margin(amount=amount, unit=unit), **more)


# -- the rule


@pytest.mark.parametrize(
    ("worse_by", "margin", "outcome"),
    [
        (0.0, 0.05, Outcome.PASS),
        (-0.2, 0.05, Outcome.PASS),
        (0.02, 0.05, Outcome.PASS),
        (0.05, 0.05, Outcome.INCONCLUSIVE),
        (0.1, 0.05, Outcome.FAIL),
    ],
)
def test_a_candidate_is_judged_by_the_interval_and_the_margin(worse_by, margin, outcome):
    runs = runs_of(finals(2.0, 0.01, 5), finals(2.0 + worse_by, 0.01, 5))

    found = judge_training(runs, ask(margin))

    assert found.outcome is outcome
    assert found.estimate == pytest.approx(-worse_by, abs=1e-9)
    assert found.low < found.estimate < found.high
    assert [one.name for one in found.differences] == ["final", "area", "to_target"]


def test_a_loss_that_is_allowed_is_said():
    found = judge_training(runs_of(finals(2.0, 0.01, 5), finals(2.03, 0.01, 5)), ask(0.1))

    assert found.outcome is Outcome.PASS
    assert found.differences[0].is_worse_within_margin


def test_where_the_metric_is_better_up_more_is_better():
    runs = [
        replace(run, values=tuple(1 - value / 10 for value in run.values))
        for run in runs_of(finals(2.0, 0.01, 5), finals(1.5, 0.01, 5))
    ]

    found = judge_training(runs, ask(0.02, is_better_down=False))

    assert (found.outcome, round(found.estimate, 3)) == (Outcome.PASS, 0.05)


def test_margins_in_percent_and_in_percent_of_training():
    runs = runs_of(finals(2.0, 0.001, 5), finals(2.0, 0.001, 5))

    percent = judge_training(runs, ask(1, Unit.PERCENT))
    training = judge_training(runs, ask(1, Unit.TRAINING))

    assert percent.margin == pytest.approx(0.01 * 2.005, rel=1e-3)
    assert training.margin == pytest.approx(0.01 * 1000 * 1e-4, rel=1e-6)
    assert training.training_fraction == pytest.approx(0.01)


def test_what_is_saved_is_less_what_the_quality_costs():
    slow = [a_run("reference", n, one, seconds=13.0) for n, one in enumerate(finals(2, 1e-4, 5))]
    fast = [
        a_run("candidate", n, one, seconds=10.0 + n / 100)
        for n, one in enumerate(finals(2.001, 1e-4, 5))
    ]

    speed = judge_training([*slow, *fast], ask(0.01)).speed

    assert speed.speedup == pytest.approx(1.3, rel=0.01)
    assert speed.gap_fraction == pytest.approx(0.01)  # 0.001 of a slope of 0.1 a training
    assert speed.net == pytest.approx(speed.speedup / 1.01)


def test_the_published_imagenet_runs_are_judged_as_they_are_known_to_be():
    """Five runs each of a folder, MDS and WebDataset, as published: mean and SD of the accuracy."""
    folder, mds, web = ((76.57, 0.10), (76.51, 0.09), (76.23, 0.17))

    def p(candidate: tuple[float, float], margin: float) -> float:
        return gain_of(finals(*folder, 5), finals(*candidate, 5)).p_above(-margin)

    assert p(mds, 0.2) == pytest.approx(0.024, abs=0.005)
    assert p(mds, 0.1) == pytest.approx(0.26, abs=0.01)
    assert p(web, 0.3) == pytest.approx(0.67, abs=0.01)
    assert p(web, 0.5) == pytest.approx(0.058, abs=0.004)
    low, high = gain_of(finals(*folder, 5), finals(*web, 5)).ends(0.05)
    assert (round(low, 2), round(high, 2)) == (-0.51, -0.17)
    assert high < -0.15  # worse by more than 0.15


# -- level and power


def test_the_table_of_runs_is_the_published_one():
    worse = {0.5: 51, 0.75: 23, 1: 14, 1.5: 7, 2: 4, 2.5: 3, 3: 3, 4: 2}
    still = {0.5: 70, 0.75: 32, 1: 18, 1.5: 9, 2: 6, 2.5: 4, 3: 3, 4: 3}

    assert {m: runs_needed(m, power=0.8) for m in worse} == worse
    assert {m: runs_needed(m, power=0.8, is_still=True) for m in still} == still
    assert runs_needed(1) == 18
    assert runs_needed(1e-6) is None


def test_the_smallest_margin_of_a_budget_is_the_published_one():
    found = [round(margin_decided(n, power=0.8), 2) for n in (2, 3, 5, 8, 10, 20)]
    still = [round(margin_decided(n, is_still=True), 2) for n in (2, 3, 5, 8, 10, 20)]

    assert found == [3.98, 2.48, 1.72, 1.31, 1.16, 0.80]
    assert still == pytest.approx([5.39, 3.31, 2.29, 1.73, 1.53, 1.06], abs=0.011)
    assert sd_for_planning(1.0, 3) == pytest.approx(2.1, abs=0.05)


def test_at_the_margin_hardly_any_candidate_passes_and_equal_ones_do():
    chance = numpy.random.default_rng(7)
    passes = {0.0: 0, 2.0: 0}
    for worse_by in passes:
        for _ in range(200):
            reference, candidate = chance.normal(0, 1, 8), chance.normal(worse_by, 1, 8)
            low, _ = gain_of(list(-reference), list(-candidate)).ends(0.05)
            passes[worse_by] += low > -2.0

    assert passes[2.0] <= 200 * 0.05 + 3 * math.sqrt(200 * 0.05 * 0.95)
    assert passes[0.0] >= 180


def test_the_permutation_agrees_with_the_interval():
    reference, candidate = finals(0, 1, 5), finals(0.1, 1, 5)

    found = permuted_p(reference, candidate, margin=2.0)

    assert found == pytest.approx(gain_of(reference, candidate).p_above(-2.0), abs=0.01)
    assert permuted_p(reference[:2], candidate[:2], margin=2.0) is None


# -- what keeps it from an answer


def test_two_runs_give_an_estimate_and_no_verdict():
    found = judge_training(runs_of([2.0, 2.01], [2.0, 2.01]), ask(0.5))

    assert (found.outcome, found.reason) == (Outcome.INCONCLUSIVE, "too_few_runs")
    assert found.estimate == pytest.approx(0)
    assert found.num_runs_needed >= 3


def test_a_reference_that_would_not_pass_against_itself_judges_nobody():
    found = judge_training(runs_of(finals(2, 0.1, 4), finals(1.9, 0.1, 4)), ask(0.05))

    assert (found.outcome, found.reason) == (Outcome.INCONCLUSIVE, "reference_too_noisy")
    assert found.num_runs_needed > 40


def diverged(run: TrainingRun) -> TrainingRun:
    return replace(run, values=(*run.values[:5], *[math.nan] * 5))


def test_a_run_that_diverged_is_data():
    runs = runs_of(finals(2, 0.01, 5), finals(2, 0.01, 5))
    one = [*runs[:-1], diverged(runs[-1])]
    most = [*runs[:5], *map(diverged, runs[5:9]), runs[9]]

    assert judge_training(one, ask(5.0)).reason == "candidate_diverged"
    assert judge_training(one, ask(5.0)).num_diverged == {"reference": 0, "candidate": 1}
    found = judge_training(most, ask(5.0))
    assert (found.outcome, found.reason) == (Outcome.FAIL, "diverges_more")
    assert judge_training([*map(diverged, runs[:1]), *runs[1:]], ask(5.0)).outcome is Outcome.PASS


def shorter(run: TrainingRun, length: int) -> TrainingRun:
    return replace(run, points=run.points[:length], values=run.values[:length])


def test_a_run_that_ends_before_the_reference_does_is_no_pass():
    runs = runs_of(finals(2, 0.01, 5), finals(2, 0.01, 5))
    one = judge_training([*runs[:-1], shorter(runs[-1], 9)], ask(5.0))
    every = judge_training([*runs[:5], *(shorter(run, 1) for run in runs[5:])], ask(5.0))

    assert (one.outcome, one.reason) == (Outcome.INCONCLUSIVE, "candidate_diverged")
    assert (one.num_diverged, one.num_incomplete) == (
        {"reference": 0, "candidate": 1},
        {"candidate": 1},
    )
    assert describe_diverged(one) == "1 of the candidate (1 ended early)"
    assert (every.outcome, every.reason) == (Outcome.FAIL, "diverges_more")
    # One short run of the reference does not make short ones of the candidate whole.
    hidden = [shorter(runs[0], 2), *runs[1:5], *(shorter(run, 2) for run in runs[5:])]
    assert judge_training(hidden, ask(5.0)).outcome is not Outcome.PASS


def test_trainings_that_stop_by_themselves_may_be_as_long_as_the_shortest():
    runs = runs_of(finals(2, 0.01, 4), finals(2, 0.01, 4))
    stopped = [shorter(run, 7 + number % 4) for number, run in enumerate(runs)]

    assert not judge_training(stopped, ask(5.0)).num_incomplete
    assert judge_training([*stopped[:7], shorter(runs[7], 6)], ask(5.0)).num_incomplete == {
        "candidate": 1
    }


def test_a_target_that_is_not_reached_is_not_averaged_away():
    runs = runs_of(finals(2, 0.01, 5), finals(2.02, 0.01, 5))

    found = judge_training(runs, ask(0.2, target=2.012))

    assert (found.outcome, found.reason) == (Outcome.INCONCLUSIVE, "target_not_reached")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda runs: runs[:5], "no_runs"),
        (lambda runs: [replace(run, seed="7") for run in runs], "seeds_reused"),
        (lambda runs: [replace(run, values=runs[0].values) for run in runs], "zero_variance"),
        (lambda runs: [*map(diverged, runs[:5]), *runs[5:]], "non_finite_metric"),
        (lambda runs: [replace(runs[0], points=(), values=()), *runs[1:]], "no_metric"),
        (
            lambda runs: [*runs[:-1], replace(runs[-1], points=tuple(p + 1 for p in POINTS))],
            "points_differ",
        ),
    ],
)
def test_runs_that_say_nothing_are_refused_with_what_to_do(change, code):
    runs = runs_of(finals(2, 0.01, 5), finals(2, 0.01, 5))

    with pytest.raises(RunsError) as error:
        judge_training(change(runs), ask(0.1))

    assert error.value.code == code
    assert error.value.hint


def test_a_margin_in_training_needs_a_loss_that_still_falls():
    flat = [
        replace(run, values=tuple(run.values[-1] for _ in POINTS))
        for run in runs_of(finals(2, 0.01, 5), finals(2, 0.01, 5))
    ]

    with pytest.raises(RunsError, match="no longer improves") as error:
        judge_training(flat, ask(1, Unit.TRAINING))

    assert error.value.code == "no_slope"
    with pytest.raises(RunsError, match="above 0"):
        judge_training(flat, ask(0.0))


def test_pairs_are_used_where_they_were_declared():
    chance = numpy.random.default_rng(3)
    seeds = chance.normal(2, 0.5, 6)
    runs = runs_of(list(seeds), list(seeds + chance.normal(0, 0.01, 6)))

    unpaired, paired = (judge_training(runs, ask(0.1, are_paired=one)) for one in (False, True))

    assert unpaired.outcome is Outcome.INCONCLUSIVE
    assert paired.outcome is Outcome.PASS
    assert paired.seed_correlation > 0.99
    assert paired.num_runs_needed < 6 < unpaired.num_runs_needed
    assert paired.same is None
    with pytest.raises(RunsError, match="same seeds"):
        judge_training(runs[:-1], ask(0.1, are_paired=True))


def test_three_looks_have_a_wider_interval():
    runs = runs_of(finals(2, 0.01, 5), finals(2, 0.01, 5))

    once, thrice = (judge_training(runs, ask(0.05, num_looks=number)) for number in (1, 3))

    assert thrice.low < once.low
    assert (thrice.look_level, thrice.level) == (0.021, 0.05)
    assert judge_training(runs, ask(0.05)) == once  # the same runs, the same verdict


def test_every_reason_and_summary_has_words():
    source = Path(judging.__file__).read_text()
    reasons = set(re.findall(r'Outcome\.\w+, "(\w+)"', source))
    found = judge_training(runs_of(finals(2, 0.01, 5), finals(2, 0.01, 5)), ask(0.05))

    assert len(reasons) > 4
    assert reasons <= set(REASONS)
    assert {one.name for one in found.differences} == set(SUMMARIES)


# -- the shortened reference, the reference against itself, the time to the target


def with_cut(cut: Sequence[float], candidate: Sequence[float]) -> list[TrainingRun]:
    shorter = [replace(a_run("cut", n, one), points=POINTS[:-1]) for n, one in enumerate(cut)]
    shorter = [replace(run, values=(*run.values[:-2], run.values[-1])) for run in shorter]
    return [*runs_of(finals(2.0, 0.01, 5), candidate), *shorter]


@pytest.mark.parametrize(
    ("worse_by", "outcome"),
    [(0.0, Outcome.PASS), (0.05, Outcome.INCONCLUSIVE), (0.12, Outcome.FAIL)],
)
def test_a_shortened_reference_measures_the_margin(worse_by, outcome):
    runs = with_cut(finals(2.05, 0.01, 5), finals(2.0 + worse_by, 0.01, 5))

    found = judge_training(runs, ask(5, Unit.TRAINING))

    final = found.differences[0]
    assert (found.num_cut, found.training_fraction) == (5, 0.05)
    assert found.margin == pytest.approx(0.05, abs=0.01)
    assert final.outcome is outcome
    assert final.estimate == pytest.approx(-worse_by)  # over the whole reference, as ever
    # The spread of the shortened runs is in the interval: it is the candidate's beside theirs.
    beside = gain_of([-v for v in finals(2.05, 0.01, 5)], [-v for v in finals(2.0, 0.01, 5)])
    assert final.high - final.low == pytest.approx(
        2 * beside.ends(0.05)[1] - 2 * beside.mean, rel=0.1
    )


def test_a_shortened_reference_that_is_no_worse_measures_nothing():
    found = judge_training(
        with_cut(finals(1.9, 0.01, 5), finals(2, 0.01, 5)), ask(5, Unit.TRAINING)
    )

    assert (found.outcome, found.reason, found.margin) == (
        Outcome.INCONCLUSIVE,
        "cut_not_worse",
        None,
    )
    with pytest.raises(RunsError, match="percent of training"):
        judge_training(with_cut(finals(2.1, 0.01, 5), finals(2, 0.01, 5)), ask(0.1))


def test_the_reference_is_judged_against_itself():
    found = judge_training(runs_of(finals(2, 0.01, 6), finals(2.5, 0.01, 6)), ask(0.1))

    assert (found.outcome, found.same.outcome) == (Outcome.FAIL, Outcome.PASS)
    assert judge_training(runs_of(finals(2, 0.01, 3), finals(2, 0.01, 3)), ask(0.1)).same is None


def test_an_open_comparison_of_halves_is_no_objection_to_an_answer():
    runs = runs_of(finals(2, 0.06, 5), finals(2, 0.06, 5))
    passed, open_ = judge_training(runs, ask(0.09)), judge_training(runs, ask(0.05))

    assert (passed.outcome, passed.same.outcome) == (Outcome.PASS, Outcome.INCONCLUSIVE)
    assert describe_same(passed) is None
    assert describe_same(open_).startswith("INCONCLUSIVE")


def timed(end: float, seconds: float) -> list[TrainingRun]:
    runs = runs_of(finals(2, 0.001, 4), finals(end, 0.001, 4))
    return [
        replace(run, seconds=(100.0 if run.arm == "reference" else seconds) + n % 4)
        for n, run in enumerate(runs)
    ]


def test_the_time_to_the_target_has_the_price_of_finding_it():
    question = ask(0.05, target=2.02)

    free = judge_training(timed(2, 50.0), question).to_target
    dear = judge_training(timed(2, 50.0), replace(question, price_s=100.0)).to_target

    assert free.ratio == pytest.approx(2.0, rel=0.05)
    assert free.is_faster
    assert dear.ratio < 1
    assert not dear.is_faster
    assert dear.num_runs_to_earn == pytest.approx(
        100 / (free.reference_s - free.candidate_s), abs=1
    )


def test_a_target_that_is_missed_has_no_time():
    found = judge_training(timed(2.03, 50.0), ask(0.2, target=2.012)).to_target

    assert found.candidate_s is None
    assert found.ratio is None
    assert found.num_missed["candidate"] == 4
    assert found.reference_s > 0


def test_the_time_of_each_evaluation_is_used_where_it_is_known():
    runs = [
        replace(run, seconds_at=tuple(10.0 + at / 10 for at in POINTS))  # 10 s to start
        for run in timed(2, 100.0)
    ]

    found = judge_training(runs, ask(0.05, target=2.05)).to_target

    assert found.reference_s == pytest.approx(10 + 50, abs=2)


# -- summaries


def test_summaries_of_a_line():
    run = TrainingRun(
        arm="reference", seed=None, points=(0.0, 1.0, 2.0, 3.0, 4.0), values=(5.0, 4, 3, 2, 1)
    )

    assert slope_of(run) == pytest.approx(-1)
    assert area_of(run, float) == pytest.approx(2.5)  # of 4 to 1
    assert crossing_of(run, 2.5, -1.0) == pytest.approx(2.5)
    assert crossing_of(run, 0.5, -1.0) is None


def test_a_crossing_counts_where_it_holds_at_the_next_evaluation():
    run = TrainingRun(
        arm="reference", seed=None, points=(1.0, 2.0, 3.0, 4.0, 5.0), values=(3.0, 1, 3, 1, 1)
    )

    assert crossing_of(run, 2.0, -1.0) == pytest.approx(3.5)


def test_the_curve_of_an_arm_has_mean_and_range():
    found = curve_of(runs_of([1.0, 3.0], [])[:2])

    assert found[-1].mean == pytest.approx(2.0)
    assert (found[-1].low, found[-1].high, found[-1].n) == (1.0, 3.0, 2)
