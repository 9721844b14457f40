"""Keeps the samples of a data set in the memory of the training process once they were read.

It is for data sets that give the same sample each time, and it checks that (`datasets.Cached`).
Worker processes are left alone: each would hold its own copy and lose it at the end of the epoch.
What feeds an evaluation is kept too, if the training process reads it.

Source: the idea of `cache` in https://www.tensorflow.org/guide/data_performance;
https://docs.pytorch.org/docs/stable/data.html.
"""

from __future__ import annotations

import weakref
from typing import Any

from ..base import Facts, Lever, LoaderFacts, Moment, Preserves, Session, Settings, Undo
from ..tools.memory_room import bytes_to_keep
from .datasets import (
    Cached,
    Samples,
    are_read_here,
    around_fetches,
    attributes_of,
    can_be_key,
    has_own_collate,
    innermost,
)

KNOWN: weakref.WeakKeyDictionary[Any, Samples] = weakref.WeakKeyDictionary()
"""By data set: they stay while the lever is off for some steps."""

IN_MEMORY = ("list", "tuple", "dict", "TensorDataset")


def readable(facts: Facts) -> list[LoaderFacts]:
    """Return the loaders that the training process itself reads from somewhere slow."""
    return [
        loader
        for loader in facts.loaders or ()
        if not (loader.is_iterable or loader.is_tensor_dataset or loader.num_workers)
        and not (loader.is_in_memory or loader.dataset in IN_MEMORY)
    ]


def usable(facts: Facts) -> list[LoaderFacts]:
    """Return the loaders whose reading could be saved."""
    return [loader for loader in readable(facts) if loader.is_deterministic]


def applies(facts: Facts) -> str | None:
    """It applies where a data set with constant samples is read in the process and fits."""
    if facts.loaders is not None and not facts.loaders:
        return "No DataLoader fed the training."
    unknown = [loader for loader in readable(facts) if loader.is_deterministic is None]
    if facts.loaders is None or (unknown and not usable(facts)):
        return "It was not observed whether the data set gives the same samples twice."
    if not usable(facts):
        return (
            "No data set was seen that is read in the training process and gives the same samples "
            "twice without moving a random state."
        )
    sizes = [(loader.num_samples, loader.sample_bytes) for loader in usable(facts)]
    if facts.available_bytes is None or any(None in size for size in sizes):
        return "The size of the data set or the free memory is not known."
    total = sum((num or 0) * (size or 0) for num, size in sizes)
    if total > bytes_to_keep(facts):
        return (
            f"The data set takes {total / 2**30:.1f} GiB, more than a quarter of the free memory."
        )
    return None


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return a switch, with the limit for each rank beside it."""
    return ({"limit_bytes": bytes_to_keep(facts)},)


def apply(settings: Settings, session: Session) -> Undo:
    """Let the fetchers of map-style data sets in this process read from memory."""
    torch = session.torch
    limit_bytes = int(settings["limit_bytes"])

    def fetch_kept(fetcher: Any, indices: Any) -> Any:
        dataset = fetcher.dataset
        is_slow = type(innermost(dataset)).__name__ not in IN_MEMORY
        is_here = torch.utils.data.get_worker_info() is None
        if not (is_here and is_slow and can_be_key(dataset)):
            return None
        samples = KNOWN.get(dataset)
        if samples is None or samples.attributes != attributes_of(dataset):
            samples = KNOWN[dataset] = Samples(torch, dataset)
        others = sum(other.num_bytes for other in KNOWN.values()) - samples.num_bytes
        is_copied = has_own_collate(torch, fetcher)
        cached = Cached(dataset, samples, limit_bytes - others, is_copied)
        return fetcher.collate_fn(cached.__getitems__(indices))

    return around_fetches(torch, fetch_kept)


LEVER = Lever(
    name="dataset_cache",
    title="Keep the samples of a data set in memory once they were read.",
    relieves=("INPUT_BOUND",),
    phases=("fetch",),
    preserves=Preserves.EXACT,
    when=(
        "The training process itself reads a map-style data set that gives the same samples each "
        "time and fits into a quarter of the free memory. It pays off from the second epoch on."
    ),
    applies=applies,
    space=space,
    moment=Moment.STARTUP,
    live_where=are_read_here,
    judged_by_cpu_time=True,
    judged_beside_others=True,
    apply=apply,
    edit=lambda settings: (
        "self.samples = {}  # in the data set's __init__\n"
        "\n\n"
        "def __getitem__(self, index):\n"
        "    if index not in self.samples:\n"
        "        self.samples[index] = self.read(index)  # what was __getitem__\n"
        "    return self.samples[index]"
    ),
    costs="Memory for the whole data set in each rank. The first epoch gains nothing.",
    source="https://www.tensorflow.org/guide/data_performance",
)
