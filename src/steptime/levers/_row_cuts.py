"""Rows of tokens that are cut to a length: all tables of a batch together.

This is no lever, as it has no `LEVER`. Like the levers, it imports only the standard library.
"""

from __future__ import annotations

import weakref
from typing import Any

from ._padding import fields_of, find_useful, is_tied, is_whole
from ._tensors import map_tensors

MIN_LENGTH = 32
"""Shorter rows of whole numbers may be columns of a table, of which each has its meaning."""

MULTIPLE = 8
"""Lengths are multiples of this: matrix units are fast for those, and there are fewer shapes."""

TARGETS = ("labels", "targets", "target")
"""What a model that computes its loss itself calls the wanted tokens."""


def length_at(full: int, fraction: float) -> int:
    """Return the length for a fraction of a row of `full` tokens."""
    if fraction >= 1:
        return full
    wanted = int(full * fraction) // MULTIPLE * MULTIPLE
    return min(full, max(MULTIPLE, wanted))


def is_table(torch: Any, tensor: Any) -> bool:
    """Return whether a tensor holds a row of whole numbers for each sample."""
    if not isinstance(tensor, torch.Tensor) or tensor.dim() != 2 or not tensor.shape[0]:
        return False
    return tensor.shape[1] >= MIN_LENGTH and is_whole(torch, tensor)


def cut_batch(torch: Any, batch: Any, fraction: float) -> Any:
    """Return a batch with shorter rows; the batch itself where there are no rows of tokens.

    Rows that are padded in front stay: their content is at the end.
    """
    fields = list(fields_of(torch, batch))
    tables = [one for _, one in fields if is_table(torch, one)]
    tokens = next((one for one in tables if bool((one > 1).any())), None)
    if tokens is None:
        return batch
    found = find_useful(torch, fields)
    if found is not None and bool((~found[1][:, 0]).any()):
        return batch
    return cut_like(torch, batch, tokens, fraction)


def cut_like(torch: Any, value: Any, tokens: Any, fraction: float) -> Any:
    """Return a value whose tensors of the shape (rows, length, …) of `tokens` are cut."""
    rows, length = tokens.shape
    kept = length_at(length, fraction)
    tensors = [one for _, one in fields_of(torch, value)]
    if kept == length or any(is_tied(tuple(one.shape), rows, length) for one in tensors):
        return value

    def cut(tensor: Any) -> Any:
        is_alike = tuple(tensor.shape[:2]) == (rows, length)
        return tensor[:, :kept].contiguous() if is_alike else tensor

    return map_tensors(torch, value, cut)


class LossesInside:
    """Knows the models that are called with tokens and targets together, and give a loss.

    The first such call of a model is left whole, and what it returns is looked at: with a loss
    outside, the script's own targets would no longer fit.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._known: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()

    def tokens_in(self, args: Any, kwargs: Any) -> Any:
        """Return the tokens of a call, where what may be targets of their shape is in it."""
        given = [*args[:1], *(kwargs[key] for key in ("input_ids", "idx") if key in kwargs)]
        targets = [kwargs[key] for key in TARGETS if key in kwargs] or list(args[1:2])
        pair = [one for one in (*given[:1], *targets[:1]) if is_table(self._torch, one)]
        return pair[0] if len(pair) == 2 and pair[0].shape == pair[1].shape else None

    def is_known(self, model: Any) -> bool:
        """Return whether a call of the model was looked at."""
        return model in self._known

    def has_loss(self, model: Any) -> bool:
        """Return whether that call gave a loss."""
        return self._known[model]

    def look_at(self, model: Any, result: Any) -> None:
        """Take note of whether a result of the model holds a single number with a gradient."""
        tensors = [one for _, one in fields_of(self._torch, result)]
        self._known[model] = any(one.numel() == 1 and one.requires_grad for one in tensors)
