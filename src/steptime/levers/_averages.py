"""Running averages of the weights that optimizers update, and their place in an evaluation.

This is no lever, as it has no `LEVER`. Like the levers, it imports only the standard library.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from importlib import import_module
from typing import Any

WARMUP = 10
"""The decay of the n-th average is at most (1 + n) / (10 + n), as in TensorFlow's: else the first
weights would weigh most for as long as an average reaches."""


class Averages:
    """The average of each weight that was updated, and of the statistics of its model.

    While a model is evaluated its tensors hold averages, and `_values` what the training goes on
    with; otherwise `_values` holds the averages. Values are exchanged in place, past autograd's
    counters: what a graph has kept is right again once they are back.
    """

    def __init__(self, torch: Any, decay: float) -> None:
        self._torch = torch
        self._decay = decay
        self._update = import_module("torch.optim.swa_utils").get_ema_multi_avg_fn
        self._values = import_module("torch.utils.weak").WeakIdKeyDictionary()
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._own_versions = import_module("torch.utils.weak").WeakIdKeyDictionary()
        self._models: weakref.WeakSet[Any] = weakref.WeakSet()

    def add_model(self, model: Any) -> None:
        """Take note of a model that is called with gradients."""
        self._models.add(model)

    def after_step(self, optimizer: Any) -> None:
        """Move the averages of what an optimizer updates towards its weights."""
        updated = {id(p): p for group in optimizer.param_groups for p in group["params"]}
        for model in self._models:
            if any(id(p) in updated for p in model.parameters()):
                updated |= {id(one): one for one in model.buffers()}
        tensors = [one for one in updated.values() if one.is_floating_point()]
        new = [one for one in tensors if one not in self._values]
        self._values.update((one, one.detach().clone()) for one in new)
        known = {id(one) for one in new}
        number = self._numbers.get(optimizer, 0) + 1
        self._numbers[optimizer] = number
        decay = min(self._decay, (1 + number) / (WARMUP + number))
        for alike in grouped(one for one in tensors if id(one) not in known):
            with self._torch.no_grad():
                self._update(decay)([self._values[one] for one in alike], alike, number)

    def covers(self, module: Any) -> bool:
        """Return whether a module holds all that is trained of some model."""
        own = {id(one) for one in module.parameters()}
        for model in self._models:
            trained = {id(one) for one in model.parameters() if one in self._values}
            if trained and trained <= own:
                return True
        return False

    def put_in(self, module: Any) -> None:
        """Put averages into a model."""
        for one in self._averaged(module):
            self._exchange(one)
            self._own_versions[one] = one._version

    def put_back(self, module: Any) -> None:
        """Put a model's own values back.

        A tensor that the script has filled meanwhile, as from a checkpoint, keeps that, and its
        average begins there.
        """
        for one in self._averaged(module):
            if self._own_versions.get(one) == one._version:
                self._exchange(one)
            else:
                del self._values[one]

    def _averaged(self, module: Any) -> list[Any]:
        held = {id(one): one for one in (*module.parameters(), *module.buffers())}
        return [one for one in held.values() if one in self._values]

    def _exchange(self, tensor: Any) -> None:
        with self._torch.no_grad():
            kept = tensor.data.clone()
            tensor.data.copy_(self._values[tensor])
            self._values[tensor].copy_(kept)


def grouped(tensors: Iterable[Any]) -> Iterable[list[Any]]:
    """Return lists of tensors of one type on one device, as torch's update wants them."""
    found: dict[tuple[Any, Any], list[Any]] = {}
    for one in tensors:
        found.setdefault((one.device, one.dtype), []).append(one)
    return found.values()
