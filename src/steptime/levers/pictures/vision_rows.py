"""torchvision's data sets whose images are one array in memory, as whole batches.

This is no lever, as it has no `LEVER`. MNIST and its relatives and CIFAR make an image of each row
and convert it back; where the transforms only crop, flip and scale, a batch of rows gives the same
bits with the same draws.
"""

from __future__ import annotations

import sys
from typing import Any

from ..input.datasets import content_of, index_of, spread
from ..tools.generators import keep_random_states, random_states
from .drawn_steps import DrawnSteps, UnknownStepError
from .transforms import TransformChain, settings_of

OWNERS = (("torchvision.datasets.mnist", "MNIST"), ("torchvision.datasets.cifar", "CIFAR10"))
NUM_COMPARED = 16


class WholeImages:
    """Takes the place of the data set for the fetcher, and gives batches that are collated already.

    `subsets`, outermost first, say which of the samples of `inner` are meant.

    Raises:
        UnknownStepError: a transform is not known to act on a batch as on each image.
    """

    def __init__(self, torch: Any, dataset: Any, subsets: list[Any], inner: Any) -> None:
        self.torch, self.dataset, self.subsets, self.inner = torch, dataset, subsets, inner
        self.chain = TransformChain(torch, inner.transform)
        self.data, self.targets = inner.data, inner.targets
        self.rows = (
            self.data if isinstance(self.data, torch.Tensor) else torch.from_numpy(self.data)
        )
        self.labels = torch.as_tensor(self.targets).to(torch.int64)
        height, width = self.data.shape[1:3]
        self.drawing = DrawnSteps(torch, self.chain.head, height, width)
        self.settings = settings_of(self.chain.steps)

    @property
    def draws(self) -> bool:
        """Whether samples differ from epoch to epoch."""
        return bool(self.drawing.acting)

    def is_current(self) -> bool:
        """Return whether the script has left the data set as it was."""
        inner = self.inner
        return (
            inner.data is self.data
            and inner.targets is self.targets
            and inner.target_transform is None
            and inner.transform is self.chain.owner
            and self.chain.is_current()
            and self.settings == settings_of(self.chain.steps)
        )

    def __getitems__(self, indices: Any) -> Any:
        """Return a batch: a list of images and labels, as torch's collate makes it."""
        rows = indices
        if all(type(index) is int for index in rows) and self.is_current():
            for subset in self.subsets:
                rows = [int(subset.indices[index]) for index in rows]
            if rows and min(rows) >= 0:
                index = index_of(self.torch, rows)
                return [self.images(index), self.labels.index_select(0, index)]
        return self.collate_samples(indices)  # other keys, or indices from the end

    def images(self, index: Any) -> Any:
        """Return the images of a batch."""
        num_values, drawn = self.rows[0].numel(), self.drawing.draw(len(index))

        def take(first: int, end: int) -> Any:
            rows = self.rows.index_select(0, index[first:end])
            return self.drawing.apply_to(rows, drawn, first)

        return self.chain.make(len(index), num_values, take)

    def collate_samples(self, indices: Any) -> Any:
        """Return the batch as torch makes it."""
        return self.torch.utils.data.default_collate([self.dataset[index] for index in indices])

    def gives_the_same(self) -> bool:
        """Return whether some samples equal torch's bit for bit, with the same draws."""
        put_back, indices = keep_random_states(self.torch), spread(len(self.dataset), NUM_COMPARED)
        found = []
        try:
            for make in (self.__getitems__, self.collate_samples):
                found.append((content_of(make(indices)), random_states(self.torch)))
                put_back()
        except (RuntimeError, LookupError, TypeError, ValueError):
            return False
        finally:
            put_back()
        return bool(found[0] == found[1])


def find_images(torch: Any, dataset: Any, subsets: list[Any], inner: Any) -> WholeImages | None:
    """Return the data set as whole batches; None if it is of another kind or draws."""
    getter = getattr(type(inner), "__getitem__", None)
    known = [getattr(sys.modules.get(module), name, None) for module, name in OWNERS]
    if getter is None or not any(one and vars(one).get("__getitem__") is getter for one in known):
        return None  # a class of the user's may do more
    transform, label_transform = inner.transform, inner.target_transform
    if transform is None or label_transform is not None or not len(dataset):
        return None
    chain = TransformChain(torch, transform)
    is_made_of_bytes = chain.converter is not None and str(inner.data.dtype)[-5:] == "uint8"
    if not is_made_of_bytes:
        return None
    try:
        whole = WholeImages(torch, dataset, subsets, inner)
    except UnknownStepError:
        return None
    return whole if whole.gives_the_same() else None
