"""The storages of a step, followed under a mode, and framing an optimizer's step once."""

from __future__ import annotations

import gc

import pytest

torch = pytest.importorskip("torch")

from steptime.guest.count.counting_mode import make_mode  # noqa: E402
from steptime.guest.memory.storages import Storages, frame_next_step  # noqa: E402


def following(storages):
    add = lambda func, args, kwargs, result, ns: storages.add(func, args, kwargs, result)  # noqa: E731
    return make_mode(torch, add, lambda: 0)


def held_at(table, part):
    return [instant["by_part"].get(part, 0) for instant in table["instants"]]


def test_what_operators_return_is_new_and_dies_when_let_go() -> None:
    storages = Storages(torch, "cpu")
    x = torch.ones(100)
    storages.open("forward")
    with following(storages):
        y = x + 1
        z = y * 2
        del y
        z = z.exp()
    table = storages.table()

    assert held_at(table, "inputs") == [400, 400, 400]
    assert held_at(table, "temporaries") == [400, 800, 800]
    assert table["num_storages"] == 4
    assert z.sum() > 0


def test_views_are_no_storages_of_their_own() -> None:
    storages = Storages(torch, "cpu")
    x = torch.ones(100)
    storages.open("forward")
    with following(storages):
        x.view(10, 10).t()[1:]

    assert storages.table()["num_storages"] == 1


def test_parts_are_named_by_those_who_know_them() -> None:
    storages = Storages(torch, "cpu")
    weight = torch.ones(100)
    storages.own("weights", weight.untyped_storage(), "cpu")
    storages.open("forward")
    with following(storages):
        gradient = weight * 2
    storages.own("gradients", gradient.untyped_storage(), "cpu")
    table = storages.table()

    assert table["peak"]["by_part"] == {"weights": 400, "gradients": 400}


def test_what_is_met_late_was_there_when_its_frame_began() -> None:
    storages = Storages(torch, "cpu")
    storages.open("forward")
    with following(storages):
        x = torch.ones(10)
    loss = x.exp()  # between two frames
    storages.open("backward")
    with following(storages):
        torch.zeros(5)
        loss.neg()
    table = storages.table()

    assert [instant["phase"] for instant in table["instants"]] == ["forward"] + ["backward"] * 2
    assert held_at(table, "temporaries") == [40, 40 + 40 + 20, 40 + 40 + 40]


def test_the_peak_is_told_with_its_operator() -> None:
    storages = Storages(torch, "cpu")
    storages.open("forward")
    with following(storages):
        small = torch.ones(10)
        large = torch.ones(1000).mul(2)
        del large
        small.add_(1)
    table = storages.table()

    assert table["operator"] == "aten.mul.Tensor"
    assert table["peak"]["by_part"] == {"temporaries": 40 + 4000 + 4000}


def test_the_peak_alone_is_that_of_the_table() -> None:
    storages = Storages(torch, "cpu")
    x = torch.ones(100)
    storages.open("forward")
    with following(storages):
        y = x + 1
        z = y * 2
        del y
        z = z.exp()
    storages.extras[0] = 4_000

    assert storages.peak() == {"bytes": 4_800, "phase": "forward"}
    assert sum(storages.table()["peak"]["by_part"].values()) == 4_800
    assert z.sum() > 0
    assert Storages(torch, "cpu").peak() is None


def test_other_devices_are_not_followed() -> None:
    storages = Storages(torch, "cuda")
    storages.open("forward")
    with following(storages):
        torch.ones(10)
    storages.own("weights", torch.ones(1).untyped_storage(), "cpu")

    assert storages.table()["num_storages"] == 0


def test_a_step_without_operators_was_not_followed() -> None:
    assert Storages(torch, "cpu").table() is None


def test_a_step_of_many_operators_keeps_the_peak_of_each_stretch() -> None:
    storages = Storages(torch, "cpu")
    storages.open("forward")
    x = torch.ones(10)
    with following(storages):
        for _ in range(1000):
            x = x + 1
    table = storages.table()

    assert len(table["instants"]) <= 81
    assert table["peak"] in table["instants"]


def test_nothing_is_kept_alive() -> None:
    storages = Storages(torch, "cpu")
    storages.open("forward")
    with following(storages):
        x = torch.ones(10)
        alive = x.untyped_storage().data_ptr()
        del x
    gc.collect()

    assert alive
    assert storages.deaths == [1]
    assert not storages.references


def test_the_next_step_of_an_optimizer_is_framed_and_those_after_it_are_not() -> None:
    model = torch.nn.Linear(2, 2)
    optimizer, framed = torch.optim.SGD(model.parameters(), lr=0.1), []
    model(torch.ones(1, 2)).sum().backward()

    def around(step, args, kwargs):
        framed.append(args[0])
        return step(*args, **kwargs)

    assert frame_next_step(type(optimizer).step, around)
    optimizer.step()
    optimizer.step()

    assert framed == [optimizer]


def test_a_function_that_torch_did_not_wrap_is_left_alone() -> None:
    assert not frame_next_step(lambda self: None, lambda *_: None)
    assert not frame_next_step(len, lambda *_: None)
