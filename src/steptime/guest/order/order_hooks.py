"""Puts the order book's hooks on torch's loader, in a child of `steptime data check`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from ..frameworks.torch.torch_context import TorchContext
from ..hooks.patching import drop_frame, put, replace
from .loader_nature import place_of
from .order_book import OrderBook, OrderWish, WatchedSampler


def install(context: TorchContext, asked: Mapping[str, Any]) -> None:
    """Watch the loaders of this process, as the plan asks."""

    def leave() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    book = OrderBook(
        context.torch,
        context.recorder.run,
        OrderWish(**asked),
        end_process=leave,
    )
    hook_orders(context, book)


def hook_orders(context: TorchContext, book: OrderBook) -> None:
    """Watch where loaders are made, what their samplers draw, what is handed out and saved."""
    torch = context.torch
    dataloader = torch.utils.data.dataloader
    hook_making(context, dataloader.DataLoader, book)
    hook_sampler(context, dataloader.DataLoader, book)
    hook_batches(context, dataloader._BaseDataLoaderIter, book)
    hook_backward(torch, book)
    hook_saving(context, torch, book)


def hook_making(context: TorchContext, loader_class: Any, book: OrderBook) -> None:
    """Note where each loader is made, and give it the number of workers that is wanted."""
    original = loader_class.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        context.guarded("order", note, self, sys._getframe(1))

    def note(loader: Any, frame: Any) -> None:
        book.places[id(loader)] = (loader, place_of(context.frames, frame))
        wanted = book.wish.num_workers
        if wanted is not None:
            loader.num_workers = wanted
            loader.prefetch_factor = (loader.prefetch_factor or 2) if wanted else None
            if not wanted and loader.persistent_workers:
                loader.__dict__["persistent_workers"] = False

    replace(loader_class, "__init__", __init__)


def hook_sampler(context: TorchContext, loader_class: Any, book: OrderBook) -> None:
    """Let a loader's iterators draw through a sampler that is watched."""
    original = loader_class._index_sampler.fget

    def _index_sampler(self: Any) -> Any:
        inner = original(self)
        return WatchedSampler(book, self, inner) if os.getpid() == book.pid else inner

    put(loader_class, "_index_sampler", property(_index_sampler))


def hook_batches(context: TorchContext, iterator_class: Any, book: OrderBook) -> None:
    """Write what is handed out, and end a pass once enough of it was seen."""
    original = iterator_class.__next__

    def __next__(self: Any) -> Any:
        if not book.may_hand_out(self):
            raise StopIteration
        try:
            batch = original(self)
        except StopIteration as error:
            drop_frame(error)
            context.guarded("order", book.end, self)
            raise
        context.guarded("order", book.take, self, batch)
        return batch

    replace(iterator_class, "__next__", __next__)


def hook_backward(torch: Any, book: OrderBook) -> None:
    """Note when something is trained on; `Tensor.backward` calls this one, too."""
    original = torch.autograd.backward

    def backward(*args: Any, **kwargs: Any) -> Any:
        book.note_backward()
        return original(*args, **kwargs)

    replace(torch.autograd, "backward", backward)


def hook_saving(context: TorchContext, torch: Any, book: OrderBook) -> None:
    """Note when a checkpoint is saved."""
    original = torch.save

    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(obj, f, *args, **kwargs)
        name = os.fspath(f) if isinstance(f, (str, os.PathLike)) else None
        context.guarded("order", book.note_save, None if name is None else os.fsdecode(name))
        return result

    replace(torch, "save", save)
