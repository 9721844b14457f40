"""Takes a whole batch out of a data set in memory at once instead of sample by sample.

Torch's loader cuts each sample out of the tensors and stacks the pieces to a batch again. Where all
data is in tensors, one `index_select` for each tensor gives the same bits. torchvision's MNIST and
CIFAR make an image of each row besides, and a tensor of it again (`_vision_rows.py`).

Source: https://docs.pytorch.org/docs/stable/data.html (`Subset.__getitems__` and "Loading Batched
and Non-Batched Data") and our own reading of the default collate.
"""

from __future__ import annotations

from typing import Any

from ._transforms import as_it_is
from ._vision_rows import WholeImages, find_images
from .base import Facts, Lever, Moment, Preserves, Session, Settings, Undo


class WholeBatches:
    """Takes the place of the data set for the fetcher, and gives batches that are collated already.

    `parts` are the tensors; `subsets`, outermost first, say which of their samples are meant.
    """

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
                index = self.torch.tensor(rows)
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


def find_whole(torch: Any, dataset: Any) -> WholeBatches | WholeImages | None:
    """Return the data set as whole batches; None if its samples are not plain rows.

    A class of the user's may do more than cut out a row.
    """
    data = torch.utils.data
    subsets, inner = [], dataset
    while type(inner) is data.Subset:
        subsets.append(inner)
        inner = inner.dataset
    if getattr(type(inner), "__getitem__", None) is not data.TensorDataset.__getitem__:
        return find_images(torch, dataset, subsets, inner)
    if hasattr(inner, "__getitems__") or len(dataset) == 0:
        return None
    for part in inner.tensors:
        is_plain = type(part) is torch.Tensor and part.layout is torch.strided
        if not is_plain or part.requires_grad or part.is_conj() or part.is_neg():
            return None
    whole = WholeBatches(torch, dataset, subsets, inner.tensors)
    return whole if whole.gives_the_same() else None


def applies(facts: Facts) -> str | None:
    """It applies where a loader of a data set in memory feeds training."""
    if facts.loaders is None:
        return None  # `find_whole` asks the data set itself
    if not facts.loaders:
        return "No DataLoader fed the training."
    if not any(loader.is_tensor_dataset or loader.is_in_memory for loader in facts.loaders):
        names = ", ".join(sorted({loader.dataset for loader in facts.loaders}))
        return f"The data set ({names}) is not one in memory with torch's own collate and no draws."
    return None


def apply(settings: Settings, session: Session) -> Undo:
    """Let the fetchers of such loaders read whole batches; the loaders stay as they are."""
    torch = session.torch
    loader_module = torch.utils.data.dataloader
    kind_class = loader_module._DatasetKind
    before = kind_class.__dict__["create_fetcher"]
    make = kind_class.create_fetcher

    def create_fetcher(
        kind: Any, dataset: Any, auto_collation: Any, collate_fn: Any, *rest: Any
    ) -> Any:
        is_default = collate_fn is loader_module._utils.collate.default_collate
        if auto_collation and is_default and kind == kind_class.Map:
            whole = find_whole(torch, dataset)
            if whole is not None:
                return make(kind, whole, auto_collation, as_it_is, *rest)
        return make(kind, dataset, auto_collation, collate_fn, *rest)

    kind_class.create_fetcher = staticmethod(create_fetcher)

    def undo() -> None:
        kind_class.create_fetcher = before

    return undo


LEVER = Lever(
    name="whole_batch_fetch",
    title="Take each batch out of a data set in memory at once instead of sample by sample.",
    relieves=("INPUT_BOUND",),
    phases=("input_wait",),
    preserves=Preserves.EXACT,
    when=(
        "A TensorDataset feeds the training, or torchvision's MNIST, a relative of it or CIFAR "
        "with transforms that draw nothing, or a Subset of one, with torch's default collate."
    ),
    applies=applies,
    space=lambda facts: ({},),
    moment=Moment.STARTUP,
    judged_by_cpu_time=True,
    judged_beside_others=True,
    apply=apply,
    edit=lambda settings: (
        "class Batches(TensorDataset):\n"
        "    def __getitems__(self, indices):\n"
        "        index = torch.tensor(indices)\n"
        "        return [tensor.index_select(0, index) for tensor in self.tensors]\n"
        "\n\n"
        "loader = DataLoader(Batches(x, y), ..., collate_fn=lambda batch: batch)"
    ),
    costs="None were seen. A batch from workers is copied once more on its way.",
    source="https://docs.pytorch.org/docs/stable/data.html",
)
