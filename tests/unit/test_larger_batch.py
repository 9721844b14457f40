"""The lever `larger_batch`: an unmodified script's loaders, and the rate that goes with them."""

from __future__ import annotations

import dataclasses
import math

import pytest

torch = pytest.importorskip("torch")

from steptime.levers import load  # noqa: E402
from steptime.levers.examples import CPU, LOADER  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402

LEVER = load("larger_batch")
DATA = torch.utils.data
ROWS, SIZE = 48, 4
X = torch.randn(ROWS, 3, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def session():
    with PlainSession(torch) as session:
        yield session


@pytest.fixture
def doubled(session):
    undo = LEVER.apply({"times": 2}, session)
    yield session
    undo()


def loader(*, size=SIZE, shuffle=True, data=X, **options):
    return DATA.DataLoader(DATA.TensorDataset(data), batch_size=size, shuffle=shuffle, **options)


def train(*, size=SIZE, rate=0.1, kind=torch.optim.SGD, epochs=2):
    torch.manual_seed(1)
    model, batches = torch.nn.Linear(3, 1), loader(size=size)
    optimizer = kind(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=epochs * len(batches))
    losses = []
    for _ in range(epochs):
        for (x,) in batches:
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(float(loss.detach()))
    return losses, optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize("times", [2, 4])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_it_trains_as_a_script_that_asks_for_it_itself(session, kind, times):
    factor = times if kind is torch.optim.SGD else math.sqrt(times)
    expected, _ = train(size=times * SIZE, rate=0.1 * factor, kind=kind)
    own = train(kind=kind)

    undo = LEVER.apply({"times": times}, session)
    found, rate = train(kind=kind)
    undo()

    assert found == pytest.approx(expected, rel=1e-5)
    assert len(found) == len(own[0]) / times
    assert rate == pytest.approx(0.1)  # the script's own
    assert train(kind=kind) == own


def sizes(batches):
    return [len(x) for (x,) in batches]


def test_a_loader_that_shuffles_has_its_new_length_at_once(doubled):
    batches = loader()

    assert (len(batches), batches.batch_size) == (6, 8)
    assert sizes(batches) == [8] * 6


def test_a_loader_in_order_is_changed_where_it_trains_and_not_where_it_evaluates(doubled):
    training, evaluation = loader(shuffle=False), loader(shuffle=False)
    with torch.no_grad():
        assert sizes(evaluation) == [4] * 12
    assert sizes(training) == [8] * 6
    assert torch.equal(torch.cat([x for (x,) in training]), X)


def test_what_an_epoch_has_no_samples_for_and_what_torch_does_not_batch_stay(doubled):
    assert sizes(loader(size=40)) == [40, 8]
    assert len(DATA.DataLoader(X, batch_size=None)) == ROWS
    own = [[0, 1], [2]]
    assert len(DATA.DataLoader(X, batch_sampler=own)) == 2
    assert not doubled.counts["changed"]


def test_without_a_changed_loader_the_rate_stays(doubled):
    weight = torch.nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    torch.optim.SGD([weight], lr=0.25).step()

    assert float(weight.detach()) == 0.75


def test_a_loader_made_of_the_batches_of_another_is_changed_once(doubled):
    first = loader()
    second = DATA.DataLoader(first.dataset, batch_sampler=first.batch_sampler)

    assert sizes(second) == [8] * 6


class Stream(DATA.IterableDataset):
    def __iter__(self):
        return iter(X)


def test_a_stream_has_larger_batches(doubled):
    assert [len(x) for x in DATA.DataLoader(Stream(), batch_size=SIZE)] == [8] * 6


def test_workers_that_are_kept_hand_out_larger_batches(doubled):
    batches = loader(shuffle=False, num_workers=1, persistent_workers=True)

    assert [sizes(batches) for _ in range(2)] == [[8] * 6] * 2
    del batches


def reason(**changes):
    return LEVER.applies(dataclasses.replace(CPU, **changes))


def test_it_helps_hurts_or_does_not_apply():
    few = dataclasses.replace(LOADER, batch_size=8, num_samples=8 * 8 * 2)

    assert LEVER.space(dataclasses.replace(CPU, loaders=(LOADER,))) == ({"times": 2}, {"times": 4})
    assert LEVER.space(dataclasses.replace(CPU, loaders=(few,))) == ({"times": 2},)
    assert "fewer than 8 steps" in reason(loaders=(few,), world_size=2)
    assert "No DataLoader" in reason(loaders=())
    assert "own batch sampler" in reason(loaders=(dataclasses.replace(LOADER, batch_size=None),))
