"""Batches that are on the device when the training asks for them.

The next batch is copied into pinned memory and from there to the device, on a stream of its own,
while the training computes. Untested on a device: the tests prove the order of the calls.

Source: NVIDIA Apex, `data_prefetcher` of its ImageNet example; torch.Tensor.record_stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from steptime.data.feed.feed_loader import Loader


class DevicePrefetch:
    """A loader whose batches come on a device; it has the loader's state, as the training is."""

    def __init__(self, loader: Loader, device: Any) -> None:
        """Wrap a loader.

        Args:
            loader: of batches of tensors; what is no tensor is handed on as it is.
            device: `"cuda"`, `"cuda:1"` or a `torch.device`. On the CPU nothing is copied.
        """
        import torch

        self.loader = loader
        self._torch = torch
        self._device = torch.device(device)
        self._state = loader.state_dict()

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        """Begin the next epoch, or go on with the one whose state was loaded."""
        batches = self._copied() if self._device.type != "cpu" else self._as_they_are()
        for self._state, batch in batches:
            yield batch
        self._state = self.loader.state_dict()

    @property
    def epoch(self) -> int:
        """Of the iteration that goes on, or that comes next."""
        return int(self._state["epoch"])

    def state_dict(self) -> dict[str, Any]:
        """Return how far the training is; a batch that was only copied ahead is not counted."""
        return dict(self._state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration go on where the state was taken.

        Raises:
            DataError: the state is of other samples, another seed or another version.
        """
        self.loader.load_state_dict(state)
        self._state = self.loader.state_dict()

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be of this epoch."""
        self.loader.set_epoch(epoch)
        self._state = self.loader.state_dict()

    def _as_they_are(self) -> Iterator[tuple[dict[str, Any], Any]]:
        for batch in self.loader:
            yield self.loader.state_dict(), batch

    def _copied(self) -> Iterator[tuple[dict[str, Any], Any]]:
        cuda = self._torch.cuda
        stream = cuda.Stream(self._device)
        ahead: tuple[dict[str, Any], Any, Any] | None = None
        for batch in self.loader:
            state = self.loader.state_dict()
            with cuda.stream(stream):
                copy = map_tensors(batch, self._send)
                copied = stream.record_event()
            if ahead is not None:
                yield ahead[0], self._wait(ahead[1], ahead[2])
            ahead = (state, copy, copied)
        if ahead is not None:
            yield ahead[0], self._wait(ahead[1], ahead[2])

    def _send(self, tensor: Any) -> Any:
        if tensor.device.type != "cpu":
            return tensor
        return tensor.pin_memory().to(self._device, non_blocking=True)

    def _wait(self, batch: Any, copied: Any) -> Any:
        """Let the training's stream wait for a copy, and keep its memory for that stream."""
        current = self._torch.cuda.current_stream(self._device)
        current.wait_event(copied)

        def keep(tensor: Any) -> Any:
            if tensor.device.type != "cpu":
                tensor.record_stream(current)
            return tensor

        return map_tensors(batch, keep)


def map_tensors(batch: Any, change: Callable[[Any], Any]) -> Any:
    """Return a batch in which each tensor is changed: dicts, lists and tuples of them too."""
    if hasattr(batch, "record_stream"):
        return change(batch)
    if isinstance(batch, Mapping):
        return {name: map_tensors(value, change) for name, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(value, change) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(map_tensors(value, change) for value in batch)
    return batch
