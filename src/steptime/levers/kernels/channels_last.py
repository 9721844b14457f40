"""Images and convolution weights with the channels side by side in memory (NHWC).

Vectorized and tensor-core convolutions read them in this order; in the other order they are
converted at each operator. Weights are converted in place, and their gradients and optimizer states
with them: otherwise a fused optimizer would apply them to the wrong elements. Dropout draws its
numbers in the order of memory, so it gets images in the usual order and drops the same elements.

Source: PyTorch tutorial "Channels Last Memory Format in PyTorch" (Ma, 2020); Composer's
algorithm of this name.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from ..tools.optimizer_layout import drop_as_before, lay_out_gradients, lay_out_states
from ..tools.tensors import map_tensors


def applies(facts: Facts) -> str | None:
    """Return why it does not apply, if so."""
    if facts.device not in ("cpu", "cuda"):
        return f"It has not been tested on {facts.device}."
    if facts.is_channels_last:
        return "The script uses channels_last itself."
    if facts.has_convolution is False:
        return "No convolution over images was seen."
    return None


def apply(settings: Settings, session: Session) -> Undo:
    """Convert the weights of each model and the images that go into it."""
    turned = Turned(session.torch)

    def run(call: Callable[..., Any], model: Any, args: Any, kwargs: Any) -> Any:
        args = map_tensors(session.torch, args, turned.turn_input)
        return call(model, *args, **map_tensors(session.torch, kwargs, turned.turn_input))

    undos = (
        session.for_each_optimizer(turned.follow),
        session.for_each_model(turned.turn_model),
        session.wrap_calls(run),
        drop_as_before(session.torch),
    )

    def undo() -> None:
        for take_back in undos:
            take_back()
        turned.turn_back()

    return undo


class Turned:
    """The weights that were converted, and how they were laid out before."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.weights: list[tuple[weakref.ref[Any], tuple[int, ...]]] = []
        self.optimizers: list[weakref.ref[Any]] = []

    def turn_input(self, tensor: Any) -> Any:
        """Return the images of a batch with channels last, and anything else unchanged.

        Of one channel, `contiguous` would leave strides that convolutions take for the usual order.
        """
        if tensor.dim() != 4 or not tensor.is_floating_point():
            return tensor
        return tensor.to(memory_format=self.torch.channels_last)

    def turn_model(self, model: Any) -> None:
        """Convert the weights of a model, and what belongs to them."""
        fresh = [one for one in model.parameters() if one.dim() == 4]
        fresh = [one for one in fresh if self.turn_input(one.data).stride() != one.stride()]
        self.weights += [(weakref.ref(one), one.stride()) for one in fresh]
        for one in fresh:
            one.data = self.turn_input(one.data)
        self.align(fresh)

    def follow(self, optimizer: Any) -> None:
        """Keep the states of an optimizer laid out like its weights."""
        self.optimizers.append(weakref.ref(optimizer))
        lay_out_states(self.torch, optimizer)

    def turn_back(self) -> None:
        """Lay out the weights as they were."""
        alive = [(reference(), strides) for reference, strides in self.weights]
        for one, strides in alive:
            if one is not None:
                like = self.torch.empty_strided(
                    one.shape, strides, dtype=one.dtype, device=one.device
                )
                one.data = like.copy_(one.data)
        self.align([one for one, _ in alive if one is not None])

    def align(self, weights: list[Any]) -> None:
        """Lay out gradients and states like the weights."""
        lay_out_gradients(self.torch, weights)
        for reference in self.optimizers:
            if (optimizer := reference()) is not None:
                lay_out_states(self.torch, optimizer)


def edit(settings: Settings) -> str:
    """Return the lines that do it in the script."""
    return (
        "model = model.to(memory_format=torch.channels_last)  # before the optimizer is made\n"
        "images = images.to(memory_format=torch.channels_last)  # each batch"
    )


LEVER = Lever(
    name="channels_last",
    title="Keep images and convolution weights with the channels last in memory.",
    relieves=("COMPUTE_BOUND",),
    phases=("forward", "forward_and_loss", "backward"),
    preserves=Preserves.NUMERIC,
    when="The model convolves images that are in PyTorch's usual order of memory.",
    applies=applies,
    moment=Moment.LIVE,
    judged_by_cpu_time=True,
    apply=apply,
    edit=edit,
    costs="A model that flattens images with `view` may raise an error; `reshape` works.",
    source="https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html",
)
