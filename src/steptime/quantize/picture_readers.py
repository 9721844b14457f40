"""Reads what turns pictures around: their axes in another order, channels in groups, factors.

In training the channels of a picture are first; here they are last, so that most of these move no
number at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from steptime.quantize.exported_nodes import module_of, shape_of
from steptime.quantize.read_so_far import NotInTable, ReadSoFar
from steptime.quantize.trained_network import (
    Constant,
    Convolution,
    Matmul,
    Multiplication,
    Reorder,
    Reshape,
)

_OWN: dict[int, tuple[int, ...]] = {3: (2, 0, 1), 2: (2, 1)}
"""Where channels, height and width (or length) of training lie here, by the number of axes."""


def own_axis(readers: ReadSoFar, name: str, axis: int, rank: int) -> int:
    """Return where an axis of training lies; both without the batch."""
    return _OWN[rank][axis] if name in readers.pictures else axis


def read_picture_order(readers: ReadSoFar, node: Any, name: str, axes: Sequence[int]) -> None:
    """Read the axes of a picture of training in another order, without the batch."""
    own = tuple(_OWN[len(axes)][axis] for axis in axes)
    base = {"name": module_of(node) or node.name, "inputs": (name,), "output": node.name}
    is_same = own in ((0, 1, 2), (1, 2))
    if not is_same and len(own) < 3:
        raise NotInTable
    made = Reshape(**base) if is_same else Reorder(**base, axes=own)
    readers.put(node, made)


def read_shuffle(readers: ReadSoFar, node: Any, name: str) -> bool:
    """Read groups of channels that have changed places with their channels, as a picture again."""
    turned = readers.operators.get(name)
    split = readers.operators.get(turned.inputs[0]) if isinstance(turned, Reorder) else None
    first = readers.operators.get(split.inputs[0]) if isinstance(split, Reshape) else None
    if not isinstance(first, Reorder) or first.axes != (2, 0, 1) or split is None:
        return False
    (picture,), (groups, each, *sizes) = first.inputs, readers.shapes[split.output]
    if (
        turned.axes != (1, 0, 2, 3)  # type: ignore[union-attr]
        or picture not in readers.pictures
        or shape_of(node) != (groups * each, *sizes)
        or readers.shapes[picture][:2] != tuple(sizes)
    ):
        return False
    in_groups, changed = f"{node.name} groups", f"{node.name} changed"
    base = {"name": module_of(node) or node.name}
    for made, shape in (
        (Reshape(**base, inputs=(picture,), output=in_groups), (*sizes, groups, each)),
        (
            Reorder(**base, inputs=(in_groups,), output=changed, axes=(0, 1, 3, 2)),
            (*sizes, each, groups),
        ),
    ):
        readers.operators[made.output], readers.shapes[made.output] = made, shape
    readers.put(node, Reshape(**base, inputs=(changed,), output=node.name), is_picture=True)
    return True


def read_factor(readers: ReadSoFar, node: Any, name: str, factor: Any) -> None:
    """Read a product with a constant: into the layer before, where its outputs have one each."""
    is_picture, rank = name in readers.pictures, len(shape_of(node))
    values = factor[0] if factor.ndim > rank else factor
    values = values.reshape((1,) * (rank - values.ndim) + values.shape)
    if is_picture:
        values = values.reshape(len(values), -1, values.shape[-1]).transpose(1, 2, 0)
    before, num = readers.operators.get(name), readers.shapes[name][-1]
    base = {"name": module_of(node) or node.name, "output": node.name}
    if (
        isinstance(before, Convolution | Matmul)
        and before.low is before.high is None
        and readers.num_users.get(name) == 1
        and values.size in (1, values.shape[-1])
    ):
        del readers.operators[name]
        each = np.broadcast_to(values.ravel(), num)
        weight = before.weight * each.reshape(-1, *(1,) * (before.weight.ndim - 1))
        folded = replace(before, output=node.name, weight=weight, bias=before.bias * each)
        readers.put(node, folded, is_picture=is_picture)
        return
    made = f"{node.name} constant"
    readers.operators[made] = Constant(**{**base, "output": made}, inputs=(), values=values)
    readers.shapes[made] = values.shape
    if is_picture:
        readers.pictures.add(made)
    readers.put(node, Multiplication(**base, inputs=(name, made)), is_picture=is_picture)
