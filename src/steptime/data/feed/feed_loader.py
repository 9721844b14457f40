"""A loader that reads whole batches in an exact order and can be resumed in the middle."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeVar

from steptime.data.feed.columns import Columns, as_arrays, as_tensors
from steptime.data.feed.epoch_order import EpochOrder
from steptime.data.feed.named_errors import with_place
from steptime.data.feed.rank_split import RankSplit
from steptime.data.feed.read_ahead import Steps, read_ahead
from steptime.data.feed.read_in_processes import read_in_processes
from steptime.data.source import SampleSource
from steptime.errors import DataError

SCHEMA = 1

Name = TypeVar("Name")


@dataclass(eq=False)
class Loader:
    """Batches of a source, epoch by epoch: `for batch in loader` is one epoch of this rank.

    A batch is `{column: values}` of `batch_size` samples, or a tuple with `as_tuple`: tensors
    `(B, *shape)` where torch has been imported and all samples have one shape, else arrays of
    numpy, or lists. Each epoch's order is a function of `seed` and the epoch's number alone.

    `state_dict()` says how far the training is, and `load_state_dict` goes on exactly there, also
    in the middle of an epoch, with another `batch_size` or another number of ranks. An iteration
    that was left early is over: the next one is the next epoch.

    Raises:
        ValueError: an argument is out of its range.
        DataError: a sample cannot be read; the message names shard and row.
    """

    source: SampleSource
    batch_size: int
    """Samples of a batch on one rank."""
    _: KW_ONLY
    seed: int = 0
    """Of the order; 0 to 2**64 - 1."""
    shuffle: bool = True
    rank: int | None = None
    """None takes it from `torch.distributed` where that is initialized, else 0."""
    world_size: int | None = None
    drop_last: bool = False
    """Leave out the samples at an epoch's end that fill no batch on each rank. Without it the
    last batch is smaller, and each rank has as many steps as the others."""
    threads: int | None = None
    """Reads in flight; 0 reads when a batch is asked for. None is what the source is made for."""
    processes: int = 0
    """Workers that read, decode and transform whole batches, in place of threads: for what holds
    the interpreter lock. They are those of torch's `DataLoader`."""
    depth: int = 2
    """Batches that are read ahead, for each worker where there are some."""
    columns: Sequence[str] | None = None
    """What a batch has; None is all."""
    as_tuple: bool = False
    """Batches are tuples, in the order of `columns`."""
    decode: Callable[[Columns], Columns] | None = None
    """Turns the columns of some samples into others, in the reading threads."""
    transform: Callable[[Any], Any] | None = None
    """Turns the finished batch into another, in one thread, batch by batch in order."""
    views: bool = False
    """Let a batch of neighbors share its memory with a mapped file, which nobody may write into
    then. Without it a batch is the caller's own."""
    epoch: int = field(default=0, init=False)
    """Of the iteration that goes on, or that comes next."""

    def __post_init__(self) -> None:
        if min(self.batch_size, self.depth) < 1 or min(self.threads or 0, self.processes) < 0:
            raise ValueError(
                "`batch_size >= 1`, `depth >= 1`, `threads >= 0` and `processes >= 0` must hold, "
                f"got {self.batch_size=}, {self.depth=}, {self.threads=}, {self.processes=}"
            )
        known = [column.name for column in self.source.columns]
        missing = set(self.columns or ()) - set(known)
        if missing:
            raise ValueError(f"there is no column {sorted(missing)}; there are {known}")
        self._order = EpochOrder(len(self.source), seed=self.seed, shuffle=self.shuffle)
        self._position = 0
        self._has_begun = False
        self._turn = 0
        self._split(0)  # an argument that does not fit is said now

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch on this rank."""
        return self._split(0).num_steps

    def __iter__(self) -> Iterator[Any]:
        """Begin the next epoch, or go on with the one whose state was loaded."""
        if self._has_begun:
            self.epoch, self._position = self.epoch + 1, 0
        self._has_begun = True
        self._turn += 1
        return self._batches(self._turn, self.epoch, self._position)

    def _batches(self, turn: int, epoch: int, start: int) -> Iterator[Any]:
        for position, batch in self.read(self.plan(epoch, start)):
            if turn == self._turn:
                self._position = position
            yield batch
        if turn == self._turn:
            self.epoch, self._position, self._has_begun = epoch + 1, 0, False

    def plan(self, epoch: int, start: int = 0) -> Iterator[tuple[int, Any]]:
        """Yield for each batch of this rank the place behind it, and its samples' numbers.

        Args:
            epoch: its number.
            start: the place in the epoch's order to begin at, over all ranks.
        """
        split, (rank, _) = self._split(start), self._ranks()
        for step in range(split.num_steps):
            begin, end = split.rank_bounds(step, rank)
            behind = start + split.step_bounds(step)[1]
            yield behind, self._order.take(epoch, start + begin, start + end)

    def read(self, plan: Iterable[tuple[Name, Sequence[int]]]) -> Iterator[tuple[Name, Any]]:
        """Yield the batches of these samples, read ahead and in order, each with its name."""
        steps = Steps(self._read, self._finish)
        if self.processes:
            return read_in_processes(plan, steps, processes=self.processes, depth=self.depth)
        return read_ahead(plan, steps, threads=self.num_threads, depth=self.depth)

    @property
    def num_threads(self) -> int:
        """Threads that read."""
        if self.threads is not None:
            return self.threads
        return int(getattr(self.source, "reads_in_flight", 1))

    @property
    def end_of_epoch(self) -> str:
        """One sentence on how samples that fill no whole batch are treated."""
        return self._split(0).say_end()

    def state_dict(self) -> dict[str, Any]:
        """Return how far the training is: the batch that was handed over last is behind it."""
        return {
            "schema": SCHEMA,
            "epoch": self.epoch,
            "position": self._position,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "num_samples": len(self.source),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration go on where the state was taken.

        Raises:
            DataError: the state is of other samples, another seed or another version.
        """
        own = self.state_dict()
        for name in ("schema", "num_samples", "seed", "shuffle"):
            if state.get(name) != own[name]:
                raise DataError(
                    f"the state is of another order: its {name} is {state.get(name)!r}, and the "
                    f"loader's is {own[name]!r}",
                    hint="resume with the data, the seed and the version it was made with",
                )
        epoch, position = _count_of(state, "epoch"), _count_of(state, "position")
        if position > len(self.source):
            raise DataError(f"the state is damaged: {position=} of {len(self.source)}")
        self._begin(epoch, position)

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be of this epoch. Nobody has to: epochs count themselves.

        A place in the middle of this very epoch that was loaded is kept.
        """
        if epoch != self.epoch or self._has_begun:
            self._begin(epoch, 0)

    def _begin(self, epoch: int, position: int) -> None:
        self.epoch, self._position = epoch, position
        self._has_begun = False
        self._turn += 1

    def _split(self, start: int) -> RankSplit:
        rank, world_size = self._ranks()
        if not 0 <= rank < world_size:
            raise ValueError(f"`0 <= rank < world_size` must hold, got {rank=}, {world_size=}")
        left = len(self.source) - start
        split = RankSplit(left, self.batch_size, world_size, self.drop_last)
        split.check()
        return split

    def _ranks(self) -> tuple[int, int]:
        """Return rank and number of ranks."""
        distributed = sys.modules.get("torch.distributed")
        together = distributed is not None and distributed.is_available()
        if distributed is not None and together and distributed.is_initialized():
            rank, world_size = distributed.get_rank(), distributed.get_world_size()
        else:
            rank, world_size = 0, 1
        return (
            rank if self.rank is None else self.rank,
            world_size if self.world_size is None else self.world_size,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Name the rank, which a worker that is spawned could not ask for."""
        rank, world_size = self._ranks()
        return {**self.__dict__, "rank": rank, "world_size": world_size}

    def _read(self, indices: Sequence[int]) -> Columns:
        return with_place(self.source, indices, self._read_some)

    def _read_some(self, indices: Sequence[int]) -> Columns:
        columns = self.source.read(indices)
        if self.columns is not None:
            columns = {name: columns[name] for name in self.columns}
        return columns if self.decode is None else self.decode(columns)

    def _finish(self, columns: Columns) -> Any:
        values = as_tensors(as_arrays(columns), views=self.views)
        batch = tuple(values.values()) if self.as_tuple else values
        return batch if self.transform is None else self.transform(batch)


def _count_of(state: Mapping[str, Any], name: str) -> int:
    value = state.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise DataError(f"the state is damaged: its {name} is {value!r}")
    return value
