"""Applies the end of torchvision's transforms to each batch at once instead of sample by sample.

ToTensor, Normalize and the like draw nothing and treat each image alike, so they may wait until the
batch is joined; what is before them, with its random draws, stays as it is. The first batches are
made both ways, then one in 64; a chain is left alone where a bit differs or where the data set does
something with the result.

Source: https://github.com/pytorch/vision/issues/157 asks for transforms of batches; to let the end
of a chain wait is our own.
"""

from __future__ import annotations

from typing import Any

from ._transforms import ReadInBatches, TransformChains, as_it_is
from .base import Facts, Lever, LoaderFacts, Moment, Preserves, Session, Settings, Undo


def is_usable(loader: LoaderFacts) -> bool:
    """Return whether the loader has transforms that may wait; so it is where that is not known."""
    return loader.num_batched_transforms != 0 and not (loader.is_iterable or loader.is_in_memory)


def applies(facts: Facts) -> str | None:
    """It applies where torchvision's transforms make the samples of a map-style data set."""
    if facts.loaders is None or any(is_usable(loader) for loader in facts.loaders):
        return None
    if not facts.loaders:
        return "No DataLoader fed the training."
    if any(loader.is_in_memory for loader in facts.loaders):
        return "The data set is in memory: `whole_batch_fetch` takes whole batches out of it."
    return "No transform of torchvision ends the making of a sample that torch's collate joins."


def apply(settings: Settings, session: Session) -> Undo:
    """Let the fetchers of map-style data sets with torch's own collate read whole batches."""
    torch = session.torch
    loader_module = torch.utils.data.dataloader
    kind_class = loader_module._DatasetKind
    before, make = kind_class.__dict__["create_fetcher"], kind_class.create_fetcher
    chains = TransformChains(torch)

    def create_fetcher(kind: Any, dataset: Any, auto: Any, collate_fn: Any, *rest: Any) -> Any:
        is_default = collate_fn is loader_module._utils.collate.default_collate
        chains.patch()
        if not (auto and is_default and kind == kind_class.Map and chains.undos):
            return make(kind, dataset, auto, collate_fn, *rest)
        return make(kind, ReadInBatches(chains, dataset), auto, as_it_is, *rest)

    def undo() -> None:
        kind_class.create_fetcher = before
        chains.undo()

    kind_class.create_fetcher = staticmethod(create_fetcher)
    return undo


LEVER = Lever(
    name="batched_transform",
    title="Apply the last of torchvision's transforms to each batch instead of each sample.",
    relieves=("INPUT_BOUND",),
    phases=("input_wait", "fetch", "collate"),
    preserves=Preserves.EXACT,
    when=(
        "The samples of a map-style data set end in ToTensor, Normalize or others of torchvision's "
        "transforms that draw nothing, and torch's default collate joins them. It is used where "
        "the batch has the same bits."
    ),
    applies=applies,
    space=lambda facts: ({},),
    moment=Moment.STARTUP,
    judged_by_cpu_time=True,
    judged_beside_others=True,
    apply=apply,
    edit=lambda settings: (
        "dataset.transform = v2.PILToTensor()  # and what draws at random, for each sample\n"
        "...\n"
        "images = v2.functional.normalize(images.float().div_(255), mean, std)  # for each batch"
    ),
    costs="A data set that does something with the image after its transforms is read twice in "
    "one batch, then left alone.",
    source="https://github.com/pytorch/vision/issues/157",
)
