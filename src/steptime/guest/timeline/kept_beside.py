"""What a journal calls beside its notes, as far as it needs to know of it."""

from __future__ import annotations

from typing import Any, Protocol


class SpanPlaces(Protocol):
    """Keeps where in the user's code spans began; `sites/site_book.py` has it."""

    def walk(self, kind: int, frame: Any) -> None:
        """Note that a span begins in this frame."""


class SeenLosses(Protocol):
    """Keeps the losses of a thread's updates; `health/loss_watch.py` has it."""

    @property
    def bad_value(self) -> str | None:
        """Return what was not finite since the last update, if anything: `loss` for example."""

    def number_of(self, optimizer: int) -> int:
        """Return the number, from 1, of an update of this optimizer that ends now."""

    def end_update(self, optimizer: int, skipped: int | None) -> None:
        """Take the end of an update."""

    def see_loss(self, args: Any) -> None:
        """Take the tensor that the script goes backward from, where it said nothing else."""

    def see_other_loss(self, args: Any, *, inside_step: bool) -> None:
        """Take any other."""

    def see_grad(self, args: Any) -> None:
        """Take what `autograd.grad` derives."""

    def see_scaled(self, outputs: Any, scaled: Any) -> None:
        """Take a loss before it is scaled."""

    def see_norm(self, norm: Any) -> None:
        """Take the norm that clipping returned."""

    def see_read(self, tensor: Any, value: Any) -> None:
        """Take what the script read from a device."""

    def see_bad_read(self, tensor: Any, value: Any) -> None:
        """Take a bad number that the script read."""
