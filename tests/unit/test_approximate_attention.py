"""Attention over a part of the scores: it is what exact attention gives with the rest hidden."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from steptime.methods.approximate_attention import (  # noqa: E402
    LinformerAttention,
    LSHAttention,
    SlidingWindowAttention,
    hash_buckets,
    relative_error,
    shared_attention,
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


def seen_by_hashing(queries, layer):
    """Which positions see which, told in loops from the paper's words; the same rotations."""
    length, chunk = queries.shape[2], layer.chunk
    reach = (0, 1) if layer.is_causal else (-1, 0, 1)
    num_buckets = 2 * max(1, round(length / chunk)) if length > chunk else 1
    buckets = hash_buckets(queries.flatten(0, 1), num_buckets, layer.rounds)
    seen = torch.zeros(len(buckets), length, length, dtype=torch.bool)
    for row, rounds in enumerate(buckets.tolist()):
        for bucket in rounds:
            order = sorted(range(length), key=lambda at: (bucket[at], at))
            chunk_of = {at: place // chunk for place, at in enumerate(order)}
            for i in range(length):
                for j in range(i + 1 if layer.is_causal else length):
                    is_near = chunk_of[i] - chunk_of[j] in reach
                    seen[row, i, j] |= bucket[i] == bucket[j] and is_near
    return seen.view(*queries.shape[:2], length, length)


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize(("length", "chunk", "rounds"), [(16, 4, 1), (23, 4, 3), (17, 8, 2)])
def test_hashing_is_the_exact_softmax_over_what_any_round_sees(length, chunk, rounds, is_causal):
    layer = LSHAttention(chunk, rounds, is_causal=is_causal)
    (ours, _, values), (theirs, _, wanted) = rows(length, width=4), rows(length, width=4)
    torch.manual_seed(1)
    found = layer(ours, values)
    torch.manual_seed(1)
    seen = seen_by_hashing(theirs.detach(), layer)
    has_other = (seen & ~torch.eye(length, dtype=torch.bool)).any(-1, keepdim=True)
    assert has_other.any()
    assert not seen.tril().equal(torch.ones_like(seen).tril())
    seen &= ~(torch.eye(length, dtype=torch.bool) & has_other)
    keys = torch.nn.functional.normalize(theirs, dim=-1)
    expected = attend(theirs, keys, wanted, attn_mask=seen)

    torch.testing.assert_close(found, expected)
    weight = torch.linspace(-1, 1, found.numel(), dtype=found.dtype).view_as(found)
    for result in (found, expected):
        (result * weight).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    torch.testing.assert_close(values.grad, wanted.grad)


@pytest.mark.parametrize("is_causal", [True, False])
def test_rows_of_one_chunk_are_not_hashed(is_causal):
    queries, _, values = (one.detach() for one in rows(12))
    layer = LSHAttention(12, is_causal=is_causal)

    expected = shared_attention(queries, values, is_causal=is_causal)
    torch.testing.assert_close(layer(queries, values), expected)


def test_more_rounds_of_hashing_come_nearer():
    queries, _, values = (one.detach() for one in rows(128))
    exact = shared_attention(queries, values)
    torch.manual_seed(0)
    far, near = (
        relative_error(LSHAttention(8, rounds)(queries, values), exact) for rounds in (1, 16)
    )

    assert near < 0.6 * far


def test_hashing_loses_less_where_attention_is_sharp():
    queries, _, values = (one.detach() for one in rows(128))
    errors = []
    for given in (queries, 10 * queries):
        torch.manual_seed(0)
        found = LSHAttention(8, 4)(given, values)
        errors.append(relative_error(found, shared_attention(given, values)))

    assert errors[1] < 0.8 * errors[0]


def test_nothing_of_what_comes_later_is_seen():
    queries, _, values = (one.detach() for one in rows(40))
    layer = LSHAttention(8, 2)
    found = []
    for last in (values[:, :, -1:], -values[:, :, -1:]):
        torch.manual_seed(0)
        found.append(layer(queries, torch.cat([values[:, :, :-1], last], 2)))

    assert torch.equal(found[0][:, :, :-1], found[1][:, :, :-1])


def test_half_precision_is_hashed_too():
    queries, _, values = (one.detach().bfloat16() for one in rows(20))
    found = LSHAttention(4, 2)(queries, values)

    assert found.dtype == torch.bfloat16
    assert found.isfinite().all()


def test_values_may_have_another_width():
    queries, keys, _ = rows(12)
    values = rows(12, width=5)[2]

    assert SlidingWindowAttention(4)(queries, keys, values).shape == (2, 3, 12, 5)
    assert LinformerAttention(12, 3).double()(queries, keys, values).shape == (2, 3, 12, 5)
    assert LSHAttention(4)(queries, values).shape == (2, 3, 12, 5)


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
    hashed = LSHAttention(12, dropout=0.5)  # one chunk: there is no chance in it but this
    assert not torch.equal(hashed(*given[:2]), hashed(*given[:2]))
    assert torch.equal(hashed.eval()(*given[:2]), hashed(*given[:2]))


def test_the_error_is_relative():
    exact = torch.tensor([3.0, 4.0])

    assert relative_error(exact, exact) == 0
    assert relative_error(exact + torch.tensor([0.0, 0.5]), exact) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SlidingWindowAttention(0), "window=0"),
        (lambda: SlidingWindowAttention(4, dropout=1.0), "dropout=1.0"),
        (lambda: LSHAttention(0), "chunk=0"),
        (lambda: LSHAttention(4, 0), "rounds=0"),
        (lambda: LSHAttention(4)(rows(8)[0], rows(9)[2]), "alike"),
        (lambda: LinformerAttention(8, 9), "rank=9, length=8"),
        (lambda: LinformerAttention(8, 4)(*(one.float() for one in rows(9))), "at most 8"),
        (lambda: SlidingWindowAttention(4)(*rows(8)[:2], rows(9)[2]), "alike"),
        (lambda: SlidingWindowAttention(4)(*(one[0] for one in rows(8))), "alike"),
    ],
)
def test_a_wrong_argument_is_said(make, words):
    with pytest.raises(ValueError, match=words):
        make()
