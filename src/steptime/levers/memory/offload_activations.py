"""What autograd keeps of a model on a device lies in the memory of the host until the backward.

Each large tensor is copied to pinned memory when it is saved, beside the arithmetic, and back when
the backward needs it, as torch's own `save_on_cpu` does it. A copy has the same bits and strides.
Weights, buffers and small tensors stay on the device: torch's own context copies weights, too, and
makes each copy contiguous, which lets kernels choose another way to compute.

Source: torch.autograd.graph.save_on_cpu; Rhu et al., vDNN (2016).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from ..tools.memory_room import MIN_MEMORY_FRACTION, why_memory_suffices

MIN_BYTES = 1 << 20
"""A smaller tensor is not worth a copy, which takes some 10 us to begin."""

MAX_HOST_FRACTION = 0.5
"""Of the host's free memory: what is pinned cannot be swapped, and loaders need some."""


def applies(facts: Facts) -> str | None:
    """It applies to a training on a CUDA device whose activations the host has room for."""
    if facts.device != "cuda":
        return "The training is on no CUDA device, so there is no other memory to move to."
    if facts.uses_compile:
        return "The script compiles its model, which decides itself what it saves."
    size, room = held(facts), facts.available_bytes
    if size is not None and room is not None and size > MAX_HOST_FRACTION * room:
        return f"The host has no room for {size / 2**30:.1f} GiB of pinned memory."
    return why_memory_suffices(facts)


def held(facts: Facts) -> int | None:
    """Return the bytes of activations at the fullest moment of a step, if they are known."""
    parts = facts.peak_bytes if facts.peak_bytes is not None else facts.held_bytes
    return None if parts is None else parts.get("activations")


def frees(facts: Facts, settings: Settings) -> int | None:
    """Return the activations; small ones among them stay, so it is the most that is freed."""
    return held(facts)


class Offloader:
    """Packs and unpacks what autograd saves in calls of models."""

    def __init__(self, torch: Any, device_type: str = "cuda") -> None:
        self.torch = torch
        self.device_type = device_type
        self.is_pinned = device_type == "cuda"
        self.num_moved = 0

    def run(self, call: Callable[..., Any], model: Any, args: Any, kwargs: Any) -> Any:
        """Call a model, and move what autograd saves of it."""
        own = {
            one.untyped_storage().data_ptr()
            for one in (*model.parameters(), *model.buffers())
            if one.device.type == self.device_type and one.layout is self.torch.strided
        }

        def pack(tensor: Any) -> Any:
            is_moved = (
                tensor.device.type == self.device_type
                and tensor.layout is self.torch.strided
                and tensor.numel() * tensor.element_size() >= MIN_BYTES
                and tensor.untyped_storage().data_ptr() not in own
                and self.torch.empty_like(tensor, device="meta").stride() == tensor.stride()
            )
            if not is_moved:
                return tensor.detach()  # its graph would refer to itself
            self.num_moved += 1
            copy = self.torch.empty_like(tensor, device="cpu", pin_memory=self.is_pinned)
            return tensor.device, copy.copy_(tensor.detach(), non_blocking=self.is_pinned)

        with self.torch.autograd.graph.saved_tensors_hooks(pack, self.unpack):
            return call(model, *args, **kwargs)

    def unpack(self, packed: Any) -> Any:
        """Return what was packed, on its own device."""
        if self.torch.is_tensor(packed):
            return packed
        device, copy = packed
        return copy.to(device, non_blocking=self.is_pinned)


def apply(settings: Settings, session: Session) -> Undo:
    """Move what autograd saves in each outermost call of a model."""
    return session.wrap_calls(Offloader(session.torch).run)


LEVER = Lever(
    name="offload_activations",
    title="Keep large activations in the host's memory until the backward needs them.",
    relieves=("MEMORY_CAPACITY_BOUND",),
    phases=("forward", "forward_and_loss", "backward"),
    preserves=Preserves.EXACT,
    when=f"The training holds {MIN_MEMORY_FRACTION:.0%} of the memory that its CUDA device has, "
    "the model is not compiled, and the host has room for its activations twice.",
    applies=applies,
    moment=Moment.LIVE,
    frees=frees,
    apply=apply,
    edit=lambda settings: (
        "with torch.autograd.graph.save_on_cpu(pin_memory=True):\n    outputs = model(inputs)"
    ),
    costs="Two copies of each large activation over PCIe or NVLink in a step, and pinned memory of "
    "the host. Checkpointing frees more for less where a block is quick to compute.",
    source="https://docs.pytorch.org/docs/stable/autograd.html#torch.autograd.graph.save_on_cpu",
)
