"""From which outputs the gradients start: `loss=`, and the rule without it."""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

import steptime  # noqa: E402
from steptime.errors import UsageError  # noqa: E402

ROWS, WIDTH = 8, 16
ONE = 2 * ROWS * WIDTH * WIDTH  # a product of the input with one weight


class Three(nn.Module):
    """Three layers side by side on two that are shared; `form` makes its output."""

    def __init__(self, form: Any) -> None:
        super().__init__()
        self.body, self.second = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.heads = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.form = form

    def forward(self, x: torch.Tensor) -> Any:
        middle = self.second(self.body(x))
        return self.form(*(head(middle) for head in self.heads))


@dataclass
class Output:
    logits: Any
    loss: Any = None


class Plain:
    """No collection, no data class: attributes."""

    def __init__(self, logits: Any) -> None:
        self.logits = logits


def backward_of(form: Any, **loss: Any) -> int:
    """The gradients of three heads, or of those that go backward, in products."""
    found = steptime.count(Three(form), torch.randn(ROWS, WIDTH), **loss)
    assert found.forward == 5 * ONE
    return found.backward


BODY = 3 * ONE  # of the two shared layers; the first has no gradient of its input


def heads(num: int) -> int:
    return BODY + 2 * num * ONE


@pytest.mark.parametrize(
    ("form", "num"),
    [
        (lambda a, b, c: (a, b, c), 3),
        (lambda a, b, c: {"a": a, "b": b.detach(), "c": [c]}, 2),
        (lambda a, b, c: a, 1),
        (lambda a, b, c: (a, F.mse_loss(a, b)), 2),  # the number is computed from all others
        (lambda a, b, c: (a, None, a.sum() + b.sum() + c.sum()), 3),
        (lambda a, b, c: {"loss": a.mean(), "scores": b, "more": c.sum()}, 1),
        (lambda a, b, c: Output(logits=b, loss=a.mean()), 1),
        (lambda a, b, c: Output(logits=b), 1),
        (lambda a, b, c: Plain((a, b)), 2),
        (lambda a, b, c: (a, b, c.sum().item()), 2),
        (lambda a, b, c: (a.sum() + b.sum(), a.sum().detach()), 2),
        (lambda a, b, c: (a.sum(), b.argmax()), 1),
    ],
)
def test_without_a_loss_the_outputs_say_what_goes_backward(form: Any, num: int) -> None:
    assert backward_of(form) == heads(num)


@pytest.mark.parametrize(
    "form",
    [
        lambda a, b, c: (a, b, c.sum()),  # the last number has a third of the gradients
        lambda a, b, c: (a.sum(), b.sum()),
        lambda a, b, c: {"first": a.sum(), "second": b.sum(), "third": c.sum()},
    ],
)
def test_where_a_number_may_be_the_loss_alone_it_asks_for_it(form: Any) -> None:
    with pytest.raises(UsageError, match=r"tensors with gradients.* loss=lambda output"):
        backward_of(form)


Named = collections.namedtuple("Named", "a b")


@pytest.mark.parametrize(
    ("form", "loss", "num"),
    [
        (lambda a, b, c: (a, b, c.sum()), lambda output: output[2], 1),
        (lambda a, b, c: (a, b, c.sum()), lambda output: output[0].sum() + output[2], 2),
        (lambda a, b, c: (a, b, c.sum()), 2, 1),
        (lambda a, b, c: (a, b, c.sum()), -3, 1),
        (lambda a, b, c: {"first": a.sum(), "second": b.sum()}, "second", 1),
        (lambda a, b, c: {"first": a.sum(), "second": b.sum()}, lambda o: list(o.values()), 2),
        (lambda a, b, c: Output(logits=(a, b), loss=c.sum()), "logits", 2),
        (lambda a, b, c: Named(a.sum(), b.sum()), "b", 1),
    ],
)
def test_a_loss_is_a_function_an_index_a_key_or_an_attribute(
    form: Any, loss: Any, num: int
) -> None:
    assert backward_of(form, loss=loss) == heads(num)


def test_products_in_the_loss_count_as_forward() -> None:
    layer, x = nn.Linear(WIDTH, WIDTH, bias=False), torch.randn(ROWS, WIDTH)

    found = steptime.count(layer, x, loss=lambda out: F.cross_entropy(out @ out.T, torch.arange(8)))

    assert found.forward == ONE + 2 * ROWS * ROWS * WIDTH
    assert found.backward == ONE + 2 * 2 * ROWS * ROWS * WIDTH


@pytest.mark.parametrize(
    ("loss", "told"),
    [
        ("missing", "loss='missing': the model returned a tuple of 2, which has no such part"),
        (5, "loss=5: the model returned a tuple of 2"),
        (lambda output: output[0].detach(), "a tensor of shape .8, 16., which has no gradients"),
        (lambda output: output[0].sum().item(), "loss= gave a float, which has no gradients"),
    ],
)
def test_a_loss_that_does_not_fit_is_told(loss: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        backward_of(lambda a, b, c: (a, b), loss=loss)


def test_without_gradients_the_loss_is_part_of_the_forward_alone() -> None:
    with torch.no_grad():
        assert backward_of(lambda a, b, c: (a, b), loss=lambda output: output[0].sum()) == 0
        assert backward_of(lambda a, b, c: (a, b), loss=1) == 0
