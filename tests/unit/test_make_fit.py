"""Making a training fit: who holds the peak, what is chosen, what failures teach, what is said."""

from __future__ import annotations

import resource
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from report_cases import make_anatomy
from steptime.cli.fit.fit import exit_code_of
from steptime.cli.main import main
from steptime.cli.option_values import parse_size
from steptime.core.codec import from_json, to_json
from steptime.core.devices.part_memory import find_parts
from steptime.errors import UsageError
from steptime.guest.trial.device_limit import limit_devices
from steptime.levers import load_all
from steptime.levers.base import Facts, Preserves
from steptime.measure.values.model.anatomy import Allocator, RunPeak
from steptime.measure.values.model.longest import LongestBatch, PeakForecast
from steptime.plan.values import MemoryForecast, PeakRange
from steptime.report.document.study_documents import fit_errors
from steptime.report.words.fit.fit_words import (
    describe_answer,
    describe_batch,
    describe_limit,
    describe_peak,
)
from steptime.tune.fit import run_fit
from steptime.tune.fit.bench_answers import BudgetSpentError, LimitedRun, Observed
from steptime.tune.fit.choose import Lessons, Option, cheapest, estimate, learn, smallest
from steptime.tune.fit.fit_bench import free_bytes
from steptime.tune.fit.fit_search import FitFound, FitSearch
from steptime.tune.fit.held_parts import (
    PROCESS_BYTES,
    parts_at_peak,
    peaks_by_batch,
    peaks_by_length,
    room_for_batch,
    total_of,
)
from steptime.tune.fit.measures import find_options, make_ground
from steptime.tune.search.bench import ArmResult, Baseline, ComparisonResult
from steptime.tune.trials.children.forecast_child import CommandForecast
from steptime.tune.values.fit_values import FitStudy
from steptime.tune.values.study_values import WELL, Applied, Ending, State, TrialEnd
from steptime.verify.values import Outcome, Verdict
from unit.builders import make_measurement

MIB = 1 << 20
GIB = 1 << 30
FACTS = Facts(
    torch_version="2.13.0",
    libraries={"glibc": "2.36"},
    num_repeated_blocks=12,
    has_batch_statistics=False,
    draws_in_calls=False,
    uses_compile=False,
    uses_autocast=False,
    uses_scaler=False,
    zeroes_gradients=False,
)
PARTS = {"weights": 100, "activations": 800, "process": 50, "fragmentation": 90}


def option(
    name: str, keeps: dict[str, float], cost: float, kind: str | None = None, **settings: int
) -> Option:
    return Option(
        applied=Applied(name=name, settings=settings),
        keeps=keeps,
        cost_fraction=cost,
        preserves=Preserves.EXACT,
        kind=kind or name,
    )


RETURN = option("return_freed_memory", {"fragmentation": 0.0}, 0.03)
HALVES = option("micro_batches", {"activations": 0.5}, 0.3, "recomputes", parts=2)
QUARTERS = option("micro_batches", {"activations": 0.25}, 0.35, "recomputes", parts=4)
CAST = option("autocast", {"activations": 0.5}, 0.0)
ALL = (RETURN, HALVES, QUARTERS, CAST)


# -- who holds it


def test_the_parts_of_the_peak_sum_to_what_the_process_had():
    parts = parts_at_peak(make_anatomy(), 8 * GIB)

    assert total_of(parts) == 8 * GIB
    assert parts["activations"] == 3072 * MIB
    assert parts["process"] == PROCESS_BYTES
    assert parts["fragmentation"] == 8 * GIB - PROCESS_BYTES - (475 + 950 + 3072 + 588 + 612) * MIB


def test_on_a_device_its_context_stands_for_the_process():
    parts = parts_at_peak(make_anatomy(), 8 * GIB, is_of_device=True)

    assert "process" not in parts
    assert total_of(parts) == (475 + 950 + 3072 + 588 + 612 + 512) * MIB


def test_where_no_step_was_followed_the_snapshots_say_it():
    parts = parts_at_peak(make_anatomy(timeline=None), 0)

    assert parts["gradients"] == 475 * MIB
    assert "fragmentation" not in parts


def test_the_peak_by_micro_batch_is_a_line_through_the_peak_as_written():
    points = {one.factor: one.bytes for one in peaks_by_batch(PARTS)}

    assert points[1.0] == total_of(PARTS)
    assert points[2.0] - points[1.0] == points[1.0] * 2 - points[0.5] * 2
    assert room_for_batch(PARTS, points[4.0]) == pytest.approx(4, rel=0.01)
    assert peaks_by_batch({"weights": 100}) == ()


def test_the_peak_by_the_length_of_rows_lies_between_elements_and_squares():
    by_batch = {one.factor: one.bytes for one in peaks_by_batch(PARTS)}
    points = {one.factor: one for one in peaks_by_length(PARTS)}

    assert (points[1.0].low, points[1.0].high) == (by_batch[1.0], by_batch[1.0])
    assert (points[2.0].low, points[2.0].high) == (by_batch[2.0], by_batch[4.0])
    assert (points[0.5].low, points[0.5].high) == (by_batch[0.25], by_batch[0.5])
    assert peaks_by_length({"weights": 100}) == ()


# -- what is chosen


def test_what_the_allocator_keeps_shrinks_with_the_tensors():
    assert estimate(PARTS, (), Lessons()) == 1040
    assert estimate(PARTS, (HALVES,), Lessons()) == 100 + 400 + 50 + 50


def test_two_measures_of_one_part_do_not_free_it_twice():
    assert estimate(PARTS, (RETURN, HALVES, CAST), Lessons()) == 100 + 200 + 50


def test_the_cheapest_set_that_should_fit_is_chosen():
    assert cheapest(PARTS, ALL, 1000, Lessons()).state == (CAST.applied,)
    assert cheapest(PARTS, ALL, 600, Lessons()).options == (RETURN, CAST)
    assert cheapest(PARTS, ALL, 380, Lessons()).options == (RETURN, HALVES, CAST)
    assert cheapest(PARTS, ALL, 100, Lessons()) is None


def test_measures_that_exclude_each_other_are_not_chosen_together():
    assert smallest(PARTS, ALL, Lessons()).options == (RETURN, QUARTERS, CAST)


def test_a_lever_that_frees_next_to_nothing_is_not_in_the_smallest_set():
    idle = option("optimizer_in_backward", {"weights": 0.99}, 0.02)

    assert smallest(PARTS, (*ALL, idle), Lessons()).options == (RETURN, QUARTERS, CAST)


def test_a_failure_makes_a_lever_less_believed_and_is_not_repeated():
    lessons = Lessons()
    choice = cheapest(PARTS, ALL, 1000, lessons)

    learn(PARTS, choice, 1000, lessons)

    assert lessons.shares["autocast"] == pytest.approx(1 - (1020 - 595) / (1040 - 595), rel=0.1)
    assert cheapest(PARTS, ALL, 1000, lessons).state != choice.state


def test_a_failure_above_all_that_is_known_is_memory_that_no_part_accounts_for():
    lessons = Lessons()

    learn(PARTS, cheapest(PARTS, ALL, 2000, lessons), 2000, lessons)

    assert lessons.unseen_bytes > 0


# -- the levers


def ground_of(facts: Facts = FACTS, **changes: object):
    measurement = make_measurement(memory=make_anatomy(**changes))
    baseline = Baseline(
        ending=WELL,
        measurement=measurement,
        diagnosis=None,
        facts=facts,
        startup_s=1.0,
        sample_unit=None,
    )
    return make_ground(baseline, parts_at_peak(measurement.memory, 8 * GIB))


def test_levers_that_free_nothing_here_are_refused_with_their_reason():
    facts = replace(FACTS, has_batch_statistics=True, environment_names=("LD_PRELOAD",))

    options, refused = find_options(ground_of(facts), load_all(), excluded=("autocast",))

    assert [one.applied.name for one in options] == []
    texts = {one.name: one.text or one.reason for one in refused}
    assert "batch norms" in texts["micro_batches"]
    assert "LD_PRELOAD is set" in texts["return_freed_memory"]
    assert texts["autocast"] == "excluded"


def test_autocast_is_an_option_where_it_is_slow():
    options, _ = find_options(ground_of(replace(FACTS, capabilities=())), load_all())

    assert [o.cost_fraction for o in options if o.applied.name == "autocast"] == [0.5]


def test_smaller_parts_free_more():
    options, _ = find_options(ground_of(), load_all())

    parts = [o for o in options if o.applied.name == "micro_batches"]
    assert [o.keeps["activations"] for o in parts] == [1 / 2, 1 / 4, 1 / 8, 1 / 16]
    assert all(o.applied.settings["recompute"] for o in parts)


# -- the search

NO_FORECAST = CommandForecast(
    memory=MemoryForecast(peak=None, by_category={}, unknown=("never_steps",), how="none"),
    script={},
)
DIED_HERE = Ending(end=TrialEnd.OUT_OF_MEMORY, reason="out_of_memory")


@dataclass
class ScriptedFit:
    """A command that needs `needs` bytes with each state; other states need what is estimated."""

    needs: dict[frozenset[str], int] = field(default_factory=dict)
    peak_bytes: int = 8 * GIB
    ending: Ending = WELL
    outcome: Outcome = Outcome.PASS
    worse: frozenset[str] = frozenset()
    facts: Facts = FACTS
    longest: LongestBatch | None = None
    forecast_found: CommandForecast = NO_FORECAST
    cap_bytes: int = 16 * GIB
    allocator: Allocator | None = None
    limits: list[int] = field(default_factory=list)
    were_on_device: list[bool] = field(default_factory=list)
    judged: list[State] = field(default_factory=list)
    ran: list[frozenset[str]] = field(default_factory=list)
    batch_ratio: float = 0.0
    batch_ending: Ending = WELL
    batch_limits: list[int | None] = field(default_factory=list)
    without_limit: list[State] = field(default_factory=list)
    num_left: int = 99

    def observe(self) -> Observed:
        changes = {} if self.allocator is None else {"allocator": self.allocator}
        memory = make_anatomy(run_peak=PEAK if self.longest else None, **changes)
        measurement = make_measurement(memory=memory, longest_batch=self.longest)
        baseline = Baseline(
            ending=self.ending,
            measurement=measurement,
            diagnosis=None,
            facts=self.facts,
            startup_s=1.0,
            sample_unit=None,
        )
        return Observed(baseline=baseline, peak_bytes=self.peak_bytes, cap_bytes=self.cap_bytes)

    def forecast(self) -> CommandForecast:
        return self.forecast_found

    def run_under(
        self, state: State, limit_bytes: int, *, is_on_device: bool = False, what: str = "limit"
    ) -> LimitedRun:
        if not self.num_left:
            raise BudgetSpentError
        self.num_left -= 1
        if what == "needs":
            self.without_limit.append(state)
            needs = self.needs.get(frozenset(one.name for one in state), 0)
            ending = WELL if needs <= limit_bytes else DIED_HERE
            return LimitedRun(ending=ending, peak_bytes=needs, num_steps=18, step_s=0.4)
        self.were_on_device.append(is_on_device)
        names = frozenset(one.name for one in state)
        self.ran.append(names)
        self.limits.append(limit_bytes)
        if self.needs.get(names, 0) > limit_bytes:
            ending = Ending(end=TrialEnd.OUT_OF_MEMORY, reason="out_of_memory")
            return LimitedRun(ending=ending, peak_bytes=limit_bytes, num_steps=0, step_s=None)
        return LimitedRun(ending=WELL, peak_bytes=limit_bytes - 1, num_steps=18, step_s=0.4)

    def compare_batches(self, states: Sequence[State], limit_bytes: int | None) -> ComparisonResult:
        self.batch_limits.append(limit_bytes)
        rates = (self.batch_ratio,) * 16
        arms = [
            ArmResult(state=one, log_ratios=rates, cpu_log_ratios=rates, ending=self.batch_ending)
            for one in states[1:]
        ]
        return ComparisonResult(ending=WELL, arms=tuple(arms))

    def judge(self, state: State) -> Verdict:
        self.judged.append(state)
        is_worse = bool(self.worse & {one.name for one in state})
        return Verdict(outcome=Outcome.FAIL if is_worse else self.outcome, level="L2")


PEAK = RunPeak(
    rank=0,
    how="at_least",
    bytes=make_anatomy().timeline.peak.total,
    low_bytes=GIB,
    step=3,
    num_steps=20,
    num_followed=2,
)


def to_come(low: int, estimate: int, high: int) -> LongestBatch:
    """A batch to come whose step will hold so much more than the peak so far [bytes]."""
    forecast = [PEAK.bytes + more for more in (low, estimate, high)]
    return LongestBatch(
        rank=0,
        dataset="Texts",
        epoch=0,
        order="known",
        num_batches=100,
        num_handed=20,
        is_to_come=True,
        growth=3.0,
        seen_peak_bytes=PEAK.bytes,
        peak=PeakForecast(low=forecast[0], estimate=forecast[1], high=forecast[2], how="between"),
    )


def search(bench: ScriptedFit, limit_bytes: int) -> FitFound:
    return FitSearch(bench, load_all(), limit_bytes).go()


def test_what_is_well_below_the_limit_fits_and_nothing_is_run():
    bench = ScriptedFit()

    found = search(bench, 9 * GIB)

    assert (found.fits, found.recipe, bench.ran) == (True, (), [])


def test_where_memory_is_free_it_says_how_much_larger_a_batch_could_be():
    found = search(ScriptedFit(), 16 * GIB)

    assert 2 < found.batch_factor < 3
    assert "times as large" in describe_batch(study_of(found))


def test_where_memory_is_free_checkpointing_is_undone_and_proven():
    bench = ScriptedFit()
    bench.facts = replace(FACTS, checkpoint_ways=("not_reentrant",), checkpointed_bytes=GIB)

    found = search(bench, 16 * GIB)

    assert found.fits is True
    assert [one.name for one in found.recipe] == ["no_checkpointing"]
    assert "the recipe uses what is free" in describe_answer(study_of(found))
    assert study_of(found).is_made_to_fit


def test_the_peak_is_that_of_the_largest_batch_which_is_to_come():
    bench = ScriptedFit(longest=to_come(1 * GIB, 2 * GIB, 4 * GIB))

    peak = search(bench, 100 * GIB).peak

    assert peak is not None
    assert (peak.how, peak.unknown) == ("forecast", ("largest_to_come",))
    assert peak.estimate == pytest.approx(10 * GIB, rel=1e-6)
    assert sum(peak.by_category.values()) == peak.estimate
    assert peak.low < 9 * GIB < 12 * GIB < peak.high
    assert "the largest batch of the epoch had not come" in describe_peak(peak)


@pytest.mark.parametrize(
    ("limit", "fits", "ran"), [(13 * GIB, True, 0), (11 * GIB, True, 1), (8 * GIB, False, 0)]
)
def test_where_a_forecast_does_not_decide_a_run_with_the_largest_batch_does(limit, fits, ran):
    bench = ScriptedFit(longest=to_come(1 * GIB, 2 * GIB, 4 * GIB))

    found = search(bench, limit)

    assert found.fits is fits
    assert bench.ran[:1] == [frozenset()] * ran or not fits


def test_a_batch_that_has_come_changes_nothing():
    came = replace(to_come(1, 2, 3), is_to_come=False, peak=None)

    assert search(ScriptedFit(longest=came), 100 * GIB).peak.how == "at_least"


def test_what_uses_the_free_memory_is_not_kept_where_it_is_not_proven():
    bench = ScriptedFit(outcome=Outcome.FAIL)
    bench.facts = replace(FACTS, checkpoint_ways=("not_reentrant",), checkpointed_bytes=GIB)

    found = search(bench, 16 * GIB)

    assert (found.fits, found.recipe) == (True, ())
    assert exit_code_of(study_of(found)) == 0


@pytest.mark.parametrize(("needs", "fits"), [(7 * GIB, True), (9 * GIB, False)])
def test_where_the_peak_is_near_the_limit_a_run_under_it_decides(needs, fits):
    bench = ScriptedFit({frozenset(): needs})

    found = search(bench, 8 * GIB + 1)

    assert bench.ran[0] == frozenset()
    assert found.fits is fits


def test_the_recipe_is_what_ran_under_the_limit_and_was_judged():
    bench = ScriptedFit()

    found = search(bench, 6 * GIB)

    assert found.fits is False
    assert found.proven is Outcome.PASS
    assert found.recipe == bench.judged[0]
    assert found.quality.outcome is Outcome.PASS
    assert found.short_bytes is None


def test_a_lever_that_trains_worse_is_found_and_left_out():
    bench = ScriptedFit(worse=frozenset({"autocast"}))

    found = search(bench, 3 * GIB)

    assert {"autocast", "micro_batches"} <= bench.ran[0]
    assert "autocast" not in bench.ran[1]
    assert found.recipe == bench.judged[-1]
    assert (found.quality.outcome, found.reason) == (Outcome.PASS, None)


def test_where_nothing_else_fits_what_trains_worse_is_said_to():
    bench = ScriptedFit(outcome=Outcome.FAIL)

    found = search(bench, 4 * GIB)

    assert (found.proven, found.quality.outcome) == (Outcome.PASS, Outcome.FAIL)
    assert found.recipe == bench.judged[0]
    assert (found.reason, found.short_bytes, found.nearest) == ("quality", None, ())


class Always(dict):
    def get(self, key: object, default: object = None) -> int:
        return 99 * GIB


def test_at_most_three_runs_are_made_and_then_it_says_what_is_missing():
    bench = ScriptedFit(Always())

    found = search(bench, 6 * GIB)

    assert len(bench.ran) == 3
    assert len(set(bench.ran)) > 1
    assert found.recipe == ()
    assert found.proven is Outcome.FAIL
    assert found.short_bytes is None  # by the estimates it fits, and it ran out of memory
    assert "not known how much is missing" in describe_answer(study_of(found))
    assert found.nearest


def test_a_set_that_failed_is_run_without_the_limit_and_what_it_needs_is_learned():
    first = search(ScriptedFit(), 6 * GIB).runs[0]
    bench = ScriptedFit({frozenset(one.name for one in first.state): 7 * GIB})

    found = search(bench, 6 * GIB)

    assert bench.without_limit == [first.state]
    assert found.recipe == found.runs[-1].state != first.state
    lessons = Lessons()
    choice = cheapest(PARTS, ALL, 1000, lessons)
    learn(PARTS, choice, 1000, lessons, seen_bytes=1200)
    assert estimate(PARTS, choice.options, lessons) == pytest.approx(1200, rel=0.02)


def test_a_budget_that_is_spent_ends_the_search_with_what_is_known():
    found = search(ScriptedFit(num_left=0), 6 * GIB)

    assert (found.fits, found.recipe, found.reason) == (False, (), "budget")
    assert "the time was over before it was made to" in describe_answer(study_of(found))
    document = replace(study_of(found), peak=None)
    assert exit_code_of(document) == 124


def test_the_bar_of_the_recipe_is_the_run_that_it_comes_from():
    found = search(ScriptedFit(), 6 * GIB)
    late = replace(found.runs[-1], state=(), peak_bytes=9 * GIB)
    study = replace(study_of(found), runs=(*found.runs, late))

    assert study.recipe_bytes == found.runs[-1].peak_bytes < 6 * GIB


def test_what_cannot_fit_is_not_run():
    bench = ScriptedFit()

    found = search(bench, GIB)

    assert (bench.ran, found.proven, found.reason) == ([], None, "does_not_fit")
    assert found.nearest_bytes - GIB == found.short_bytes


def test_a_command_that_fails_as_written_has_no_answer():
    bench = ScriptedFit(ending=Ending(end=TrialEnd.FAILED, reason="exit_code"))

    found = search(bench, GIB)

    assert (found.peak, found.fits, found.reason) == (None, None, "exit_code")


def test_a_command_that_does_not_run_here_at_all_is_made_to_fit_without_a_proof():
    bench = ScriptedFit(ending=Ending(end=TrialEnd.OUT_OF_MEMORY, reason="out_of_memory"))

    found = search(bench, 6 * GIB)

    assert found.fits is False
    assert found.recipe
    assert (found.quality, found.reason) == (None, "cannot_run_as_written")


# -- a command that does not run here as written


def forecast_of(
    parts: dict[str, int], *, unknown: tuple[str, ...] = (), **script: object
) -> CommandForecast:
    estimate = sum(parts.values())
    peak = PeakRange(low=estimate * 99 // 100, estimate=estimate, high=estimate * 101 // 100)
    memory = MemoryForecast(peak=peak, by_category=parts, unknown=unknown, phase="backward")
    return CommandForecast(memory=memory, script=script)


def died(forecast: CommandForecast, **changes: object) -> ScriptedFit:
    return ScriptedFit(ending=DIED_HERE, forecast_found=forecast, **changes)


LARGE = {"weights": 2 * GIB, "optimizer": 4 * GIB, "activations": 20 * GIB}


def test_where_the_command_dies_here_its_peak_is_a_forecast():
    found = search(died(forecast_of(LARGE, unknown=("made_up_size: nonzero",))), 14 * GIB)

    peak = found.peak
    assert (found.fits, peak.how) == (False, "fake_step")
    assert sum(peak.by_category.values()) == peak.estimate
    assert peak.by_category["activations"] == 20 * GIB
    assert 25 * GIB < peak.low < peak.estimate < peak.high
    assert peak.unknown[0] == "ended_by_the_memory_here"
    assert "a guess (nonzero)" in describe_peak(peak)


def test_of_a_forecast_the_process_is_as_large_as_it_was_beside_the_fakes():
    forecast = replace(forecast_of(LARGE), process_bytes=700 * MIB)

    peak = search(died(forecast), 14 * GIB).peak

    assert peak.by_category["process"] == 700 * MIB
    assert sum(peak.by_category.values()) == peak.estimate


def test_it_is_made_to_fit_and_nothing_is_claimed_of_its_quality():
    bench = died(forecast_of(LARGE))

    found = search(bench, 14 * GIB)

    assert bench.judged == []
    assert (found.proven, found.quality) == (Outcome.PASS, None)
    study = study_of(found, 14 * GIB)
    assert not study.is_made_to_fit
    assert exit_code_of(study) == 4
    assert "its quality could not be compared here" in describe_answer(study)


def test_levers_are_asked_with_what_the_forecast_knows_of_the_script():
    found = search(died(forecast_of(LARGE, has_batch_statistics=True)), 14 * GIB)

    refused = {one.name: one.text for one in found.not_tried}
    assert "batch norms" in refused["micro_batches"]


def test_facts_that_are_none_are_not_taken_for_any():
    found = search(died(forecast_of(LARGE, nonsense=1, num_parameters="many")), 14 * GIB)

    assert found.recipe


def test_more_than_is_free_here_fits_by_the_forecast_alone():
    bench = died(forecast_of(LARGE))

    found = search(bench, 100 * GIB)

    assert (found.fits, bench.ran) == (True, [])


def test_where_the_limit_is_more_than_is_free_here_settings_are_run_in_what_is_free():
    bench = died(forecast_of(LARGE))

    found = search(bench, 40 * GIB)

    assert found.fits is None
    assert bench.limits == [16 * GIB]
    assert found.proven is Outcome.PASS


def test_what_needs_more_than_is_free_here_is_not_run():
    bench = died(forecast_of({"weights": 20 * GIB, "activations": 8 * GIB}))

    found = search(bench, 25 * GIB)

    assert (bench.ran, found.reason, found.short_bytes) == ([], "machine_too_small", None)
    assert found.nearest
    assert found.nearest_bytes <= 25 * GIB


def test_what_it_needed_when_it_died_is_the_least():
    found = search(died(forecast_of({"weights": GIB})), 2 * GIB)

    assert found.peak.low == found.peak.estimate == total_of(found.peak.by_category) == 16 * GIB
    assert found.fits is False


def test_where_others_took_the_memory_only_what_it_had_counts():
    ending = Ending(end=TrialEnd.OUT_OF_MEMORY, reason="machine_short")
    bench = replace(died(forecast_of({"weights": GIB})), ending=ending, peak_bytes=GIB)

    assert search(bench, 4 * GIB).fits is True


def test_on_a_named_device_its_context_stands_for_process_and_allocator():
    bench = died(forecast_of(LARGE), cap_bytes=8 * GIB)

    found = FitSearch(bench, load_all(), 80 * GIB, origin="part").go()

    assert found.fits is True
    assert found.peak.by_category == LARGE | {"context": GIB // 2}


def test_without_a_forecast_the_reason_is_said():
    found = search(died(NO_FORECAST), 6 * GIB)

    assert found.peak.how == "at_least"
    assert found.peak.unknown[-1] == "never_steps"
    assert "no step was made on tensors without memory" in describe_peak(found.peak)


def test_a_limit_that_is_there_already_counts_as_what_is_free(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (123456, resource.RLIM_INFINITY))

    assert free_bytes() == 123456


# -- on a device: made-up values, no device has run this


def on_device(reserved: int = 7 * GIB, **changes: object) -> ScriptedFit:
    allocator = Allocator(peak_reserved=reserved, total=16 * GIB)
    facts = replace(FACTS, device="cuda")
    return ScriptedFit(facts=facts, allocator=allocator, peak_bytes=3 * GIB, **changes)


def test_on_a_device_its_memory_is_what_counts():
    found = FitSearch(on_device(), load_all(), 99 * GIB, origin="machine").go()

    assert (found.is_on_device, found.limit_bytes, found.fits) == (True, 16 * GIB, True)
    assert sum(found.peak.by_category.values()) == found.peak.estimate == 7 * GIB + GIB // 2
    assert "process" not in found.peak.by_category


def test_on_a_device_the_allocator_is_limited_to_what_its_context_leaves():
    bench = on_device()

    found = search(bench, 6 * GIB)

    assert (found.fits, found.proven) == (False, Outcome.PASS)
    assert bench.limits == [6 * GIB - GIB // 2]
    assert bench.were_on_device == [True]
    assert "of the device's memory" in describe_limit(
        replace(study_of(found), limit_counts="device")
    )


def test_a_device_whose_allocator_says_nothing_has_no_answer():
    bench = on_device()
    bench.allocator = None

    found = search(bench, 6 * GIB)

    assert (found.peak, found.reason) == (None, "on_a_device")


def test_a_device_that_is_too_small_limits_where_its_peak_is_a_forecast():
    bench = replace(on_device(15 * GIB), ending=DIED_HERE, forecast_found=forecast_of(LARGE))

    found = search(bench, 99 * GIB)

    assert found.peak.how == "fake_step"
    assert found.peak.by_category["context"] == GIB // 2
    assert found.fits is True


class Devices:
    """What `limit_devices` asks of torch.cuda; two devices, of 8 and 16 GiB."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.fractions: dict[int, float] = {}

    def _lazy_call(self, act: Callable[[], None]) -> None:
        self.waiting.append(act)

    def device_count(self) -> int:
        return 2

    def get_device_properties(self, number: int) -> SimpleNamespace:
        return SimpleNamespace(total_memory=(8, 16)[number] * GIB)

    def set_per_process_memory_fraction(self, fraction: float, device: int) -> None:
        self.fractions[device] = fraction


def test_the_devices_are_limited_once_the_script_uses_one():
    cuda = Devices()

    limit_devices(SimpleNamespace(cuda=cuda), 12 * GIB)

    assert cuda.fractions == {}
    for act in cuda.waiting:
        act()
    assert cuda.fractions == {0: 1.0, 1: 0.75}


# -- what is said


def study_of(found: FitFound, limit_bytes: int = 6 * GIB) -> FitStudy:
    return FitStudy(
        fit_id="f",
        command=("python", "train.py"),
        started_unix_s=0.0,
        ended_unix_s=1.0,
        limit_bytes=limit_bytes,
        limit_from="given",
        limit_counts="private",
        fits=found.fits,
        peak=found.peak,
        recipe=found.recipe,
        proven=found.proven,
        quality=found.quality,
        batch_factor=found.batch_factor,
        by_batch=() if found.peak is None else peaks_by_batch(found.peak.by_category),
        measures=found.measures,
        not_tried=found.not_tried,
        runs=tuple(found.runs),
        short_bytes=found.short_bytes,
        nearest=found.nearest,
        nearest_bytes=found.nearest_bytes,
        ranks=found.ranks,
        larger_batches=found.larger_batches,
        batch_reason=found.batch_reason,
        batch_facts=found.batch_facts,
        reason=found.reason,
    )


def test_a_fit_survives_json():
    study = study_of(search(ScriptedFit(), 6 * GIB))

    assert from_json(FitStudy, to_json(study)) == study


@pytest.mark.parametrize(
    ("bench", "limit", "code", "required", "words"),
    [
        (ScriptedFit(), 9 * GIB, 0, 0, "it fits into 9.00 GiB as written"),
        (ScriptedFit(), 6 * GIB, 0, 0, "with the recipe it does"),
        (ScriptedFit(), GIB, 0, 5, "by any setting known here: short by"),
        (ScriptedFit(outcome=Outcome.INCONCLUSIVE), 6 * GIB, 4, 5, "but that is not proven"),
        (
            ScriptedFit(ending=Ending(end=TrialEnd.FAILED, reason="exit_code")),
            GIB,
            3,
            3,
            "no answer: the script ended with an error",
        ),
    ],
)
def test_the_answer_has_its_words_and_its_exit_code(bench, limit, code, required, words):
    study = study_of(search(bench, limit), limit)

    assert words in describe_answer(study)
    assert exit_code_of(study) == code
    assert exit_code_of(study, is_required=True) == required
    assert bool(fit_errors(study)) == (code in (3, 4))


def test_the_peak_says_what_is_not_known():
    bench = ScriptedFit(ending=Ending(end=TrialEnd.OUT_OF_MEMORY, reason="out_of_memory"))

    assert describe_peak(search(bench, GIB).peak).startswith("at least 16.0 GiB as written")


# -- options


@pytest.mark.parametrize(
    ("text", "size"), [("8GiB", 8 * GIB), ("1.5 GiB", 3 * GIB // 2), ("80GB", 80 * 10**9)]
)
def test_sizes(text: str, size: int):
    assert parse_size(text, flag="--memory-limit") == size


@pytest.mark.parametrize("text", ["8", "8G", "0GiB", "-1GiB", "many"])
def test_what_is_no_size_is_refused(text: str):
    says = "must not be negative" if text.startswith("-") else "must be a size such as 8GiB"
    with pytest.raises(UsageError, match=says):
        parse_size(text, flag="--memory-limit")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fit", "--memory-limit", "8GiB", "--on", "L40S"], "both name a limit"),
        (["fit", "--on", "A100"], "may be A100 SXM 80GB"),
        (["fit", "--on", "abacus"], "is not in the table"),
        (["fit", "--memory-limit", "8"], "must be a size such as"),
        (["fit", "--on", "L40S", "--gpus", "0"], "--gpus must be 1 or more"),
        (["fit", "--gpus", "8"], "--gpus needs the memory of one of them"),
    ],
)
def test_what_is_without_effect_or_unknown_is_refused(words, said, capsys):
    assert main([*words, "--", "python", "train.py"]) == 2
    assert said in capsys.readouterr().err


def test_an_accelerator_is_found_by_some_of_its_words():
    assert {part.bytes for part in find_parts("H100-80GB")} == {80 * GIB}
    assert [part.name for part in find_parts("NVIDIA L40S")] == ["L40S 48GB"]
    assert len({part.bytes for part in find_parts("A100")}) == 2
    assert find_parts("abacus") == ()


def test_what_has_no_end_of_its_own_is_taken_off_the_budget(tmp_path, monkeypatch):
    seen = []

    def bench(subject, *_):
        seen.append(subject.until_s)
        raise KeyboardInterrupt

    monkeypatch.setattr(run_fit, "RealBench", bench)
    monkeypatch.setattr(run_fit, "time", SimpleNamespace(monotonic=lambda: 7.0, time=lambda: 1.0))
    limit = run_fit.FitLimit(bytes=1 << 30, origin="given")
    options = {"command": ("true",), "store": tmp_path, "levers": (), "reads_input": False}
    asked = run_fit.FitOptions(**options, limit=limit, budget_s=600.0, allow_unsafe=True)

    study = run_fit.run_fit(asked, tell=lambda *_: None)

    assert study.is_interrupted
    assert seen == [7.0 + 570.0]
