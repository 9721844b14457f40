"""A look at the layers of a model on a made-up device, whose numbers arrive some updates later."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import pytest

from steptime.guest.health.number_fetch import MAX_WAITING, NumberFetch
from unit.test_layer_look import BadGradient, Chain, Training, named, nan_in_row_2, ones, torch
from unit.test_layer_look import train as train

nn = torch.nn


class Device:
    """Lets numbers arrive when a test says so."""

    def __init__(self, fetch: NumberFetch) -> None:
        self.is_done = False
        fetch.is_here = lambda stacked: False  # type: ignore[method-assign]
        fetch._copy = self.copy  # type: ignore[method-assign]

    def copy(self, stacked: Any) -> tuple[Any, Any]:
        return stacked.clone(), SimpleNamespace(query=lambda: self.is_done)


@pytest.fixture
def device(train: Training) -> Device:
    train.look.is_far = lambda tensor: True  # type: ignore[method-assign]
    return Device(train.look.device.fetch)


def test_a_bad_output_is_told_when_its_numbers_arrive(train: Training, device: Device) -> None:
    sound, broken = Chain(), Chain(nan_in_row_2)
    train.look.start()
    train.update(sound, ones())
    train.update(broken, ones())
    assert train.brackets() == []

    device.is_done = True
    train.update(sound, ones())
    (bracket,) = train.brackets()
    side = bracket["forward"]
    assert (bracket["n"], bracket["is_late"]) == (2, True)
    assert (side["at"], named(side["module"]), named(side["after"])) == (
        "input",
        "second.0",
        "first",
    )
    assert "rows" not in side


def test_a_bad_batch_gradient_and_loss(train: Training, device: Device) -> None:
    sound, broken = Chain(), Chain(BadGradient.apply)
    device.is_done = True
    train.look.start()
    train.call(sound, ones() * math.inf).pow(2).sum().backward()
    train.end()
    train.update(sound, ones())
    train.update(broken, ones())
    train.update(sound, ones())
    train.call(sound, ones()).sum().mul(math.nan).backward()
    train.end()

    batch, gradient, loss = train.brackets()
    assert (batch["forward"]["at"], named(batch["forward"]["module"])) == ("argument", "")
    assert gradient["forward"] is None
    assert named(gradient["backward"]["module"]) == "first"
    assert named(gradient["backward"]["after"]) == "second.0"
    assert (loss["forward"]["at"], named(loss["forward"]["after"])) == ("loss", "third")


def test_infinite_outputs_without_a_bad_gradient_do_no_harm(
    train: Training, device: Device
) -> None:
    class Mask(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.masked_fill(torch.tensor([True, False]), -math.inf)

    model = nn.Sequential(nn.Linear(3, 2), Mask())
    device.is_done = True
    train.look.start()
    for _ in range(3):
        train.call(model, ones()).softmax(-1)[:, 1].log().sum().backward()
        train.end()
    assert train.brackets() == []
    assert list(train.look.device.tolerated.values()) == [False]


def test_a_device_that_is_far_behind_is_left_alone(train: Training, device: Device) -> None:
    train.look.start()
    model = Chain()
    for _ in range(MAX_WAITING + 3):
        train.update(model, ones())
    assert len(train.look.device.fetch.waiting) == MAX_WAITING
    lines = map(json.loads, train.look.poll(0, is_last=True).splitlines())
    (cost,) = [line for line in lines if line["k"] == "hc"]
    assert cost["missing"]["device_behind"] == 3


def test_numbers_of_several_types_keep_their_places() -> None:
    fetch, found = NumberFetch(torch), []
    numbers = [
        torch.tensor(number, dtype=dtype)
        for number, dtype in ((1.5, torch.float32), (2.5, torch.bfloat16), (3.5, torch.float32))
    ]
    assert fetch.begin(numbers, found.extend)
    assert found == [1.5, 2.5, 3.5]
