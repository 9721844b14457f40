"""Norms of gradients, weights and updates by layer, and units that get no gradient."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from steptime.guest.health.bracket import ModuleNames
from steptime.guest.health.layer_norms import (
    MAX_ELEMENTS,
    MAX_SAMPLES,
    QUIET_SAMPLES,
    SAMPLE_EVERY,
    LayerNorms,
)
from steptime.guest.health.number_fetch import NumberFetch

torch = pytest.importorskip("torch")
nn = torch.nn


def norms_of(model: Any) -> LayerNorms:
    names = ModuleNames()
    names.meet(model)
    torch.manual_seed(0)
    return LayerNorms(torch, names, NumberFetch(torch))


def update(norms: LayerNorms, model: Any, optimizer: Any, number: int, x: Any) -> bool:
    optimizer.zero_grad()
    model(x).sum().backward()
    is_sampled = norms.begin_step(optimizer)
    optimizer.step()
    norms.end_step(number)
    return is_sampled


def lines_of(norms: LayerNorms) -> tuple[list[list[Any]], list[dict[str, Any]]]:
    lines = [json.loads(line) for line in norms.pop()]
    layers = [row for line in lines if line["k"] == "lw" for row in line["rows"]]
    return layers, [line for line in lines if line["k"] == "ln"]


def size(*tensors: Any) -> float:
    return math.sqrt(sum(float((tensor.double() ** 2).sum()) for tensor in tensors))


def test_the_norms_are_those_of_the_layer() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    norms = norms_of(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    before = [weight.detach().clone() for weight in model.parameters()]
    assert update(norms, model, optimizer, 1, torch.ones(2, 3))

    layers, (line,) = lines_of(norms)
    assert layers == [
        [0, "0", "Linear", "Sequential", 16, 4],
        [1, "2", "Linear", "Sequential", 10, 2],
    ]
    after = [weight.detach() for weight in model.parameters()]
    gradients = [weight.grad for weight in model.parameters()]
    for row, first in zip(line["rows"], (0, 2), strict=True):
        own = slice(first, first + 2)
        moved = [b - a for a, b in zip(before[own], after[own], strict=True)]
        expected = [size(*gradients[own]), size(*before[own]), size(*moved)]
        assert row[1:4] == pytest.approx(expected, rel=1e-3)
        assert row[4] == 0
    assert line["n"] == 1


def test_one_update_in_sixteen_is_sampled_and_later_fewer() -> None:
    model = nn.Linear(2, 2)
    norms = norms_of(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampled = [n for n in range(40) if update(norms, model, optimizer, n, torch.ones(1, 2))]
    assert sampled == [0, SAMPLE_EVERY, 2 * SAMPLE_EVERY]

    norms.num_samples = MAX_SAMPLES - 1
    norms.num_steps.clear()
    update(norms, model, optimizer, 41, torch.ones(1, 2))
    assert norms.every == 2 * SAMPLE_EVERY


def test_optimizers_that_take_turns_are_each_sampled() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    norms = norms_of(model)
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in model]
    for number in range(2):
        update(norms, model, optimizers[number], number, torch.ones(1, 2))

    _, lines = lines_of(norms)
    assert [[row[0] for row in line["rows"]] for line in lines] == [[0], [1]]


def test_of_a_large_weight_some_elements_say_how_far_it_moved() -> None:
    model = nn.Linear(600, 600, bias=False)
    norms = norms_of(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.weight.detach().clone()
    model(torch.randn(4, 600)).pow(2).sum().backward()
    norms.begin_step(optimizer)
    assert norms.taken[0].elements.numel() <= MAX_ELEMENTS
    optimizer.step()
    norms.end_step(1)

    _, (line,) = lines_of(norms)
    assert line["rows"][0][3] == pytest.approx(size(model.weight.detach() - before), rel=0.05)


def test_a_unit_that_never_gets_a_gradient_is_dead() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with torch.no_grad():
        model[0].bias.copy_(torch.tensor([-100.0, 100.0, 100.0, -100.0]))
    norms = norms_of(model)
    norms.every = 1
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for number in range(QUIET_SAMPLES):
        update(norms, model, optimizer, number, torch.ones(2, 3))

    _, lines = lines_of(norms)
    assert [line["rows"][0][4] for line in lines] == [0] * (QUIET_SAMPLES - 1) + [2]


def test_rows_of_embeddings_are_no_units() -> None:
    model = nn.Sequential(nn.Embedding(10, 3), nn.Linear(3, 1))
    norms = norms_of(model)
    norms.every = 1
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(QUIET_SAMPLES + 1):
        update(norms, model, optimizer, number, torch.tensor([1, 2]))

    layers, lines = lines_of(norms)
    assert [row[-1] for row in layers] == [0, 1]
    assert lines[-1]["rows"][0][4] == 0


def test_a_layer_without_gradient_and_a_norm_that_is_not_finite() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    norms = norms_of(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model[1].weight.grad = torch.full((2, 2), math.inf)
    norms.begin_step(optimizer)
    optimizer.step()
    norms.end_step(7)

    _, (line,) = lines_of(norms)
    assert line["rows"][0][1] is None
    assert line["rows"][1][1] == "inf"
    assert line["rows"][0][3] == 0


def test_half_precision_weights_are_summed_in_32_bits() -> None:
    model = nn.Linear(1000, 100, bias=False).bfloat16()
    norms = norms_of(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with torch.no_grad():
        model.weight.fill_(1.0)
    norms.begin_step(optimizer)
    norms.end_step(1)
    _, (line,) = lines_of(norms)
    assert line["rows"][0][2] == pytest.approx(math.sqrt(100_000), rel=1e-3)
