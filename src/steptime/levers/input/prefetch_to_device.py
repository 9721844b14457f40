"""The next batch is copied to the device on a stream of its own, while this one is computed.

The script gets batches that are on the device already, so its own copies do nothing. A batch is
fetched one earlier than before: where workers load, this changes neither samples nor random
numbers, which they or the sampler drew before. Untested on a device.

Source: NVIDIA Apex, `data_prefetcher` in its ImageNet example; torch.Tensor.record_stream.
"""

from __future__ import annotations

from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from ..tools.tensors import map_tensors
from .device_batches import pin_as_read, why_no_copies


def applies(facts: Facts) -> str | None:
    """It applies where workers load the batches of a CUDA device in torch's own order."""
    reason = why_no_copies(facts)
    if reason is not None or facts.loaders is None:
        return reason
    if not any(one.num_workers and not one.has_own_sampler for one in facts.loaders):
        return "No loader has workers and torch's own sampler: samples would be read earlier."
    return None


class Copier:
    """Copies batches on a stream of its own."""

    def __init__(self, torch: Any, device: Any) -> None:
        self.torch = torch
        self.device = device
        self.stream = torch.cuda.Stream(device)

    def start(self, batch: Any) -> tuple[Any, Any]:
        """Begin to copy a batch; return the copy, and the event after it."""
        with self.torch.cuda.stream(self.stream):
            copy = map_tensors(self.torch, batch, self.send)
            return copy, self.stream.record_event()

    def send(self, tensor: Any) -> Any:
        """Return a tensor of the host on the device."""
        return tensor.to(self.device, non_blocking=True) if tensor.device.type == "cpu" else tensor

    def finish(self, copy: Any, event: Any) -> Any:
        """Let what is queued from now on wait for a copy, and keep its memory until that is done.

        Without `record_stream`, the memory would be handed out again on the stream of the copies
        while the model still reads it.
        """
        current = self.torch.cuda.current_stream(self.device)
        current.wait_event(event)

        def keep(tensor: Any) -> Any:
            if tensor.device.type == self.device.type:
                tensor.record_stream(current)
            return tensor

        return map_tensors(self.torch, copy, keep)


class Ahead:
    """An iterator of a loader that is one batch ahead; an error comes when its batch is due."""

    def __init__(self, inner: Any, copier: Any) -> None:
        self.inner = inner
        self.copier = copier
        self.waiting: list[tuple[Any, Any]] = []
        self.error: BaseException | None = None
        self.has_begun = False

    def __iter__(self) -> Ahead:
        return self

    def __len__(self) -> int:
        return len(self.inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __next__(self) -> Any:
        if not self.has_begun:
            self.has_begun = True
            self.fetch()
        if not self.waiting:
            assert self.error is not None
            raise self.error
        batch = self.copier.finish(*self.waiting.pop())
        self.fetch()
        return batch

    def fetch(self) -> None:
        """Fetch a batch and begin to copy it."""
        if self.error is None:
            with self:
                self.waiting.append(self.copier.start(next(self.inner)))

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        """Keep an error, or the end, for the call to which it belongs."""
        self.error = error if isinstance(error, Exception) else None
        return self.error is not None


def apply(settings: Settings, session: Session) -> Undo:
    """Let loaders with workers be read one batch ahead."""
    torch = session.torch

    def receive(loader: Any, iterator: Any) -> Any:
        samplers = torch.utils.data.sampler
        order = (samplers.RandomSampler, samplers.SequentialSampler)
        known = (*order, torch.utils.data.distributed.DistributedSampler)
        if not loader.num_workers or type(loader.sampler) not in known:
            return iterator
        return Ahead(iterator, Copier(torch, torch.device("cuda", torch.cuda.current_device())))

    return pin_as_read(session, receive)


LEVER = Lever(
    name="prefetch_to_device",
    title="Copy the next batch to the device while this one is computed.",
    relieves=("INPUT_BOUND",),
    phases=("h2d",),
    preserves=Preserves.EXACT,
    when="A DataLoader with workers and torch's own sampler feeds a CUDA device.",
    applies=applies,
    moment=Moment.STARTUP,
    apply=apply,
    edit=lambda settings: (
        "stream, ahead = torch.cuda.Stream(), None\n"
        "for batch in loader:  # with pin_memory=True\n"
        "    with torch.cuda.stream(stream):\n"
        "        copied = [t.to(device, non_blocking=True) for t in batch]\n"
        "    if ahead is not None:\n"
        "        train(ahead)  # the last batch is trained after the loop\n"
        "    torch.cuda.current_stream().wait_stream(stream)\n"
        "    for t in copied:\n"
        "        t.record_stream(torch.cuda.current_stream())\n"
        "    ahead = copied"
    ),
    costs="One more batch on the device. A loop that waits for its data waits before the batch "
    "that it has. A script that works on batches on the host fails. Not tested on a device yet.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.Tensor.record_stream.html",
)
