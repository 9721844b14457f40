"""`optimizer_in_backward`: the same bits without all gradients at once, and where it stays out."""

from __future__ import annotations

import dataclasses

import pytest

torch = pytest.importorskip("torch")

from steptime.levers import load  # noqa: E402
from steptime.levers.base import OptimizerFacts  # noqa: E402
from steptime.levers.examples import SHORT  # noqa: E402
from steptime.levers.memory.early_steps import BY_WEIGHT  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402
from unit.allocated import allocated  # noqa: E402

LEVER = load("optimizer_in_backward")
nn = torch.nn


@pytest.fixture
def session():
    with PlainSession(torch) as session:
        yield session


def make(width=16, depth=3):
    torch.manual_seed(0)
    layers = [part for _ in range(depth) for part in (nn.Linear(width, width), nn.Tanh())]
    return nn.Sequential(*layers, nn.Linear(width, 1))


def train(kind="AdamW", *, steps=5, on=lambda: None, **options):
    """Losses, weights and states after some steps; `on` is called after the second one."""
    model = make()
    groups = [
        {"params": list(model[:2].parameters())},
        {"params": list(model[2:].parameters()), "lr": 0.02},
    ]
    optimizer = getattr(torch.optim, kind)(groups, lr=0.01, **options)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    found = []
    for number in range(steps):
        if number == 2:
            on()
        loss = model(torch.randn(8, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        found.append(loss.detach())
    states = [v for state in optimizer.state.values() for v in state.values()]
    return [*found, *(p.detach() for p in model.parameters()), *states]


def are_same(found, expected):
    return len(found) == len(expected) and all(map(torch.equal, found, expected))


@pytest.mark.parametrize("kind", BY_WEIGHT)
def test_each_bit_of_weights_and_states_stays(session, kind):
    expected = train(kind)

    assert are_same(train(kind, on=lambda: LEVER.apply({}, session)), expected)
    assert session.counts == {}


@pytest.mark.parametrize(
    "options", [{"foreach": True}, {"fused": True}, {"amsgrad": True}], ids=str
)
def test_each_bit_stays_with_each_implementation(session, options):
    expected = train(**options)

    assert are_same(train(on=lambda: LEVER.apply({}, session), **options), expected)


def test_gradients_never_lie_in_memory_together(session):
    model = make(width=256, depth=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    size = sum(p.numel() * 4 for p in model.parameters())

    def step():
        optimizer.zero_grad()
        model(torch.ones(1, 256)).sum().backward()
        seen.append(sum(p.grad is not None for p in model.parameters()))
        optimizer.step()

    seen: list[int] = []
    step()
    optimizer.zero_grad()
    before = allocated(step).peak
    optimizer.zero_grad()
    LEVER.apply({}, session)
    step()
    after = allocated(step).peak

    assert before >= size
    assert after < 0.3 * size
    assert seen == [18, 18, 0, 0]


def test_taken_off_it_leaves_no_hook_and_goes_on_as_before(session):
    expected = train()
    undo = []
    found = train(on=lambda: undo.append(LEVER.apply({}, session)))
    undo[0]()

    assert are_same(found, expected)
    assert are_same(train(), expected)


def test_a_second_backward_and_a_late_rate_end_the_trial(session):
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(1, 16)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    LEVER.apply({}, session)
    model(torch.ones(1, 16)).sum().backward()

    with pytest.raises(RuntimeError, match="second backward"):
        model(torch.ones(1, 16)).sum().backward()
    optimizer.param_groups[0]["lr"] = 0.2
    with pytest.raises(RuntimeError, match="changed a learning rate"):
        optimizer.step()


def test_an_optimizer_of_the_scripts_own_or_with_hooks_is_left_alone(session):
    class Own(torch.optim.SGD):
        pass

    model = make()
    hooked = torch.optim.SGD(model.parameters(), lr=0.1)
    hooked.register_step_pre_hook(lambda *_: None)
    LEVER.apply({}, session)
    for optimizer in (Own(model.parameters(), lr=0.1), hooked):
        optimizer.step()
        model(torch.ones(1, 16)).sum().backward()

    assert all(p.grad is not None for p in model.parameters())
    assert session.counts == {"left_alone": 2}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"world_size": 2}, "Several ranks"),
        ({"uses_compile": True}, "compiles"),
        ({"uses_scaler": True}, "scaler"),
        ({"zeroes_gradients": True}, "with zeros"),
        ({"checkpoint_ways": ("reentrant",)}, "Reentrant"),
        ({"optimizers": (OptimizerFacts(name="LBFGS"),)}, "by itself"),
        ({"optimizers": SHORT.optimizers * 2}, "one optimizer"),
        ({"backwards_per_update": 4}, "add up"),
        ({"backwards_per_update": None}, "not observed"),
        ({"reads_gradients": True}, "clipping"),
        ({"reads_gradients": None}, "not observed"),
        ({"changes_rates_late": True}, "learning rates"),
        ({"memory_fraction": 0.2}, "holds 20%"),
    ],
    ids=str,
)
def test_it_says_why_it_is_not_offered(change, words):
    assert LEVER.applies(SHORT) is None
    assert words in LEVER.applies(dataclasses.replace(SHORT, **change))


def test_it_frees_the_gradients_of_the_fullest_moment():
    assert LEVER.frees(SHORT, {}) == 474 << 20
    assert LEVER.frees(dataclasses.replace(SHORT, peak_bytes=None), {}) is None
