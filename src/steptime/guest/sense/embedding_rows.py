"""How many rows of an optimizer's embeddings have a gradient: the others are updated for nothing.

In: an optimizer that is about to step, in two early updates. Out: rows, and those of them whose
gradient is not zero. A gradient that is sparse has no others, and a weight that is the output layer
as well has a gradient in each row.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from ..health.number_fetch import NumberFetch
from ..hooks.module_tree import has_shape, held_by, modules_of

MIN_ROWS = 10_000
"""A dense update of fewer takes microseconds."""

MAX_LOOKS = 2
MAX_TABLES = 64
MAX_ELEMENTS = 20_000_000
"""Elements of one gradient that are read; of a larger one every so many rows."""

MOVING = ("betas", "momentum", "weight_decay")
"""Options by which an optimizer changes a weight whose gradient is zero."""

CHUNK = 1 << 22
"""Elements that are compared at once: what that takes is in no one's peak of memory."""


class RowUse:
    """The weight of an embedding, and the most of its rows that had a gradient."""

    def __init__(self, weight: Any, optimizer: Any, group: dict[str, Any]) -> None:
        self.reference = weakref.ref(weight)
        self.rows, self.elements = int(weight.shape[0]), int(weight.numel())
        self.kind = type(optimizer).__name__
        self.moves = any(group.get(name) for name in MOVING)
        self.num_looks = self.touched = 0

    def take(self, counts: list[float], every: int) -> None:
        """Take the numbers of rows that were not zero, of one row in `every`."""
        self.num_looks += 1
        self.touched = max(self.touched, min(self.rows, every * int(sum(counts))))


class EmbeddingRows:
    """Counts the rows with a gradient in dense gradients of large embeddings."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.fetch = NumberFetch(torch)
        self.tables: dict[int, RowUse] = {}

    def see(self, optimizer: Any, models: Iterable[Any]) -> None:
        """Take the gradients of an optimizer's weights as its step begins."""
        groups = getattr(optimizer, "param_groups", ())
        weights = [(one, group) for group in groups for one in group["params"] if has_shape(one)]
        large = [one for one in weights if one[0].dim() == 2 and one[0].shape[0] >= MIN_ROWS]
        known = {id(one) for model in models for one in self._embeddings_of(model)} if large else ()
        for weight, group in large:
            if id(weight) in known and len(self.tables) < MAX_TABLES:
                table = self.tables.setdefault(id(weight), RowUse(weight, optimizer, group))
                is_same = table.reference() is weight
                if is_same and table.num_looks < MAX_LOOKS:
                    self._count(weight.grad, table)

    def _embeddings_of(self, model: Any) -> Iterator[Any]:
        layers = self.torch.nn.modules.sparse
        for _, module in modules_of(model):
            if issubclass(type(module), (layers.Embedding, layers.EmbeddingBag)):
                yield from (weight for _, weight in held_by(module, "_parameters"))

    def _count(self, gradient: Any, table: RowUse) -> None:
        torch = self.torch
        if type(gradient) is not torch.Tensor or gradient.layout is not torch.strided:
            return
        on = gradient.device.type
        if on not in ("cpu", "cuda") or (on == "cuda" and torch.cuda.is_current_stream_capturing()):
            return
        every = 1 + gradient.numel() // MAX_ELEMENTS
        with torch.no_grad():
            rows = gradient.detach()[::every]
            parts = rows.split(max(1, CHUNK // max(1, rows.shape[1])))
            counts = [part.ne(0).any(1).sum() for part in parts]
        self.fetch.begin(counts, lambda found: table.take(found, every))

    def tell(self, names: dict[int, str]) -> list[dict[str, Any]]:
        """Return what is known of each embedding that still is there."""
        self.fetch.poll()
        return [
            {
                "name": names.get(key, "?"),
                "optimizer": one.kind,
                "moves": one.moves,
                "rows": one.rows,
                "touched": one.touched,
                "elements": one.elements,
            }
            for key, one in self.tables.items()
            if one.num_looks and one.reference() is not None
        ]
