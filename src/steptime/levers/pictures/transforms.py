"""Applies the end of a chain of torchvision's transforms to a batch instead of to each sample.

This is no lever, as it has no `LEVER`. The end are the last steps that draw nothing and treat each
image alike: ToTensor, Normalize and the like.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

V1, V2 = "torchvision.transforms.transforms.", "torchvision.transforms.v2."
CONVERTERS = frozenset(
    (
        *(f"{V1}ToTensor", f"{V1}PILToTensor", f"{V2}_deprecated.ToTensor"),
        *(f"{V2}_type_conversion.ToImage", f"{V2}_type_conversion.PILToTensor"),
    )
)
"""They make a tensor of an image."""

SCALING = frozenset((f"{V1}ToTensor", f"{V2}_deprecated.ToTensor"))
BATCHED = frozenset(
    (
        *(V1 + name for name in ("Normalize", "ConvertImageDtype", "Resize", "CenterCrop")),
        *(f"{V2}_misc.{name}" for name in ("Normalize", "ToDtype", "ConvertImageDtype")),
        *(f"{V2}_geometry.{name}" for name in ("Resize", "CenterCrop")),
        f"{V2}_type_conversion.ToPureTensor",
    )
)
"""They draw nothing and take batches of images too."""

CHAINS = frozenset((f"{V1}Compose", f"{V2}_container.Compose"))
CHUNK_BYTES = 1 << 20
"""Of a batch's floats at once: what is worked on stays in a core's cache."""


def name_of(step: Any) -> str:
    """Return the name of an object's class, with its module."""
    return f"{type(step).__module__}.{type(step).__qualname__}"


def steps_of(chain: Any) -> list[Any]:
    """Return the transforms of a chain; a single one is a chain of one."""
    return list(chain.transforms) if name_of(chain) in CHAINS else [chain]


def split(steps: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return the steps for each sample, and those at the end that a batch can take."""
    place = len(steps)
    while place and name_of(steps[place - 1]) in BATCHED:
        place -= 1
    if place and name_of(steps[place - 1]) in CONVERTERS:
        place -= 1
    return steps[:place], steps[place:]


class TransformChain:
    """A chain of transforms, divided into its beginning and the end that a batch can take."""

    def __init__(self, torch: Any, owner: Any) -> None:
        self.torch, self.owner = torch, owner
        self.steps = steps_of(owner)
        self.head, self.tail = split(self.steps)
        self.converter = self.tail[0] if self.tail and name_of(self.tail[0]) in CONVERTERS else None

    def is_current(self) -> bool:
        """Return whether the chain has the steps that were split."""
        is_single = name_of(self.owner) not in CHAINS
        return is_single or list(self.owner.transforms) == self.steps

    def apply_to(self, rows: Any) -> Any:
        """Return the tail's result for rows: images, or what the head gave as tensors."""
        torch, batch = self.torch, rows
        if self.converter is not None:
            batch = rows.unsqueeze(1) if rows.ndim == 3 else rows.permute(0, 3, 1, 2).contiguous()
            if name_of(self.converter) in SCALING:
                batch = batch.to(torch.get_default_dtype()).div_(255)
        for step in self.tail[self.converter is not None :]:
            batch = self.normalize(step, batch) if self.is_ours(step) else step(batch)
        return batch

    def is_ours(self, step: Any) -> bool:
        """Return whether a step may overwrite what it gets, as the step before it made that."""
        return self.converter is not None and name_of(step) == f"{V1}Normalize"

    def normalize(self, step: Any, batch: Any) -> Any:
        """Return what Normalize gives, in the place of what it gets."""
        functional = sys.modules["torchvision.transforms.functional"]
        return functional.normalize(batch, step.mean, step.std, inplace=True)

    def make(self, num: int, num_values: int, take: Callable[[int, int], Any]) -> Any:
        """Return a batch, made in pieces that stay in the cache.

        Args:
            num: its images.
            num_values: numbers in an image.
            take: returns the images from one place to another as rows.
        """
        size = max(1, CHUNK_BYTES // max(1, 4 * num_values))
        if size >= num and self.torch.utils.data.get_worker_info() is None:
            return self.apply_to(take(0, num))
        whole = None
        for first in range(0, num, size):
            part = self.apply_to(take(first, min(num, first + size)))
            if whole is None:
                whole = self.room_for(part, num)
            whole[first : first + size] = part
        return whole

    def room_for(self, part: Any, num: int) -> Any:
        """Return an empty batch; in a worker in shared memory, as torch's collate does."""
        shape = (num, *part.shape[1:])
        if self.torch.utils.data.get_worker_info() is None:
            return self.torch.empty(shape, dtype=part.dtype)
        storage = part._typed_storage()._new_shared(num * part[0].numel(), device=part.device)
        return part.new(storage).resize_(shape)


def settings_of(steps: list[Any]) -> list[dict[str, Any]]:
    """Return what would show that a transform was set otherwise: its plain values."""
    kinds = (bool, int, float, str, tuple, type(None))
    return [{k: v for k, v in vars(one).items() if isinstance(v, kinds)} for one in steps]
