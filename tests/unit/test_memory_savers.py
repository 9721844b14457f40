"""`no_foreach`, `offload_activations` and `low_memory_states`: what they do, keep and refuse."""

from __future__ import annotations

import dataclasses
from importlib import import_module

import pytest

torch = pytest.importorskip("torch")

from steptime.levers import load  # noqa: E402
from steptime.levers.base import OptimizerFacts, Preserves  # noqa: E402
from steptime.levers.examples import SHORT  # noqa: E402
from steptime.levers.memory.offload_activations import MIN_BYTES, Offloader  # noqa: E402
from steptime.levers.optimizers.low_memory_states import make_factored  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402
from unit.allocated import allocated  # noqa: E402

NO_FOREACH, OFFLOAD = load("no_foreach"), load("offload_activations")
STATES = load("low_memory_states")
CUDA = dataclasses.replace(SHORT, device="cuda", held_bytes={"activations": 4 << 30})
nn = torch.nn


@pytest.fixture
def session():
    with PlainSession(torch) as session:
        yield session


# -- no_foreach


def train(optimizer_class=None, *, steps=4, **options):
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(128, 128) for _ in range(12)))
    optimizer = (optimizer_class or torch.optim.AdamW)(model.parameters(), lr=1e-3, **options)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 128)).square().mean().backward()
        peak = allocated(optimizer.step).peak
    return [p.detach().clone() for p in model.parameters()], peak, optimizer


def test_without_foreach_temporary_results_are_those_of_one_weight(session):
    weights, before, _ = train(foreach=True)
    size = sum(p.numel() * 4 for p in weights)
    undo = NO_FOREACH.apply({}, session)
    found, after, optimizer = train(foreach=True)

    assert all(map(torch.equal, found, weights))
    assert before > 0.9 * size
    assert after < 0.3 * size
    assert [group["foreach"] for group in optimizer.param_groups] == [False]
    undo()
    assert [group["foreach"] for group in optimizer.param_groups] == [True]


def test_a_fused_optimizer_is_left_alone(session):
    NO_FOREACH.apply({}, session)
    _, _, optimizer = train(fused=True)

    assert optimizer.param_groups[0]["foreach"] is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"optimizers": None}, "not observed"),
        ({"optimizers": (OptimizerFacts(name="AdamW"),)}, "by foreach"),
        ({"peak_phase": "backward"}, "in backward"),
        ({"memory_fraction": 0.2}, "holds 20%"),
    ],
    ids=str,
)
def test_foreach_stays_and_the_reason_is_said(change, words):
    assert NO_FOREACH.applies(SHORT) is None
    assert NO_FOREACH.frees(SHORT, {}) == 500 << 20
    assert words in NO_FOREACH.applies(dataclasses.replace(SHORT, **change))


def test_foreach_is_the_default_on_a_device():
    facts = dataclasses.replace(SHORT, optimizers=(OptimizerFacts(name="AdamW"),))

    assert NO_FOREACH.applies(dataclasses.replace(facts, device="cuda")) is None
    assert NO_FOREACH.frees(dataclasses.replace(facts, peak_phase="backward"), {}) == 0


# -- offload_activations


def gradients(model, x, run):
    model.zero_grad()
    run(model, x).square().mean().backward()
    return [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_what_is_moved_comes_back_with_its_bits_and_strides(layout):
    model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.Sigmoid(), nn.Conv2d(8, 4, 3))
    model, x = model.to(memory_format=layout), torch.randn(8, 8, 96, 96).to(memory_format=layout)
    offloader = Offloader(torch, device_type="cpu")
    expected = gradients(model, x, lambda model, x: model(x))
    found = gradients(
        model, x, lambda model, x: offloader.run(type(model).__call__, model, (x,), {})
    )

    assert all(map(torch.equal, found, expected))
    assert offloader.num_moved == 3


def test_weights_small_tensors_and_overlapping_ones_stay():
    weight = nn.Linear(1024, 1024, bias=False)
    offloader = Offloader(torch, device_type="cpu")
    assert weight.weight.nbytes > MIN_BYTES
    offloader.run(type(weight).__call__, weight, (torch.randn(4, 1024, requires_grad=True),), {})
    wide = torch.randn(1, 1024, requires_grad=True).expand(1024, 1024)
    offloader.run(lambda model, x: x * x, weight, (wide,), {})

    assert offloader.num_moved == 0


def test_nothing_is_kept_alive_by_what_stays():
    offloader, model = (
        Offloader(torch, device_type="cpu"),
        nn.Sequential(nn.Linear(4, 4), nn.Tanh()),
    )

    def step():
        offloader.run(type(model).__call__, model, (torch.randn(256, 4),), {})

    step()
    assert allocated(step).held == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"device": "cpu"}, "no CUDA device"),
        ({"uses_compile": True}, "compiles"),
        ({"available_bytes": 1 << 30, "peak_bytes": {"activations": 4 << 30}}, "no room"),
        ({"memory_fraction": 0.2}, "holds 20%"),
    ],
    ids=str,
)
def test_nothing_is_moved_and_the_reason_is_said(change, words):
    assert OFFLOAD.applies(CUDA) is None
    assert words in OFFLOAD.applies(dataclasses.replace(CUDA, **change))


def test_it_frees_the_activations_at_most():
    assert OFFLOAD.frees(dataclasses.replace(CUDA, peak_bytes=None), {}) == 4 << 30
    assert OFFLOAD.frees(dataclasses.replace(CUDA, peak_bytes=None, held_bytes=None), {}) is None


# -- low_memory_states


def test_states_change_the_training_and_say_what_they_free():
    held = SHORT.held_bytes["optimizer"]
    frees = {one["states"]: STATES.frees(SHORT, one) / held for one in STATES.space(SHORT)}

    assert STATES.preserves is Preserves.NOTHING
    assert list(frees) == ["8bit", "4bit", "adafactor"]
    assert frees == pytest.approx({"8bit": 0.75, "4bit": 0.87, "adafactor": 1.0}, abs=0.01)


def test_adafactor_takes_the_place_of_adam_with_the_scripts_rates():
    found, _, optimizer = train(make_factored(torch.optim, "AdamW"), betas=(0.9, 0.95), fused=None)
    states = [v for state in optimizer.state.values() for v in state.values()]

    assert isinstance(optimizer, torch.optim.Adafactor)
    assert optimizer.param_groups[0]["lr"] == 1e-3
    assert optimizer.param_groups[0]["weight_decay"] == 0.01
    assert sum(one.nbytes for one in states) < 0.05 * sum(one.nbytes for one in found)


def test_both_classes_are_replaced_where_scripts_find_them(session, monkeypatch):
    adam, adamw = (import_module(f"torch.optim.{name}") for name in ("adam", "adamw"))
    for owner, name in ((torch.optim, "Adam"), (torch.optim, "AdamW"), (adam, "Adam")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    monkeypatch.setattr(adamw, "AdamW", adamw.AdamW)
    STATES.apply({"states": "adafactor"}, session)

    assert issubclass(torch.optim.Adam, torch.optim.Adafactor)
    assert adamw.AdamW is torch.optim.AdamW
    assert torch.optim.AdamW.__module__ == "torch.optim.adamw"


@pytest.mark.slow("torchao compiles its update, half a minute on one core")
def test_torchaos_states_are_as_small_as_is_said():
    optim = pytest.importorskip("torchao.optim")
    from steptime.levers.optimizers.low_memory_states import make_quantized

    weight = nn.Parameter(torch.randn(256, 256))
    optimizer = make_quantized("AdamW", "8bit")([weight], lr=1e-3)
    weight.grad = torch.randn(256, 256)
    held = allocated(optimizer.step).held

    assert isinstance(optimizer, optim.AdamW8bit)
    assert held <= 2.1 * weight.numel() + 4096


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"optimizers": None}, "not observed"),
        ({"optimizers": (OptimizerFacts(name="SGD"),)}, "other optimizers"),
        ({"world_size": 2}, "Several ranks"),
        ({"has_torchao": False, "torch_version": "2.4.1"}, "no torchao"),
        ({"memory_fraction": 0.2}, "holds 20%"),
    ],
    ids=str,
)
def test_states_stay_and_the_reason_is_said(change, words):
    assert STATES.applies(SHORT) is None
    assert words in STATES.applies(dataclasses.replace(SHORT, **change))
