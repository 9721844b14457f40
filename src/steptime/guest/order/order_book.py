"""Keeps the order in which each loader's sampler draws, pass by pass, and writes it down.

A sampler is asked for its whole order when a pass begins, so that an order is known although only
the first batches of the pass are read. After these the pass ends as if there were no more data: the
script goes on to what follows an epoch. This changes the training, in a child that is thrown away.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from json import dumps
from time import perf_counter
from typing import Any

from ...record.loaders import order_lines
from ..timeline.recorder import append
from .loader_nature import epoch_of, labels_of, nature_of
from .row_digests import digest_rows, labels_in
from .sample_contents import LIMIT_S, read_contents

MAX_INDICES = 20_000_000
"""Of an order; a sampler without an end is not asked for more."""

MAX_FRAMES = 20
AHEAD = os.path.join("accelerate", "data_loader.py")
"""Its loaders fetch a batch to know whether the one before is the last."""


@dataclass(frozen=True)
class OrderWish:
    """What the parent asks for.

    `epochs` passes over a loader that trains are seen, of each at most `batches` batches, of the
    last one at most `last_batches`. `num_workers` takes the place of the script's own number. With
    `seed`, all generators are seeded when a pass begins, so that children can be compared. With
    `contents`, the data sets of all loaders are read before the process ends.
    """

    epochs: int = 2
    batches: int = 20
    last_batches: int | None = None
    num_workers: int | None = None
    seed: int | None = None
    contents: bool = False

    def limit(self, num_ended: int) -> int:
        """Return how many batches of a pass are handed out after so many epochs."""
        is_last = num_ended >= self.epochs - 1
        return self.batches if self.last_batches is None or not is_last else self.last_batches


class LoaderPass:
    """One iteration over a loader."""

    def __init__(self, loader: int, number: int, num_batches: int | None) -> None:
        self.loader = loader
        self.number = number
        self.num_batches = num_batches
        self.num_handed = 0
        self.has_ended = False
        self.is_trained = False


class DrawnOrder:
    """A sampler's iterator, asked for its whole order as soon as one index is wanted.

    Not before: loaders with workers make a second iterator and use that one. What else the
    sampler's iterator can do, it still does.
    """

    def __init__(self, inner: Any, begin: Callable[[Any], tuple[list[Any], LoaderPass]]) -> None:
        self._inner = inner
        self._begin = begin
        self._first: Iterator[Any] | None = None
        self._record: LoaderPass | None = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._first is None:
            self.start()
        for index in self._first or ():
            return index
        return next(self._inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_inner"], name)

    def start(self) -> LoaderPass | None:
        """Begin the pass if it has not begun; return it, or None if it is not watched."""
        if self._first is None:
            first, self._record = self._begin(self._inner)
            self._first = iter(first)
        return self._record


class WatchedSampler:
    """A loader's sampler, whose iterations are passes."""

    def __init__(self, book: OrderBook, loader: Any, inner: Any) -> None:
        self._book = book
        self._loader = loader
        self._inner = inner

    def __iter__(self) -> Iterator[Any]:
        book, loader = self._book, self._loader
        return DrawnOrder(iter(self._inner), lambda iterator: book.begin_pass(loader, iterator))

    def __len__(self) -> int:
        return len(self._inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_inner"], name)


class OrderBook:
    """The loaders of this process and their passes."""

    def __init__(
        self,
        torch: Any,
        folder: str,
        wish: OrderWish,
        *,
        end_process: Callable[[], None],
    ) -> None:
        self.torch = torch
        self.wish = wish
        self.end_process = end_process
        self.pid = os.getpid()
        self.path = os.path.join(folder, order_lines.order_file(os.getpid()))
        self.places: dict[int, tuple[Any, Any]] = {}  # loader's id: the loader, where it was made
        self.numbers: dict[str, int] = {}
        self.passes: dict[int, int] = {}  # loader's number: passes that began
        self.epochs: dict[int, int] = {}  # loader's number: passes that trained, and ended
        self.trained: set[int] = set()  # numbers of loaders that train
        self.untrained: list[LoaderPass] = []  # passes of the batches since the last backward call
        os.close(os.open(self.path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o644))

    def write(self, kind: str, facts: dict[str, Any]) -> None:
        """Append a line."""
        append(self.path, dumps({"k": kind} | facts) + "\n")

    def number_of(self, loader: Any) -> int:
        """Return the number of a loader; one that is made anew each epoch keeps its number."""
        place = self.places.get(id(loader), (None, None))[1]
        nature = nature_of(self.torch, loader)
        key = repr((place, nature))
        if key not in self.numbers:
            self.numbers[key] = len(self.numbers)
            labels = None if nature["is_iterable"] else labels_of(self.torch, loader.dataset)
            facts = {"loader": self.numbers[key], "place": place, "has_labels": labels is not None}
            self.write(order_lines.LOADER, facts | nature | self.rank())
            if labels is not None:
                self.write_numbers("labels", {"loader": self.numbers[key]}, labels)
        return self.numbers[key]

    def rank(self) -> dict[str, Any]:
        """Return which of how many ranks this process is."""
        distributed = self.torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return {"rank": distributed.get_rank(), "world_size": distributed.get_world_size()}
        return {"rank": 0, "world_size": 1}

    def write_numbers(self, what: str, of: dict[str, Any], values: list[Any]) -> None:
        """Write many numbers, in lines of bounded length."""
        size = order_lines.MAX_IN_LINE
        for begin in range(0, len(values), size):
            self.write(order_lines.INDICES, of | {"what": what, "values": values[begin:][:size]})

    def begin_pass(self, loader: Any, iterator: Iterator[Any]) -> tuple[list[Any], LoaderPass]:
        """Draw the order of a pass that begins, and write it down."""
        if self.wish.seed is not None:
            seed_all(self.torch, self.wish.seed)
        number = self.number_of(loader)
        count = self.passes.get(number, 0)
        self.passes[number] = count + 1
        is_iterable = isinstance(loader.dataset, self.torch.utils.data.IterableDataset)
        first, is_whole = ([], False) if is_iterable else draw(iterator)
        of = {"loader": number, "pass": count}
        flat, sizes = flatten(first)
        facts = {
            "epoch": epoch_of(self.torch, loader),
            "is_whole": is_whole,
            "has_indices": flat is not None,
            "ahead": num_ahead(sys._getframe(1)),
            "trained": number in self.trained,
        }
        self.write(order_lines.PASS, of | facts)
        if flat is not None:
            self.write_numbers("order", of, flat)
            self.write_numbers("sizes", of, sizes)
        return first, LoaderPass(number, count, len(first) if is_whole else None)

    def limit(self, record: LoaderPass) -> int:
        """Return how many batches of a pass are handed out."""
        return self.wish.limit(self.epochs.get(record.loader, 0))

    def may_hand_out(self, iterator: Any) -> bool:
        """Return whether the script gets another batch of this pass."""
        record = record_of(iterator)
        if record is None or record.num_handed < self.limit(record):
            return True
        self.end_pass(record)
        return False

    def take(self, iterator: Any, batch: Any) -> None:
        """Write what a batch holds that was handed to the script."""
        record = record_of(iterator)
        if record is None:
            return
        of = {"loader": record.loader, "pass": record.number, "n": record.num_handed}
        record.num_handed += 1
        digests, labels = digest_rows(self.torch, batch), labels_in(self.torch, batch)
        found = {"digests": digests, "labels": labels, "trained": record.is_trained}
        self.write(order_lines.BATCH, of | found)
        if self.torch.is_grad_enabled():
            self.untrained.append(record)

    def note_backward(self) -> None:
        """Note that the batches handed out since the last backward call were trained on."""
        for record in self.untrained:
            record.is_trained = True
            self.trained.add(record.loader)
        self.untrained.clear()

    def end(self, iterator: Any) -> None:
        """Note that the loader itself has no more batches."""
        record = record_of(iterator)
        if record is not None:
            self.end_pass(record, is_at_end=True)

    def end_pass(self, record: LoaderPass, *, is_at_end: bool = False) -> None:
        """Write that a pass is over; end the process if it was the last one that is wanted."""
        if record.has_ended:
            return
        record.has_ended = True
        trained = record.is_trained or (not record.num_handed and record.loader in self.trained)
        self.untrained = [one for one in self.untrained if one is not record]
        at_end = is_at_end or record.num_handed == record.num_batches
        of = {"loader": record.loader, "pass": record.number, "handed": record.num_handed}
        self.write(order_lines.PASS_END, of | {"trained": trained, "is_at_end": at_end})
        if trained:
            self.epochs[record.loader] = self.epochs.get(record.loader, 0) + 1
            if self.epochs[record.loader] >= self.wish.epochs:
                self.see_contents()
                self.end_process()

    def see_contents(self) -> None:
        """Write what the samples of all loaders hold, if that is wanted; on the first rank."""
        if not self.wish.contents or self.rank()["rank"]:
            return
        until_s, seen = perf_counter() + LIMIT_S, set()
        for loader, _ in list(self.places.values()):
            if isinstance(loader.dataset, self.torch.utils.data.IterableDataset):
                continue
            number = self.number_of(loader)
            if number in seen:
                continue
            seen.add(number)
            facts: dict[str, Any] = {"loader": number, "dataset": id(loader.dataset)}
            try:
                found = read_contents(self.torch, loader.dataset, until_s=until_s)
            except Exception as error:
                facts["failed"] = f"{type(error).__name__}: {error}"[:200]
                self.write(order_lines.SAMPLES, facts)
            else:
                self.write(order_lines.SAMPLES, facts | found)

    def note_save(self, file: str | None) -> None:
        """Write that the script has saved a checkpoint."""
        self.write(order_lines.SAVE, {"file": file})


def record_of(iterator: Any) -> LoaderPass | None:
    """Return the pass of a loader's iterator, which begins now if it has not begun."""
    order = iterator._sampler_iter
    return order.start() if isinstance(order, DrawnOrder) else None


def draw(iterator: Iterator[Any]) -> tuple[list[Any], bool]:
    """Return what a sampler gives, and whether that is all of it."""
    found: list[Any] = []
    num = 0
    for index in iterator:
        found.append(index)
        num += len(index) if isinstance(index, (list, tuple)) else 1
        if num >= MAX_INDICES:
            return found, False
    return found, True


def flatten(drawn: list[Any]) -> tuple[list[int] | None, list[int]]:
    """Return the indices of all batches one after another, and the size of each batch.

    The indices are None where a sampler gives something else than whole numbers.
    """
    flat: list[int] = []
    sizes = []
    for index in drawn:
        batch = list(index) if isinstance(index, (list, tuple)) else [index]
        if not all(hasattr(one, "__index__") for one in batch):
            return None, []
        flat += [int(one) for one in batch]
        sizes.append(len(batch))
    return (flat or None), sizes


def num_ahead(frame: Any) -> int:
    """Return how many batches are fetched before the one the script has: one by accelerate."""
    for _ in range(MAX_FRAMES):
        if frame is None:
            break
        if frame.f_code.co_filename.endswith(AHEAD):
            return 1
        frame = frame.f_back
    return 0


def seed_all(torch: Any, seed: int) -> None:
    """Seed the generators that everybody shares."""
    random.seed(seed)
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)
