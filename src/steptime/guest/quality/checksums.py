"""CRC-32 and strided samples of tensors, to compare two runs of one script.

The bytes are read in place by ctypes, because torch may be installed without NumPy.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from zlib import crc32

MAX_DEPTH = 6
"""How deep a batch is searched; users' own classes may refer to themselves."""

MAX_ROWS = 4096
"""Samples of a batch that get a CRC of their own."""

MAX_ELEMENTS = 4096
"""Elements of one tensor that are compared, at an even stride."""

MAX_TOTAL_ELEMENTS = 1_000_000
"""For all tensors of a model together: the parent reads them without NumPy."""


def bytes_of(tensor: Any) -> tuple[Any, Any]:
    """Return the tensor on the CPU in logical order, and its bytes, which live as long as it."""
    flat = tensor.detach()
    if str(flat.layout) != "torch.strided":
        flat = flat.to_dense()
    flat = flat.resolve_conj().resolve_neg().cpu().contiguous()
    size = flat.numel() * flat.element_size()
    view = (ctypes.c_ubyte * size).from_address(flat.data_ptr()) if size else b""
    return flat, view


def crc_of_tensor(tensor: Any, crc: int = 0) -> int:
    """Return the CRC-32 of dtype, shape and bytes."""
    crc = crc32(f"{tensor.dtype}{tuple(tensor.shape)}".encode(), crc)
    owner, view = bytes_of(tensor)
    crc = crc32(view, crc)
    del owner
    return crc


def leaves(value: Any, depth: int = 0) -> Iterator[Any]:
    """Yield tensors, numbers and texts of a batch or of a call's arguments, in order."""
    is_array = hasattr(value, "data_ptr") or hasattr(value, "tobytes")
    if is_array or isinstance(value, (str, bytes, int, float)):
        yield value
    elif depth >= MAX_DEPTH or value is None:
        return
    elif isinstance(value, Mapping):
        for key in value:
            yield from leaves(value[key], depth + 1)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from leaves(item, depth + 1)
    else:
        for item in getattr(value, "__dict__", {}).values():
            yield from leaves(item, depth + 1)


def crc_of(values: Any) -> int:
    """Return the CRC-32 of everything in a batch or in a call's arguments."""
    crc = 0
    for leaf in leaves(values):
        if hasattr(leaf, "data_ptr"):
            crc = crc_of_tensor(leaf, crc)
        elif isinstance(leaf, bytes):
            crc = crc32(leaf, crc)
        elif isinstance(leaf, (str, int, float)):
            crc = crc32(repr(leaf).encode(), crc)
        else:  # NumPy
            crc = crc32(leaf.tobytes(), crc)
    return crc


def sum_of_samples(batch: Any) -> tuple[int, int]:
    """Return the sum of the samples' CRCs, the same in any order, and their number.

    Their number is the leading size of the first tensor; -1 where there is none.
    """
    tensors = [leaf for leaf in leaves(batch) if hasattr(leaf, "data_ptr") and leaf.dim()]
    if not tensors:
        return 0, -1
    size = int(tensors[0].shape[0])
    crcs = [0] * min(size, MAX_ROWS)
    for tensor in tensors:
        if int(tensor.shape[0]) != size or not tensor.numel():
            continue
        owner, view = bytes_of(tensor)
        whole = memoryview(view)
        width = len(whole) // size
        for i in range(len(crcs)):
            crcs[i] = crc32(whole[i * width : (i + 1) * width], crcs[i])
        del whole, view, owner
    return sum(crcs), size


def width_for(num_tensors: int) -> int:
    """Return how many elements of each tensor are compared, given the number of tensors."""
    return max(16, min(MAX_ELEMENTS, MAX_TOTAL_ELEMENTS // max(1, num_tensors)))


def sample(torch: Any, tensors: Iterable[Any], width: int) -> tuple[Any, list[int]]:
    """Return up to `width` elements of each tensor at an even stride, as float64.

    Returns:
        One tensor on the CPU with all of them, and how many elements of each are in it.
    """
    parts, counts = [], []
    for tensor in tensors:
        local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        local = local.detach()
        if local.layout is not torch.strided:
            local = local.to_dense()
        if local.is_complex():
            local = torch.view_as_real(local)
        flat = local.reshape(-1)
        flat = flat[:: max(1, -(-flat.numel() // width))]
        parts.append(flat.to(torch.float64))
        counts.append(flat.numel())
    if not parts:
        return torch.empty(0, dtype=torch.float64), counts
    if len({part.device for part in parts}) > 1:
        parts = [part.cpu() for part in parts]
    return torch.cat(parts).cpu(), counts


def as_bytes(tensor: Any) -> bytes:
    """Return the bytes of a tensor on the CPU."""
    owner, view = bytes_of(tensor)
    data = bytes(view)
    del owner
    return data
