"""Reads what transformers have: attention, layer normalization, parts and axes of sequences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from steptime.quantize.exported_nodes import arguments, module_of, shape_of
from steptime.quantize.picture_readers import own_axis, read_picture_order
from steptime.quantize.read_so_far import ReadSoFar
from steptime.quantize.trained_network import (
    AxisMean,
    AxisPart,
    Constant,
    Contraction,
    Lookup,
    Normalization,
    Operator,
    Reorder,
    Reshape,
    Softmax,
)

_MOST_ROWS = 2**16
"""Of a table: what the two bytes of a number tell apart."""


def scores_of(name: str) -> str:
    """Return how the products of queries and keys of an attention are called."""
    return f"{name} scores"


def constant_of(readers: ReadSoFar, node: Any) -> str | None:
    """Return the name of a value that holds a constant, which is made; None if it is none."""
    found = readers.values.get(getattr(node, "name", ""))
    if not isinstance(found, np.ndarray) or found.ndim < 1:
        return None
    name = f"{node.name} constant"
    if name not in readers.shapes:
        values = found[0] if found.shape[0] == 1 else found
        made = Constant(name=node.name, inputs=(), output=name, values=values)
        readers.operators[name], readers.shapes[name] = made, values.shape
    return name


def _plain(readers: ReadSoFar, *nodes: Any) -> list[str] | None:
    """Return the names of values that are no pictures; None if one is, or is none at all."""
    names = [readers.values.get(getattr(node, "name", "")) for node in nodes]
    if all(isinstance(name, str) and name not in readers.pictures for name in names):
        return [str(name) for name in names]
    return None


def _put(readers: ReadSoFar, node: Any, made: Operator, *, is_picture: bool = False) -> bool:
    readers.put(node, made, is_picture=is_picture)
    return True


def _value(readers: ReadSoFar, node: Any) -> str:
    """Return the name of a value, which is no constant."""
    name = readers.values.get(getattr(node, "name", ""))
    return name if isinstance(name, str) else ""


def _base(node: Any, *inputs: str) -> dict[str, Any]:
    return {"name": module_of(node) or node.name, "inputs": inputs, "output": node.name}


def _read_attention(readers: ReadSoFar, node: Any) -> bool:
    query, key, value, mask, _, is_causal = arguments(node, 6, (None, None, None, None, 0.0, False))
    names = _plain(readers, query, key, value)
    if names is None or mask is not None or node.kwargs.get("enable_gqa"):
        return False
    shape, length = readers.shapes[names[0]], readers.shapes[names[1]][-2]
    scale = node.kwargs.get("scale") or 1 / math.sqrt(shape[-1])
    scores, shares = scores_of(node.name), f"{node.name} shares"
    base = _base(node)
    for made in (
        Contraction(**{**base, "inputs": tuple(names[:2]), "output": scores}, is_turned=True),
        Softmax(**{**base, "inputs": (scores,), "output": shares}, factor=scale,
                is_causal=bool(is_causal)),
    ):  # fmt: skip
        readers.operators[made.output] = made
        readers.shapes[made.output] = (*shape[:-1], length)
    return _put(readers, node, Contraction(**{**base, "inputs": (shares, names[2])}))


def _read_lookup(readers: ReadSoFar, node: Any) -> bool:
    """Read rows of a table, by numbers that the network is given or that are constants."""
    table, numbers = (readers.values.get(one.name) for one in node.args[:2])
    if not isinstance(table, np.ndarray) or len(table) > _MOST_ROWS:
        return False
    if isinstance(numbers, np.ndarray):
        readers.values[node.name] = table[numbers.astype(np.int64)]
        return True
    if numbers != readers.input:
        return False
    return _put(readers, node, Lookup(**_base(node, numbers), weight=table))


def _read_count(readers: ReadSoFar, node: Any) -> bool:
    """Read whole numbers in order, such as those of places."""
    if not all(isinstance(one, int) for one in node.args):
        return False
    readers.values[node.name] = np.arange(*node.args)
    return True


def _read_matmul(readers: ReadSoFar, node: Any) -> bool:
    names = _plain(readers, *node.args[:2])
    if names is None or len(readers.shapes[names[0]]) != len(readers.shapes[names[1]]):
        return False
    return _put(readers, node, Contraction(**_base(node, *names)))


def _read_softmax(readers: ReadSoFar, node: Any) -> bool:
    names = _plain(readers, node.args[0])
    if names is None or node.args[1] % (len(shape_of(node)) + 1) != len(shape_of(node)):
        return False
    return _put(readers, node, Softmax(**_base(node, *names)))


def _read_normalization(readers: ReadSoFar, node: Any) -> bool:
    source, axes, scale, shift, epsilon = arguments(node, 5, (None, None, None, None, 1e-5))
    names = _plain(readers, source)
    if names is None or len(axes) != 1:
        return False
    num = axes[0]
    weight = np.ones(num) if scale is None else readers.values[scale.name]
    bias = np.zeros(num) if shift is None else readers.values[shift.name]
    made = Normalization(**_base(node, *names), weight=weight, bias=bias, epsilon=epsilon)
    return _put(readers, node, made)


def _read_order(readers: ReadSoFar, node: Any) -> bool:
    """Read a transposition or a permutation that leaves the batch where it is."""
    name = _value(readers, node.args[0])
    if not name:
        return False
    rank = len(shape_of(node)) + 1
    axes = list(range(rank))
    if "permute" in str(node.target):
        axes = [axis % rank for axis in node.args[1]]
    else:
        a, b = (axis % rank for axis in node.args[1:3])
        axes[a], axes[b] = b, a
    if axes[0] != 0:
        return False
    own = tuple(axis - 1 for axis in axes[1:])
    if name in readers.pictures:
        read_picture_order(readers, node, name, own)
        return True
    if own == (2, 0, 1):  # its channels were last, and are those of a picture from here on
        return _put(readers, node, Reshape(**_base(node, name)), is_picture=True)
    return _put(readers, node, Reorder(**_base(node, name), axes=own))


def _read_cut(readers: ReadSoFar, node: Any) -> bool:
    """Read a slice along an axis that is not the batch."""
    source, axis, begin, end, step = arguments(node, 5, (None, 0, None, None, 1))
    name, rank = _value(readers, source), len(shape_of(node))
    axis = axis % (rank + 1) - 1
    if not name or step != 1 or axis < 0:
        return False
    axis = own_axis(readers, name, axis, rank)
    begin, end, _ = slice(begin, end).indices(readers.shapes[name][axis])
    made = AxisPart(**_base(node, name), axis=axis, begin=begin, end=end)
    return _put(readers, node, made, is_picture=name in readers.pictures)


def _read_split(readers: ReadSoFar, node: Any) -> bool:
    """Read equal parts along an axis; `getitem` takes one of them."""
    name = _value(readers, node.args[0])
    axis = arguments(node, 3, (None, None, 0))[2]
    if not name or not isinstance(node.args[1], int):
        return False
    axis = axis % len(node.meta["val"][0].shape) - 1
    readers.splits[node.name] = (name, axis)
    return bool(axis >= 0)


def _read_part(readers: ReadSoFar, node: Any) -> bool:
    name, axis = readers.splits.get(node.args[0].name, ("", 0))
    if not name:
        return False
    sizes = [int(one.shape[axis + 1]) for one in node.args[0].meta["val"]]
    begin, end = sum(sizes[: node.args[1]]), sum(sizes[: node.args[1] + 1])
    axis = own_axis(readers, name, axis, len(shape_of(node)))
    made = AxisPart(**_base(node, name), axis=axis, begin=begin, end=end)
    return _put(readers, node, made, is_picture=name in readers.pictures)


def _read_mean(readers: ReadSoFar, node: Any) -> bool:
    """Read the mean of a sequence over its steps."""
    source, axes, is_kept = arguments(node, 3, (None, None, False))
    names = _plain(readers, source)
    if names is None or is_kept or list(axes) != [1] or len(readers.shapes[names[0]]) != 2:
        return False
    return _put(readers, node, AxisMean(**_base(node, *names)))


SEQUENCE_READERS: Mapping[str, Callable[[ReadSoFar, Any], bool]] = {
    "scaled_dot_product_attention": _read_attention,
    "embedding": _read_lookup,
    "arange": _read_count,
    "matmul": _read_matmul,
    "softmax": _read_softmax,
    "layer_norm": _read_normalization,
    "transpose": _read_order,
    "permute": _read_order,
    "slice": _read_cut,
    "narrow": _read_cut,
    "split": _read_split,
    "chunk": _read_split,
    "getitem": _read_part,
    "mean": _read_mean,
}
