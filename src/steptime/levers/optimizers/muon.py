"""Adam and AdamW of torch whose hidden matrices get Muon's update.

This is no lever, as it has no `LEVER`. Like the levers, it imports only the standard library.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from .low_memory_states import named_as_torchs


def ends_of(torch: Any, model: Any) -> list[Any]:
    """Return the weights of embeddings and of the last linear layer: Muon is not for them."""
    modules = list(model.modules())
    linear = [one for one in modules if isinstance(one, torch.nn.Linear)]
    embeddings = [one for one in modules if isinstance(one, torch.nn.Embedding)]
    return [one.weight for one in (*embeddings, *linear[-1:])]


def make_muon(optim: Any, own: Any, keeps: Any) -> type:
    """Return a subclass of Adam or AdamW (`own`) that updates matrices by Muon, less `keeps`."""
    decays = own.__name__ == "AdamW"  # Adam's decay is part of the gradient, which Muon has not
    step_of_own, step_of_muon = inspect.unwrap(own.step), inspect.unwrap(optim.Muon.step)

    def step(self: Any, closure: Any = None) -> Any:
        torch, loss = import_module("torch"), None
        hidden: dict[Any, Any] = {}
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            for group in self.param_groups:
                taken = [p for p in group["params"] if is_hidden_matrix(p) and p not in keeps]
                if taken:
                    inner = optim.Muon(
                        taken,
                        lr=group["lr"],
                        weight_decay=group["weight_decay"] if decays else 0.0,
                        adjust_lr_fn="match_rms_adamw",
                    )
                    inner.state = self.state  # one place for both: a checkpoint has it all
                    step_of_muon(inner)
                hidden.update((weight, weight.grad) for weight in taken)
            for weight in hidden:
                weight.grad = None
            step_of_own(self)
            for weight, gradient in hidden.items():
                weight.grad = gradient
        return loss

    return named_as_torchs(own.__name__, own, own.__init__, step=step)


def is_hidden_matrix(weight: Any) -> bool:
    """Return whether Muon can update a weight that has a gradient."""
    return weight.grad is not None and weight.dim() == 2 and not weight.grad.is_sparse
