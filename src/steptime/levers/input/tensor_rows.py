"""Torch's data sets of tensors, as whole batches.

This is no lever, as it has no `LEVER`.
"""

from __future__ import annotations

from typing import Any

from .datasets import index_of


class WholeTensors:
    """Takes the place of the data set for the fetcher, and gives batches that are collated already.

    `parts` are the tensors; `subsets`, outermost first, say which of their samples are meant.
    """

    draws = False

    def __init__(self, torch: Any, dataset: Any, subsets: list[Any], parts: Any) -> None:
        self.torch = torch
        self.dataset = dataset
        self.subsets = subsets
        self.parts = parts

    def __getitems__(self, indices: Any) -> Any:
        """Return a batch: a list of tensors, as torch's collate makes it from samples in tuples."""
        rows = indices
        if all(type(index) is int for index in rows):
            for subset in self.subsets:
                rows = [int(subset.indices[index]) for index in rows]
            if rows and min(rows) >= 0:
                index = index_of(self.torch, rows)
                return [part.index_select(0, index.to(part.device)) for part in self.parts]
        return self.collate_samples(indices)  # other keys, or indices from the end

    def collate_samples(self, indices: Any) -> Any:
        """Return the batch as torch makes it."""
        return self.torch.utils.data.default_collate([self.dataset[index] for index in indices])

    def gives_the_same(self) -> bool:
        """Return whether two batches equal torch's in dtype and layout."""
        try:
            for indices in ([0], [0, len(self.dataset) - 1]):
                ours, theirs = self.__getitems__(indices), self.collate_samples(indices)
                if [describe(part) for part in ours] != [describe(part) for part in theirs]:
                    return False
        except (RuntimeError, LookupError, TypeError):  # a dtype without index_select
            return False
        return True


def describe(part: Any) -> tuple[Any, ...]:
    """Return what two tensors with the same numbers may still differ in."""
    return type(part), part.dtype, part.device, tuple(part.shape), part.stride()


def find_tensors(torch: Any, dataset: Any, subsets: list[Any], inner: Any) -> WholeTensors | None:
    """Return a TensorDataset as whole batches; None where a tensor is not a plain one."""
    if hasattr(inner, "__getitems__") or len(dataset) == 0:
        return None
    for part in inner.tensors:
        is_plain = type(part) is torch.Tensor and part.layout is torch.strided
        if not is_plain or part.requires_grad or part.is_conj() or part.is_neg():
            return None
    whole = WholeTensors(torch, dataset, subsets, inner.tensors)
    return whole if whole.gives_the_same() else None
