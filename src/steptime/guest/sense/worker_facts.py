"""What the workers of a loader begin with: the state of generators, whole numbers, first batches.

A worker gets a copy of the data set. A generator in it that is not seeded anew draws the same
numbers in each worker, and a constant seed the same ones in each epoch; a number that the parent
sets between epochs does not reach a worker that stays; an iterable that does not ask which worker
it is in yields everything in each.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from json import dumps
from types import FunctionType
from typing import Any

from ...record import kinds
from ..order.row_digests import leaves_of, rows_of
from ..timeline.recorder import append
from ..watchers.held_objects import inside, list_of, values_of

MAX_EPOCHS = 4
"""Epochs of a data set of which workers tell; what repeats does so at once."""

MAX_BATCHES = 3
"""Batches of a worker whose contents are compared: a constant batch may repeat by chance."""

MAX_NUMBERS = 8
MAX_DATA_SETS = 64
MAX_BYTES = 1 << 20
MAKING = ("__getitem__", "__getitems__", "__iter__")
"""The methods by which a worker makes samples."""

WORDS = ("epoch", "seed", "stage", "round", "level")
"""In names of attributes that a script sets between epochs; a counter has another name."""


TURNS: Counter[tuple[int, int]] = Counter()
"""Epochs by process and data set: a persistent worker begins several."""


class EpochBook:
    """The epochs of each data set that loaders have begun, in the process that trains.

    `trained` are the ids of the data sets that were trained on.
    """

    def __init__(self, trained: set[int]) -> None:
        self.trained = trained
        self.num: Counter[int] = Counter()
        self.numbers: dict[int, list[dict[str, int]]] = {}

    def begin(self, loader: Any) -> None:
        """Take the beginning of an epoch of a loader."""
        if not getattr(loader, "num_workers", 0):
            return
        key = id(loader.dataset)
        if key not in self.num and len(self.num) >= MAX_DATA_SETS:
            return
        self.num[key] += 1
        if self.num[key] <= MAX_EPOCHS:
            self.numbers.setdefault(key, []).append(numbers_of(loader.dataset))

    def tell(self) -> list[dict[str, Any]]:
        """Return the numbers of each data set in its first epochs."""
        return [
            {"data_set": key, "numbers": seen}
            for key, seen in self.numbers.items()
            if key in self.trained
        ]


class WorkerFacts:
    """What one worker has seen since an epoch began.

    Args:
        epoch: of the data set, from 1; 0 where the process that trains did not fork this one.
        turn: of the worker's own epochs, from 1.
        number: of the worker.
    """

    def __init__(self, torch: Any, dataset: Any, *, epoch: int, turn: int, number: int) -> None:
        self.torch = torch
        self.dataset = dataset
        self.is_iterable = isinstance(dataset, torch.utils.data.IterableDataset)
        # Those of an iterable may have to agree: workers that share a shuffled order do so.
        self.generators = [] if self.is_iterable else list(generators_of(torch, dataset))
        self.states = [self._digest_states()]
        self.shared = {name: [digest(iter([state_of(g)]))] for name, g in shared_generators(torch)}
        self.batches: list[str] = []
        self.head = {
            "k": kinds.WORKER_SENSE,
            "pid": os.getpid(),
            "worker": number,
            "data_set": id(dataset),
            "epoch": epoch,
            "turn": turn,
            "class_name": type(dataset).__name__,
            "names": sorted({name for name, _ in self.generators}),
            "numbers": numbers_of(dataset),
        }

    @property
    def is_over(self) -> bool:
        """Whether enough batches were seen."""
        return len(self.states) > MAX_BATCHES

    def see_batch(self, batch: Any, path: str) -> None:
        """Write a line with what is known after one more batch."""
        self.states.append(self._digest_states())
        for name, generator in shared_generators(self.torch):
            if name in self.shared:
                self.shared[name].append(digest(iter([state_of(generator)])))
        if self.is_iterable:
            self.batches.append(self._digest_batch(batch))
        line = self.head | {"states": self.states, "shared": self.shared, "batches": self.batches}
        append(path, dumps(line) + "\n")

    def _digest_states(self) -> str:
        """Return a digest of all generators; nothing where one was replaced by another."""
        if not self.generators:
            return ""
        current = [id(one) for _, one in generators_of(self.torch, self.dataset)]
        if current != [id(one) for _, one in self.generators]:
            self.generators = []
            return ""
        return digest(state_of(one) for _, one in self.generators)

    def _digest_batch(self, batch: Any) -> str:
        leaves = list(leaves_of(self.torch, batch))
        if sum(getattr(leaf, "nbytes", 0) for leaf in leaves) > MAX_BYTES:
            leaves = [leaf[:1] for leaf in leaves]
        return digest(row for leaf in leaves for row in rows_of(self.torch, leaf))


def watch_worker(context: Any, dataset: Any, number: int) -> WorkerFacts | None:
    """Return what notes the facts of a worker whose epoch begins; None where enough are known."""
    key = os.getpid(), id(dataset)
    TURNS[key] += 1
    epoch, turn = context.sense.epochs.num[id(dataset)], TURNS[key]
    if context.sense.is_off or max(epoch, turn) > MAX_EPOCHS:
        return None
    return WorkerFacts(context.torch, dataset, epoch=epoch, turn=turn, number=number)


def generators_of(torch: Any, dataset: Any) -> Iterator[tuple[str, Any]]:
    """Yield the generators that a data set, those inside it and their transforms hold, by name."""
    numpy, random = sys.modules.get("numpy.random"), sys.modules.get("random")
    known = [torch.Generator, getattr(random, "Random", None)]
    known += [getattr(numpy, name, None) for name in ("Generator", "RandomState")]
    classes = tuple(one for one in known if one is not None)
    for one in inside(dataset):
        values = values_of(one)
        transform = values.get("transform")
        for holder in (one, transform, *list_of(values_of(transform).get("transforms"))):
            for name, value in list(values_of(holder).items()):
                if type(value) in classes:
                    yield f"{type(holder).__name__}.{name}", value


def shared_generators(torch: Any) -> Iterator[tuple[str, Any]]:
    """Yield the generators of a process that any code draws from, as far as they are loaded."""
    own = getattr(sys.modules.get("random"), "_inst", None)
    numpys = getattr(sys.modules.get("numpy.random.mtrand"), "_rand", None)
    known = (
        ("torch's generator", torch.default_generator),
        ("Python's random", own),
        ("numpy.random", numpys),
    )
    yield from ((name, one) for name, one in known if one is not None)


def state_of(generator: Any) -> bytes:
    """Return the state of a generator."""
    kind = type(generator).__name__
    if kind == "Generator" and hasattr(generator, "bit_generator"):
        return repr(generator.bit_generator.state).encode()
    if kind == "RandomState":
        name, keys, *rest = generator.get_state()
        return bytes(keys.tobytes()) + repr((name, rest)).encode()
    if kind == "Random":
        return repr(generator.getstate()).encode()
    return bytes(generator.get_state().numpy().tobytes())


def numbers_of(dataset: Any) -> dict[str, int]:
    """Return the whole numbers of a data set and of those inside it that a script may set."""
    found: dict[str, int] = {}
    for one in inside(dataset):
        read = names_read(type(one))
        for name, value in list(values_of(one).items()):
            if type(value) is int and name in read and any(w in name.lower() for w in WORDS):
                found.setdefault(f"{type(one).__name__}.{name}", value)
    return dict(list(found.items())[:MAX_NUMBERS])


def names_read(kind: type) -> set[str]:
    """Return the names in the code that makes samples, and in the methods that it names."""
    methods = {
        name: method.__code__
        for owner in reversed(kind.__mro__)
        for name, method in vars(owner).items()
        if type(method) is FunctionType
    }
    found = {name for name in MAKING if name in methods}
    for _ in range(2):
        found |= {word for name in found if name in methods for word in methods[name].co_names}
    return found


def digest(parts: Iterator[bytes]) -> str:
    """Return a short digest of bytes, in their order."""
    found = blake2b(digest_size=8)
    for part in parts:
        found.update(part)
    return found.hexdigest()
