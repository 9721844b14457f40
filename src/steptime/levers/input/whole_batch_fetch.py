"""Takes a whole batch out of a data set in memory at once instead of sample by sample.

Torch's loader cuts each sample out of the tensors and stacks the pieces to a batch again. Where all
data is in tensors, one `index_select` for each tensor gives the same bits. torchvision's MNIST and
CIFAR make an image of each row besides, and a tensor of it again (`pictures/vision_rows.py`);
random crops and flips act on the batch, with the same draws. Of any other class, rows and windows
of arrays that it holds are known by their addresses (`views.py`).

Source: https://docs.pytorch.org/docs/stable/data.html (`Subset.__getitems__` and "Loading Batched
and Non-Batched Data") and our own reading of the default collate.
"""

from __future__ import annotations

from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from ..pictures.vision_rows import WholeImages, find_images
from .datasets import are_read_here, around_fetches, collate_of
from .tensor_rows import WholeTensors, find_tensors
from .views import WholeViews, find_views

ASKED = "_whole_batches"
"""On a fetcher of torch's: its data set as whole batches, or None."""


def find_whole(
    torch: Any, dataset: Any, *, is_forked_later: bool = False
) -> WholeTensors | WholeImages | WholeViews | None:
    """Return the data set as whole batches; None if its samples are not plain rows or windows.

    Args:
        torch: the module.
        dataset: of a loader with torch's own collate.
        is_forked_later: a loader's workers will start from this process and read it.
    """
    data = torch.utils.data
    subsets, inner = [], dataset
    while type(inner) is data.Subset:
        subsets.append(inner)
        inner = inner.dataset
    if getattr(type(inner), "__getitem__", None) is not data.TensorDataset.__getitem__:
        return find_images(torch, dataset, subsets, inner) or find_views(
            torch, dataset, subsets, inner, is_forked_later=is_forked_later
        )
    return find_tensors(torch, dataset, subsets, inner)


def applies(facts: Facts) -> str | None:
    """It applies where a loader of a data set in memory feeds training."""
    if facts.loaders is None:
        return None  # `find_whole` asks the data set itself
    if not facts.loaders:
        return "No DataLoader fed the training."
    if not any(loader.is_tensor_dataset or loader.is_in_memory for loader in facts.loaders):
        names = ", ".join(sorted({loader.dataset for loader in facts.loaders}))
        return f"The data set ({names}) is not one in memory that torch's own collate joins."
    return None


def apply(settings: Settings, session: Session) -> Undo:
    """Let the fetchers of such loaders read whole batches; the loaders stay as they are."""
    torch = session.torch

    def fetch_whole(fetcher: Any, indices: Any) -> Any:
        if not hasattr(fetcher, ASKED):
            is_known = collate_of(fetcher) is torch.utils.data.default_collate
            setattr(fetcher, ASKED, find_whole(torch, fetcher.dataset) if is_known else None)
        whole = getattr(fetcher, ASKED)
        return None if whole is None else whole.__getitems__(indices)

    return around_fetches(torch, fetch_whole)


LEVER = Lever(
    name="whole_batch_fetch",
    title="Take each batch out of a data set in memory at once instead of sample by sample.",
    relieves=("INPUT_BOUND",),
    phases=("input_wait",),
    preserves=Preserves.EXACT,
    when=(
        "A TensorDataset feeds the training, or torchvision's MNIST, a relative of it or CIFAR "
        "with transforms that draw nothing but crops and flips, or any data set whose samples are "
        "rows or windows of arrays that it holds (views at equal distances), or a Subset of one, "
        "with torch's default collate."
    ),
    applies=applies,
    moment=Moment.STARTUP,
    live_where=are_read_here,
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
