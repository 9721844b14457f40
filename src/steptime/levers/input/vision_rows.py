"""torchvision's data sets whose images are one array in memory, as whole batches.

This is no lever, as it has no `LEVER`. MNIST and its relatives and CIFAR make an image of each row
and convert it back; where the transforms draw nothing, a batch of rows gives the same bits.
"""

from __future__ import annotations

import sys
from typing import Any

from .datasets import content_of, index_of
from .transforms import V1, V2, TransformChain, name_of

OWNERS = (("torchvision.datasets.mnist", "MNIST"), ("torchvision.datasets.cifar", "CIFAR10"))
NUM_COMPARED = 16

SIZING = frozenset(
    f"{module}{name}" for module in (V1, f"{V2}_geometry.") for name in ("Resize", "CenterCrop")
)
"""They return an image that has their size as it is."""


class WholeImages:
    """Takes the place of the data set for the fetcher, and gives batches that are collated already.

    `subsets`, outermost first, say which of the samples of `inner` are meant.
    """

    def __init__(self, torch: Any, dataset: Any, subsets: list[Any], inner: Any) -> None:
        self.torch, self.dataset, self.subsets, self.inner = torch, dataset, subsets, inner
        self.chain = TransformChain(torch, inner.transform)
        self.data, self.targets = inner.data, inner.targets
        self.rows = (
            self.data if isinstance(self.data, torch.Tensor) else torch.from_numpy(self.data)
        )
        self.labels = torch.as_tensor(self.targets).to(torch.int64)

    def is_current(self) -> bool:
        """Return whether the script has left the data set as it was."""
        inner = self.inner
        return (
            inner.data is self.data
            and inner.targets is self.targets
            and inner.target_transform is None
            and inner.transform is self.chain.owner
            and self.chain.is_current()
            and keeps_sizes(self.chain.head, self.data)
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
        num_values = self.rows[0].numel()
        return self.chain.make(
            len(index), num_values, lambda a, b: self.rows.index_select(0, index[a:b])
        )

    def collate_samples(self, indices: Any) -> Any:
        """Return the batch as torch makes it."""
        return self.torch.utils.data.default_collate([self.dataset[index] for index in indices])

    def gives_the_same(self) -> bool:
        """Return whether some samples equal torch's bit for bit."""
        num = len(self.dataset)
        indices = [place * num // NUM_COMPARED for place in range(NUM_COMPARED)]
        try:
            ours, theirs = self.__getitems__(indices), self.collate_samples(indices)
            return bool(content_of(ours) == content_of(theirs))
        except (RuntimeError, LookupError, TypeError, ValueError):
            return False


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
    if not is_made_of_bytes or not keeps_sizes(chain.head, inner.data):
        return None
    whole = WholeImages(torch, dataset, subsets, inner)
    return whole if whole.gives_the_same() else None


def keeps_sizes(steps: list[Any], data: Any) -> bool:
    """Return whether transforms do nothing but ask for the size that the images have already."""
    height, width = data.shape[1:3]
    for step in steps:
        size = getattr(step, "size", None)
        wanted = [size, size] if isinstance(size, int) else list(size or ())
        wanted = wanted * 2 if len(wanted) == 1 else wanted
        is_free = getattr(step, "max_size", None) is None
        if name_of(step) not in SIZING or wanted != [height, width] or not is_free:
            return False
    return True
