"""Batches that are kept and given again and again, so that a loop runs without its loader."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from time import perf_counter_ns
from typing import Any

ALIKE, DIFFERENT = 3, 12
"""Batches that are looked at, and kept where their shapes differ."""

NUM_COPIES = 5
MAX_DEPTH = 4


class KeptBatches:
    """Gives kept batches in turn, each a copy: the loop may change what it is given.

    Args:
        torch: the module.
        batches: at least one.
        num: of an epoch; None where it has no end.
        device: where the batches lie from now on, so that the loop's own copy to it is none; None
            to leave them.
    """

    def __init__(self, torch: Any, batches: list[Any], *, num: int | None, device: Any) -> None:
        self.torch = torch
        self.num = num
        self.batches = [copied(torch, batch, device) for batch in batches]
        self.moved: set[type] = set()
        self.num_given = 0
        self.given: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        for batch in self.batches:
            self.drop_copies(batch)

    @staticmethod
    def read(read: Callable[[], Any]) -> list[Any]:
        """Return a batch; several, if the first ones differ in shape."""
        found: list[Any] = [read()]
        try:
            while len(found) < ALIKE:
                found.append(read())
            if len(set(map(shape_of, found))) == 1:
                return found[:1]
            while len(found) < DIFFERENT:
                found.append(read())
        except StopIteration:
            pass  # a short epoch
        return found if len(set(map(shape_of, found))) > 1 else found[:1]

    def take(self, iterator: Any) -> Any:
        """Return the next batch of an epoch.

        Raises:
            StopIteration: the epoch has no more.
        """
        given = self.given.get(iterator, getattr(iterator, "_num_yielded", 0))
        if self.num is not None and given >= self.num:
            raise StopIteration
        self.given[iterator] = given + 1
        self.num_given += 1
        return copied(self.torch, self.batches[self.num_given % len(self.batches)], None)

    def drop_copies(self, batch: Any) -> None:
        """Let the `to` of what is no tensor copy once only: a loader could have done it before."""
        for part in parts_of(batch):
            cls = type(part)
            if isinstance(part, self.torch.Tensor) or cls in self.moved or "to" not in dir(cls):
                continue
            self.moved.add(cls)
            cls.to = copying_once(cls.to)


def copying_once(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `to` that copies each object once and gives that copy again."""
    moved: dict[tuple[int, str], tuple[Any, Any]] = {}

    def to(own: Any, *args: Any, **kwargs: Any) -> Any:
        key = id(own), f"{args}{kwargs}"
        if key not in moved:
            moved[key] = own, original(own, *args, **kwargs)  # kept, so that no id is used again
        return moved[key][1]

    return to


def parts_of(batch: Any, depth: int = 0) -> Iterator[Any]:
    """Yield what a batch is made of, inside lists, tuples and plain dictionaries."""
    if depth < MAX_DEPTH and isinstance(batch, (list, tuple)):
        for part in batch:
            yield from parts_of(part, depth + 1)
    elif depth < MAX_DEPTH and type(batch) is dict:
        for part in batch.values():
            yield from parts_of(part, depth + 1)
    else:
        yield batch


def copied(torch: Any, batch: Any, device: Any) -> Any:
    """Return a copy of a batch, its tensors on a device, if one is given.

    What is neither tensor nor plain container is given as it is.
    """
    if isinstance(batch, torch.Tensor):
        return batch.to(device) if device is not None else batch.clone()
    if type(batch) is dict:
        return {key: copied(torch, value, device) for key, value in batch.items()}
    if type(batch) in (list, tuple):
        return type(batch)(copied(torch, value, device) for value in batch)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(copied(torch, value, device) for value in batch))
    return batch


def shape_of(batch: Any) -> str:
    """Return the shapes of what a batch is made of, as text."""
    return " ".join(str(tuple(getattr(part, "shape", ()))) for part in parts_of(batch))


def time_copies(torch: Any, batch: Any, device: Any, *, pins: bool) -> dict[str, Any]:
    """Time how long a batch takes to be pinned and to be copied to the device [ns], the medians.

    The copy is from pinned memory where the loader pins.
    """
    tensors = [t for t in parts_of(batch) if isinstance(t, torch.Tensor) and not t.is_cuda]
    if not tensors:
        return {}
    pageable = [tensor.clone() for tensor in tensors]

    def timed(act: Callable[[], Any]) -> int:
        times = []
        for _ in range(NUM_COPIES):
            torch.cuda.synchronize()
            began = perf_counter_ns()
            act()
            torch.cuda.synchronize()
            times.append(perf_counter_ns() - began)
        return sorted(times)[NUM_COPIES // 2]

    found = {}
    if pins:
        found["pin_ns"] = timed(lambda: [tensor.pin_memory() for tensor in pageable])
        pageable = [tensor.pin_memory() for tensor in pageable]
    return found | {"copy_ns": timed(lambda: [tensor.to(device) for tensor in pageable])}
