"""Decides which batches are looked at, and writes what they held.

A look costs some 50 µs, so there are many among the first updates, and then so few that they add a
microsecond to an update. On a device a batch is read where the loader hands it over: its tensors
are on the host there. Otherwise the call of the model says what is trained on.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from ...record import kinds
from ...record.writing import rows_line
from ..timeline.interrupts import let_through
from ..timeline.recorder import Recorder
from . import host_rows, read_batch, row_lengths
from .host_rows import named_tensors
from .read_batch import LABELS, BatchLook, names_of, tokens_of

EACH_UPDATE = 8
"""As many updates are looked at one after another; later ones by what a look costs."""

NS_A_BYTE = 1.0
NS_A_ROW = 800
NS_A_LOOK = 15_000
"""What a look costs at most, as measured on one core [ns]: the interval goes by it, and not by a
clock, so that two runs look at the same batches."""

MAX_COST_NS = 1000
"""What all looks may add to an update on average [ns]."""

LATER = 4
"""Until some hundred updates are made, looks are more frequent: each quarter of what was made."""

MAX_UNSEEN = 6
"""After so many updates in which nothing tells of lengths, looks become rare."""

RARE = 4096
MAX_HANDED = 64
"""After so many batches of a loader that no call of a model followed, loaders are left alone."""

MAX_WAITS = 4
"""As many calls are tried for a loader's batch: some loaders are a batch ahead."""


class BatchWatch:
    """What the batches of this process held; it keeps numbers and no tensor."""

    place = "padding"

    def __init__(self, torch: Any, recorder: Recorder) -> None:
        self.torch = torch
        self.recorder = recorder
        self.reset()

    def reset(self) -> None:
        """Forget everything: this is a new process."""
        self.due = 0  # the update from which on a batch is looked at
        self.rows: list[list[Any]] = []
        self.handed: list[BatchLook] = []
        self.needs_handed = True
        self.num_unseen = self.num_waits = self.num_handed = 0

    def stop(self) -> None:
        """Look at nothing more: each step is timed against others."""
        self.due = 1 << 62

    def see_batch(self, batch: Any) -> None:
        """Look at what a loader hands over, in an update that is due."""
        if not self.needs_handed or not self._may_look():
            return
        self.num_handed += 1
        if self.num_handed > MAX_HANDED:
            self.needs_handed = False
        try:
            look = read_batch.read_batch(named_tensors(self.torch, (("", batch),)))
        except BaseException as error:
            let_through(error)
            self._give_up()
            return
        if look is not None:
            self.handed = [*self.handed[-1:], look]

    def see_call(self, args: Any, kwargs: Any, number: int) -> None:
        """Look at what a model is called with, in an update that is due."""
        if not self._may_look():
            return
        self.num_handed = 0
        try:
            tensors = named_tensors(self.torch, names_of(args, kwargs))
            own = read_batch.read_batch(tensors)
            look, self.needs_handed = self._choose(own, tensors, number)
        except BaseException as error:
            let_through(error)
            self._give_up()
            return
        if look is None and self.handed and self.num_waits < MAX_WAITS:
            self.num_waits += 1
            return
        self.handed, self.num_waits = [], 0
        if look is None:
            self.num_unseen += 1
            self.due = number + (1 if self.num_unseen < MAX_UNSEEN else RARE)
        else:
            self._take(look, number)

    def _may_look(self) -> bool:
        """Return whether nobody would see that tensors are asked for their shapes."""
        core = self.torch._C
        return not core._len_torch_function_stack() and core._get_tracing_state() is None

    def _choose(
        self, own: BatchLook | None, tensors: Any, number: int
    ) -> tuple[BatchLook | None, bool]:
        """Return the look that says more of what is trained on, and whether loaders are needed."""
        if own is not None and own.seen_by <= LABELS:
            return own, False
        tokens = tokens_of(tensors)
        shape = own.shape if own is not None else None if tokens is None else tokens.shape
        alike = [one for one in self.handed if shape is None or one.shape == shape]
        if shape is None:  # a call of something else: floats that were made of the batch
            rows = {one.shape[0] for one in tensors if one.shape}
            alike = [one for one in alike if one.num_rows in rows]
        if own is None:
            return (alike[0] if alike else None), True
        better = [one for one in alike if one.seen_by < own.seen_by]
        return (better[0], True) if better else (own, number < EACH_UPDATE)

    def _take(self, look: BatchLook, number: int) -> None:
        self.num_unseen = 0
        cost_ns = NS_A_LOOK + NS_A_BYTE * look.num_bytes + NS_A_ROW * look.num_rows
        if self.needs_handed:
            cost_ns *= 2
        wait = max(1, int(cost_ns) // MAX_COST_NS)
        self.due = number + (1 if number < EACH_UPDATE else min(wait, max(1, number // LATER)))
        self.rows.append(
            [
                *(number, look.seen_by, look.num_rows, look.width, look.num_seen),
                *(look.num_needed, look.num_trained, look.token),
                list(look.lengths),
            ]
        )

    def _give_up(self) -> None:
        self.recorder.fail("padding")
        self.stop()

    def poll(self, bucket: int, *, is_last: bool) -> str:
        """Return the new rows as a line."""
        rows, self.rows = self.rows, []
        return rows_line(kinds.BATCHES, rows) if rows else ""


def _functions_of(*holders: Any) -> list[Any]:
    return [one for holder in holders for one in vars(holder).values() if type(one) is FunctionType]


TAKE_TENSORS = (
    *_functions_of(BatchWatch),
    *_functions_of(host_rows, read_batch, row_lengths),
)
"""Functions whose frames hold tensors (`hooks/patching.py` says why that matters)."""
