"""The levers on the optimizer and on matrix products, flipped in the middle of a training."""

import copy
import gc
import weakref

import pytest

torch = pytest.importorskip("torch")

from steptime.levers import load  # noqa: E402
from steptime.levers.base import Facts, OptimizerFacts  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402

LEVER = load("fused_optimizer")
FUSED, FOREACH = {"implementation": "fused"}, {"implementation": "foreach"}
KINDS = [
    (torch.optim.SGD, {"lr": 0.05}),
    (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    (torch.optim.Adam, {"lr": 0.01, "amsgrad": True}),
    (torch.optim.AdamW, {"lr": 0.01, "maximize": True}),
    (torch.optim.Adam, {"lr": torch.tensor(0.01)}),
    (torch.optim.Adagrad, {"lr": 0.05}),
]


@pytest.fixture
def session():
    with PlainSession(torch) as session:
        yield session


def make(cls, options, *, memory_format=torch.contiguous_format):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3), torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(16, 1)
    ).to(memory_format=memory_format)
    return model, cls(model.parameters(), **copy.deepcopy(options)), torch.randn(8, 2, 4, 4)


def train(model, optimizer, inputs, *, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


def groups_of(optimizer):
    return [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]


def assert_close(weights, expected):
    for one, other in zip(weights, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("settings", [FUSED, FOREACH], ids=["fused", "foreach"])
@pytest.mark.parametrize(("cls", "options"), KINDS)
def test_flipped_on_and_off_in_the_middle_it_trains_as_without(session, settings, cls, options):
    reference = make(cls, options)
    expected = train(*reference, steps=9)
    training = make(cls, options)
    train(*training, steps=3)

    undo = LEVER.apply(settings, session)
    train(*training, steps=3)
    undo()

    assert_close(train(*training, steps=3), expected)
    assert groups_of(training[1]) == groups_of(reference[1])
    assert training[1].defaults == reference[1].defaults


@pytest.mark.parametrize(("cls", "options"), KINDS)
def test_an_optimizer_that_is_made_later_is_fused_before_its_first_step(session, cls, options):
    LEVER.apply(FUSED, session)
    training = make(cls, options)

    train(*training, steps=2)

    assert all(group["fused"] for group in training[1].param_groups)


def test_weights_laid_out_otherwise_than_their_state_are_updated_in_the_right_place(session):
    for cls, options in KINDS:
        reference = make(cls, options, memory_format=torch.channels_last)
        expected = train(*reference, steps=4)
        model, optimizer, inputs = make(cls, options)
        train(model, optimizer, inputs, steps=2)
        model.to(memory_format=torch.channels_last)

        undo = LEVER.apply(FUSED, session)

        assert_close(train(model, optimizer, inputs, steps=2), expected)
        undo()


def test_gradients_set_by_hand_in_another_order_are_applied_in_the_right_place(session):
    weight = torch.nn.Parameter(torch.zeros(3, 4))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    LEVER.apply(FUSED, session)
    gradient = torch.arange(12.0).reshape(4, 3).t()

    weight.grad = gradient
    optimizer.step()

    assert torch.equal(weight.detach(), -gradient)


def test_what_cannot_be_fused_is_left_alone(session):
    embedding = torch.nn.Embedding(5, 3, sparse=True)
    weight = torch.nn.Parameter(torch.ones(3))
    optimizers = [
        torch.optim.SGD(embedding.parameters(), lr=0.1),
        torch.optim.Adam([weight], differentiable=True),
        torch.optim.RMSprop([weight]),
        torch.optim.LBFGS([weight]),
    ]
    before = [groups_of(one) for one in optimizers]
    LEVER.apply(FUSED, session)

    for optimizer in optimizers[:3]:
        embedding(torch.tensor([1])).sum().backward()
        weight.grad = None
        optimizer.step()
    optimizers[3].step(lambda: torch.zeros(()))

    assert [groups_of(one) for one in optimizers] == before


def test_a_group_that_came_meanwhile_is_given_the_old_defaults(session):
    model, optimizer, inputs = make(torch.optim.AdamW, {})
    train(model, optimizer, inputs, steps=1)
    undo = LEVER.apply(FUSED, session)
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))]})
    was_fused = optimizer.param_groups[1]["fused"]

    undo()

    assert was_fused
    assert [group["fused"] for group in optimizer.param_groups] == [None, None]


def test_steps_are_counted_on_in_both_directions(session):
    model, optimizer, inputs = make(torch.optim.Adam, {})
    undo = LEVER.apply(FUSED, session)
    train(model, optimizer, inputs, steps=3)
    undo()
    train(model, optimizer, inputs, steps=2)

    steps = {float(state["step"]) for state in optimizer.state.values()}
    assert steps == {5.0}


def test_an_optimizer_that_is_gone_is_not_held(session):
    model, optimizer, inputs = make(torch.optim.Adam, {})
    undo = LEVER.apply(FUSED, session)
    train(model, optimizer, inputs, steps=1)
    weight, optimizer = weakref.ref(model[0].weight), weakref.ref(optimizer)
    del model
    gc.collect()

    assert (weight(), optimizer()) == (None, None)
    undo()


# -- where it applies


@pytest.mark.parametrize(
    ("device", "optimizers", "expected"),
    [
        ("cpu", [OptimizerFacts(name="AdamW", can_fuse=True)], [FUSED, FOREACH]),
        ("cpu", [OptimizerFacts(name="RMSprop")], [FOREACH]),
        ("cpu", [OptimizerFacts(name="SGD", can_fuse=True, is_foreach=True)], [FUSED]),
        ("cuda", [OptimizerFacts(name="AdamW", can_fuse=True)], [FUSED]),
        ("cuda", [OptimizerFacts(name="RMSprop", is_foreach=False)], [FOREACH]),
        ("cuda", [OptimizerFacts(name="RMSprop")], []),
        ("cpu", [OptimizerFacts(name="LBFGS")], []),
        ("cpu", [OptimizerFacts(name="Adam", is_fused=True, can_fuse=True)], []),
        ("cpu", [], []),
    ],
)
def test_only_what_would_be_news_is_tried(device, optimizers, expected):
    facts = Facts(torch_version="2.9", device=device, optimizers=tuple(optimizers))

    assert list(LEVER.space(facts)) == expected
    assert (LEVER.applies(facts) is None) == bool(expected)
