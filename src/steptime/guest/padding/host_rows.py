"""Finds the tensors of a batch that tell of lengths, and reads their rows as bytes.

In: the arguments of a call, or what a loader handed over. Out: named tensors, and their rows. Only
plain containers and plain tensors on the host are read, and nothing of the user's runs.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterable, Iterator
from ctypes import string_at
from typing import Any, NamedTuple

MAX_DEPTH = 3
"""How deep containers are searched: a list of a tuple of a dict is deep already."""

MAX_TENSORS = 24
MAX_VALUES = 1000
"""As many values are visited: some batches hold long lists of other things, too."""

MAX_BYTES = 1 << 20
"""Of a larger tensor, as many rows as fit into this, evenly spaced: reading it takes 1 ms."""

_PLAIN = (int, float, str, bool)
_MAX_MIXED = 8

WHOLE = ("int64", "int32", "int16", "uint8", "int8")
FLAGS = ("bool", *WHOLE, "float32", "float64", "float16", "bfloat16")
"""Types of tensors that can hold tokens, and those that can hold a mask."""

ITEM_BYTES = {
    **dict.fromkeys(("int64", "float64"), 8),
    **dict.fromkeys(("int32", "float32"), 4),
    **dict.fromkeys(("int16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("uint8", "int8", "bool"), 1),
}


class Named(NamedTuple):
    """A tensor, the name under which the batch holds it ("" in a sequence), shape and type."""

    name: str
    tensor: Any
    shape: tuple[int, ...]
    dtype: str


def named_tensors(torch: Any, values: Iterable[tuple[str, Any]]) -> list[Named]:
    """Return the plain tensors of a batch, on whichever device they are."""
    found: list[Named] = []
    for name, tensor in _walk(torch.Tensor, values, MAX_DEPTH, [MAX_VALUES]):
        if tensor.is_nested or tensor.layout is not torch.strided:
            continue
        dtype = str(tensor.dtype).removeprefix("torch.")
        found.append(Named(name, tensor, tuple(map(int, tensor.shape)), dtype))
        if len(found) == MAX_TENSORS:
            break
    return found


def _walk(
    tensor_class: Any, values: Iterable[tuple[str, Any]], depth: int, left: list[int]
) -> Iterator[tuple[str, Any]]:
    for name, value in values:
        if not left[0]:
            return
        left[0] -= 1
        kind = type(value)
        if kind is tensor_class:
            yield name, value
        elif not depth:
            continue
        elif issubclass(kind, dict):
            yield from _walk(tensor_class, _items(dict.items(value)), depth - 1, left)
        elif issubclass(kind, UserDict):  # what transformers' tokenizers return is one
            data = value.__dict__.get("data")
            if type(data) is dict:
                yield from _walk(tensor_class, _items(data.items()), depth - 1, left)
        elif issubclass(kind, (tuple, list)):
            yield from _walk(tensor_class, _elements(name, value, kind), depth - 1, left)


def _elements(name: str, value: Any, kind: type) -> Iterator[tuple[str, Any]]:
    """Return what a sequence holds, with the names of a named tuple; nothing of one of numbers."""
    inner = list(tuple.__iter__(value) if issubclass(kind, tuple) else list.__iter__(value))
    if len(inner) > _MAX_MIXED and type(inner[0]) in _PLAIN:
        return iter(())
    names = getattr(kind, "_fields", None) or [name] * len(inner)
    return zip(names, inner, strict=False)


def _items(items: Iterable[tuple[Any, Any]]) -> Iterator[tuple[str, Any]]:
    return ((key if type(key) is str else "", value) for key, value in items)


def is_on_host(one: Named) -> bool:
    """Return whether a tensor can be read without a wait, and its rows lie in one piece."""
    tensor, dims = one.tensor, len(one.shape)
    if not tensor.is_cpu or not dims or 0 in one.shape:
        return False
    strides = tensor.stride()
    if dims == 1:
        return bool(strides[0] == 1)
    inner = 1
    for size, stride in zip(reversed(one.shape[1:]), reversed(strides[1:]), strict=True):
        if stride != inner and size > 1:
            return False
        inner *= size
    return True


def rows_of(one: Named) -> list[bytes]:
    """Return the rows of a tensor that is on the host, by its first dimension.

    A tensor of one dimension is one row. Of a large one, only some rows are read.
    """
    address, size = one.tensor.data_ptr(), ITEM_BYTES[one.dtype]
    if not address:
        return []
    if len(one.shape) == 1:
        return [string_at(address, one.shape[0] * size)]
    length = size
    for dim in one.shape[1:]:
        length *= dim
    stride = one.tensor.stride()[0] * size
    return [string_at(address + row * stride, length) for row in rows_read(one.shape[0], length)]


def rows_read(num_rows: int, row_bytes: int) -> range:
    """Return which rows of a tensor are read."""
    every = -(-num_rows * row_bytes // MAX_BYTES)
    return range(0, num_rows, max(1, every))
