"""A model whose own methods fail or whose class cannot be hashed trains as it does without us."""

import gc
from dataclasses import dataclass

import pytest

from steptime.guest.hooks.module_tree import modules_of, parameters_of
from steptime.levers.tools.forked_copy import do_apart

torch = pytest.importorskip("torch")

from steptime.guest.bootstrap import enter, finish  # noqa: E402
from steptime.guest.modes.mode import GuestMode  # noqa: E402


def net(base=torch.nn.Module, **own):
    """A class of models with methods of its own."""

    def begin(self):
        torch.nn.Module.__init__(self)
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x)

    return type("Net", (base,), {"__init__": begin, "forward": forward, **own})


def refuse(*_):
    raise KeyError("not for you")


def half_way(self, *_, **__):
    yield "", self
    raise GeneratorExit("no more")


def without_some(self, name):
    if name in ("named_modules", "named_parameters", "parameters", "modules", "children"):
        raise AttributeError(name)
    return object.__getattribute__(self, name)


def dataclass_net():
    made = dataclass(net())
    assert made.__hash__ is None
    return made


MODELS = {
    "dataclass": dataclass_net,
    "equal": lambda: net(__eq__=lambda self, other: True),
    "equal that raises": lambda: net(__eq__=refuse),
    "named_modules": lambda: net(named_modules=refuse, parameters=refuse, modules=refuse),
    "half way": lambda: net(named_modules=half_way),
    "no attributes": lambda: net(__getattribute__=without_some),
    "no truth": lambda: net(__bool__=refuse, __len__=refuse),
}


def losses_of(make, folder):
    """The losses of thirty updates, counted and looked at where there is a folder to write into."""

    def train() -> dict:
        gc.freeze()
        torch.manual_seed(0)
        torch.set_num_threads(1)
        context = None if folder is None else enter(torch, str(folder), GuestMode(), {})
        model = make()()
        weights = [*model.layer.parameters()]
        optimizer = torch.optim.SGD(weights, lr=0.1)
        found = []
        for _ in range(30):
            loss = model(torch.ones(3, 4)).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            found.append(loss.item())
        if context is None:
            return {"losses": found, "failures": {}}
        finish(context, lambda: None)
        return {"losses": found, "failures": context.recorder.failures}

    return do_apart(train, limit_s=60)


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_an_odd_model_trains_as_without_us(make, tmp_path):
    bare, seen = losses_of(make, None), losses_of(make, tmp_path)
    assert "losses" in bare, bare
    assert seen == bare


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_tree_is_that_of_torch():
    inner = torch.nn.Linear(2, 2)
    model = torch.nn.Sequential(inner, torch.nn.Sequential(inner, torch.nn.Linear(2, 1)))
    model[1][1].weight = inner.weight  # shared
    assert list(modules_of(model)) == list(model.named_modules())
    assert list(parameters_of(model)) == list(model.named_parameters())
    scripted = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(2, 2)))
    assert [name for name, _ in parameters_of(scripted)] == ["0.weight", "0.bias"]
