"""The least and the largest number of a tensor on the CPU, by one reduction that nobody sees.

No graph records it, no mode of the user's is asked, and the two numbers are read out of memory.
"""

from __future__ import annotations

import sys
from ctypes import c_float
from typing import Any

from .bracket import is_readable, tensors_of
from .scalars import readers


def is_autograd_compiled() -> bool:
    """Return whether dynamo compiles the backward: it would compile a hook of ours with it."""
    module = sys.modules.get("torch._dynamo.compiled_autograd")
    return bool(getattr(module, "compiled_autograd_enabled", False))


class TensorBounds:
    """Reads the bounds of tensors; both are NaN where one number is."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.aminmax = torch.aminmax
        self.float32 = torch.float32
        self.readers = readers(torch)
        self.len_modes = torch._C._len_torch_dispatch_stack

    def read(self, tensor: Any) -> tuple[float, float]:
        """Return the least and the largest number of a tensor whose type has a reader."""
        if self.len_modes():
            with self.torch._C._DisableTorchDispatch():
                low, high = self.aminmax(tensor.detach())
        else:
            low, high = self.aminmax(tensor.detach())
        if low.dtype is self.float32:
            read_float = c_float.from_address
            return read_float(low.data_ptr()).value, read_float(high.data_ptr()).value
        read = self.readers[low.dtype]
        return read(low.data_ptr()), read(high.data_ptr())

    def find_bad(self, values: Any) -> tuple[Any, bool] | None:
        """Return the first bad tensor in a call's arguments, and whether it has NaN."""
        for tensor in tensors_of(self.torch.Tensor, values):
            if is_readable(self.torch, tensor) and tensor.dtype in self.readers:
                low, high = self.read(tensor)
                if not low - low == 0.0 == high - high:
                    return tensor, low != low
        return None
