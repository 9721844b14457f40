"""The lever `other_optimizer` with optimizers of other packages, where they are installed."""

from __future__ import annotations

import dataclasses
import importlib
import sys

import pytest

torch = pytest.importorskip("torch")

from steptime.levers import load  # noqa: E402
from steptime.levers.examples import CPU  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402

LEVER = load("other_optimizer")
RATE, DECAY = 0.02, 0.1


@pytest.fixture
def session():
    with PlainSession(torch) as session:
        yield session


@pytest.fixture
def put_on(session):
    """Puts a kind in the place of torch's Adam and AdamW; returns what takes it off."""
    undos = []

    def put(kind):
        undos.append(LEVER.apply({"optimizer": kind}, session))
        return lambda: take_off(undos)

    yield put
    while undos:
        take_off(undos)


def take_off(undos):
    undos.pop()()


def package(name):
    """The package; a broken one raises more than ImportError."""
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"no {name}: {error}")


class Net(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def trained(kind, *, steps=5, mode=None, groups=False, **options):
    torch.manual_seed(0)
    model, x = Net(), torch.randn(32, 6)
    y = x[:, :1] * 2 - x[:, 1:2]
    params = model.parameters()
    if groups:
        params = [{"params": list(params), "betas": (0.9, 0.95), "weight_decay": DECAY}]
    optimizer = kind(params, **{"lr": RATE, "weight_decay": DECAY, **options})
    if mode:
        mode(optimizer)
    losses = []
    for _ in range(steps):
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses, model, optimizer, x


@pytest.mark.parametrize("groups", [False, True])
def test_lion_has_a_tenth_of_the_rate_and_ten_times_the_decay(put_on, groups):
    lion = package("pytorch_optimizer").Lion
    expected, *_ = trained(lion, lr=RATE / 10, weight_decay=DECAY * 10)
    undo = put_on("lion")
    found, _, optimizer, _ = trained(torch.optim.AdamW, groups=groups, fused=None, amsgrad=False)
    undo()

    assert found == pytest.approx(expected, rel=1e-6)
    assert optimizer.param_groups[0]["lr"] == RATE
    assert torch.optim.AdamW.__module__ == "torch.optim.adamw"
    assert not isinstance(optimizer, torch.optim.AdamW)


def test_lion_in_the_place_of_adam_adds_its_decay_to_the_gradient(put_on):
    lion = package("pytorch_optimizer").Lion
    expected, *_ = trained(lion, lr=RATE / 10, weight_decay=DECAY, weight_decouple=False)
    undo = put_on("lion")
    found, *_ = trained(torch.optim.Adam)
    undo()

    assert found == pytest.approx(expected, rel=1e-6)


def test_soap_keeps_rate_decay_and_betas(put_on):
    soap = package("pytorch_optimizer").SOAP
    expected, *_ = trained(soap, betas=(0.9, 0.95))
    undo = put_on("soap")
    found, *_ = trained(torch.optim.AdamW, betas=(0.9, 0.95))
    undo()

    assert found == pytest.approx(expected, rel=1e-6)
    assert found[-1] < found[0]


def test_schedule_free_evaluates_its_average_and_trains_on(put_on):
    kind = package("schedulefree").AdamWScheduleFree
    expected, own, theirs, x = trained(kind, mode=lambda optimizer: optimizer.train())
    undo = put_on("schedule_free")
    found, model, optimizer, _ = trained(torch.optim.AdamW)
    assert found == pytest.approx(expected, rel=1e-6)

    theirs.eval()
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(model(x), own(x))
    assert not optimizer.param_groups[0]["train_mode"]
    model.train()
    theirs.train()
    for one, other in zip(model.parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(one, other)
    model.eval()
    model(x).sum().backward()  # it trains in evaluation mode
    assert optimizer.param_groups[0]["train_mode"]
    undo()


def test_schedule_free_follows_a_warm_up_and_no_fall_of_the_rate(put_on):
    kind = package("schedulefree").AdamWScheduleFree

    def scheduled(kind, rates):
        torch.manual_seed(0)
        model, x = Net(), torch.randn(8, 6)
        optimizer = kind(model.parameters(), lr=RATE)
        if hasattr(optimizer, "train"):
            optimizer.train()
        for rate in rates:
            optimizer.param_groups[0]["lr"] = rate
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return [p.detach().clone() for p in model.parameters()]

    expected = scheduled(lambda p, lr: kind(p, lr=lr, weight_decay=0.01), [0.01, 0.02, 0.02, 0.02])
    undo = put_on("schedule_free")
    found = scheduled(torch.optim.AdamW, [0.01, 0.02, 0.01, 0.0])
    undo()

    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_without_its_package_it_says_what_to_install(session, monkeypatch):
    monkeypatch.setitem(sys.modules, "schedulefree", None)
    own = torch.optim.AdamW

    with pytest.raises(ImportError, match="pip install schedulefree"):
        LEVER.apply({"optimizer": "schedule_free"}, session)
    assert torch.optim.AdamW is own


def test_what_the_scripts_python_has_is_offered():
    kinds = [one["optimizer"] for one in LEVER.space(CPU)]
    known = dataclasses.replace(CPU, has_pytorch_optimizer=True, has_schedulefree=True)
    more = [one["optimizer"] for one in LEVER.space(known)]

    assert kinds == ["muon", "adafactor"]
    assert more == [*kinds, "lion", "soap", "schedule_free"]
    old = dataclasses.replace(CPU, torch_version="2.4.0")
    assert "pip install pytorch_optimizer schedulefree torchao" in LEVER.applies(old)
