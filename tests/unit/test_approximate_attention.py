"""Attention over a part of the scores: it is what exact attention gives with the rest hidden."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from steptime.methods.approximate_attention import (  # noqa: E402
    LinformerAttention,
    SlidingWindowAttention,
    relative_error,
)

attend = torch.nn.functional.scaled_dot_product_attention


def rows(length, *, width=8, seed=0):
    chance = torch.Generator().manual_seed(seed)
    made = torch.randn(3, 2, 3, length, width, generator=chance, dtype=torch.float64)
    return [one.clone().requires_grad_() for one in made]


def hidden(length, window, *, is_causal):
    at = torch.arange(length)
    distance = at[:, None] - at[None, :]
    return (distance < window) & (distance >= 0 if is_causal else distance > -window)


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize(
    ("length", "window"), [(16, 4), (17, 4), (23, 5), (4, 4), (3, 8), (5, 4), (9, 1)]
)
def test_a_window_equals_exact_attention_with_the_rest_hidden(length, window, is_causal):
    ours, theirs = rows(length), rows(length)
    found = SlidingWindowAttention(window, is_causal=is_causal)(*ours)
    expected = attend(*theirs, attn_mask=hidden(length, window, is_causal=is_causal))

    torch.testing.assert_close(found, expected)
    weight = torch.linspace(-1, 1, found.numel(), dtype=found.dtype).view_as(found)
    for result in (found, expected):
        (result * weight).sum().backward()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_values_may_have_another_width():
    queries, keys, _ = rows(12)
    values = rows(12, width=5)[2]

    assert SlidingWindowAttention(4)(queries, keys, values).shape == (2, 3, 12, 5)
    assert LinformerAttention(12, 3).double()(queries, keys, values).shape == (2, 3, 12, 5)


def test_linformer_with_every_position_as_a_mixture_is_exact():
    ours = rows(12)
    layer = LinformerAttention(16, 12).double()
    with torch.no_grad():
        layer.of_keys.copy_(torch.eye(12, 16))

    torch.testing.assert_close(layer(*ours), attend(*ours))


@pytest.mark.parametrize("shares", [True, False])
def test_the_projections_of_linformer_learn(shares):
    given = [one.detach() for one in rows(12)]
    layer = LinformerAttention(12, 6, shares=shares).double()
    assert len(list(layer.parameters())) == (1 if shares else 2)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    exact = attend(*given)
    before = relative_error(layer(*given).detach(), exact)
    for _ in range(30):
        optimizer.zero_grad()
        (layer(*given) - exact).square().mean().backward()
        optimizer.step()

    assert relative_error(layer(*given).detach(), exact) < 0.8 * before


def test_weights_are_dropped_in_training_alone():
    given = rows(12)
    for layer in (
        SlidingWindowAttention(4, dropout=0.5),
        LinformerAttention(12, 4, dropout=0.5).double(),
    ):
        assert not torch.equal(layer(*given), layer(*given))
        layer.eval()
        assert torch.equal(layer(*given), layer(*given))


def test_the_error_is_relative():
    exact = torch.tensor([3.0, 4.0])

    assert relative_error(exact, exact) == 0
    assert relative_error(exact + torch.tensor([0.0, 0.5]), exact) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SlidingWindowAttention(0), "window=0"),
        (lambda: SlidingWindowAttention(4, dropout=1.0), "dropout=1.0"),
        (lambda: LinformerAttention(8, 9), "rank=9, length=8"),
        (lambda: LinformerAttention(8, 4)(*(one.float() for one in rows(9))), "at most 8"),
        (lambda: SlidingWindowAttention(4)(*rows(8)[:2], rows(9)[2]), "alike"),
        (lambda: SlidingWindowAttention(4)(*(one[0] for one in rows(8))), "alike"),
    ],
)
def test_a_wrong_argument_is_said(make, words):
    with pytest.raises(ValueError, match=words):
        make()
