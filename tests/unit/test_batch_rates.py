"""What larger batches give: two measures of it, and what a fit says of them."""

from __future__ import annotations

import math
from collections import UserDict, namedtuple
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from steptime.core.codec import from_json, to_json  # noqa: E402
from steptime.core.interval import Interval  # noqa: E402
from steptime.levers import load_all  # noqa: E402
from steptime.levers.base import Facts, LoaderFacts, OptimizerFacts  # noqa: E402
from steptime.levers.lengths.joined_batches import LEVER as JOINING  # noqa: E402
from steptime.levers.lengths.joined_batches import join  # noqa: E402
from steptime.levers.memory.repeated_rows import LEVER as REPEATING  # noqa: E402
from steptime.report.blocks.fit.batch_report import describe_batches  # noqa: E402
from steptime.report.blocks.fit.fit_report import fit_report  # noqa: E402
from steptime.report.html.paint_html import paint_page  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402
from steptime.tune.fit.batch_rates import (  # noqa: E402
    clock_for,
    does_rise,
    factors_with_room,
    same_global,
    states_of,
)
from steptime.tune.fit.fit_search import FitSearch  # noqa: E402
from steptime.tune.values.fit_values import FitStudy  # noqa: E402
from steptime.tune.values.study_values import Ending, TrialEnd  # noqa: E402
from unit.test_make_fit import FACTS, GIB, ScriptedFit, study_of  # noqa: E402

Pair = namedtuple("Pair", "x y")


@pytest.fixture
def session():
    with PlainSession(torch) as session:
        yield session


def loader(rows=10, **options):
    x = torch.arange(rows)
    data = torch.utils.data.TensorDataset(x, x.float() / 10)
    return torch.utils.data.DataLoader(data, batch_size=2, **options)


# -- where loaders make batches


def test_batches_come_joined_and_in_order_and_the_rest_as_it_is(session):
    undo = JOINING.apply({"factor": 2}, session)
    found = [x.tolist() for x, y in loader()]
    with torch.no_grad():
        evaluated = [len(x) for x, y in loader()]
    undo()

    assert found == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert evaluated == [2] * 5
    assert [len(x) for x, y in loader()] == [2] * 5


def test_it_can_be_switched_in_the_middle_of_an_epoch(session):
    batches = iter(loader())
    first = next(batches)[0].tolist()
    undo = JOINING.apply({"factor": 4}, session)
    second = next(batches)[0].tolist()
    undo()

    assert (first, second) == ([0, 1], [2, 3, 4, 5, 6, 7, 8, 9])
    with pytest.raises(StopIteration):
        next(batches)


def test_what_a_batch_holds_is_joined_by_what_it_is():
    one, two = (
        {"x": torch.full((2, 3), value), "name": ["a", "b"], "rest": [torch.ones(2), 7]}
        for value in (1.0, 2.0)
    )
    found = join(torch, [one, two])
    pair = join(torch, [Pair(torch.zeros(1), torch.zeros(1))] * 2)
    encoded = join(torch, [UserDict(x=torch.zeros(2))] * 2)

    assert found["x"].shape == (4, 3)
    assert found["name"] == ["a", "b", "a", "b"]
    assert (found["rest"][0].shape, found["rest"][1]) == ((4,), 7)
    assert isinstance(pair, Pair)
    assert pair.y.shape == (2,)
    assert isinstance(encoded, UserDict)
    assert encoded["x"].shape == (4,)


@pytest.mark.parametrize(
    "batches",
    [
        [torch.zeros(2, 3), torch.zeros(2, 4)],
        [torch.tensor(1.0), torch.tensor(2.0)],
        [object(), object()],
        [3, 4],
    ],
)
def test_what_has_no_rows_of_one_length_is_refused(batches):
    with pytest.raises(ValueError, match="cannot be joined"):
        join(torch, batches)


# -- where the script makes its batches itself


def test_rows_are_repeated_and_the_gradients_stay_those_of_the_batch(session):
    seen = []

    class Probe(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.head = torch.nn.Linear(3, 2)

        def forward(self, x, target):
            seen.append(len(x))
            logits = self.head(x)
            return {"logits": logits, "loss": torch.nn.functional.cross_entropy(logits, target)}

    def gradient(key):
        model = Probe()
        output = model(torch.ones(4, 3), target=torch.tensor([0, 1, 1, 1]))
        loss = output["loss"] if key == "loss" else output["logits"].square().sum()
        loss.backward()
        return len(output["logits"]), model.head.weight.grad

    before = [gradient(key) for key in ("loss", "logits")]
    undo = REPEATING.apply({"factor": 4}, session)
    after = [gradient(key) for key in ("loss", "logits")]
    undo()

    assert seen == [4, 4, 16, 16]
    for (rows, own), (found, again) in zip(before, after, strict=True):
        assert (rows, found) == (4, 4)
        torch.testing.assert_close(own, again)


def test_a_call_whose_tensors_have_no_rows_in_common_is_refused(session):
    REPEATING.apply({"factor": 2}, session)
    with pytest.raises(ValueError, match="no rows in common"):
        torch.nn.Bilinear(2, 2, 1)(torch.ones(4, 2), torch.ones(3, 2))


def test_samples_that_are_repeated_count_though_the_script_did_not_make_them():
    _, study = fitted(batch_ratio=math.log(0.8), loaders=())

    assert study.larger_batches[0].how == "repeated"
    assert study.larger_batches[0].rate_gain.estimate == pytest.approx(1.6)
    assert study.larger_batches[1].rate_gain.estimate == pytest.approx(3.2)
    assert any("were repeated" in one for one in describe_batches(study))


# -- what a fit makes of it


def gain(low, estimate, high):
    return Interval(estimate=estimate, low=low, high=high, n=16)


@pytest.mark.parametrize(
    ("found", "rises"),
    [
        (gain(1.3, 1.4, 1.5), True),
        (gain(0.98, 1.0, 1.02), False),
        (gain(0.9, 1.2, 1.5), None),
    ],
)
def test_a_rate_rises_where_its_whole_interval_says_so(found, rises):
    assert does_rise(found) is rises


def test_only_factors_with_room_are_tried_and_other_reasons_are_said():
    loaders = (LoaderFacts(dataset="Rows", batch_size=2),)
    facts = Facts(torch_version="2.13.0", loaders=loaders)

    assert factors_with_room(3.0, facts) == ((2,), None)
    assert factors_with_room(9.0, facts) == ((2, 4), None)
    assert factors_with_room(1.9, facts)[1] == ("no_room", None)
    assert factors_with_room(None, facts)[1] == ("growth_not_known", None)
    assert factors_with_room(9.0, facts, excluded=["larger_batch"])[1][0] == "excluded"
    own = replace(facts, loaders=())
    assert factors_with_room(9.0, own) == ((2, 4), None)
    assert [one[0].name for one in states_of((2,), own)[1:]] == ["repeated_rows"]
    assert [one[0].name for one in states_of((2,), facts)[1:]] == ["joined_batches"]
    graphs = replace(facts, loaders=(replace(loaders[0], neighbor_sampling="pyg"),))
    for other in (replace(own, world_size=2), graphs):
        why = factors_with_room(9.0, other)[1]
        assert why is not None
        assert why[0] == "does_not_apply"


def test_the_processors_time_decides_only_where_one_thread_does_all():
    alone = Facts(torch_version="2.13.0", num_threads=1)

    assert clock_for(alone) == "cpu"
    assert clock_for(replace(alone, num_threads=2)) == "wall"
    assert clock_for(replace(alone, device="cuda")) == "wall"
    workers = (LoaderFacts(dataset="Rows", num_workers=2),)
    assert clock_for(replace(alone, loaders=workers)) == "wall"


def test_with_less_accumulation_the_update_is_not_shared_by_more_samples():
    bench = ScriptedFit()
    bench.facts = replace(FACTS, backwards_per_update=8)
    baseline = bench.observe().baseline
    update = next(one for one in baseline.measurement.phases if one.name == "optimizer").fraction
    a_part, larger = (1 - update) / 8, 1.5 * (1 - update) / 8  # of twice the rows
    measured = 2 * 1.0 / (8 * larger + update)

    found = same_global(gain(measured, measured, measured), 2, baseline)

    assert found is not None
    assert found.estimate == pytest.approx(1 / (4 * larger + update))
    assert found.estimate < 8 * a_part / (4 * larger) * 1.01
    for num in (None, 1, 5):
        other = replace(baseline, facts=replace(baseline.facts, backwards_per_update=num))
        assert same_global(gain(1, 1, 1), 2, other) is None


def fitted(limit_bytes=40 * GIB, *, origin="given", loaders=None, **changes):
    """A study of a command that fits, and its bench."""
    bench = ScriptedFit(**changes)
    bench.facts = replace(FACTS, optimizers=(OptimizerFacts(name="AdamW"),), loaders=loaders)
    return bench, study_of(FitSearch(bench, load_all(), limit_bytes, origin=origin).go())


def test_where_memory_is_free_the_rate_is_measured_under_the_limit_and_advice_given():
    bench, study = fitted(batch_ratio=math.log(1.4))
    told = " ".join(describe_batches(study))
    page = paint_page(fit_report(study))

    assert bench.batch_limits == [40 * GIB]
    assert [one.factor for one in study.larger_batches] == [2, 4]
    assert study.larger_batches[0].rate_gain.estimate == pytest.approx(1.4)
    assert "the rate still rises" in told
    assert "2 times the batch: 1.40x [1.40, 1.40] (n 16)" in told
    assert "square root, by 1.414." in told
    assert "its quality was not judged" in told
    assert "Larger batches" in page
    assert from_json(FitStudy, to_json(study)) == study
    assert study.fits is True
    assert study.recipe == ()


def test_a_larger_batch_that_gives_nothing_is_said_to():
    _, study = fitted(batch_ratio=0.0)

    assert describe_batches(study)[0].startswith("the batch is large enough")


def test_a_comparison_that_fails_says_why():
    ending = Ending(end=TrialEnd.OUT_OF_MEMORY, reason="out_of_memory")
    _, study = fitted(batch_ratio=0.0, batch_ending=ending)
    told = " ".join(describe_batches(study))

    assert "it cannot be told whether the rate rises" in told
    assert "not measured: it asked for more than the limit" in told


def test_the_rates_of_a_device_that_is_not_here_are_not_known():
    bench, study = fitted(origin="part")

    assert bench.batch_limits == []
    assert "that device is not here" in describe_batches(study)[0]
