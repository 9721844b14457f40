"""A softmax over masked scores in a loss's graph, found by the names of its nodes."""

from __future__ import annotations

from typing import Any

import pytest

from steptime.guest.sense.masked_rows import masked_softmax

torch = pytest.importorskip("torch")

MASK = torch.zeros(3, 5).bool()


def attend(kind: str, scores: Any) -> Any:
    if kind == "filled":
        return (scores / 2).masked_fill(MASK, -torch.inf).softmax(-1)
    if kind == "where":
        return torch.where(MASK, -torch.inf, scores).transpose(0, 1).softmax(0)
    if kind == "added":
        return (scores + torch.zeros(3, 5)).softmax(-1)
    if kind == "of_two":  # no mask: both come from weights
        return (scores + 2 * scores).softmax(-1)
    return scores.softmax(-1)


@pytest.mark.parametrize("kind", ["filled", "where", "added", "of_two", "plain"])
def test_what_masks_the_scores_of_a_softmax_is_seen(kind: str) -> None:
    first, scores = torch.nn.Linear(4, 5), torch.nn.Linear(5, 5)
    names = {id(first.weight): "first.weight", id(scores.weight): "scores.weight"}
    loss = attend(kind, scores(first(torch.rand(3, 4)))).square().sum()

    found = masked_softmax(loss.grad_fn, names)

    assert found == (None if kind in ("of_two", "plain") else "scores")


def test_attention_of_torch_masks_its_scores() -> None:
    model = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    names = {id(weight): f"attention.{name}" for name, weight in model.named_parameters()}
    rows, hidden = torch.rand(3, 5, 8), torch.zeros(3, 5).bool()

    masked, _ = model(rows, rows, rows, key_padding_mask=hidden)

    assert masked_softmax(masked.sum().grad_fn, names) == "attention"
