"""`needed_gradients`: what is dropped is not computed, and all else keeps its bits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from steptime.levers.base import Facts, OptimizerFacts
from steptime.levers.optimizers import needed_gradients

torch = pytest.importorskip("torch")

from steptime.testing.lever_session_double import PlainSession  # noqa: E402

nn = torch.nn
TWO = tuple(OptimizerFacts(name="Adam") for _ in range(2))
FACTS = Facts(torch_version="2.13.0", optimizers=TWO, reads_gradients=False)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"optimizers": TWO[:1]}, "One optimizer"),
        ({"optimizers": None}, "not observed"),
        ({"reads_gradients": True}, "reads gradients"),
        ({"uses_scaler": True}, "a scaler"),
        ({"zeroes_gradients": True}, "zeros"),
        ({"world_size": 2}, "ranks"),
        ({"checkpoint_ways": ("reentrant",)}, "Reentrant"),
    ],
)
def test_it_applies_where_optimizers_in_turn_alone_read_gradients(fields, words):
    assert needed_gradients.LEVER.applies(FACTS) is None
    assert words in needed_gradients.LEVER.applies(replace(FACTS, **fields))


class Gan:
    """A generator and a discriminator in turn; `counts` has how often gradients were computed."""

    def __init__(self, *, is_detached: bool):
        torch.manual_seed(0)
        self.is_detached = is_detached
        self.g = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6))
        self.d = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
        self.of_g = torch.optim.Adam(self.g.parameters())
        self.of_d = torch.optim.Adam(self.d.parameters())
        self.losses: list[float] = []

    def step(self):
        loss_of = nn.functional.binary_cross_entropy_with_logits
        real, fake = torch.randn(16, 6), self.g(torch.randn(16, 4))
        shown = fake.detach() if self.is_detached else fake
        self.of_d.zero_grad()
        loss = loss_of(self.d(real), torch.ones(16, 1)) + loss_of(self.d(shown), torch.zeros(16, 1))
        loss.backward(retain_graph=True)
        self.of_d.step()
        self.of_d_gradients = [one.grad.clone() for one in self.d.parameters()]
        self.of_g.zero_grad()
        other = loss_of(self.d(fake), torch.ones(16, 1))
        other.backward()
        self.of_g.step()
        self.losses += [loss.item(), other.item()]

    def weights(self):
        return [one.detach().clone() for one in (*self.g.parameters(), *self.d.parameters())]


def train(make, num_steps, *, is_on=lambda number: True, step=lambda gan: gan.step()):
    """The trained specimen, with the lever in the steps for which it `is_on`."""
    needed_gradients.KNOWN.clear()
    gan = make()
    with PlainSession(torch) as session:
        undo = None
        for number in range(num_steps):
            if is_on(number) and undo is None:
                undo = needed_gradients.LEVER.apply({}, session)
            elif not is_on(number) and undo is not None:
                undo()
                undo = None
            step(gan)
        if undo is not None:
            undo()
    return gan


def left_out():
    """Weights that each line leaves out."""
    (needs,) = needed_gradients.KNOWN
    return sorted(len(place.left_out()) for place in needs.places.values())


@pytest.mark.parametrize("is_detached", [False, True])
@pytest.mark.parametrize("is_on", [lambda number: True, lambda number: number // 3 % 2])
def test_losses_and_weights_keep_their_bits(is_detached, is_on):
    bare = train(lambda: Gan(is_detached=is_detached), 40, is_on=lambda number: False)
    changed = train(lambda: Gan(is_detached=is_detached), 40, is_on=is_on)

    assert changed.losses == bare.losses
    assert all(map(torch.equal, changed.weights(), bare.weights()))
    assert left_out() == ([0, 4] if is_detached else [4, 4])


@pytest.mark.parametrize("is_on", [True, False])
def test_the_turn_of_the_generator_computes_none_of_the_discriminator(is_on):
    gan = train(lambda: Gan(is_detached=False), 12, is_on=lambda number: is_on)
    now = [one.grad for one in gan.d.parameters()]

    assert all(map(torch.equal, now, gan.of_d_gradients)) == is_on


def test_gradients_that_add_up_before_an_update_are_all_computed():
    def accumulate(gan):
        for _ in range(2):
            nn.functional.mse_loss(gan.d(gan.g(torch.randn(4, 4))), torch.ones(4, 1)).backward()
        for one in (gan.of_g, gan.of_d):
            one.step()
            one.zero_grad()

    bare = train(lambda: Gan(is_detached=True), 20, is_on=lambda number: False, step=accumulate)
    changed = train(lambda: Gan(is_detached=True), 20, step=accumulate)

    assert all(map(torch.equal, changed.weights(), bare.weights()))
    assert left_out() == [0]


def test_a_leaf_of_no_optimizer_gets_its_gradient():
    def attack(gan):
        noise = torch.randn(4, 6, requires_grad=True)
        gan.d(noise).sum().backward()
        assert noise.grad is not None
        gan.of_d.zero_grad()

    train(lambda: Gan(is_detached=True), 20, step=attack)

    assert left_out() == [0]


def test_a_gradient_that_is_wanted_after_all_is_an_error():
    gan = train(lambda: Gan(is_detached=True), 10)
    with PlainSession(torch) as session:
        undo = needed_gradients.LEVER.apply({}, session)
        for one in (gan.of_d, gan.of_g):
            needed_gradients.KNOWN[0].adopt(one)
        gan.step()
        with pytest.raises(RuntimeError, match="always dropped before"):
            gan.of_d.step()  # with what the generator's turn should have added
        undo()


def test_what_is_known_of_a_weight_ends_with_it():
    gan = train(lambda: Gan(is_detached=True), 10)
    (needs,) = needed_gradients.KNOWN
    assert left_out() == [0, 4]
    one = id(next(gan.d.parameters()))
    needs.known[one] = lambda: None  # as if its number had been another's, which is gone

    needs.weights()

    assert left_out() == [0, 3]
