"""Runs a training in this process as a child of `steptime data check` would see it.

`watched(...)` puts the guest's hooks on torch's loader, lets a function train, and returns the
loaders as the parent reads them. `loader_seen(...)` builds one without any training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from steptime.data.check.seen_orders import LoaderSeen, PassSeen, SavedAt, read_orders
from steptime.guest.hooks.patching import put_back
from steptime.guest.order.order_book import OrderBook, OrderWish
from steptime.guest.order.order_hooks import hook_orders
from steptime.guest.sites.file_owners import FileOwners
from steptime.guest.sites.frames import Frames


class EndedError(BaseException):
    """The child would end here."""


def watched(folder: Path, train: Callable[[], object], **wish: Any) -> list[LoaderSeen]:
    """Return the loaders of a training that ended by itself or as soon as enough was seen."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)

    def end() -> None:
        raise EndedError

    context: Any = SimpleNamespace(
        torch=torch,
        guarded=lambda _, act, *args: act(*args),
        frames=Frames(FileOwners(torch)),
    )
    book = OrderBook(torch, str(folder), OrderWish(**wish), end_process=end)
    hook_orders(context, book)
    try:
        train()
    except EndedError:
        pass
    finally:
        put_back()
    return read_orders(folder)


def trainer(
    make_loader: Callable[[], Any],
    *,
    epochs: int = 3,
    begin: Callable[[Any, int], object] = lambda loader, epoch: None,
    model: Any = None,
) -> Callable[[], None]:
    """Return a function that trains a linear model for some epochs; `begin` is before each."""

    def train() -> None:
        import torch

        loader = make_loader()
        weights = torch.nn.Linear(4, 4) if model is None else model
        for epoch in range(epochs):
            begin(loader, epoch)
            for inputs, labels in loader:
                torch.nn.functional.cross_entropy(weights(inputs), labels).backward()

    return train


def tensors(num: int = 64, *, is_sorted: bool = False, seed: int = 0) -> Any:
    """Return a data set of `num` different samples in four classes."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(num) % 4
    labels = labels.sort().values if is_sorted else labels[torch.randperm(num, generator=generator)]
    return torch.utils.data.TensorDataset(torch.randn(num, 4, generator=generator), labels)


def loader_seen(
    *orders: Sequence[int],
    batch_size: int = 8,
    labels: Sequence[int] | None = None,
    saves: Sequence[SavedAt] = (),
    **nature: Any,
) -> LoaderSeen:
    """Return a loader that trained on these orders, one an epoch; all of them were seen."""
    num = 1 + max((index for order in orders for index in order), default=0)
    facts = {
        "place": ["train.py", 7],
        "num_samples": num,
        "batch_size": batch_size,
        "is_shuffled": True,
        "rank": 0,
        "world_size": 1,
    }
    passes = [
        PassSeen(
            number=number,
            is_whole=True,
            order=list(order),
            sizes=_sizes(len(order), batch_size),
            digests=[[] for _ in _sizes(len(order), batch_size)],
            trained=True,
            has_ended=True,
            is_at_end=True,
        )
        for number, order in enumerate(orders)
    ]
    return LoaderSeen(
        number=0,
        nature=facts | nature,
        passes=passes,
        labels=None if labels is None else list(labels),
        saves=list(saves),
    )


def _sizes(num: int, batch_size: int) -> list[int]:
    return [min(batch_size, num - begin) for begin in range(0, num, batch_size)]
