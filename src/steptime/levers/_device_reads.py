"""The reads of scalars on a device: which copies have begun, and what a read returns.

In: losses as they go backward, and the tensors and frames of reads. Out: a number, or what stands
for it until it is needed. The copies of a CUDA device are untested on one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._late_numbers import LateCopy, LateTerm
from ._summed_reads import is_only_summed


class DeviceReads:
    """The reads of a process.

    Args:
        begin: begins the copy of a scalar; None where that cannot be done now.
        is_far: whether a tensor is on a device.
    """

    def __init__(
        self, begin: Callable[[Any], LateCopy | None], is_far: Callable[[Any], bool]
    ) -> None:
        self.begin = begin
        self.is_far = is_far
        self.places: dict[tuple[Any, int], bool] = {}
        self.early: tuple[Any, Any, int, LateCopy] | None = None  # a loss, its memory and version

    def begin_backward(self, args: Any) -> None:
        """Begin the copy of the loss that is about to go backward."""
        loss: Any = args[0] if args else None
        if getattr(loss, "numel", int)() != 1 or not self.is_far(loss):
            return
        copy = self.begin(loss)
        held = loss.detach()  # its memory is not given to another tensor meanwhile
        self.early = None if copy is None else (held, held.data_ptr(), held._version, copy)

    def forget(self) -> None:
        """Forget the loss: with a graph of the device's, its memory is about to be written."""
        self.early = None

    def read(self, tensor: Any, read_now: Callable[[], Any]) -> Any:
        """Return the number in a tensor that is on a device."""
        if self.early is not None and tensor.numel() == 1:
            held, place, version, copy = self.early
            is_same = tensor.data_ptr() == place and tensor._version == version
            if is_same and tensor.dtype == held.dtype:
                return copy.read()
        return read_now()

    def read_at(self, tensor: Any, frame: Any, read_now: Callable[[], Any]) -> Any:
        """Return the number, or where it is only summed, what stands for it."""
        key = (frame.f_code, frame.f_lasti)
        is_summed = self.places.get(key)
        if is_summed is None:
            code = frame.f_code
            where = (code.co_filename, code.co_firstlineno, code.co_name, frame.f_lineno)
            is_summed = self.places[key] = is_only_summed(*where)
        copy = self.begin(tensor) if is_summed and tensor.numel() == 1 else None
        return self.read(tensor, read_now) if copy is None else LateTerm(copy)


def begin_on_cuda(torch: Any, tensor: Any) -> LateCopy | None:
    """LateCopy a scalar into pinned memory behind what the device has to do so far."""
    if torch.cuda.is_current_stream_capturing():
        return None
    take = torch.Tensor.item
    with torch.cuda.device(tensor.device):
        host = torch.empty((), dtype=tensor.dtype, pin_memory=True)
        host.copy_(tensor.detach().reshape(()), non_blocking=True)
        event = torch.cuda.Event()
        event.record()

    def read() -> Any:
        event.synchronize()
        return take(host)

    return LateCopy(read, event.query)
