"""The reads of scalars on a device: which copies have begun, and what a read returns.

In: losses as they go backward, and the tensors and frames of reads. Out: a number, or what stands
for it until it is needed. What the loss was made of (`loss` in `scaler.scale(loss).backward()`, in
`(loss / n).backward()`, or in `(loss + other).backward()`) is copied when it is read, beside the
backward and not behind it. The copies of a CUDA device are untested on one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._late_numbers import LateCopy, LateOperand, LateTerm, LateValue
from ._late_reads import Use, find_use, has_own_meaning

MAX_NODES = 32
"""Operations before the loss that are looked at: a scale, a quotient and a sum of a few parts."""

KEEPS_GRAPH = ("retain_graph", "create_graph")
STANDS_FOR: dict[Use, type[LateValue] | None] = {
    Use.NOW: None,
    Use.ADDED: LateTerm,
    Use.KEPT: LateValue,
    Use.COMPUTED: LateOperand,
}


class Loss:
    """A loss that goes backward.

    Args:
        loss: the tensor; its memory is held, so that it is not given to another one meanwhile.
        copy: what was begun before its backward.
        keeps_graph: whether the script keeps what the backward needs; then it is not held here.
    """

    def __init__(self, loss: Any, copy: LateCopy, *, keeps_graph: bool) -> None:
        self.held = loss.detach()
        self.place = self.held.data_ptr()
        self.version = self.held._version
        self.copy = copy
        self.node = None if keeps_graph else loss.grad_fn

    def is_in(self, tensor: Any) -> bool:
        """Return whether a scalar is the loss as it went backward."""
        is_same = tensor.data_ptr() == self.place and tensor._version == self.version
        return bool(is_same and tensor.dtype == self.held.dtype)

    def is_made_of(self, tensor: Any) -> bool:
        """Return whether the loss was computed from a scalar, which nobody changed since."""
        node = tensor.grad_fn
        if (
            node is None
            or self.node is None
            or tensor._version
            or tensor.device != self.held.device
        ):
            return False
        nodes = [self.node]
        for one in nodes:
            if one is node:
                return True
            if len(nodes) < MAX_NODES:
                nodes += [before for before, _ in one.next_functions if before is not None]
        return False


class DeviceReads:
    """The reads of a process.

    Args:
        begin: begins the copy of a scalar behind what the device has to do; None where that cannot
            be done now.
        is_far: whether a tensor is on a device.
        begin_beside: begins the copy of a scalar that was there before another copy, without
            waiting for what came behind that one.
        has_ranks: whether ranks may reduce a value in place, without a mark on the tensor.
    """

    def __init__(
        self,
        begin: Callable[[Any], LateCopy | None],
        is_far: Callable[[Any], bool],
        begin_beside: Callable[[Any, LateCopy], LateCopy | None] = lambda tensor, before: None,
        has_ranks: Callable[[], bool] = lambda: False,
    ) -> None:
        self.begin = begin
        self.is_far = is_far
        self.begin_beside = begin_beside
        self.has_ranks = has_ranks
        self.places: dict[tuple[Any, int], type[LateValue] | None] = {}
        self.loss: Loss | None = None

    def begin_backward(self, args: Any, kwargs: Any) -> None:
        """Begin the copy of the loss that is about to go backward."""
        loss: Any = args[0] if args else None
        if getattr(loss, "numel", int)() != 1 or not self.is_far(loss):
            return
        copy = None if self.has_ranks() else self.begin(loss)
        keeps_graph = len(args) > 2 or any(kwargs.get(name) for name in KEEPS_GRAPH)
        self.loss = None if copy is None else Loss(loss, copy, keeps_graph=keeps_graph)

    def forget(self) -> None:
        """Forget the loss: with a graph of the device's, its memory is about to be written."""
        self.loss = None

    def read(self, tensor: Any, read_now: Callable[[], Any]) -> Any:
        """Return the number in a tensor that is on a device."""
        copy = self.find(tensor) if tensor.numel() == 1 else None
        return read_now() if copy is None else copy.read()

    def read_at(self, tensor: Any, frame: Any, read_now: Callable[[], Any]) -> Any:
        """Return the number, or where it is only summed or printed, what stands for it."""
        key = (frame.f_code, frame.f_lasti)
        if key not in self.places:
            self.places[key] = STANDS_FOR[use_at(frame)]
        make = self.places[key]
        if make is None or tensor.numel() != 1:
            return self.read(tensor, read_now)
        copy = self.find(tensor) or self.begin(tensor)
        return read_now() if copy is None else make(copy)

    def find(self, tensor: Any) -> LateCopy | None:
        """Return a copy of a scalar that does not wait for the backward, if there can be one."""
        if self.loss is None:
            return None
        if self.loss.is_in(tensor):
            return self.loss.copy
        if self.loss.is_made_of(tensor):
            return self.begin_beside(tensor, self.loss.copy)
        return None


def use_at(frame: Any) -> Use:
    """Return what the script does with what is read where a frame is."""
    code = frame.f_code
    if not has_own_meaning(frame.f_globals):
        return Use.NOW
    return find_use(code.co_filename, code.co_firstlineno, code.co_name, frame.f_lineno)


class CudaCopies:
    """Copies scalars of CUDA devices into pinned memory.

    Args:
        torch: the module.
    """

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.cuda = torch.cuda
        self.take = torch.Tensor.item
        self.streams: dict[Any, Any] = {}

    def begin(self, tensor: Any) -> LateCopy | None:
        """Copy a scalar behind what the device has to do so far."""
        if self.cuda.is_current_stream_capturing():
            return None
        with self.cuda.device(tensor.device):
            return self.copy(tensor)

    def begin_beside(self, tensor: Any, before: LateCopy) -> LateCopy | None:
        """Copy a scalar that was there before another copy, on a stream of its own.

        What the script does next waits for it on the device, so it may change or free the scalar.
        """
        if self.cuda.is_current_stream_capturing():
            return None
        with self.cuda.device(tensor.device):
            if tensor.device not in self.streams:
                self.streams[tensor.device] = self.cuda.Stream()
            stream = self.streams[tensor.device]
            stream.wait_event(before.event)
            with self.cuda.stream(stream):
                copy = self.copy(tensor)
            self.cuda.current_stream().wait_event(copy.event)
        return copy

    def copy(self, tensor: Any) -> LateCopy:
        """Copy a scalar on the current stream."""
        host = self.torch.empty((), dtype=tensor.dtype, device="cpu", pin_memory=True)
        host.copy_(tensor.detach().reshape(()), non_blocking=True)
        event = self.cuda.Event()
        event.record()

        def read() -> Any:
            event.synchronize()
            return self.take(host)

        return LateCopy(read, event.query, event)
