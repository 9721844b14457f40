"""Lets a loader hand out the largest batch of its epoch, in a child that is thrown away.

The first batch comes as the script would have it; from the second one on, the largest of the epoch
comes again and again. So the second update of such a child holds what the worst one of the epoch
will hold. This changes the training, so it has no place in a run. Samples are read for their sizes
where the data set tells none.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import combinations
from time import perf_counter
from typing import Any, NamedTuple

from ..hooks.patching import drop_frame, replace
from .drawn_ahead import Drawn, read_order
from .row_sizes import SizeColumn, differ, find_columns, size_of

LIMIT_S = 5.0
"""For reading samples, all in all; where it is not enough for all of them, some are read."""

NUM_COMPARED, MIN_ALIKE = 12, 0.9
"""Samples are read so often to see whether a list tells of them: nine in ten pairs must agree."""

ROWS = "rows"
"""What told the sizes where samples were read."""


class Chosen(NamedTuple):
    """The largest batch, and how it is known."""

    indices: tuple[int, ...]
    batch: int | None
    sample: int
    size: int
    told_by: str
    order: str
    num_known: int
    num_rows: int


class LargestFirst:
    """Chooses a batch for each loader's iterator, once.

    Args:
        torch: the module.
        limit_s: for reading samples.
        clock: tells the time [s].
    """

    def __init__(
        self,
        torch: Any,
        *,
        limit_s: float = LIMIT_S,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.torch, self.limit_s, self.clock = torch, limit_s, clock
        self.iterator = 0  # the id of the one that was asked last
        self.fetch: Callable[[], Any] | None = None
        self.chosen: Chosen | None = None
        self.columns: dict[int, SizeColumn | None] = {}  # by data set

    def install(self) -> None:
        """Let all loaders hand out their largest batch from the second one on."""
        iterator_class = self.torch.utils.data.dataloader._BaseDataLoaderIter
        original = iterator_class.__next__
        own = self

        def __next__(self: Any) -> Any:
            try:
                batch = original(self)
            except BaseException as error:
                drop_frame(error)
                raise
            try:
                return own.take(self, batch)
            except Exception:
                return batch  # a data set that cannot be read here: its batches as they come

        replace(iterator_class, "__next__", __next__)

    def take(self, iterator: Any, batch: Any) -> Any:
        """Return what an iterator hands out: its first batch, then the largest one."""
        if id(iterator) != self.iterator:
            self.iterator, self.fetch = id(iterator), None
            chosen = self.choose(iterator)
            if chosen is not None:
                self.chosen, self.fetch = chosen, fetcher_of(self.torch, iterator, chosen)
            return batch
        return batch if self.fetch is None else self.fetch()

    def choose(self, iterator: Any) -> Chosen | None:
        """Return the largest batch of an iterator's epoch; None where nothing is larger."""
        torch, dataset = self.torch, iterator._dataset
        if isinstance(dataset, torch.utils.data.IterableDataset):
            return None
        order, drawn = read_order(torch, iterator)
        column = self._sizes_of(dataset)
        if column is None:
            return None
        batches = None if drawn is None else (drawn, largest_batch(column.sizes, drawn))
        if batches is None:
            number, indices = None, largest_rows(column.sizes, batch_size_of(iterator))
        else:
            number, indices = batches[1], tuple(batches[0].batch(batches[1]))
        sample = max(indices, key=column.sizes.__getitem__)
        return Chosen(
            indices=indices,
            batch=number,
            sample=sample,
            size=column.sizes[sample],
            told_by=column.name,
            order=order,
            num_known=sum(size >= 0 for size in column.sizes),
            num_rows=len(dataset),
        )

    def _sizes_of(self, dataset: Any) -> SizeColumn | None:
        """Return the sizes of a data set's rows, looked for once."""
        key = id(dataset)
        if key not in self.columns:
            found = find_columns(self.torch, dataset)
            listed = next((one for one in found if self._agrees(dataset, one)), None)
            self.columns[key] = listed or self._read(dataset)
        return self.columns[key]

    def _agrees(self, dataset: Any, column: SizeColumn) -> bool:
        """Return whether samples that are read are larger where the column says so."""
        where = spread(len(dataset))[:NUM_COMPARED]
        read = [(column.sizes[one], size_of(self.torch, dataset[one])) for one in where]
        pairs = [(a, b) for a, b in combinations(read, 2) if a[0] != b[0]]
        alike = sum(
            a[1] is not None and b[1] is not None and (a[0] - b[0]) * (a[1] - b[1]) > 0
            for a, b in pairs
        )
        return alike >= MIN_ALIKE * len(pairs)

    def _read(self, dataset: Any) -> SizeColumn | None:
        """Return the sizes of samples, by reading evenly spaced ones; -1 where none was read."""
        num = len(dataset)
        sizes, began = array("q", [-1]) * num, self.clock()
        for index in spread(num):
            size = size_of(self.torch, dataset[index])
            if size is None:
                return None
            sizes[index] = size
            if self.clock() - began > self.limit_s:
                break
        return SizeColumn(ROWS, sizes) if differ([one for one in sizes if one >= 0]) else None

    def facts(self) -> dict[str, Any] | None:
        """Return what was chosen, as it is written; None where batches come as they are."""
        one = self.chosen
        if one is None:
            return None
        return {
            "batch": one.batch,
            "sample": one.sample,
            "size": one.size,
            "num_rows": len(one.indices),
            "told_by": one.told_by,
            "order": one.order,
            "num_known": one.num_known,
            "num_samples": one.num_rows,
        }


def spread(num: int) -> Sequence[int]:
    """Return all indices, so that the first ones are spread over the whole."""
    found: list[int] = []
    step = 1
    while step < num:
        step *= 2
    seen = set[int]()
    while step:
        for index in range(0, num, step):
            if index not in seen:
                seen.add(index)
                found.append(index)
        step //= 2
    return found


def largest_batch(sizes: Sequence[int], drawn: Drawn) -> int:
    """Return the number of the batch whose rows, padded to the largest of them, take most."""

    def measure(number: int) -> int:
        batch = drawn.batch(number)
        return len(batch) * max(sizes[index] for index in batch)

    return max(range(len(drawn.starts)), key=measure)


def largest_rows(sizes: Sequence[int], num: int) -> tuple[int, ...]:
    """Return the largest rows: no batch of so many can be larger, whoever chooses."""
    ordered = sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True)
    return tuple(ordered[:num])


def batch_size_of(iterator: Any) -> int:
    """Return how many rows a batch has; 1 where the sampler does not say."""
    size = getattr(iterator._index_sampler, "batch_size", None)
    return size if type(size) is int and size > 0 else 1


def fetcher_of(torch: Any, iterator: Any, chosen: Chosen) -> Callable[[], Any]:
    """Return what makes the chosen batch in this process, as the loader would."""
    kinds = torch.utils.data.dataloader._DatasetKind
    fetcher = kinds.create_fetcher(
        iterator._dataset_kind,
        iterator._dataset,
        iterator._auto_collation,
        iterator._collate_fn,
        iterator._drop_last,
    )
    wanted: Any = list(chosen.indices) if iterator._auto_collation else chosen.indices[0]
    return lambda: fetcher.fetch(wanted)
