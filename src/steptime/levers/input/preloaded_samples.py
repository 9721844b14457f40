"""Keeps all samples of a small data set as the first epoch makes them, and takes batches out.

Where samples are the same in each epoch and all of them fit into memory, Python need not make them
again and again: a batch is one `index_select`. That takes no workers, so a loader's are not
started: their samples are made before the first step, which takes as long as an epoch of reading in
one process. It pays off in the second epoch, and where workers and training share the cores in the
first. A trial makes all samples before it times a step.

Source: the idea of `cache` in https://www.tensorflow.org/guide/data_performance;
https://docs.pytorch.org/docs/stable/data.html.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..base import Facts, Lever, LoaderFacts, Moment, Preserves, Session, Settings, Undo
from ..tools.memory_room import bytes_to_keep
from .datasets import are_read_here, around_fetches, collate_of
from .preloaded import LIMIT_S, Stores

KNOWN: dict[int, Stores] = {}
"""By limit: samples stay while the lever is off for some steps."""


def usable(facts: Facts) -> list[LoaderFacts]:
    """Return the loaders whose samples can be made once, as far as is known."""
    return [
        loader
        for loader in facts.loaders or ()
        if loader.is_deterministic
        and loader.is_pure
        and loader.joins_rows
        and not (loader.is_iterable or loader.is_tensor_dataset or loader.is_in_memory)
    ]


def applies(facts: Facts) -> str | None:
    """It applies where a data set with constant samples is small, and quickly read."""
    if facts.loaders is not None and not facts.loaders:
        return "No DataLoader fed the training."
    if facts.loaders is None:
        return "It was not observed whether the data set gives the same samples twice."
    if not usable(facts):
        return (
            "No data set was seen that gives the same samples twice and stays as it is, without "
            "a draw and without an open file, whose batches are one row of each sample."
        )
    needs = [(one.num_samples, one.sample_bytes, one.sample_s) for one in usable(facts)]
    if facts.available_bytes is None or any(None in need[:2] for need in needs):
        return "The size of the data set or the free memory is not known."
    total = sum((num or 0) * (size or 0) for num, size, _ in needs)
    if total > bytes_to_keep(facts):
        return f"The data set takes {total / 2**30:.1f} GiB, more than a quarter of free memory."
    slowest_s = max((num or 0) * (each_s or 0.0) for num, _, each_s in needs)
    if slowest_s > LIMIT_S:
        return f"Making all samples would take some {math.ceil(slowest_s)} s before the first step."
    return None


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return a switch, with the limit for each rank beside it."""
    return ({"limit_bytes": bytes_to_keep(facts)},)


def apply(settings: Settings, session: Session) -> Undo:
    """Let loaders whose samples were made take batches out of them, in this process."""
    torch = session.torch
    limit_bytes = int(settings["limit_bytes"])
    stores = KNOWN.setdefault(limit_bytes, Stores(torch, limit_bytes, is_ahead=session.is_trial))

    def make_iterator(loader: Any, original: Callable[[], Any]) -> Any:
        if not loader.num_workers or stores.find(loader) is None:
            return original()
        own = {name: getattr(loader, name) for name in ("num_workers", "timeout")}
        vars(loader).update(num_workers=0, timeout=0)
        try:
            return original()
        finally:
            vars(loader).update(own)

    def fetch_kept(fetcher: Any, indices: Any) -> Any:
        store = stores.of(fetcher.dataset, collate_of(fetcher), is_ahead=False)
        return None if store is None else store.__getitems__(indices)

    return around_fetches(torch, fetch_kept, make_iterator)


LEVER = Lever(
    name="preloaded_samples",
    title="Make the samples of a small data set once, and take later batches out of them.",
    relieves=("INPUT_BOUND",),
    phases=("input_wait", "epoch_start"),
    preserves=Preserves.EXACT,
    when=(
        "A map-style data set gives the same samples each time, whatever its transforms are, and "
        "reading one changes nothing: no generator, value or open file. Batches are one row of "
        "each sample, by torch's default collate or a function without state that does the same. "
        "All fit into a quarter of the free memory and are read within 20 s. It pays off from the "
        "second epoch on."
    ),
    applies=applies,
    space=space,
    moment=Moment.STARTUP,
    live_where=are_read_here,
    judged_by_cpu_time=True,
    judged_beside_others=True,
    apply=apply,
    edit=lambda settings: (
        "samples = [data[index] for index in range(len(data))]\n"
        "parts = torch.utils.data.default_collate(samples)  # all samples as tensors\n"
        "loader = DataLoader(TensorDataset(*parts), ...)  # with no workers"
    ),
    costs=(
        "Memory for the whole data set in each rank. Of a loader with workers, all samples are "
        "made before the first step: about what an epoch in one process spends on them."
    ),
    source="https://www.tensorflow.org/guide/data_performance",
)
