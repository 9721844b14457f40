"""What is read of tensors without reading a value: which there are, their elements, their bytes.

In: arguments and results of operators. Out: numbers. `flops.py` makes work of them. No torch is
imported here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any


def tensors_in(value: Any) -> Iterator[Any]:
    """Yield the tensors among arguments or results, including those in lists."""
    if hasattr(value, "untyped_storage"):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors_in(each)


def is_view(func: Any) -> bool:
    """Return whether it makes no element: its result lies in the memory of an argument."""
    known = getattr(func, "is_view", None)
    return bool(known) or func._schema.name in ("aten::detach", "aten::_unsafe_view")


def is_sparse(tensor: Any) -> bool:
    """Return whether only some of its elements are stored."""
    return tensor is not None and "sparse" in str(tensor.layout)


def num_stored(tensor: Any) -> int:
    """Return the number of stored elements, of whole blocks too; nothing waits for a device."""
    if not is_sparse(tensor):
        return int(tensor.numel())
    return int((tensor._values() if "coo" in str(tensor.layout) else tensor.values()).numel())


def largest(args: Any, result: Any) -> int:
    """Return the number of elements of the largest tensor that it takes or returns."""
    sizes = [each.numel() for each in (*tensors_in(list(args)), *tensors_in(result))]
    return int(max(sizes, default=0))


def bytes_of(tensor: Any) -> int:
    """Return the bytes that its elements take in memory; expanded elements count once."""
    if is_sparse(tensor):
        dimensions = tensor.sparse_dim() if "coo" in str(tensor.layout) else 2
        return num_stored(tensor) * int(tensor.element_size()) + int(tensor._nnz()) * 8 * dimensions
    if tensor.is_nested:
        return int(tensor.numel()) * int(tensor.element_size())
    sizes = zip(tensor.shape, tensor.stride())
    return int(math.prod(size for size, step in sizes if step)) * int(tensor.element_size())


def bytes_moved(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> int:
    """Return the bytes read and written if no cache keeps anything between operators.

    A lookup reads what it returns, not the whole table.
    """
    schema = getattr(func, "_schema", None)
    if schema is None or is_view(func):
        return 0
    taken = list({id(each): each for each in tensors_in([*args, *kwargs.values()])}.values())
    given = sum(map(bytes_of, tensors_in(result)))
    if schema.name in ("aten::embedding", "aten::index_select", "aten::gather", "aten::index"):
        return 2 * given + sum(map(bytes_of, taken[1:]))
    return given + sum(map(bytes_of, taken))
