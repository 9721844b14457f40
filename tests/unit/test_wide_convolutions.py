"""Convolutions as wide as their rows, as a matmul: the same results and gradients, twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from steptime.levers.base import Facts  # noqa: E402
from steptime.levers.matmuls import wide_convolutions  # noqa: E402
from steptime.levers.matmuls.wide_convolutions import LEVER  # noqa: E402

WIDTH, FILTERS = 20, 7


@contextmanager
def the_lever() -> Iterator[None]:
    undo = LEVER.apply({}, SimpleNamespace(torch=torch))
    try:
        yield
    finally:
        undo()


def results(x: Any, layer: Any) -> list[Any]:
    made = layer(x)
    leaves = [x, *layer.parameters()]
    gradients = torch.autograd.grad(made.square().sum(), leaves, create_graph=True)
    again = torch.autograd.grad(sum(one.square().sum() for one in gradients), leaves)
    return [made, *gradients, *again]


@pytest.mark.parametrize("padding", [0, 2, (3, 0)])
@pytest.mark.parametrize("words", [1, 3, 5])
@pytest.mark.parametrize("bias", [True, False])
def test_results_and_both_gradients_are_those_of_the_layer(
    *, padding: Any, words: int, bias: bool
) -> None:
    torch.manual_seed(0)
    # A padding at both sides of a row makes it wider than the kernel: that is left alone.
    layer = torch.nn.Conv2d(1, FILTERS, (words, WIDTH), padding=padding, bias=bias).double()
    x = torch.randn(4, 1, 9, WIDTH, dtype=torch.float64, requires_grad=True)
    expected = results(x, layer)
    with the_lever():
        found = results(x, layer)

    assert found[0].stride() == expected[0].stride()
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_in_16_bits_the_sum_is_taken_in_32_and_the_dtype_is_autocasts() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Conv2d(1, FILTERS, (5, WIDTH))
    x = torch.randn(4, 1, 9, WIDTH)
    exact = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        own = layer(x)
        with the_lever():
            found = layer(x)

    assert found.dtype == own.dtype
    assert (found - exact).abs().max() <= 2 * (own - exact).abs().max()


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (torch.nn.Conv2d(1, 2, (3, WIDTH), stride=(2, 1)), (2, 1, 9, WIDTH)),
        (torch.nn.Conv2d(1, 2, (3, WIDTH)), (2, 1, 9, WIDTH + 1)),
        (torch.nn.Conv2d(1, 2, (3, WIDTH)), (1, 9, WIDTH)),
        (torch.nn.Conv2d(1, 2, (3, WIDTH), padding="valid"), (2, 1, 9, WIDTH)),
        (torch.nn.Conv2d(2, 2, (3, WIDTH)), (2, 2, 9, WIDTH)),
        (torch.nn.Conv2d(1, 2, (3, 3)), (2, 1, 9, 3)),
    ],
)
def test_other_convolutions_are_left_alone(
    layer: Any, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(shape)
    expected = layer(x)
    monkeypatch.setattr(wide_convolutions, "convolve", None)
    with the_lever():
        assert torch.equal(layer(x), expected)


def test_too_few_words_are_refused_as_before() -> None:
    with the_lever(), pytest.raises(RuntimeError, match=r"[Kk]ernel size"):
        torch.nn.Conv2d(1, 2, (3, WIDTH))(torch.randn(2, 1, 2, WIDTH))


def test_it_applies_where_a_kernel_is_wide() -> None:
    facts = Facts(torch_version="2.13.0")

    assert LEVER.applies(facts) is None
    assert "16 columns" in str(LEVER.applies(Facts(torch_version="2.13.0", widest_kernel=3)))
    assert LEVER.applies(Facts(torch_version="2.13.0", widest_kernel=300)) is None
