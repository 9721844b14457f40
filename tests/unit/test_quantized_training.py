"""The lever `quantized_training`: which layers it hands to torchao, and where it is offered.

torchao itself is a stand-in here, with its names, unless it is installed.
"""

from __future__ import annotations

import dataclasses
import sys
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from steptime.levers import load  # noqa: E402
from steptime.levers.examples import CPU  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402

LEVER = load("quantized_training")
HOPPER = dataclasses.replace(
    CPU, device="cuda", capabilities=("sm_90",), has_torchao=True, uses_autocast=True, world_size=1
)
nn = torch.nn


class Rounded(nn.Linear):
    """A layer whose weight is rounded in its product."""

    def forward(self, x):
        return nn.functional.linear(x, self.weight.half().float(), self.bias)


def as_rounded(layer):
    made = Rounded(layer.in_features, layer.out_features, device="meta")
    made.weight, made.bias = layer.weight, layer.bias
    return made


@pytest.fixture
def torchao(monkeypatch):
    """The names of torchao that the lever uses, with another rounding."""
    names = ("torchao", "torchao.float8", "torchao.quantization", "torchao.prototype")
    made = {one: ModuleType(one) for one in (*names, "torchao.prototype.quantized_training")}

    def convert_to_float8_training(module, *, module_filter_fn=None, config=None):
        assert config.pad_inner_dim
        for name, one in list(module.named_modules()):
            if isinstance(one, nn.Linear) and module_filter_fn(one, name):
                owner, _, last = name.rpartition(".")
                setattr(module.get_submodule(owner), last, as_rounded(one))
        return module

    def quantize_(model, config, filter_fn=None):
        assert config.module_swap
        for name, one in model.named_modules():
            if filter_fn(one, name):
                one.__class__ = Rounded

    made["torchao.float8"].Float8LinearConfig = SimpleNamespace
    made["torchao.float8"].convert_to_float8_training = convert_to_float8_training
    made["torchao.quantization"].quantize_ = quantize_
    scheme = SimpleNamespace
    made["torchao.prototype.quantized_training"].Int8MixedPrecisionTrainingConfig = scheme
    for name, one in made.items():
        monkeypatch.setitem(sys.modules, name, one)


def model_of(head=16):
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 24))
    return nn.Sequential(inner, nn.Linear(24, 32), nn.LayerNorm(32), nn.Linear(32, head))


def train(model, *, steps=4):
    chance = torch.Generator().manual_seed(0)
    x, y = torch.randn(24, 32, generator=chance), torch.randint(16, (24,), generator=chance)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("kind", ["float8", "int8"])
def test_layers_of_fitting_sides_are_rounded_on_the_same_parameters(torchao, kind):
    plain = train(model_of())
    model = model_of()
    parameters, names = list(model.parameters()), list(model.state_dict())
    with PlainSession(torch) as session:
        LEVER.apply({"products": kind}, session)
        losses = train(model)

    layers = [type(one).__name__ for one in model.modules() if isinstance(one, nn.Linear)]
    # 24 is no multiple of 16, and the last layer makes the logits.
    assert layers == ["Rounded", "Linear", "Linear", "Linear"]
    assert session.counts == {"quantized_layer": 1}
    assert all(one is other for one, other in zip(parameters, model.parameters(), strict=True))
    assert list(model.state_dict()) == names
    assert losses != plain
    assert losses == pytest.approx(plain, rel=1e-2)


def test_layers_with_hooks_or_of_their_own_class_stay(torchao):
    class Own(nn.Linear):
        pass

    model = nn.Sequential(nn.Linear(32, 32), Own(32, 32), nn.Linear(32, 16))
    model[0].register_forward_hook(lambda module, args, out: None)
    with PlainSession(torch) as session:
        LEVER.apply({"products": "int8"}, session)
        train(model, steps=1)

    assert [type(one) for one in model] == [nn.Linear, Own, nn.Linear]
    assert session.counts == {"left_alone": 1}


@pytest.mark.skipif(find_spec("torchao") is None, reason="needs torchao")
def test_torchaos_own_int8_layers_train_as_well():
    plain, model = train(model_of()), model_of()
    with PlainSession(torch) as session:
        LEVER.apply({"products": "int8"}, session)
        losses = train(model)

    assert type(model[0][0]).__name__ == "Int8MixedPrecisionTrainingLinear"
    assert losses != plain
    assert losses == pytest.approx(plain, rel=1e-2)


def test_without_torchao_it_says_what_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchao", None)
    for name in ("torchao.float8", "torchao.quantization"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with PlainSession(torch) as session:
        for kind in ("float8", "int8"):
            with pytest.raises(ModuleNotFoundError, match=r"pip install torchao.* 8\.9 or later"):
                LEVER.apply({"products": kind}, session)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"has_torchao": False}, "pip install torchao"),
        ({"has_torchao": None}, "not observed"),
        ({"capabilities": None}, "not observed"),
        ({"device": "cpu", "capabilities": ("amx_bf16",)}, "CUDA device"),
        ({"capabilities": ("sm_75",)}, "8.9 or later for float8"),
        ({"world_size": 2}, "several ranks"),
        ({"uses_autocast": False, "parameter_dtypes": ("float32",)}, "float32"),
    ],
)
def test_it_says_why_it_is_not_offered(change, words):
    assert LEVER.applies(HOPPER) is None
    assert words in LEVER.applies(dataclasses.replace(HOPPER, **change))


def test_kinds_are_those_that_the_device_has():
    def kinds(word):
        facts = dataclasses.replace(HOPPER, capabilities=(word,))
        return [one["products"] for one in LEVER.space(facts)]

    assert kinds("sm_90") == ["float8", "int8"]
    assert kinds("sm_86") == ["int8"]
    assert kinds("sm_70") == []
