"""Transforms of gradients: what they give, what passes through, and under what they stay exact."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from steptime.methods import gradients as g  # noqa: E402

SHAPES = ((7, 5), (4, 3, 3, 3), (600,), (300, 300), (2, 2))
ALL = (
    *(g.ZNorm(), g.DampedZNorm(), g.Centralize(), g.UnitNorm(), g.UnitRms()),
    *(g.ClipNorm(0.5), g.ClipValue(0.1), g.ClipAdaptive()),
)


def make_parameters(*, dtype=torch.float32, shapes=SHAPES, seed=0, shift=0.1):
    generator = torch.Generator().manual_seed(seed)
    made = []
    for number, shape in enumerate(shapes):
        one = torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype))
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        one.grad = ((values + shift) * 10.0**-number).to(dtype)
        made.append(one)
    return made


def slice_norms(values):
    rows = tuple(range(1, values.dim()))
    return values.square().sum(rows, keepdim=True).sqrt() if rows else values.norm()


def reference(transform, parameters):
    """The definitions, in float64, one tensor at a time."""
    grads = [p.grad.double() for p in parameters]
    name, made = type(transform).__name__, []
    norm = math.sqrt(sum(float(x.square().sum()) for x in grads))
    centered = [x - x.mean() for x in grads]
    number = sum(x.numel() for x in grads)
    of_all = math.sqrt(sum(float(x.square().sum()) for x in centered) / number)
    for x, c, p in zip(grads, centered, parameters, strict=True):
        rows = tuple(range(1, x.dim()))
        if name == "ZNorm":
            y = c / x.std(correction=0)
        elif name == "DampedZNorm":
            y = c / (x.std(correction=0) + of_all)
        elif name == "Centralize":
            y = x - x.mean(dim=rows, keepdim=True) if rows else x
        elif name == "UnitNorm":
            y = x / x.norm()
        elif name == "UnitRms":
            y = x / x.square().mean().sqrt()
        elif name == "ClipNorm":
            y = x * min(1.0, transform.max_norm / (norm + 1e-6))
        elif name == "ClipValue":
            y = x.clamp(-transform.limit, transform.limit)
        else:
            own, weight = (slice_norms(one) for one in (x, p.detach().double()))
            most = transform.factor * weight.clamp(min=transform.eps)
            y = torch.where(own > most, x * most / own.clamp(min=1e-6), x)
        made.append(y)
    return made


@pytest.mark.parametrize("transform", ALL, ids=lambda t: type(t).__name__)
def test_it_is_its_definition_in_float64(transform):
    parameters = make_parameters()
    expected = reference(transform, parameters)

    g.transform_gradients(parameters, transform)

    for one, right in zip(parameters, expected, strict=True):
        torch.testing.assert_close(one.grad.double(), right, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shift", [0.0, 0.1, 300.0])
def test_znorm_gives_mean_zero_and_deviation_one(shift):
    parameters = make_parameters(shift=shift)

    g.transform_gradients(parameters, g.ZNorm())

    for one in parameters:
        assert abs(float(one.grad.double().mean())) < 1e-6
        assert abs(float(one.grad.double().std(correction=0)) - 1) < 1e-5


@pytest.mark.parametrize("num", [1, 2, 1000, 200_000])
@pytest.mark.parametrize("value", [0.0, 0.1, -3.7e5])
def test_what_has_no_deviation_passes_znorm_bit_for_bit(num, value):
    one = torch.nn.Parameter(torch.ones(num))
    one.grad = torch.full((num,), value)

    g.transform_gradients([one], g.ZNorm())

    assert torch.equal(one.grad, torch.full((num,), value))


def test_zeros_stay_zeros():
    for transform in ALL:
        one = torch.nn.Parameter(torch.zeros(3, 4))
        one.grad = torch.zeros(3, 4)
        g.transform_gradients([one], transform)
        assert torch.equal(one.grad, torch.zeros(3, 4)), transform


def test_a_gradient_that_is_not_finite_passes_znorm_and_spares_the_others():
    bad, good = make_parameters(shapes=((3, 4), (3, 4)))
    bad.grad[0, 0] = math.nan
    before = bad.grad.clone()

    g.transform_gradients([bad, good], g.ZNorm())

    assert torch.equal(bad.grad.isnan(), before.isnan())
    assert torch.equal(bad.grad[1:], before[1:])
    assert abs(float(good.grad.std(correction=0)) - 1) < 1e-5


def test_vectors_can_be_left_out_of_znorm():
    parameters = make_parameters()
    before = parameters[2].grad.clone()

    g.transform_gradients(parameters, g.ZNorm(min_dims=2))

    assert torch.equal(parameters[2].grad, before)


def test_without_gradients_nothing_happens():
    empty, none = torch.nn.Parameter(torch.zeros(0)), torch.nn.Parameter(torch.ones(2))
    empty.grad = torch.zeros(0)

    g.transform_gradients([empty, none], *ALL)

    assert none.grad is None


def test_clipping_by_norm_is_torchs():
    ours, theirs = make_parameters(), make_parameters()

    g.transform_gradients(ours, g.ClipNorm(0.5))
    torch.nn.utils.clip_grad_norm_(theirs, 0.5)

    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-6, atol=1e-9)


def test_transforms_act_in_their_order():
    ours, theirs = make_parameters(), make_parameters()

    g.transform_gradients(ours, g.ZNorm(), g.ClipNorm(1.0))
    g.transform_gradients(theirs, g.ZNorm())
    g.transform_gradients(theirs, g.ClipNorm(1.0))

    assert all(torch.equal(a.grad, b.grad) for a, b in zip(ours, theirs, strict=True))
    norm = torch.stack([one.grad.norm() for one in ours]).norm()
    assert float(norm) == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("transform", ALL, ids=lambda t: type(t).__name__)
def test_bf16_is_transformed_in_float32_and_rounded_once(transform):
    short, long = make_parameters(dtype=torch.bfloat16), make_parameters()
    for one, other in zip(short, long, strict=True):
        other.data, other.grad = one.detach().float(), one.grad.float()

    g.transform_gradients(short, transform)
    g.transform_gradients(long, transform)

    for one, other in zip(short, long, strict=True):
        assert one.grad.dtype == torch.bfloat16
        assert torch.equal(one.grad, other.grad.bfloat16())


def test_memory_format_makes_no_difference():
    plain, last = make_parameters(shapes=((8, 4, 3, 3),)), make_parameters(shapes=((8, 4, 3, 3),))
    last[0].grad = last[0].grad.to(memory_format=torch.channels_last)

    for one in (plain, last):
        g.transform_gradients(one, g.ZNorm())

    torch.testing.assert_close(plain[0].grad, last[0].grad.contiguous(), rtol=1e-6, atol=1e-6)


# -- sparse gradients

SCALING = (g.UnitNorm(), g.UnitRms(), g.ClipNorm(0.5), g.ClipValue(0.1), g.ClipAdaptive())


def embedding_gradient(*, is_sparse):
    torch.manual_seed(0)
    table = torch.nn.Embedding(10, 4, sparse=is_sparse)
    table(torch.tensor([1, 3, 3, 7])).square().sum().backward()
    return table


@pytest.mark.parametrize("transform", SCALING, ids=lambda t: type(t).__name__)
def test_a_sparse_gradient_is_scaled_as_its_dense_one(transform):
    sparse, dense = embedding_gradient(is_sparse=True), embedding_gradient(is_sparse=False)

    for table in (sparse, dense):
        g.transform_gradients(table.parameters(), transform)

    assert sparse.weight.grad.is_sparse
    torch.testing.assert_close(sparse.weight.grad.to_dense(), dense.weight.grad)


@pytest.mark.parametrize("transform", [g.ZNorm(), g.DampedZNorm(), g.Centralize()])
def test_a_sparse_gradient_passes_what_would_make_it_dense(transform):
    table = embedding_gradient(is_sparse=True)
    before = table.weight.grad.to_dense()

    g.transform_gradients(table.parameters(), transform)

    assert torch.equal(table.weight.grad.to_dense(), before)


# -- on an optimizer


def train(*, transform, chunks=1, scaler=None, fused=None, by_hand=False):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    inputs, labels = torch.randn(8, 6), torch.randn(8, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=fused)
    handle = None if by_hand else g.attach(optimizer, transform)
    for _ in range(4):
        optimizer.zero_grad()
        for some, right in zip(inputs.chunk(chunks), labels.chunk(chunks), strict=True):
            loss = (model(some) - right).square().mean() / chunks
            (loss if scaler is None else scaler.scale(loss)).backward()
        if by_hand:
            g.transform_gradients(model.parameters(), transform)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
    if handle is not None:
        handle.remove()
    return torch.cat([one.detach().flatten() for one in model.parameters()])


def test_the_hook_gives_what_the_function_gives():
    assert torch.equal(train(transform=g.ZNorm()), train(transform=g.ZNorm(), by_hand=True))


def test_under_accumulation_the_sum_is_transformed():
    whole, parts = train(transform=g.ClipNorm(0.1)), train(transform=g.ClipNorm(0.1), chunks=4)

    torch.testing.assert_close(whole, parts, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("fused", [None, True])
def test_scaled_gradients_are_unscaled_first(fused):
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    scaled = train(transform=g.ClipNorm(0.1), scaler=scaler, fused=fused)

    torch.testing.assert_close(scaled, train(transform=g.ClipNorm(0.1), fused=fused))


def test_gradients_of_a_closure_are_transformed_after_each_call():
    one = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    optimizer = torch.optim.SGD([one], lr=1.0)
    g.attach(optimizer, g.UnitNorm())

    def closure():
        optimizer.zero_grad()
        loss = one.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)

    torch.testing.assert_close(one.detach(), torch.tensor([2.4, 3.2]))
