"""`activation_checkpointing`: the same bits with less kept, and what it leaves as it is."""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager

import pytest

torch = pytest.importorskip("torch")

from steptime.levers import load  # noqa: E402
from steptime.levers.base import Facts  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402

LEVER = load("activation_checkpointing")
ALL, HALF = {"every": 1}, {"every": 2}
nn = torch.nn


class Block(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.one, self.two = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.num_calls = 0

    def forward(self, x, scale=1.0):
        self.num_calls += 1
        return x + scale * self.two(nn.functional.dropout(self.one(x).tanh(), 0.2, self.training))


class Model(nn.Module):
    block_class = Block

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(self.block_class() for _ in range(4))
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x, scale=0.5)
        return self.head(x)


class Counting(Block):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x, scale=1.0):
        self.seen += 1
        return super().forward(x, scale)


class CountingModel(Model):
    block_class = Counting


class AddingModel(Model):
    def forward(self, x):
        x = x.clone()
        for block in self.blocks:
            x += block(x, scale=0.5).detach()
        return self.head(x)


@pytest.fixture
def session():
    with PlainSession(torch) as session:
        yield session


@contextmanager
def kept():
    """Counts the bytes that autograd keeps for the backward pass, except what checkpoints keep."""
    sizes = []

    def pack(tensor):
        sizes.append(tensor.numel() * tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield sizes


def train(cls=Model, *, steps=4, around=None):
    """Losses, weights and the model after some steps."""
    torch.manual_seed(0)
    model = cls()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, losses = torch.randn(8, 16), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach().clone() for p in model.parameters()], model


def assert_same(found, expected):
    assert found[0] == expected[0]
    assert all(map(torch.equal, found[1], expected[1]))


@pytest.mark.parametrize("settings", [ALL, HALF], ids=["all", "every second"])
def test_each_bit_stays_with_dropout_too(session, settings):
    expected = train()
    LEVER.apply(settings, session)

    assert_same(train(), expected)


def test_blocks_are_computed_again_from_the_first_call_on(session):
    LEVER.apply(HALF, session)
    _, _, model = train(steps=4)

    assert [block.num_calls for block in model.blocks] == [8, 4, 8, 4]


def test_less_is_kept_for_the_backward_pass(session):
    torch.manual_seed(0)
    model, x = Model(), torch.randn(64, 16)
    with kept() as before:
        model(x)
    LEVER.apply(ALL, session)
    model(x)
    with kept() as after:
        model(x)

    assert sum(after) < 0.2 * sum(before)


@pytest.mark.parametrize("cls", [CountingModel, AddingModel])
def test_blocks_that_change_buffers_or_whose_inputs_change_are_left_alone(session, cls):
    expected = train(cls)
    LEVER.apply(ALL, session)
    found = train(cls)

    assert_same(found, expected)
    assert [block.num_calls for block in found[2].blocks] == [5] * 4  # the first call twice
    assert all(map(torch.equal, found[2].buffers(), expected[2].buffers()))


class Scaled(Model):
    def forward(self, x, scale):
        for block in self.blocks:
            x = block(x, scale=scale)
        return self.head(x)


@pytest.mark.parametrize("which", [0, 1], ids=["by position", "by name"])
def test_an_input_that_changes_later_on_is_an_error_and_no_wrong_gradient(session, which):
    torch.manual_seed(0)
    model, inputs = Scaled(), (torch.randn(8, 16), torch.randn(8, 16))
    LEVER.apply(ALL, session)
    model(*inputs)
    loss = model(*inputs).sum()
    inputs[which].add_(1)

    with pytest.raises(RuntimeError, match=r"modified by an inplace|input of a block"):
        loss.backward()


def test_blocks_with_hooks_of_the_scripts_are_left_alone(session):
    model = Model()
    seen = []
    model.blocks[0].one.register_forward_hook(lambda *_: seen.append(1))
    LEVER.apply(ALL, session)
    for _ in range(3):
        model(torch.randn(8, 16)).sum().backward()

    assert len(seen) == 3
    assert [block.num_calls for block in model.blocks] == [3, 6, 6, 6]


def test_nothing_is_left_on_the_model(session, tmp_path):
    undo = LEVER.apply(ALL, session)
    _, _, model = train()
    torch.save(model, tmp_path / "model.pt")
    undo()

    assert b"steptime" not in (tmp_path / "model.pt").read_bytes()
    assert all("_compiled_call_impl" not in vars(block) for block in model.blocks)
    before = model.blocks[0].num_calls
    model(torch.randn(8, 16)).sum().backward()
    assert model.blocks[0].num_calls == before + 1


def test_a_model_that_repeats_nothing_and_one_in_evaluation_are_left_alone(session):
    LEVER.apply(ALL, session)
    nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))(torch.ones(2, 4)).sum().backward()
    model = Model().eval()
    for _ in range(3):
        model(torch.randn(8, 16)).sum().backward()

    assert model.blocks[0].num_calls == 3


# -- where it applies

SHORT = Facts(torch_version="2.9", num_repeated_blocks=12, memory_fraction=0.93)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"memory_fraction": 0.4}, "holds 40%"),
        ({"num_repeated_blocks": 2}, "repeat a block"),
        ({"has_batch_statistics": True}, "batch norms"),
        ({"uses_compile": True}, "compiles"),
    ],
)
def test_it_says_why_it_is_not_offered(change, words):
    assert LEVER.applies(SHORT) is None
    assert words in LEVER.applies(dataclasses.replace(SHORT, **change))
