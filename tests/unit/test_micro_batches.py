"""`micro_batches`: the whole batch's outputs and gradients from parts, or the call as it was."""

from __future__ import annotations

import dataclasses

import pytest

torch = pytest.importorskip("torch")

from steptime.levers import load  # noqa: E402
from steptime.levers.base import Facts  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402

LEVER = load("micro_batches")
FOUR = {"parts": 4}
AGAIN = {"parts": 4, "recompute": True}
nn = torch.nn


@pytest.fixture
def session():
    with PlainSession(torch) as session:
        yield session


class Probe(nn.Module):
    """Notes the batches that reach it."""

    def __init__(self):
        super().__init__()
        self.sizes = []
        self.layers = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 3))

    def forward(self, x, mask=None):
        self.sizes.append(len(x))
        out = self.layers(x)
        return out if mask is None else {"logits": out * mask[:, None], "rows": (x.sum(1),)}


def gradients(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def step(model, *args, **kwargs):
    """The gradients of a loss that is a mean over chosen rows, as a mean over tokens is."""
    model.zero_grad()
    outputs = model(*args, **kwargs)
    logits = outputs["logits"] if isinstance(outputs, dict) else outputs
    chosen = torch.arange(len(logits)) % 3 == 0
    loss = nn.functional.cross_entropy(logits[chosen], torch.ones(int(chosen.sum())).long())
    loss.backward()
    return loss.item(), gradients(model).clone()


@pytest.mark.parametrize("settings", [FOUR, AGAIN], ids=["parts", "computed again"])
def test_loss_and_gradients_are_those_of_the_whole_batch(session, settings):
    torch.manual_seed(0)
    model, x, mask = Probe(), torch.randn(18, 6), torch.rand(18)
    expected = step(model, x, mask=mask)
    LEVER.apply(settings, session)
    step(model, x, mask=mask)
    model.sizes.clear()

    loss, found = step(model, x, mask=mask)

    assert sorted(model.sizes[:4]) == [4, 4, 5, 5]
    assert len(model.sizes) == (8 if settings is AGAIN else 4)
    assert loss == pytest.approx(expected[0], rel=1e-6)
    torch.testing.assert_close(found, expected[1], rtol=1e-4, atol=1e-6)


def test_where_memory_is_short_the_whole_batch_is_never_sent_at_once(session):
    model = Probe()
    LEVER.apply(AGAIN, session)
    step(model, torch.randn(16, 6))

    assert model.sizes == [8, 4, 4, *8 * [4]]


def test_in_parts_computed_again_less_is_kept(session):
    model, x, sizes = Probe(), torch.randn(64, 6), []
    LEVER.apply(AGAIN, session)
    model(x)
    hooks = torch.autograd.graph.saved_tensors_hooks
    with hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
        model(x)

    assert sum(sizes) == x.numel(), "the inputs of the parts and nothing else"


def centered(x):
    return x - x.mean(0)


class Mixing(Probe):
    def forward(self, x, mask=None):
        return super().forward(centered(x), mask)


class OwnLoss(Probe):
    def forward(self, x, mask=None):
        return super().forward(x).square().mean()


class Dropping(Probe):
    def forward(self, x, mask=None):
        return nn.functional.dropout(super().forward(x), 0.5)


class Recurrent(Probe):
    """Time comes first, so that parts of a batch would be parts of sequences."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(6, 6)

    def forward(self, x, mask=None):
        return super().forward(self.rnn(x)[0])


class Counting(Probe):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x, mask=None):
        self.count += 1
        return super().forward(x)


@pytest.mark.parametrize("settings", [FOUR, AGAIN], ids=["parts", "computed again"])
@pytest.mark.parametrize("cls", [Mixing, OwnLoss, Dropping, Recurrent, Counting])
def test_a_model_that_does_not_treat_each_row_by_itself_is_left_alone(session, cls, settings):
    torch.manual_seed(0)
    shape = (16, 2, 6) if cls is Recurrent else (16, 6)
    model, x = cls(), torch.randn(shape)
    LEVER.apply(settings, session)
    model(x).sum().backward()
    model.sizes.clear()
    for _ in range(2):
        model(x).sum().backward()

    assert model.sizes == [16, 16]


def test_the_first_call_moves_neither_random_numbers_nor_buffers(session):
    model = Dropping()
    torch.manual_seed(1)
    model(torch.ones(16, 6))
    expected = torch.rand(1)
    LEVER.apply(FOUR, session)
    torch.manual_seed(1)
    model(torch.ones(16, 6))

    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize("rows", [5, 0])
def test_arguments_of_other_lengths_and_small_batches_go_whole(session, rows):
    model = Probe()
    LEVER.apply(FOUR, session)
    for _ in range(2):
        model(torch.ones(16 if rows else 7, 6), *([torch.ones(rows, 1)[:1]] if rows else []))

    assert set(model.sizes) == {16 if rows else 7}


def test_evaluation_is_left_alone(session):
    model = Probe().eval()
    LEVER.apply(FOUR, session)
    for _ in range(2):
        model(torch.ones(16, 6))

    assert model.sizes == [16, 16]


def test_after_some_shapes_that_gave_the_same_others_are_trusted(session):
    model = Probe()
    LEVER.apply(FOUR, session)
    for rows in range(8, 16):
        model(torch.ones(rows, 6))
    model.sizes.clear()
    model(torch.ones(40, 6))

    assert model.sizes == [10] * 4


# -- where it applies

PLAIN = Facts(torch_version="2.9", has_batch_statistics=False, draws_in_calls=False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"has_batch_statistics": True}, "batch norms"),
        ({"draws_in_calls": True}, "dropout"),
        ({"world_size": 2}, "ranks"),
        ({"uses_compile": True}, "compiles"),
    ],
)
def test_it_says_why_it_is_not_offered(change, words):
    assert LEVER.applies(PLAIN) is None
    assert words in LEVER.applies(dataclasses.replace(PLAIN, **change))


def test_parts_are_computed_again_where_memory_is_short():
    short = dataclasses.replace(PLAIN, memory_fraction=0.95)

    assert all("recompute" not in settings for settings in LEVER.space(PLAIN))
    assert {"parts": 2, "recompute": True} in LEVER.space(short)


@pytest.mark.parametrize("settings", [FOUR, AGAIN])
def test_the_lines_to_write_compute_again_where_the_recipe_does(settings):
    model, kept = Probe(), []

    def keep(tensor):
        kept.append(tensor.numel())
        return tensor

    here = {"model": model, "torch": torch, "inputs": torch.ones(8, 6)}
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        exec(LEVER.edit(settings), here)

    # The bits of a row may depend on the rows beside it: a processor's own matmul decides.
    parts = [model.layers(part) for part in here["inputs"].split(2)]
    assert torch.equal(here["outputs"], torch.cat(parts))
    torch.testing.assert_close(here["outputs"], model.layers(here["inputs"]))
    assert model.sizes == [2] * 4
    assert (64 in kept) is (settings is FOUR)  # what the hidden layer gave for two rows


class TwoHeads(Probe):
    """Two outputs of one body, each with a loss of its own."""

    def __init__(self):
        super().__init__()
        self.second = nn.Linear(3, 2)

    def forward(self, x):
        out = super().forward(x)
        return out, self.second(out)


def first_loss(outputs):
    return outputs[0].square().mean()


def second_loss(outputs):
    return (outputs[1] - 1).abs().mean()


def one_after_another(model, x):
    outputs = model(x)
    first_loss(outputs).backward(retain_graph=True)
    second_loss(outputs).backward()


def two_calls(model, x):
    first_loss(model(x)).backward()
    second_loss(model(0.5 * x)).backward()


def by_grad(model, x):
    outputs = model(x)
    parameters = list(model.layers.parameters())
    found = torch.autograd.grad(first_loss(outputs), parameters, retain_graph=True)
    second_loss(outputs).backward()
    for parameter, gradient in zip(parameters, found, strict=True):
        parameter.grad += gradient


def sum_of_losses(model, x):
    outputs = model(x)
    (first_loss(outputs) + second_loss(outputs)).backward()


@pytest.mark.parametrize("settings", [FOUR, AGAIN], ids=["parts", "computed again"])
@pytest.mark.parametrize("losses", [one_after_another, two_calls, by_grad, sum_of_losses])
def test_several_losses_and_backward_calls_of_an_update_are_those_of_the_whole_batch(
    session, losses, settings
):
    torch.manual_seed(0)
    model, x = TwoHeads(), torch.randn(18, 6)
    losses(model, x)
    expected = gradients(model).clone()

    undo = LEVER.apply(settings, session)
    for _ in range(2):
        model.zero_grad()
        model.sizes.clear()
        losses(model, x)
    undo()

    assert {4, 5} == set(model.sizes), "the second update goes in parts"
    assert torch.allclose(gradients(model), expected, atol=1e-6)


@pytest.mark.parametrize("settings", [FOUR, AGAIN], ids=["parts", "computed again"])
def test_a_model_that_feeds_another_one_goes_in_parts_as_well(session, settings):
    torch.manual_seed(0)
    encoder, head, x = TwoHeads(), nn.Linear(3, 4), torch.randn(18, 6)

    def update():
        encoder.zero_grad()
        head.zero_grad()
        out, second = encoder(x)
        (head(out).square().mean() + second.abs().mean()).backward(retain_graph=True)
        (head(out) - 1).abs().mean().backward()
        return torch.cat([gradients(encoder), gradients(head)])

    expected = update()
    undo = LEVER.apply(settings, session)
    update()
    encoder.sizes.clear()
    found = update()
    undo()

    assert {4, 5} == set(encoder.sizes)
    assert torch.allclose(found, expected, atol=1e-6)


class ReturnsLosses(Probe):
    """Its mean over the chosen rows of a part says nothing of the whole batch's."""

    def forward(self, x):
        out = super().forward(x)
        return {"first": out.square().mean(), "second": out[x[:, 0] > 0].abs().mean()}


def test_a_model_that_returns_its_losses_stays_as_it_is(session):
    torch.manual_seed(0)
    model, x = ReturnsLosses(), torch.randn(18, 6)
    undo = LEVER.apply(FOUR, session)
    for _ in range(3):
        model.sizes.clear()
        sum(model(x).values()).backward()
    undo()

    assert model.sizes == [18]
