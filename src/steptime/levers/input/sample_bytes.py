"""Samples as bytes, for memory that processes share and for disks, and back.

This is no lever, as it has no `LEVER`. Only what comes back as it was is packed: plain values,
containers, tensors, arrays and Pillow's images.
"""

from __future__ import annotations

import ctypes
import io
import pickle
import sys
from types import BuiltinFunctionType, FunctionType
from typing import Any

MODES = ("1", "L", "LA", "RGB", "RGBA", "CMYK", "I", "F")
"""Of Pillow's images: their bytes are all that there is of them."""


class Placeholder:
    """Stands in a sample for what a chain of transforms gave."""

    def __init__(self, number: int) -> None:
        self.number = number


def pack(sample: Any) -> bytes:
    """Return a sample as bytes.

    Raises:
        TypeError: something in it may come back otherwise.
    """
    file = io.BytesIO()
    Packer(file, protocol=5).dump(sample)
    return file.getvalue()


def unpack(data: Any) -> Any:
    """Return the sample, as an object of its own."""
    return pickle.loads(data)


class Packer(pickle.Pickler):
    """Writes what can be in a sample, and refuses anything else."""

    def reducer_override(self, one: Any) -> Any:
        """Return how an object is written."""
        kind = type(one)
        if kind is Placeholder or isinstance(one, (type, FunctionType, BuiltinFunctionType)):
            return NotImplemented  # names
        if kind.__module__ == "torch" and kind.__name__ in ("Tensor", "dtype"):
            return NotImplemented if kind.__name__ == "dtype" else parts_of_tensor(one)
        if kind.__module__.partition(".")[0] == "numpy":
            if kind.__name__ == "ndarray":
                is_dense = one.flags.c_contiguous or one.flags.f_contiguous
                if one.dtype.hasobject or not is_dense:
                    raise TypeError(kind)
            return NotImplemented
        if hasattr(one, "mode") and hasattr(one, "im") and kind.__module__.startswith("PIL."):
            if one.mode not in MODES or "transparency" in one.info:
                raise TypeError(kind)
            return image_from, (one.mode, one.size, one.tobytes())
        raise TypeError(kind)


def parts_of_tensor(one: Any) -> Any:
    """Return a tensor's bits and layout."""
    is_plain = one.layout is sys.modules["torch"].strided and not one.requires_grad
    if not is_plain or one.device.type != "cpu" or one.is_conj() or one.is_neg():
        raise TypeError(type(one))
    order = sorted(range(one.ndim), key=lambda axis: -one.stride(axis))
    whole = one.permute(order)
    if not whole.is_contiguous():
        raise TypeError(type(one))
    bits = ctypes.string_at(whole.data_ptr(), whole.nbytes)
    return tensor_from, (bits, one.dtype, tuple(whole.shape), order)


def tensor_from(bits: bytes, dtype: Any, shape: tuple[int, ...], order: list[int]) -> Any:
    """Return a tensor with these bits, whose axes lie in memory in this order."""
    torch = sys.modules["torch"]
    if not bits:
        rows = torch.empty(shape, dtype=dtype)
    else:
        rows = torch.frombuffer(bytearray(bits), dtype=dtype).view(shape)
    back = [order.index(axis) for axis in range(len(order))]
    return rows.permute(back)


def image_from(mode: str, size: tuple[int, int], bits: bytes) -> Any:
    """Return a Pillow image with these pixels."""
    return sys.modules["PIL.Image"].frombytes(mode, size, bits)
