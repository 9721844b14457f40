"""How many samples an update was made from, according to sizes.

It is the leading size of the loader's batch, or else of the outermost model's first tensor. A
two-dimensional tensor of integers holds tokens. Those that an attention mask calls padding do not
count: how many there are is no work of the training, and levers remove them. Without a mask all
elements count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

MAX_DEPTH = 4
"""How deep containers in a batch are searched: a tuple of a dict of a list is deep already."""


def find_tensor(tensor_class: Any, value: Any, depth: int = MAX_DEPTH) -> Any:
    """Return the first tensor in a value of tuples, lists and mappings, or None."""
    if isinstance(value, tensor_class):
        return value
    if not depth:
        return None
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        for part in value:
            found = find_tensor(tensor_class, part, depth - 1)
            if found is not None:
                return found
    return None


class SampleCounter:
    """Counts from update to update; what was fetched but never trained on does not count.

    `unit` is `samples` or `tokens` once something was counted. `count_tokens` returns how many
    tokens of a batch are no padding, or None where the batch does not say it.
    """

    def __init__(self, torch: Any, count_tokens: Callable[[Any], int | None] | None = None) -> None:
        self.tensor_class = torch.Tensor
        self.boolean = torch.bool
        self.count_tokens = count_tokens
        self.unit: str | None = None
        self.reset()

    def reset(self) -> None:
        """Start from zero: this is a new process."""
        self.waiting = 0  # fetched, but no model was called with it yet
        self.count = 0
        self.has_batches = False  # a loader feeds training, so models' inputs do not count
        self.is_counted = False  # this micro-batch was counted by a model's input

    def take_batch(self, batch: Any) -> None:
        """Note a loader's batch."""
        self.waiting += self._size_of(batch)

    def drop_batch(self) -> None:
        """Forget the batch: it was for an evaluation."""
        self.waiting = 0

    def begin_work(self, *inputs: Any) -> None:
        """Count what was fetched: an outermost call with gradients or a backward call begins."""
        if self.waiting:
            self.count += self.waiting
            self.waiting = 0
            self.has_batches = True
        elif inputs and not (self.has_batches or self.is_counted):
            self.count += self._size_of(inputs)
            self.is_counted = True

    def end_backward(self) -> None:
        """Note that a micro-batch is done."""
        self.is_counted = False

    def take(self) -> int:
        """Return the number since the last call; -1 where nothing was seen."""
        count, self.count = self.count, 0
        self.is_counted = False
        return count or -1

    def _size_of(self, batch: Any) -> int:
        tensor = find_tensor(self.tensor_class, batch)
        if tensor is None or not tensor.dim():
            return 0
        has_tokens = tensor.dim() == 2 and not (
            tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == self.boolean
        )
        if self.unit is None:
            self.unit = "tokens" if has_tokens else "samples"
        if self.unit == "samples":
            return int(tensor.shape[0])
        if not has_tokens:
            return 0
        count = None if self.count_tokens is None else self.count_tokens(batch)
        return int(tensor.numel()) if count is None else count
