"""Another number of DataLoader workers, kept over epochs; pinned memory where there is a device.

Workers may also cost more than they give: half of them are tried, and none. A loader is changed
when it is first iterated with gradients on: what feeds only an evaluation stays as it is, as its
time is not part of a step. The order of samples stays too. With persistent workers torch draws no
base seed at an epoch's start, which would change all later draws, so it is drawn here.
Source: https://docs.pytorch.org/docs/stable/data.html.
"""

from __future__ import annotations

import weakref
from typing import Any

from ..base import Facts, Lever, LoaderFacts, Moment, Preserves, Session, Settings, Undo
from .datasets import attributes_of, innermost
from .queues import DEEP_PREFETCH, PREFETCH, fits_deep, is_reusable, measured

MAX_WORKERS = 16  # each is a process with a copy of what the data set holds


def map_style(facts: Facts) -> list[LoaderFacts]:
    """Return the loaders that can have workers."""
    return [loader for loader in facts.loaders or () if not loader.is_iterable]


def applies(facts: Facts) -> str | None:
    """It applies where a map-style data set feeds the training and not all workers are used."""
    if facts.loaders is None:
        return None  # `can_change` asks the loader itself
    if not facts.loaders:
        return "No DataLoader fed the training."
    if not map_style(facts):
        return "The data set is iterable: workers would repeat its samples or change their order."
    done = "The loader already has a worker for each core and keeps them over epochs."
    if facts.worker_rates:
        done = "Of the numbers of workers that were measured, the loader's own is the best."
    return None if space(facts) else done


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return none or half of the workers if there are some, more of them, and a deeper queue."""
    loaders = map_style(facts)
    if not loaders and facts.loaders is not None:
        return ()
    if facts.worker_rates:
        return measured(facts, loaders)
    most = min(MAX_WORKERS, max(1, facts.num_cores // facts.world_size))
    now = max((loader.num_workers for loader in loaders), default=0)
    counts = sorted({1 << power for power in range(most.bit_length())} | {most})
    pin: dict[str, int | bool] = {"pin_memory": True} if facts.device != "cpu" else {}
    is_kept = bool(loaders) and all(loader.persistent_workers for loader in loaders)
    rows = [pin | {"num_workers": 0}] if now and not is_kept else []
    for count in counts:
        if count >= now or now > most or 2 * count <= now < 4 * count:
            kept = {"num_workers": count, "persistent_workers": True}
            rows.append(pin | kept | {"prefetch_factor": PREFETCH})
    if fits_deep(loaders, most):
        rows.append(rows[-1] | {"prefetch_factor": DEEP_PREFETCH})
    return tuple(
        row
        for row in rows
        if not loaders
        or not all(getattr(loader, name) == row[name] for loader in loaders for name in row)
    )


def class_here(facts: Facts, settings: Settings) -> Preserves | None:
    """The bits are the same where workers draw nothing and no sampler draws in mid-epoch."""
    if facts.loaders is None:
        return None
    is_exact = all(
        loader.is_deterministic and loader.is_collate_deterministic and not loader.has_own_sampler
        for loader in map_style(facts)
    )
    return Preserves.EXACT if is_exact else None


def can_change(torch: Any, loader: Any, num_workers: int) -> bool:
    """Return whether this loader gives the same samples with that many workers."""
    data, inner = torch.utils.data, innermost(loader.dataset)
    if isinstance(inner, data.IterableDataset):
        return False
    # Workers that the script itself keeps draw a seed once: it must not be drawn again.
    if loader.persistent_workers and (num_workers == 0 or loader._iterator is not None):
        return False
    if num_workers == 0:
        return loader.worker_init_fn is None
    # What is on a device cannot be read in a forked process.
    return not (type(inner) is data.TensorDataset and any(t.is_cuda for t in inner.tensors))


def apply(settings: Settings, session: Session) -> Undo:
    """Change each loader that feeds training when it is first iterated."""
    torch = session.torch
    loader_class = torch.utils.data.DataLoader
    iterator_class = torch.utils.data.dataloader._BaseDataLoaderIter
    iterate, reset = loader_class.__iter__, iterator_class._reset
    num = int(settings["num_workers"])
    off = {} if num else {"persistent_workers": False, "prefetch_factor": None, "timeout": 0}
    changed: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def change_and_iterate(self: Any) -> Any:
        if self not in changed and torch.is_grad_enabled() and can_change(torch, self, num):
            changed[self] = None if self.persistent_workers else []
            vars(self).update(off | dict(settings))  # torch refuses to set some of them later
        if num and changed.get(self) is not None:
            now = attributes_of(self.dataset)
            if changed[self] != now or not is_reusable(self):
                self._iterator = None  # the old workers end with their last reader
            changed[self] = now
        return iterate(self)

    def reset_and_draw(self: Any, loader: Any, first_iter: Any = None) -> None:
        reset(self, loader, bool(first_iter))
        if not first_iter and changed.get(loader) is not None:
            torch.empty((), dtype=torch.int64).random_(generator=loader.generator)

    def undo() -> None:
        loader_class.__iter__, iterator_class._reset = iterate, reset

    loader_class.__iter__, iterator_class._reset = change_and_iterate, reset_and_draw
    return undo


def edit(settings: Settings) -> str:
    """Return the arguments, and what they change besides the time."""
    words = ", ".join(f"{name}={value}" for name, value in settings.items())
    note = "# from the second epoch on, samples come in another random order\n"
    return note * bool(settings["num_workers"]) + f"DataLoader(..., {words})"


LEVER = Lever(
    name="dataloader",
    title="Load batches in worker processes that are kept over epochs.",
    relieves=("INPUT_BOUND",),
    phases=("input_wait", "epoch_start"),
    preserves=Preserves.STATISTICAL,
    class_here=class_here,
    when="A map-style data set feeds the training, and a core is free for a worker.",
    applies=applies,
    space=space,
    moment=Moment.STARTUP,
    judged_beside_others=True,
    apply=apply,
    edit=edit,
    costs="Memory for each worker and for waiting batches. Kept workers notice an attribute of the "
    "data set that was set again, but not a change inside one.",
    source="https://docs.pytorch.org/docs/stable/data.html",
)
