"""Which weights learn nothing, by what they were in every sample."""

from __future__ import annotations

import json
from typing import Any

import pytest

from steptime.guest.health.weight_check import FACTOR, FIRST_AT, MAX_WAIT, WeightCheck

torch = pytest.importorskip("torch")
nn = torch.nn


class Two(nn.Module):
    """A head that is used, and a spare one that may be."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 2)
        self.spare = nn.Linear(3, 2)
        self.factor: float | None = 1.0

    def forward(self, x: Any) -> Any:
        return self.head(x) if self.factor is None else self.head(x) + self.factor * self.spare(x)


def train(
    check: WeightCheck, model: Any, optimizers: list[Any], num_updates: int, first: int = 0
) -> dict[str, Any]:
    """Train with the optimizers in turns; return the last line."""
    told: dict[str, Any] = {}
    for number in range(first, num_updates):
        optimizer = optimizers[number % len(optimizers)]
        model.zero_grad()
        model(torch.randn(4, 3)).pow(2).sum().backward()
        if number >= check.due:
            check.begin_step(optimizer, optimizers, number)
        optimizer.step()
        if text := check.poll(0, is_last=False):
            told = json.loads(text)
    return told


def check_of(*models: Any) -> WeightCheck:
    torch.manual_seed(0)
    return WeightCheck(torch, lambda: list(models))


def sgd(*modules: Any) -> Any:
    return torch.optim.SGD([w for m in modules for w in m.parameters()], lr=0.1)


TWICE = FIRST_AT * FACTOR + 1


def test_weights_that_learn_are_not_suspected() -> None:
    model = Two()
    told = train(check_of(model), model, [sgd(model)], TWICE)
    assert (told["n"], told["num"], told["elements"]) == (FIRST_AT * FACTOR, 4, 16)
    assert [told[state]["num"] for state in ("none", "zero", "unused")] == [0, 0, 0]


def test_no_gradient() -> None:
    model = Two()
    model.factor = None
    told = train(check_of(model), model, [sgd(model)], TWICE)
    assert told["none"] == {"num": 2, "elements": 8, "names": ["spare.weight", "spare.bias"]}


def test_a_gradient_of_zero() -> None:
    model = Two()
    model.factor = 0.0
    told = train(check_of(model), model, [sgd(model)], TWICE)
    assert told["zero"] == {"num": 2, "elements": 8, "names": ["spare.weight", "spare.bias"]}


def test_a_gradient_that_no_optimizer_uses() -> None:
    model = Two()
    told = train(check_of(model), model, [sgd(model.head)], TWICE)
    assert told["unused"] == {"num": 2, "elements": 8, "names": ["spare.weight", "spare.bias"]}


class Listed(Two):
    """The spare one is in a list, beside layers that torch knows and much that is no layer."""

    def __init__(self) -> None:
        super().__init__()
        spare, self.__dict__["itself"] = self.spare, [self]
        del self.spare
        self.layers = [self.head, spare]
        self.scales = {"one": nn.Parameter(torch.ones(1)), "other": 3}

    def forward(self, x: Any) -> Any:
        return self.layers[0](x) + self.layers[1](x) * self.scales["one"]


def test_layers_in_a_list_that_no_optimizer_uses() -> None:
    model = Listed()
    told = train(check_of(model), model, [sgd(model)], TWICE)

    names = ["layers.1.weight", "layers.1.bias", "scales.one"]
    assert told["loose"] == {"num": 3, "elements": 9, "names": names}
    assert told["holders"] == ["Listed.layers", "Listed.scales"]
    assert (told["unused"]["num"], told["num"]) == (0, 5)


def test_layers_in_a_list_may_be_trained_frozen_or_written_to() -> None:
    for way in ("held", "frozen", "written"):
        model = Listed()
        check, optimizers = check_of(model), [sgd(model)]
        loose = [*model.layers[1].parameters(), model.scales["one"]]
        if way == "held":
            optimizers[0].add_param_group({"params": loose})
        elif way == "frozen":
            for weight in loose:
                weight.requires_grad_(False)
        told = {}
        for number in range(TWICE):
            told = train(check, model, optimizers, number + 1, first=number) or told
            if way == "written":
                with torch.no_grad():
                    for weight in loose:
                        weight.sub_(1e-4 * weight.grad)
        assert (told["loose"]["num"], told["unused"]["num"]) == (0, 0)


def test_one_sample_says_nothing() -> None:
    model = Two()
    model.factor = None
    told = train(check_of(model), model, [sgd(model)], FIRST_AT + 1)
    assert told["none"]["num"] == 0


def test_a_weight_that_was_fine_once_is_fine() -> None:
    model = Two()
    check, optimizer = check_of(model), sgd(model)
    model.factor = None
    train(check, model, [optimizer], TWICE)
    model.factor = 1.0
    told = train(check, model, [optimizer], TWICE * FACTOR, first=TWICE)
    assert told["none"]["num"] == 0


def test_weights_that_somebody_writes_to_are_used() -> None:
    model = Two()
    check, optimizer = check_of(model), sgd(model.head)
    told = {}
    for number in range(TWICE):
        told = train(check, model, [optimizer], number + 1, first=number) or told
        for weight in model.spare.parameters():
            weight.data -= 0.1 * weight.grad  # no version is counted
    assert told["unused"]["num"] == 0


def test_an_optimizer_that_has_not_stepped_yet_is_found() -> None:
    model = Two()
    rarely = sgd(model.spare)
    told = train(check_of(model), model, [sgd(model.head)], TWICE)
    assert told["unused"]["num"] == 0
    assert rarely.param_groups


def test_optimizers_that_take_turns_are_all_sampled() -> None:
    model = Two()
    model.factor = None
    told = train(check_of(model), model, [sgd(model.head), sgd(model.spare)], TWICE + 1)
    # The spare one's optimizer has no gradient at all: it may get them in a way of its own.
    assert told["none"]["num"] == 0
    assert told["num"] == 2


def test_an_optimizer_that_steps_no_more_does_not_hold_the_sample_up() -> None:
    model, other = Two(), nn.Linear(1, 1)
    check, gone = check_of(model), sgd(other)
    for number in range(FIRST_AT, FIRST_AT + MAX_WAIT + 1):
        check.begin_step(sgd(model), [gone], number)
    assert check.due == FIRST_AT * FACTOR


def test_frozen_weights_and_teachers_are_no_news() -> None:
    model, teacher = Two(), nn.Linear(3, 2)
    model.spare.requires_grad_(False)
    told = train(check_of(model, teacher), model, [sgd(model)], TWICE)
    assert [told[state]["num"] for state in ("none", "zero", "unused")] == [0, 0, 0]


def test_a_mode_of_the_users_is_not_disturbed() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(function)
            return function(*args, **(kwargs or {}))

    model = Two()
    check, optimizer = check_of(model), sgd(model)
    model(torch.randn(4, 3)).sum().backward()
    with Watching():
        check.begin_step(optimizer, [optimizer], FIRST_AT)
    assert (seen, check.due) == ([], FIRST_AT)


def test_an_optimizer_that_was_made_before_a_layer_holds_what_it_replaced() -> None:
    model = Two()
    optimizer = sgd(model)
    model.spare = nn.Linear(3, 2)
    told = train(check_of(model), model, [optimizer], TWICE)

    assert (told["unused"]["num"], told["none"]["num"], told["replaced"]) == (2, 2, 2)
    healthy = Two()
    assert train(check_of(healthy), healthy, [sgd(healthy.head)], TWICE)["replaced"] == 0
