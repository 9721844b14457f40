"""Batches that are not copied into pinned memory, where no device takes them from there.

Where there is an accelerator, a loader with pin_memory=True copies each batch once more in a thread
of its own. That serves copies to the device, and nothing else: a training on the CPU pays for it.
On a machine without an accelerator, torch ignores the argument. Untested on a machine with one.

Source: https://docs.pytorch.org/docs/stable/data.html#memory-pinning.
"""

from __future__ import annotations

import weakref
from typing import Any

from .base import Facts, Lever, Moment, Preserves, Session, Settings, Undo


def applies(facts: Facts) -> str | None:
    """It applies where a training on the CPU reads from a loader that pins its batches."""
    if facts.device != "cpu":
        return "The batches go to a device, and pinned memory makes those copies faster."
    if facts.has_accelerator is None:
        return "It was not observed whether there is an accelerator."
    if not facts.has_accelerator:
        return "There is no accelerator, so torch pins nothing."
    if facts.loaders is not None and not any(loader.pin_memory for loader in facts.loaders):
        return "No DataLoader that feeds the training pins its batches."
    return None


def apply(settings: Settings, session: Session) -> Undo:
    """Turn pinning off for each loader that is iterated with gradients on."""
    torch = session.torch
    loader_class = torch.utils.data.DataLoader
    iterate = loader_class.__iter__
    changed: weakref.WeakSet[Any] = weakref.WeakSet()

    def iterate_unpinned(self: Any) -> Any:
        if self.pin_memory and torch.is_grad_enabled():
            self.pin_memory = False
            changed.add(self)
        return iterate(self)

    def undo() -> None:
        loader_class.__iter__ = iterate
        for loader in changed:
            loader.pin_memory = True

    loader_class.__iter__ = iterate_unpinned
    return undo


LEVER = Lever(
    name="no_pin_memory",
    title="Leave batches where they are, as no device takes them from pinned memory.",
    relieves=("INPUT_BOUND",),
    phases=("input_wait", "epoch_start"),
    preserves=Preserves.EXACT,
    when="The training runs on the CPU of a machine with an accelerator, and a loader pins.",
    applies=applies,
    space=lambda facts: ({},),
    moment=Moment.STARTUP,
    apply=apply,
    edit=lambda settings: "DataLoader(..., pin_memory=False)",
    costs="None, while the batches stay on the CPU. Untested on a machine with an accelerator.",
    source="https://docs.pytorch.org/docs/stable/data.html#memory-pinning",
)
