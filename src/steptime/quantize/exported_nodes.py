"""What a node of torch's exported program says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steptime.quantize.trained_network import Shape


def constants(program: Any) -> dict[str, Any]:
    """Return parameters and buffers as arrays, by the name of their placeholder."""
    signature = program.graph_signature
    found = {}
    for names in (signature.inputs_to_parameters, signature.inputs_to_buffers):
        for placeholder, name in names.items():
            value = program.state_dict.get(name, program.constants.get(name))
            found[placeholder] = value.detach().cpu().double().numpy()
    return found


def shape_of(node: Any) -> Shape:
    """Return the shape of what a node makes, without the batch."""
    return tuple(int(size) for size in node.meta["val"].shape[1:])


def module_of(node: Any) -> str:
    """Return the path of the innermost module of a node."""
    stack = node.meta.get("nn_module_stack") or {}
    return next((path for path, _ in reversed(list(stack.values())) if path), "")


def arguments(node: Any, num: int, defaults: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the positional arguments, with defaults for those that are not there."""
    return (*node.args, *defaults[len(node.args) :])[:num]


def pair(given: Any, *, is_flat: bool = False, of: int = 1) -> tuple[int, int]:
    """Return height and width; of one dimension, `of` stands for the height."""
    values = list(given) if isinstance(given, list | tuple) else [given]
    if is_flat:
        return (of, int(values[0]))
    return (int(values[0]), int(values[-1]))


def pooling_padding(
    before: Shape, after: Shape, kernel: Sequence[int], stride: Sequence[int], given: Sequence[int]
) -> tuple[int, int, int, int]:
    """Return rows above and below, columns left and right.

    Args:
        before: the picture (height, width, channels).
        after: what is made of it (channels, height, width); a size that was rounded up needs more.
        kernel, stride, given: height and width.
    """
    ends = []
    for axis in (0, 1):
        reach = (after[axis + 1] - 1) * stride[axis] + kernel[axis] - before[axis]
        ends += [given[axis], max(given[axis], reach - given[axis])]
    return (ends[0], ends[1], ends[2], ends[3])
