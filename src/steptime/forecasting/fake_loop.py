"""The usual training loop on fakes: copies of a model and its optimizer, and steps of them.

In: what the caller trains. Out: steps that a `FakeStep` may follow. The caller's model, optimizer
and batch are left as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from steptime.counting.loss_outputs import Loss, roots_of
from steptime.errors import UsageError
from steptime.guest.forecast.fake_mode import Fakes
from steptime.guest.forecast.fake_step import FakeStep
from steptime.guest.memory.holdings import tensors_within

DTYPES = {"bf16": "bfloat16", "fp16": "float16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeLoop:
    """Some micro-batches forward and backward, then an update.

    Attributes:
        torch: the module.
        model: with fake parameters.
        optimizer: of these.
        batch: what the model is called with.
        loss: what goes backward, of what the model returned.
        autocast: None, `bf16`, `fp16`, or a dtype of torch.
        num_micro_batches: of a step.
        set_to_none: whether gradients are dropped rather than filled with zeros.
    """

    torch: Any
    model: Any
    optimizer: Any
    batch: Any
    loss: Loss
    autocast: Any
    num_micro_batches: int
    set_to_none: bool

    def step(self, followed: FakeStep | None) -> None:
        """Make one step; show its moments to whoever follows it."""
        self.optimizer.zero_grad(set_to_none=self.set_to_none)
        held: list[Any] = []  # as a script's own names hold them
        for _ in range(self.num_micro_batches):
            if followed is not None:
                followed.see_next()
            self._go_backward(followed, held)
        if followed is not None:
            followed.see_gradients([self.model], [self.optimizer])
        self.optimizer.step()
        held.clear()

    def _go_backward(self, followed: FakeStep | None, held: list[Any]) -> None:
        """Make a micro-batch; `held` has the output and the loss of the last one."""
        with self._autocast():
            output = call(self.model, self.batch)
            held[:] = [output, *held[1:]]
            if followed is not None:
                followed.see_result(output)
            roots = roots_of(self.torch, output, self.loss)
            held[1:] = [roots]
        if not roots:
            raise UsageError(
                "the model returned nothing with gradients, so there is no step to forecast; "
                "give loss=, a function of what it returns."
            )
        if followed is not None:
            followed.see_backward(roots, [self.model], [self.optimizer])
        self.torch.autograd.backward(roots, [self.torch.ones_like(one) for one in roots])

    def _autocast(self) -> Any:
        if self.autocast is None:
            return nullcontext()
        dtype = self.autocast
        if isinstance(dtype, str):
            if dtype not in DTYPES:
                raise UsageError(f"`autocast` must be 'bf16', 'fp16' or a dtype, got {dtype!r}")
            dtype = getattr(self.torch, DTYPES[dtype])
        device = next(self.model.parameters()).device.type
        return self.torch.autocast(device, dtype=dtype)


def call(model: Callable[..., Any], batch: Any) -> Any:
    """Call a model with a batch: by name, by place, or as it is."""
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, (tuple, list)) else model(batch)


def with_fakes(torch: Any, fakes: Fakes, batch: Any) -> Any:
    """Return a batch whose tensors on the meta device are fake; real ones stay, and are read."""
    if isinstance(batch, torch.Tensor):
        return fakes.of(batch) if batch.device.type == "meta" else batch
    if isinstance(batch, Mapping):
        return {key: with_fakes(torch, fakes, one) for key, one in batch.items()}
    if isinstance(batch, (tuple, list)):
        return [with_fakes(torch, fakes, one) for one in batch]
    return batch


def copy_as_fakes(torch: Any, fakes: Fakes, model: Any, optimizer: Any) -> tuple[Any, Any]:
    """Return a copy of a model with fake parameters, and its optimizer.

    Buffers stay real, since they are small, and models read them.

    Raises:
        UsageError: the model cannot be copied, or has no parameters.
    """
    memo = fakes.memo_of(model.parameters())
    if not memo:
        raise UsageError(f"the model ({type(model).__name__}) has no parameters to train.")
    memo |= fakes.memo_of(one for one in model.buffers() if one.device.type == "meta")
    try:
        if not isinstance(optimizer, torch.optim.Optimizer):
            copied = copy.deepcopy(model, memo)
            return copied, optimizer([one for one in copied.parameters() if one.requires_grad])
        states = tensors_within(torch, [dict(optimizer.state)])
        memo |= fakes.memo_of(one for one in states if one.ndim)
        copied, stepper = copy.deepcopy((model, optimizer), memo)
    except (RuntimeError, TypeError) as error:
        raise UsageError(
            f"the model or its optimizer cannot be copied: {error}. "
            "Forecast the command that trains it instead."
        ) from error
    return copied, stepper
