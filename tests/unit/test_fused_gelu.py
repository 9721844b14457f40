"""The lever fused_gelu: which modules it computes fused, what it leaves alone, and undoing."""

import math
import random

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from steptime.guest.trial.lever_facts import FactsBook  # noqa: E402
from steptime.levers import load  # noqa: E402
from steptime.levers.base import Facts  # noqa: E402
from steptime.levers.kernels.gelu_classes import find_written  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402
from unit.lever_switch import switching  # noqa: E402

LEVER = load("fused_gelu")
SQRT_2_PI = math.sqrt(2.0 / math.pi)
SEEN = []


class NewGELU(nn.Module):
    """As minGPT, nanoGPT and transformers write it."""

    def forward(self, x):
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
        return 0.5 * x * (1.0 + torch.tanh(inner))


class FastGELU(nn.Module):
    """As transformers' FastGELUActivation."""

    def forward(self, input):  # noqa: A002
        inner = input * 0.7978845608 * (1.0 + 0.044715 * input * input)
        return 0.5 * input * (1.0 + torch.tanh(inner))


class ErfGELU(nn.Module):
    def forward(self, x):
        return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


class OfState(nn.Module):
    def __init__(self, factor=SQRT_2_PI):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        cubed = x + 0.044715 * x**3
        return x.mul(0.5) * (1 + (self.factor * cubed).tanh())


def gelu(x):
    return 0.5 * x * (1 + F.tanh(SQRT_2_PI * (x + 0.044715 * x.pow(3))))


class OfFunction(nn.Module):
    def forward(self, x):
        return gelu(x)


class OfMethod(nn.Module):
    @staticmethod
    def inner(x):
        return torch.special.erf(x * 2**-0.5)

    def forward(self, x):
        half = x / 2
        return half + half * self.inner(x)


class InFloat(nn.Module):
    def forward(self, x):
        return gelu(x.float()).to(x.dtype)


class Inherits(NewGELU):
    pass


WRITTEN = [
    *((one, "tanh") for one in (NewGELU, FastGELU, OfState, OfFunction, InFloat, Inherits)),
    *((one, "none") for one in (ErfGELU, OfMethod)),
]


class Swish(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)


class QuickGELU(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class Tanh(nn.Module):
    def forward(self, x):
        return 0.5 * 2.0 * torch.tanh(x * 1.0)


class ReLU(nn.Module):
    def forward(self, x):
        return 0.5 * (x + x.abs()) * 1.0


class Scaled(nn.Module):
    def forward(self, x):
        return 1.7 * gelu(x)


class Clipped(nn.Module):
    def forward(self, x):
        return gelu(x).clip(-10, 7.5)


class Drops(nn.Module):
    def forward(self, x):
        return F.dropout(gelu(x), 0.1)


class DropsInTraining(nn.Module):
    def forward(self, x):
        return F.dropout(gelu(x), 0.1, self.training)


class DropsByModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.0)

    def forward(self, x):
        return self.drop(gelu(x))


class Draws(nn.Module):
    def forward(self, x):
        return gelu(x) + 0.0 * torch.rand(1)


class DrawsInPython(nn.Module):
    def forward(self, x):
        return gelu(x) + 0.0 * random.random()


class Learned(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.factor * gelu(x)


class Buffered(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("one", torch.ones(1))

    def forward(self, x):
        return self.one * gelu(x)


class Holds(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = torch.ones(1)

    def forward(self, x):
        return self.one * gelu(x)


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.number = 0

    def forward(self, x):
        self.number += 1
        return gelu(x)


class Tells(nn.Module):
    def forward(self, x):
        SEEN.append(x.shape)
        return gelu(x)


class Branches(nn.Module):
    def forward(self, x):
        return gelu(x) if x.dim() < 4 else x.relu()


class Gates(nn.Module):
    def forward(self, x):
        return gelu(x) * (x.abs().max() / 8)


class Cuts(nn.Module):
    def forward(self, x):
        return gelu(x.detach())


class Widens(nn.Module):
    def forward(self, x):
        return gelu(x.float())


class InPlace(nn.Module):
    def forward(self, x):
        return x.mul_(0.5 * (1 + torch.tanh(SQRT_2_PI * (x + 0.044715 * x**3))))


class Called(NewGELU):
    def __call__(self, x):
        return super().__call__(x + 1)


class Fused(nn.Module):
    def forward(self, x):
        return 1.0 * (F.gelu(x * 1.0, approximate="tanh") * 1.0)


class Pair(nn.Module):
    def forward(self, x, y):
        return gelu(x) * y


class Several(nn.Module):
    def forward(self, x):
        return gelu(x), x


def with_hook():
    module = type("Hooked", (NewGELU,), {})()
    module.register_forward_hook(lambda *args: None)
    return module


def of_its_own():
    module = type("Own", (NewGELU,), {})()
    module.forward = lambda x: gelu(x) + 1
    return module


LEFT = [Swish, QuickGELU, Tanh, ReLU, Scaled, Clipped, Drops, DropsInTraining, DropsByModule]
LEFT += [Draws, DrawsInPython, Learned, Buffered, Holds, Counts, Tells, Branches, Gates, Cuts]
LEFT += [Widens, InPlace, Called, Fused, Pair, Several, with_hook, of_its_own, nn.GELU, nn.Tanh]
LEFT += [lambda: OfState(0.8)]


@pytest.fixture
def put_on():
    """Puts the lever on; what the test leaves on is taken off behind it."""
    with PlainSession(torch) as session, switching(LEVER, session) as apply:
        yield apply


@pytest.fixture
def forms(monkeypatch):
    """The forms of GELU that were computed fused, apart from those that are tried."""
    seen, original = [], F.gelu

    def spy(x, **options):
        if x.dim() == 2:
            seen.append(options.get("approximate"))
        return original(x, **options)

    monkeypatch.setattr(F, "gelu", spy)
    return seen


class Training:
    def __init__(self, module):
        torch.manual_seed(1)
        self.module = module
        self.model = nn.Sequential(nn.Linear(8, 32), module, nn.Linear(32, 4))
        self.inputs = 3 * torch.randn(16, 8)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)

    def steps(self, number):
        losses = []
        for _ in range(number):
            self.optimizer.zero_grad()
            loss = self.model(self.inputs).square().mean()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        return losses


def new(owner):
    """An instance of a class of its own: what is known of a class stays known."""
    return type(owner.__name__, (owner,), {"forward": owner.forward})()


@pytest.mark.parametrize(("owner", "form"), WRITTEN)
def test_each_way_to_write_it_is_fused_and_trains_alike(put_on, forms, owner, form):
    expected = Training(new(owner)).steps(6)
    training = Training(new(owner))
    undo = put_on()
    losses = training.steps(4)
    undo()

    assert forms == 4 * [form]
    assert losses + training.steps(2) == pytest.approx(expected, rel=1e-5)
    assert len(forms) == 4


@pytest.mark.parametrize("make", LEFT)
def test_what_only_looks_like_it_is_left_alone(make):
    module = make()
    model = nn.Sequential(nn.Linear(2, 2), module)
    names, state = set(vars(module)), torch.get_rng_state()

    assert find_written(torch, [model]) == {}
    assert set(vars(module)) == names
    assert getattr(module, "number", 0) == len(SEEN) == 0
    assert torch.equal(state, torch.get_rng_state())


def test_one_instance_that_is_another_function_keeps_the_class_as_it_is():
    owner = type("OfState", (OfState,), {})

    assert find_written(torch, [nn.Sequential(owner(), owner(0.8))]) == {}
    assert list(find_written(torch, [nn.Sequential(owner())])) == [owner]


def test_an_attribute_that_changes_later_is_heeded(put_on, forms):
    module = new(OfState)
    training = Training(module)
    put_on()
    training.steps(1)
    module.factor = 0.5
    x = torch.randn(3, 5)

    assert torch.equal(module(x), OfState(0.5)(x))
    assert forms == ["tanh"]


@pytest.mark.parametrize(("owner", "form"), WRITTEN)
def test_values_and_gradients_are_close(put_on, owner, form):
    module = new(owner)
    written = owner.forward
    training = Training(module)
    put_on()
    training.steps(1)
    torch.manual_seed(2)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x = (4 * torch.randn(64, 7)).to(dtype)
        one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
        ours, theirs = module(one), written(module, other)
        ours.sum().backward()
        theirs.sum().backward()
        roundoff = max(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps)
        allowed = 8 * roundoff * x.abs().clamp(min=1)
        assert ours.dtype is theirs.dtype is dtype
        assert ((ours - theirs).abs() <= allowed).all()
        assert ((one.grad - other.grad).abs() <= allowed).all()


def test_under_autocast_it_computes_in_what_it_is_given(put_on, forms):
    training = Training(new(NewGELU))
    put_on()
    kinds = []
    training.model[2].register_forward_pre_hook(lambda _, args: kinds.append(args[0].dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = training.steps(1)

    assert kinds == [torch.bfloat16]
    assert forms == ["tanh"]
    assert losses == pytest.approx(Training(NewGELU()).steps(1), rel=0.01)


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_other_calls_are_computed_as_they_are_written(put_on, forms):
    training = Training(new(NewGELU))
    put_on()
    training.steps(1)
    x = torch.randn(2, 3)

    assert torch.equal(training.module(x=x), NewGELU()(x))
    assert torch.equal(training.module(x.to(torch.complex64)), NewGELU()(x.to(torch.complex64)))
    torch.jit.trace(training.module, x, check_trace=False)
    assert forms == ["tanh"]


def test_under_a_checkpoint_the_gradients_are_the_same(put_on):
    checkpoint = torch.utils.checkpoint.checkpoint
    training = Training(new(NewGELU))
    expected = training.model(training.inputs).sum()
    put_on()
    training.model(training.inputs)
    found = checkpoint(training.model, training.inputs, use_reentrant=False).sum()
    gradients = [torch.autograd.grad(one, training.model[0].weight)[0] for one in (expected, found)]

    assert torch.allclose(*gradients, rtol=1e-4, atol=1e-5)


def test_nothing_is_left_at_the_class_or_the_module(put_on):
    owner = type("Inherits", (NewGELU,), {})
    training = Training(owner())
    names = set(vars(training.module))
    undo = put_on()
    training.steps(1)
    assert "forward" in vars(owner)
    assert set(vars(training.module)) == names
    undo()

    assert "forward" not in vars(owner)
    assert owner.forward is NewGELU.forward


def test_a_forward_that_the_script_replaced_meanwhile_stays(put_on, forms):
    owner = type("Changed", (NewGELU,), {})
    training = Training(owner())
    undo = put_on()
    training.steps(1)
    owner.forward = Swish.forward
    training.steps(1)
    undo()

    assert owner.forward is Swish.forward
    put_on()
    training.steps(1)
    assert owner.forward is Swish.forward
    assert forms == ["tanh"]


def test_a_subclass_that_computes_something_else_is_not_its_parent(put_on, forms):
    parent = type("Parent", (OfMethod,), {"forward": OfMethod.forward})
    child = type("Child", (parent,), {"inner": staticmethod(torch.sin)})
    training = Training(parent())
    put_on()
    training.steps(1)
    x = torch.randn(3, 5)

    assert torch.equal(child()(x), x / 2 + x / 2 * torch.sin(x))
    assert forms == ["none"]
    assert find_written(torch, [nn.Sequential(child())]) == {}


def test_a_trial_tells_the_classes_and_changes_nothing():
    class Stack:
        owners = ()
        is_acting = False

    failures = []
    models = [nn.Sequential(NewGELU(), Swish(), nn.Linear(2, 2))]
    book = FactsBook(torch, Stack(), failures.append, is_probing=True)

    assert book.describe(models, [])["written_gelus"] == ["NewGELU tanh"]
    assert failures == []
    book.is_probing = False
    assert "written_gelus" not in book.describe(models, [])


REASONS = [
    ({}, None),
    ({"written_gelus": ("NewGELU tanh",)}, None),
    ({"written_gelus": ()}, "No module that writes GELU out in single operators was seen."),
    (
        {"uses_compile": True},
        "The script compiles its model, and the compiler fuses what is written out.",
    ),
    ({"device": "cuda"}, "It has not been tested on cuda."),
]


@pytest.mark.parametrize(("known", "reason"), REASONS)
def test_it_says_where_it_does_not_apply(known, reason):
    assert LEVER.applies(Facts(torch_version="2.9.0", **known)) == reason
