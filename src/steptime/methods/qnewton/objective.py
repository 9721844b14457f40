"""A model with its loss, as a function that curvature can be taken of, through torch.func."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
# Batch statistics make one sample's output depend on the others, so it has no gradient of its own.
_MIXES = (nn.modules.batchnorm._BatchNorm, nn.SyncBatchNorm)


class Objective:
    """The mean loss of a batch; calling it notes the batch, for `QNewton` to look at.

    Args:
        model: called with the inputs of a batch; its first dimension is the samples.
        loss: from outputs (samples, ...) and targets (samples, ...) to the mean over samples.

    Raises:
        ValueError: the model has nothing to train.
    """

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        self.model = model
        self.loss = loss
        self.parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self.batch: tuple[torch.Tensor, torch.Tensor] | None = None
        if not self.parameters:
            raise ValueError("no parameter of the model requires a gradient, so nothing to train")

    def __call__(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean loss of the batch, a scalar with its graph."""
        self.batch = (inputs, targets)
        value = self.loss(self.model(inputs), targets)
        if value.numel() != 1:
            raise ValueError(
                f"the loss must be one number, the mean over samples, got {tuple(value.shape)}"
            )
        return value

    def outputs_at(self, some: Mapping[str, torch.Tensor], inputs: torch.Tensor) -> Any:
        """The model's outputs with some parameters in place of its own."""
        # Those of its own without their graph: nobody differentiates by them here.
        whole = {**self.current(self.parameters), **some}
        return torch.func.functional_call(self.model, whole, (inputs,))

    def loss_at(self, some: Mapping[str, torch.Tensor], batch: Any) -> torch.Tensor:
        """The mean loss of a batch with some parameters in place of the model's own."""
        inputs, targets = batch
        return self.loss(self.outputs_at(some, inputs), targets)

    def current(self, names: Any) -> dict[str, torch.Tensor]:
        """The parameters of these names, without a graph."""
        return {name: self.parameters[name].detach() for name in names}

    def refuse_mixing(self) -> None:
        """Refuse a model whose samples see each other.

        Raises:
            ValueError: a batch norm is in training mode.
        """
        for name, module in self.model.named_modules():
            if isinstance(module, _MIXES) and module.training:
                raise ValueError(
                    f"{name or 'the model'} is a batch norm in training mode, which mixes samples: "
                    "call its eval(), or take curvature='hessian'"
                )


def kronecker_factors(
    objective: Objective, batch: tuple[torch.Tensor, torch.Tensor]
) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Return K-FAC's two factors of each linear layer's weight, by the parameter's name.

    They are the mean outer products of the inputs, (in, in), and of the gradients at the outputs,
    (out, out). Layers whose input is not (samples, in) are left out, and those called twice.

    Source: Martens and Grosse, arXiv 1503.05671, with the gradients of the targets themselves.
    """
    names = {id(parameter): name for name, parameter in objective.parameters.items()}
    seen: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
    twice: set[str] = set()

    def note(module: nn.Module, inputs: Any, output: torch.Tensor) -> None:
        name = names.get(id(module.weight))
        if name is not None and output.dim() == 2:
            if name in seen:
                twice.add(name)
            seen[name] = (inputs[0].detach(), output)

    hooks = [
        module.register_forward_hook(note)
        for module in objective.model.modules()
        if isinstance(module, nn.Linear)
    ]
    try:
        with torch.enable_grad():
            value = objective.loss(objective.model(batch[0]), batch[1])
    finally:
        for hook in hooks:
            hook.remove()
    used = [name for name in seen if name not in twice]
    if not used:
        return {}
    gradients = torch.autograd.grad(value, [seen[name][1] for name in used])
    factors = {}
    for name, gradient in zip(used, gradients, strict=True):
        inputs, num = seen[name][0], len(gradient)
        # The loss is a mean: a sample's own gradient is num times as large.
        factors[name] = (inputs.T @ inputs / num, gradient.T @ gradient * num)
    return factors
