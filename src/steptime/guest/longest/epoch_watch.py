"""Follows the epochs of loaders that train: the largest batch of each, and whether it has come.

A look at an epoch takes a pass over the sizes of the data set, so only the first epochs are looked
at. Some batches are compared with the sizes of their rows, so that the parent can tell whether
these say how large a batch becomes.
"""

from __future__ import annotations

from collections.abc import Sequence
from json import dumps
from typing import Any

from ...record import kinds
from ..order.loader_nature import length_of
from ..padding.host_rows import named_tensors
from ..timeline.recorder import Recorder
from .drawn_ahead import Drawn, read_order
from .row_sizes import SizeColumn, find_columns

MAX_LOADERS = 4
MAX_EPOCHS = 3
SMALL_ROWS = 100_000
"""Data sets up to here are looked at in the first three epochs, larger ones in the first."""

EARLY = 8
MAX_COMPARED = 24
"""Batches of an epoch that are compared: the first eight, then at each doubling."""

RISE = 1.01
"""Batches are told that are larger than all before, by more than a hundredth."""

NEVER = 1 << 62


class Epoch:
    """One pass over a loader that trains."""

    def __init__(self, loader: int, number: int, facts: dict[str, Any]) -> None:
        self.loader = loader
        self.number = number
        self.facts = facts
        self.drawn: Drawn | None = None
        self.columns: list[SizeColumn] = []
        self.told: list[dict[str, Any]] = []
        self.compared: list[list[int]] = []
        self.num_handed = 0

    def line(self, num_updates: int) -> str:
        """Return all that is known of it."""
        facts = {"k": kinds.LONGEST, "n": num_updates, "loader": self.loader, "epoch": self.number}
        facts |= self.facts | {"handed": self.num_handed, "compared": self.compared}
        columns = [dict(one) for one in self.told]
        if self.drawn is not None and 0 < self.num_handed <= len(self.drawn.starts):
            for told, column in zip(columns, self.columns):
                told["last"] = batch_row(column.sizes, self.drawn, self.num_handed - 1)
        return dumps(facts | {"columns": columns}) + "\n"


class EpochWatch:
    """The epochs of this process; `current` is the id of the iterator whose batches are counted."""

    place = "longest"

    def __init__(self, torch: Any, recorder: Recorder, trained: set[int]) -> None:
        self.torch = torch
        self.recorder = recorder
        self.trained = trained
        self.reset()

    def reset(self) -> None:
        """Forget everything: this is a new process."""
        self.due = 1  # the update from which on a batch is looked at
        self.current = 0
        self.num_handed = 0
        self.epoch: Epoch | None = None
        self.columns: dict[int, list[SizeColumn]] = {}  # by data set
        self.loaders: list[int] = []  # data sets, whose places are the loaders' numbers
        self.begun: dict[int, int] = {}  # epochs of a data set that began
        self.lines: list[str] = []  # of epochs that are over and not yet written
        self.is_new = False
        self.written: tuple[int, int, int] | None = None

    def stop(self) -> None:
        """Look at nothing more."""
        self.due = NEVER
        self.current = 0

    def begin(self, loader: Any) -> None:
        """Note that an epoch of a loader begins."""
        key = id(loader.dataset)
        self.begun[key] = self.begun.get(key, 0) + 1
        epoch = self.epoch
        if epoch is not None and self.loaders[epoch.loader] == key:
            self._leave(epoch)
            epoch.facts["begun"] = self.begun[key]
            self.is_new |= self.begun[key] <= MAX_EPOCHS + 1
        if self.due < NEVER and key in self.trained and self.begun[key] <= MAX_EPOCHS:
            self.due = 0

    def see_batch(self, iterator: Any, batch: Any, num_updates: int) -> None:
        """Look at an epoch, in its first batch that is due, and at the size of the batch."""
        key = id(iterator._dataset)
        self.due = num_updates + 1 if num_updates < EARLY else 2 * num_updates
        if key not in self.trained or self.begun.get(key, 1) > MAX_EPOCHS:
            return
        with self.torch._C.DisableTorchFunction():  # what we read must not reach anybody's mode
            if id(iterator) != self.current or self.epoch is None:
                self._begin_epoch(iterator, key)
            if self.epoch is not None:
                self._compare(self.epoch, batch, num_updates)

    def _begin_epoch(self, iterator: Any, key: int) -> None:
        """Look at the epoch that an iterator is in."""
        if key not in self.loaders:
            if len(self.loaders) >= MAX_LOADERS:
                return
            self.loaders.append(key)
        if self.epoch is not None:
            self._leave(self.epoch)
        order, drawn = read_order(self.torch, iterator)
        facts: dict[str, Any] = {"dataset": type(iterator._dataset).__name__, "order": order}
        number = max(0, self.begun.get(key, 1) - 1)
        self.epoch = epoch = Epoch(self.loaders.index(key), number, facts)
        self.current, self.num_handed = id(iterator), int(iterator._num_yielded)
        if order == "iterable" or (num_rows := length_of(iterator._dataset)) is None:
            return  # a sampler may know the length that the data set does not tell
        if key not in self.columns:
            self.columns[key] = find_columns(self.torch, iterator._dataset)
        epoch.columns = self.columns[key]
        facts |= {"num_rows": num_rows}
        if number and facts["num_rows"] > SMALL_ROWS:
            drawn = None
        epoch.drawn = drawn
        if drawn is not None:
            facts["num_batches"] = len(drawn.starts)
        epoch.told = [describe(one, drawn) for one in epoch.columns]

    def _compare(self, epoch: Epoch, batch: Any, num_updates: int) -> None:
        """Note how large a batch is, beside the sizes of its rows."""
        epoch.num_handed, self.is_new = self.num_handed, True
        if len(epoch.compared) >= MAX_COMPARED:
            return
        tensors = named_tensors(self.torch, (("", batch),))
        shape = max((one.shape for one in tensors if len(one.shape) > 1), key=size, default=None)
        if shape is None:
            return
        row = [self.num_handed - 1, num_updates, shape[0], size(shape)]
        if epoch.drawn is not None and self.num_handed <= len(epoch.drawn.starts):
            for column in epoch.columns:
                row += batch_row(column.sizes, epoch.drawn, self.num_handed - 1)[2:]
        epoch.compared.append(row)

    def _leave(self, epoch: Epoch) -> None:
        """Count the batches of an epoch no longer: it is over, or another loader's turn."""
        if self.current:
            epoch.num_handed = self.num_handed
            self.lines.append(epoch.line(self.recorder.num_updates))
        self.current = 0

    def poll(self, bucket: int, *, is_last: bool) -> str:
        """Return what is new since the last write."""
        lines, self.lines = self.lines, []
        epoch = self.epoch
        if epoch is not None:
            if self.current:
                epoch.num_handed = self.num_handed
            state = (epoch.loader, epoch.number, epoch.num_handed)
            if self.is_new or (is_last and state != self.written):
                lines.append(epoch.line(self.recorder.num_updates))
                self.is_new, self.written = False, state
        return "".join(lines)


def size(shape: Sequence[int]) -> int:
    """Return how many numbers a tensor of this shape holds."""
    number = 1
    for side in shape:
        number *= side
    return number


def batch_row(sizes: Sequence[int], drawn: Drawn, number: int) -> list[int]:
    """Return a batch: its number, the row that is largest, how many rows, the largest, the sum."""
    batch = drawn.batch(number)
    longest = max(batch, key=sizes.__getitem__)
    found = [sizes[index] for index in batch]
    return [number, longest, len(batch), sizes[longest], sum(found)]


def describe(column: SizeColumn, drawn: Drawn | None) -> dict[str, Any]:
    """Return the largest row of a data set, and which batches of an epoch are larger than before.

    Batches are as large as their largest row makes all of them (`padded`), or as their rows
    together (`summed`).
    """
    sizes = column.sizes
    largest = max(range(len(sizes)), key=sizes.__getitem__)
    facts: dict[str, Any] = {"name": column.name, "largest": [largest, sizes[largest]]}
    if drawn is None:
        return facts
    rows = [batch_row(sizes, drawn, number) for number in range(len(drawn.starts))]
    return facts | {
        "padded": rises(rows, [row[2] * row[3] for row in rows]),
        "summed": rises(rows, [row[4] for row in rows]),
    }


def rises(rows: list[list[int]], measures: list[int]) -> list[list[int]]:
    """Return the rows that measure more than all before them; the largest is the last."""
    found: list[list[int]] = []
    highest = told = 0.0
    last = -1
    for place, measure in enumerate(measures):
        if measure > highest:
            highest, last = measure, place
            if measure > told * RISE:
                told = measure
                found.append(rows[place])
    if found and found[-1] is not rows[last]:
        found.append(rows[last])
    return found
