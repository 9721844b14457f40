"""Updates of several backward calls: what the end of an epoch does to one, and what each counts.

An epoch that ends within an update leaves batches over; the next update gets their gradients, or
nothing does. Means over unlike numbers of targets, added as equals, give a target of a short
micro-batch more weight than one of a long one.
"""

from __future__ import annotations

import weakref
from collections import Counter
from typing import Any, NamedTuple

MAX_EPOCHS = 16
"""Ends of epochs within an update that are noted."""

SAMPLED = frozenset((1, 2, 3, 4, 8, 16, 32, 64))
"""The micro-batches of an update are compared where so many updates came before it."""

MAX_PARTS = 64


class EpochEnd(NamedTuple):
    """An end of an epoch within an update.

    `left` backward calls came before it, `batches` since the epoch before ended like this, and
    `joined` made the next update; `cleared` says whether gradients were gone behind it.
    """

    left: int
    batches: int
    joined: int
    cleared: bool | None


class Accumulated:
    """Counts the backward calls of each update of a thread."""

    def __init__(self) -> None:
        self.num = self.total = self.num_updates = 0
        self.sizes: Counter[int] = Counter()
        self.optimizer: tuple[int, Any] = (0, None)
        self.ended: tuple[int, int] | None = None  # calls of this update, and of all, at its end
        self.last_total = 0
        self.cleared: bool | None = None
        self.left: list[EpochEnd] = []
        self.parts: list[tuple[int, float, int]] = []
        self.sampled: list[tuple[tuple[int, float, int], ...]] = []

    def skip(self) -> None:
        """Forget the update that is under way: calls passed that nothing is known of."""
        self.num, self.ended, self.parts = 0, None, []
        self.last_total = -1

    def begin_epoch(self) -> None:
        """Take the beginning of an epoch of any loader; most begin between two updates."""
        if self.num and len(self.left) < MAX_EPOCHS:
            self.ended = self.num, self.total
            self.cleared = None

    @property
    def awaits_gradients(self) -> bool:
        """Whether an epoch has ended within this update, just before the next backward call."""
        return self.ended is not None and self.ended[1] == self.total

    def begin_backward(self) -> None:
        """Take a backward call."""
        self.num += 1
        self.total += 1

    def end_step(self, optimizer: Any) -> None:
        """Take the end of an update."""
        num, self.num = self.num, 0
        if not num:
            return
        self.num_updates += 1
        if len(self.left) < MAX_EPOCHS:
            self.sizes[num] += 1
        if self.ended is not None:
            (left, total), self.ended = self.ended, None
            batches = total - self.last_total if self.last_total >= 0 else 0
            self.left.append(EpochEnd(left, batches, num, self.cleared))
            self.last_total = total
        if self.parts:
            if len(self.parts) == num:
                self.sampled.append(tuple(self.parts))
            self.parts = []
        if self.optimizer[0] != id(optimizer):
            self.optimizer = id(optimizer), weakref.ref(optimizer)

    @property
    def awaits_part(self) -> bool:
        """Whether the loss of this call is one of those that are compared."""
        return self.num_updates in SAMPLED and max(self.sizes) > 1 and self.num <= MAX_PARTS

    def see_gradients(self) -> None:
        """See whether the gradients were cleared at the end of an epoch."""
        self.cleared = self._is_cleared()

    def _is_cleared(self) -> bool | None:
        """Return whether the gradients are gone; None where that cannot be read at once."""
        optimizer = self.optimizer[1] and self.optimizer[1]()
        for group in () if optimizer is None else optimizer.param_groups:
            for weight in group["params"]:
                if not weight.requires_grad:
                    continue
                gradient = weight.grad
                if gradient is None:
                    return True
                return None if not gradient.is_cpu or gradient.is_sparse else not gradient.any()
        return None

    def tell_left(self) -> dict[str, Any] | None:
        """Return what the ends of epochs did, where each did the same to an update."""
        usual, times = (self.sizes.most_common(1) or [(0, 0)])[0]
        ends = [one for one in self.left if one.joined == usual + one.left and one.left < usual]
        if usual < 2 or len(ends) < 2 or len(ends) != len(self.left):
            return None
        first, last = ends[0], ends[-1]
        if times + len(ends) < sum(self.sizes.values()) or last.batches <= 0:
            return None
        return {
            "num_parts": usual,
            "left": last.left,
            "batches": last.batches,
            "num_epochs": len(ends),
            "cleared": last.cleared if last.cleared == first.cleared else None,
        }

    def tell_unequal(self) -> dict[str, Any] | None:
        """Return how unlike the micro-batches of the sampled updates are."""
        counts = [[one for one, _, _ in parts] for parts in self.sampled]
        weights = {(weight, classes) for parts in self.sampled for _, weight, classes in parts}
        if len(counts) < 3 or len(weights) != 1 or all(one == counts[0] for one in counts):
            return None  # several heads have a pattern of their own
        ratios = sorted(max(one) / max(1, min(one)) for one in counts)
        return {
            "num_parts": max(map(len, counts)),
            "num_updates": len(counts),
            "least": min(map(min, counts)),
            "most": max(map(max, counts)),
            "ratio": ratios[len(ratios) // 2],
        }
