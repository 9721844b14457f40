"""Which levers are offered, in what order, and what they could give at most."""

from __future__ import annotations

from dataclasses import replace

import pytest

from report_cases import GPT_COUNT
from scripted_bench import ScriptedBench, make_lever, make_measurement
from steptime.diagnose.values.finding import BottleneckKind
from steptime.levers.base import Facts, LoaderFacts, Moment, Preserves
from steptime.levers.compiling import compile as compile_models
from steptime.measure.values.machine_load import HostLoad
from steptime.measure.values.measurement import Phase, Span
from steptime.tune.search.order import headroom, offer, split_by_headroom
from steptime.tune.search.search import SearchOptions, search
from steptime.tune.trials.observe_baseline import product_fraction_of


def offered(*levers, excluded=(), **bench):
    return offer(levers, ScriptedBench(**bench).observe(), excluded=excluded)


def test_a_lever_that_does_not_apply_says_why_in_its_own_words():
    _, refused = offered(make_lever("fused", applies="The optimizer is fused already."))

    assert (refused[0].reason, refused[0].text) == (
        "does_not_apply",
        "The optimizer is fused already.",
    )


def test_a_lever_that_the_user_excluded_is_said_to_be():
    offers, refused = offered(make_lever("fused"), excluded=("fused", "unlisted"))

    assert offers == ()
    assert {(one.name, one.reason) for one in refused} == {
        ("fused", "excluded"),
        ("unlisted", "excluded"),
    }


def test_a_lever_that_changes_the_training_is_never_offered():
    offers, refused = offered(make_lever("half_batch", preserves=Preserves.NOTHING))

    assert offers == ()
    assert refused[0].reason == "changes_training"


def test_one_that_is_allowed_needs_proof_over_seeds_and_is_no_offer_either():
    lever = make_lever("half_batch", preserves=Preserves.NOTHING)
    offers, refused = offer((lever,), ScriptedBench().observe(), excluded=(), allows_changes=True)

    assert offers == ()
    assert refused[0].reason == "needs_proof_over_seeds"


def test_a_study_of_such_levers_alone_claims_nothing():
    lever = make_lever("half_batch", preserves=Preserves.NOTHING)
    found = search(ScriptedBench(), SearchOptions(levers=(lever,), allows_changes=True))

    assert (found.outcome.value, found.reason) == ("nothing_helps", "needs_proof_over_seeds")
    assert found.recipe == ()


def test_settings_that_change_the_training_here_are_left_out():
    lever = replace(
        make_lever("workers", settings=({"n": 0}, {"n": 2})),
        class_here=lambda facts, settings: Preserves.NOTHING if settings["n"] else None,
    )
    offers, _ = offered(lever)

    assert [one.settings["n"] for one in offers[0].settings] == [0]


def test_a_lever_without_settings_here_is_no_offer():
    _, refused = offered(make_lever("workers", settings=()))

    assert refused[0].reason == "no_settings"


def test_what_relieves_the_bottleneck_comes_first_then_the_largest_headroom():
    offers, _ = offered(
        make_lever("small", phases=("optimizer",)),
        make_lever("large", phases=("forward", "backward")),
        make_lever("aimed", phases=("input_wait",), relieves=("INPUT_BOUND",)),
        make_lever("unknown", phases=("communication",)),
        kind=BottleneckKind.INPUT_BOUND,
    )

    assert [one.name for one in offers] == ["aimed", "large", "unknown", "small"]


def test_a_lever_that_knows_better_than_its_phases_says_so():
    knowing = replace(make_lever("knowing"), saves=lambda facts: 0.1)
    unsure = replace(make_lever("unsure"), saves=lambda facts: None)

    offers, _ = offered(unsure, knowing, make_lever("large"), make_lever("small", phases=()))

    assert [(one.name, one.headroom) for one in offers][1:] == [
        ("small", None), ("unsure", None), ("knowing", 0.1),
    ]  # fmt: skip


def test_a_lever_cannot_save_more_than_its_phases_take():
    greedy = replace(make_lever("greedy", phases=("optimizer",)), saves=lambda facts: 0.9)
    small = make_lever("small", phases=("optimizer",))

    offers, _ = offered(greedy, small)

    assert offers[0].headroom == offers[1].headroom


def test_an_unknown_headroom_neither_comes_first_nor_lets_others_come_first():
    live, turns = (
        make_lever("live"),
        make_lever("turns", moment=Moment.STARTUP, phases=("optimizer",)),
    )
    unknown = {"saves": lambda facts: None}

    for levers in ((live, replace(turns, **unknown)), (replace(live, **unknown), turns)):
        bench = ScriptedBench(budget_s=3000.0)
        asked = []
        search(bench, SearchOptions(levers=levers, budget_s=3000.0), tell=asked.append)
        kinds = [one.ended.kind for one in asked if one.ended and one.ended.state]
        assert kinds[0] == "live"


def test_headroom_is_the_share_of_the_phases():
    assert headroom(("forward", "backward"), make_measurement()) == pytest.approx(0.75)


def test_what_was_not_observed_has_no_headroom_rather_than_none():
    phases = (Phase(name="forward", missing="no_module_seen"),)
    measurement = replace(make_measurement(), phases=phases)

    assert headroom(("forward",), measurement) is None
    assert headroom((), measurement) is None


def test_what_is_not_there_has_a_headroom_of_zero():
    phases = (Phase(name="input_wait", missing="no_loader_seen"),)

    assert headroom(("input_wait",), replace(make_measurement(), phases=phases)) == 0


def test_fetching_lies_inside_the_wait_for_input():
    shares = {"input_wait": 0.4, "fetch": 0.3, "other": 0.6}

    assert headroom(("input_wait", "fetch"), make_measurement(phases=shares)) == pytest.approx(0.4)


def test_forward_lies_inside_what_was_compiled_together():
    measurement = make_measurement(phases={"forward_and_loss": 0.5, "backward": 0.4})

    assert headroom(("forward", "loss", "backward"), measurement) == pytest.approx(0.9)


def test_what_was_not_compiled_together_does_not_hide_the_forward():
    measurement = make_measurement(phases={"forward": 0.5, "backward": 0.4})

    assert headroom(("forward", "forward_and_loss"), measurement) == pytest.approx(0.5)


def test_a_span_s_share_is_of_steps_and_span_together():
    spans = (Span(name="epoch_start", total_s=10.0, num_steps_touched=4),)
    measurement = replace(make_measurement(step_s=0.05, num_steps=200), spans=spans)

    assert headroom(("epoch_start",), measurement) == pytest.approx(0.5)


def test_a_span_that_the_window_did_not_show_has_no_part_in_it():
    measurement = make_measurement(phases={"input_wait": 0.8, "forward": 0.2})

    assert headroom(("input_wait", "epoch_start"), measurement) == pytest.approx(0.8)


def test_without_steady_steps_a_span_has_no_share():
    spans = (Span(name="epoch_start", total_s=10.0, num_steps_touched=4),)

    assert headroom(("epoch_start",), replace(make_measurement(), spans=spans, steady=None)) is None


def test_headroom_never_promises_more_than_a_hundredfold():
    assert headroom(("forward",), make_measurement(phases={"forward": 1.0})) == 0.99


def test_a_headroom_below_the_noise_is_not_tried_and_said_so():
    offers, _ = offered(make_lever("fused", phases=("optimizer",)), phases={"optimizer": 0.03})
    kept, refused = split_by_headroom(offers, 0.05)

    assert kept == ()
    assert refused[0].reason == "headroom_below_noise"
    assert {one.name for one in refused[0].evidence} == {"headroom", "noise_floor"}


def test_once_the_bottleneck_may_go_small_shares_are_worth_trying():
    offers, _ = offered(make_lever("fused", phases=("optimizer",)), phases={"optimizer": 0.03})
    kept, _ = split_by_headroom(offers, 0.05, speedup=5.0)

    assert [one.name for one in kept] == ["fused"]


def test_an_unknown_headroom_is_tried():
    offers, _ = offered(make_lever("allocator", phases=()))
    kept, refused = split_by_headroom(offers, 0.5)

    assert len(kept) == 1
    assert refused == ()


@pytest.mark.parametrize(
    ("moment", "is_live"),
    [(Moment.LIVE, True), (Moment.STARTUP, False), (Moment.ENVIRONMENT, False)],
)
def test_only_a_live_lever_can_be_switched_between_steps(moment, is_live):
    offers, _ = offered(make_lever("lever", moment=moment))

    assert offers[0].is_live is is_live


def test_compiling_is_not_tried_where_products_take_the_step():
    measurement = make_measurement(step_s=0.12)
    steady = replace(measurement.steady, mean_s=0.125)
    seen = replace(measurement, steady=steady, count=GPT_COUNT)  # products take 100 ms
    facts = Facts(torch_version="2.13.0", product_fraction=product_fraction_of(seen))
    lever = replace(make_lever("compile"), saves=compile_models.LEVER.saves)

    offers, refused = offered(
        lever, facts=facts, phases={"forward": 0.4, "backward": 0.6, "optimizer": 0.0}
    )
    (unknown,), _ = offered(lever, phases={"forward": 0.4, "backward": 0.5, "optimizer": 0.0})

    assert refused == ()
    assert offers[0].headroom == pytest.approx(0.2)
    assert unknown.headroom == pytest.approx(0.9)
    assert split_by_headroom(offers, 0.3)[1][0].reason == "headroom_below_noise"
    on_device = replace(GPT_COUNT.classes[0], device_time_s=0.05)
    other = replace(GPT_COUNT, classes=(on_device, *GPT_COUNT.classes[1:]))
    assert product_fraction_of(replace(seen, count=other)) is None


@pytest.mark.parametrize(("others_cores", "num_workers"), [(0.02, 0), (0.5, 0), (0.02, 2)])
def test_threads_sleep_only_where_something_else_needs_the_cores(others_cores, num_workers):
    loaders = (LoaderFacts(dataset="Rows", num_workers=num_workers),)
    seen = ScriptedBench(facts=Facts(torch_version="2.13.0", loaders=loaders)).observe()
    host = HostLoad(num_cores=2, job_cores=1.9, others_cores=others_cores, num_samples=9)
    baseline = replace(seen, measurement=replace(seen.measurement, host=host))

    offers, refused = offer((make_lever("wait_policy"),), baseline, excluded=())

    assert bool(offers) == (others_cores > 0.1 or num_workers > 0)
    assert len(offers) + len(refused) == 1
