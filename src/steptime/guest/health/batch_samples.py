"""Which samples a batch was made of: the indices that a loader's sampler drew for it.

A loader asks its sampler for the indices of a batch when it begins to fetch it, in its own process
or in a worker's. They are kept under the number of the batch, and taken when the batch arrives.
Nothing is asked of the sampler.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

from .bracket import tensors_of

MAX_SAMPLES = 4_096
"""Indices of one batch that are kept and written."""

MAX_REQUESTED = 1_024
"""Batches that workers may have ahead; a loader that is left half-way keeps none for longer."""

MAX_BATCHES = 8
"""Batches among which the one that a model is called with is searched for."""


class Batch:
    """One batch that was handed to the script: its indices, and where its tensors lie."""

    __slots__ = ("addresses", "indices", "missing")

    def __init__(self, indices: list[int] | None, missing: str | None, addresses: set[int]) -> None:
        self.indices = indices
        self.missing = missing
        self.addresses = addresses


class BatchBook:
    """Keeps the indices of the last batches, and knows which one the model was called with.

    It is the one whose memory the model reads. Where no memory is shared (the batch was copied to
    a device, or made into something else), it is the last batch, if exactly one was fetched since
    the call before; otherwise nobody knows.
    """

    def __init__(self) -> None:
        self.requested: weakref.WeakKeyDictionary[Any, dict[int, Any]] = weakref.WeakKeyDictionary()
        self.recent: deque[Batch] = deque(maxlen=MAX_BATCHES)
        self.num_fetched = 0
        self.current: Batch | None = None
        self.before: Batch | None = None
        self.missing = "no_loader_seen"

    def request(self, iterator: Any, index: Any) -> None:
        """Note the indices that a sampler gave for the next batch of an iterator."""
        number = getattr(iterator, "_send_idx", iterator._num_yielded)
        asked = self.requested.setdefault(iterator, {})
        if len(asked) >= MAX_REQUESTED:
            asked.clear()
        asked[number] = index

    def take(self, torch: Any, iterator: Any, batch: Any) -> None:
        """Note a batch that a loader has handed over."""
        received = getattr(iterator, "_rcvd_idx", None)
        number = (iterator._num_yielded if received is None else received) - 1
        asked = self.requested.get(iterator)
        indices, missing = plain_indices({} if asked is None else asked, number)
        if not getattr(iterator, "_in_order", True):
            indices, missing = None, "out_of_order"
        plain = (t for t in tensors_of(torch.Tensor, batch) if type(t) is torch.Tensor)
        addresses = {t.data_ptr() for t in plain if t.is_cpu and t.numel()}
        self.recent.append(Batch(indices, missing, addresses))
        self.num_fetched += 1

    def begin_call(self, given: list[Any]) -> None:
        """Find the batch that a model is called with; `given` are its tensors."""
        if not self.recent:
            return
        num_fetched, self.num_fetched = self.num_fetched, 0
        addresses = {t.data_ptr() for t in given if t.is_cpu and t.numel()}
        shared = [one for one in self.recent if one.addresses & addresses]
        if shared:
            self.current = shared[-1]
        elif num_fetched == 1:
            self.current = self.recent[-1]
        elif num_fetched:
            self.current, self.missing = None, "several_batches"

    def end_update(self) -> None:
        """Keep the batch of this update as the one before."""
        self.before = self.current

    def describe(self) -> dict[str, Any]:
        """Return the samples of the batch, or why not, and those of the update before."""
        found: dict[str, Any] = {"samples": None, "samples_missing": self.missing}
        if self.current is not None:
            indices, missing = self.current.indices, self.current.missing
            found = {"samples": indices, "samples_missing": missing}
        before = None if self.before is None else self.before.indices
        return {**found, "samples_before": before}


def plain_indices(asked: dict[int, Any], number: int) -> tuple[list[int] | None, str | None]:
    """Return the indices of a batch, and why there are none."""
    if number not in asked:
        return None, "fetched_before"
    index = asked.pop(number)
    if type(index) is int:
        return [index], None
    if type(index) not in (list, tuple) or not all(type(one) is int for one in index):
        return None, "no_indices"
    return list(index[:MAX_SAMPLES]), None
