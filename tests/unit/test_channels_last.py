"""The lever channels_last: weights, and all that belongs to them, turned and turned back."""

import copy

import pytest

torch = pytest.importorskip("torch")

from steptime.levers import load  # noqa: E402
from steptime.levers.base import Facts  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402

LEVER = load("channels_last")
KINDS = [
    (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
    (torch.optim.AdamW, {"lr": 0.01}),
    (torch.optim.AdamW, {"lr": 0.01, "fused": True}),
    (torch.optim.Adagrad, {"lr": 0.05, "fused": True}),
    (torch.optim.Adam, {"lr": 0.01, "foreach": True, "amsgrad": True}),
]


@pytest.fixture
def session():
    with PlainSession(torch) as session:
        yield session


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3)
        self.norm = torch.nn.BatchNorm2d(8)
        self.second = torch.nn.Conv2d(8, 4, 1)
        self.head = torch.nn.Linear(4 * 6 * 6, 2)
        self.seen = None

    def forward(self, images):
        self.seen = images
        hidden = self.second(torch.relu(self.norm(self.first(images))))
        return self.head(hidden.flatten(1))


def make(cls, options):
    torch.manual_seed(0)
    model = Net()
    return model, cls(model.parameters(), **options), torch.randn(4, 3, 8, 8)


def train(model, optimizer, images, *, steps, set_to_none=True):
    losses = []
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=set_to_none)
        loss = model(images).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def images_of(size):
    return torch.randn(size, 3, 8, 8)


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize(("cls", "options"), KINDS)
def test_turned_and_turned_back_it_trains_as_without(session, cls, options, set_to_none):
    expected = train(*make(cls, options), steps=9)
    training = make(cls, options)
    losses = train(*training, steps=3, set_to_none=set_to_none)

    undo = LEVER.apply({}, session)
    losses += train(*training, steps=3, set_to_none=set_to_none)
    undo()
    losses += train(*training, steps=3, set_to_none=set_to_none)

    assert losses == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("cls", "options"), KINDS)
def test_what_belongs_to_a_weight_is_laid_out_like_it(session, cls, options):
    model, optimizer, images = make(cls, options)
    train(model, optimizer, images, steps=1)
    undo = LEVER.apply({}, session)
    train(model, optimizer, images, steps=1)
    weight = model.first.weight

    def layouts():
        states = [s for s in optimizer.state[weight].values() if s.dim() == 4]
        return {one.stride() for one in (weight, weight.grad, *states)}

    turned = layouts()
    undo()

    assert turned == {(27, 1, 9, 3)}
    assert layouts() == {(27, 9, 3, 1)}


def test_images_arrive_channels_last_wherever_they_stand_in_the_call(session):
    model, images = Net(), torch.randn(4, 3, 8, 8)
    undo = LEVER.apply({}, session)
    strides = []
    for args, kwargs in (((images,), {}), ((), {"images": images})):
        model(*args, **kwargs)
        strides.append(model.seen.stride())
    undo()
    model(images)

    assert strides == [(192, 1, 24, 3)] * 2
    assert model.seen is images


@pytest.mark.parametrize("inplace", [False, True])
def test_the_same_elements_are_dropped(session, inplace):
    conv = torch.nn.Conv2d(3, 8, 3)
    model, images = torch.nn.Sequential(conv, torch.nn.Dropout(0.5, inplace=inplace)), images_of(4)
    torch.manual_seed(1)
    expected = model(images)
    undo = LEVER.apply({}, session)

    torch.manual_seed(1)
    outputs = model(images)
    undo()

    assert torch.equal(outputs == 0, expected == 0)
    assert outputs.is_contiguous() or inplace  # what comes next need not turn it to flatten it
    torch.testing.assert_close(outputs, expected, rtol=1e-4, atol=1e-5)


def test_dropout_is_torchs_own_again_when_it_is_taken_back(session):
    before = torch.nn.functional.dropout
    undo = LEVER.apply({}, session)
    while_on = torch.nn.functional.dropout
    undo()

    assert while_on is not before
    assert torch.nn.functional.dropout is before


def test_a_model_that_was_so_before_is_left_so(session):
    model = Net().to(memory_format=torch.channels_last)
    undo = LEVER.apply({}, session)
    model(torch.randn(4, 3, 8, 8))
    undo()

    assert model.first.weight.is_contiguous(memory_format=torch.channels_last)


def test_a_copy_made_while_it_is_on_computes_the_same(session):
    model, optimizer, images = make(*KINDS[1])
    undo = LEVER.apply({}, session)
    train(model, optimizer, images, steps=2)
    copied = copy.deepcopy(model)
    undo()

    with torch.no_grad():
        torch.testing.assert_close(copied(images), model(images), rtol=1e-5, atol=1e-6)


def test_a_model_that_comes_later_is_turned_with_its_state(session):
    undo = LEVER.apply({}, session)
    expected = train(*make(*KINDS[3]), steps=3)  # Adagrad has its state before the first step
    undo()

    assert expected == pytest.approx(train(*make(*KINDS[3]), steps=3), rel=1e-4)


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        (Facts(torch_version="2.9", has_convolution=False), "convolution"),
        (Facts(torch_version="2.9", has_convolution=True, is_channels_last=True), "itself"),
        (Facts(torch_version="2.9", has_convolution=True, device="mps"), "mps"),
    ],
)
def test_it_says_why_it_is_not_offered(facts, word):
    assert word in LEVER.applies(facts)
