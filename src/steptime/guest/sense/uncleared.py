"""Whether anybody clears the gradients between two updates, by one gradient of each optimizer.

A gradient that is set to None is another object afterwards, and one that is zeroed has another
version; `.data.zero_()` leaves both, so the numbers are read, too. Backward calls add to it. As
soon as one clearing was seen, an optimizer is watched no longer: only a training that never clears
its gradients pays for this.
"""

from __future__ import annotations

import weakref
from typing import Any

from ..health.device_looks import DeviceLooks, Slot
from ..health.scalars import readers

MAX_OPTIMIZERS = 8

MAX_TRIES = 16
"""Updates after which gradients of another kind (sparse, sharded) are not looked for again."""

READ_AT = 8
"""The numbers of the gradient are read after so many updates, and once more when it is certain."""

ENOUGH = 20
"""Updates without a clearing; no accumulation in use is that long and steps each time."""


class FollowedGradient:
    """The gradient that stands for an optimizer's; `num` updates have ended without a clearing."""

    __slots__ = (
        "gradient",
        "is_added_to",
        "is_written_to",
        "norms",
        "num",
        "slot",
        "version",
        "weight",
    )

    def __init__(self, weight: Any) -> None:
        self.weight = weakref.ref(weight)
        self.num = 0
        self.norms: list[float] = []
        self.slot: Slot | None = None
        self.mark()

    def mark(self) -> None:
        """Remember the gradient as the end of an update leaves it."""
        weight = self.weight()
        gradient = None if weight is None else weight.grad
        self.gradient = None if gradient is None else weakref.ref(gradient)
        self.version = 0 if gradient is None else gradient._version
        self.is_added_to = self.is_written_to = False

    def current(self) -> Any:
        """Return the gradient, if it is still the same object; else None."""
        weight = self.weight()
        gradient = None if weight is None else weight.grad
        known = None if self.gradient is None else self.gradient()
        return gradient if gradient is known else None


class Uncleared:
    """Follows the gradients of the first optimizers of a thread."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.readers = readers(torch)
        self.plain = (torch.Tensor, torch.nn.Parameter)
        self.looks: DeviceLooks | None = None
        self.watched: dict[int, FollowedGradient] = {}
        self.met: set[int] = set()
        self.num_tries = 0
        self.found: dict[int, dict[str, Any]] = {}

    def begin_backward(self, *, may_read: bool) -> None:
        """See whether a gradient was written to since the last update or backward call."""
        for one in self.watched.values():
            gradient = one.current()
            if gradient is None or gradient._version != one.version:
                one.is_written_to = True
            elif one.num >= (ENOUGH if one.norms else READ_AT) and len(one.norms) < 2 and may_read:
                self._read(one, gradient)

    def end_backward(self) -> None:
        """Take what the call has added."""
        for one in self.watched.values():
            gradient = one.current()
            if gradient is None:
                one.is_written_to = True
            elif gradient._version != one.version:
                one.version = gradient._version
                one.is_added_to = True

    def awaits(self, key: int) -> bool:
        """Return whether the end of an update of this optimizer is of interest."""
        return key in self.watched or key not in self.met

    def end_step(self, key: int, optimizer: Any) -> None:
        """Take the end of an update of an optimizer, which is known by `key`."""
        one = self.watched.get(key)
        if one is None:
            if key not in self.met and len(self.met) < MAX_OPTIMIZERS:
                self._meet(key, optimizer)
            return
        if one.is_written_to or one.current() is None:
            del self.watched[key]
            return
        if one.is_added_to:
            one.num += 1
            self._see_norm(key, one)
        one.mark()

    def skip(self) -> None:
        """Forget what was marked: updates passed that nothing is known of."""
        for one in self.watched.values():
            one.mark()

    def _meet(self, key: int, optimizer: Any) -> None:
        self.met.add(key)
        for group in optimizer.param_groups:
            for weight in group["params"]:
                gradient = weight.grad
                if type(gradient) in self.plain and gradient.layout is self.torch.strided:
                    self.watched[key] = FollowedGradient(weight)
                    return
        self.num_tries += 1
        if self.num_tries < MAX_TRIES:
            self.met.discard(key)  # it may have no gradients yet

    def _read(self, one: FollowedGradient, gradient: Any) -> None:
        """Read how large the gradient is: one of zero was cleared, and no version tells so."""
        torch = self.torch
        read = self.readers.get(gradient.dtype)
        if read is None or (gradient.is_cuda and torch.cuda.is_current_stream_capturing()):
            return
        with torch.no_grad():
            norm = torch.linalg.vector_norm(gradient.detach())
        if norm.is_cpu:
            one.norms.append(read(norm.data_ptr()))
        elif one.slot is None:
            self.looks = self.looks or DeviceLooks(torch, self.readers)
            one.slot = self.looks.begin(norm)

    def _see_norm(self, key: int, one: FollowedGradient) -> None:
        if one.slot is not None and self.looks is not None:
            norm = self.looks.take(one.slot)
            if norm is not None:
                one.slot = None
                one.norms.append(norm)
        if any(not norm for norm in one.norms):
            del self.watched[key]
        elif one.num >= ENOUGH and one.norms:
            self.found[key] = {"num_updates": one.num + 1, "norms": one.norms[:2]}
