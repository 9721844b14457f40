"""Finds the widths of a model in the products of its step, and what changes with each.

In: products and the weights that they meet. Out: `Width` values. Axes of weights that have the same
size are taken for one width, because what one layer writes the next one reads; a size that is
written only, and is a multiple of a width that the same weight reads (query, key and value in one),
follows it. That is an inference from sizes, and the report says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from steptime.plan.values.shape_values import Product, SeenProducts, WeightSeen

Axis = tuple[str, int]
"""A weight's name, and which of its axes."""

MAX_RATIO = 4
"""Gates of an LSTM are four; query, key and value are three."""

MIN_INNER = 2
"""A gated MLP reads its input with so many weights for each one that it writes its output with."""


@dataclass(slots=True)
class Width:
    """One width of a model.

    Attributes:
        size: in elements.
        role: as in `Proposal`, or `data`.
        axes: what becomes the new size.
        following: what becomes a multiple of it, with the ratio.
        multiple_of: the new size must be a multiple of this: heads, groups.
        hidden: of an MLP's inner width, the width of the model.
    """

    size: int
    role: str
    axes: set[Axis] = field(default_factory=set)
    following: dict[Axis, int] = field(default_factory=dict)
    multiple_of: int = 1
    hidden: int | None = None

    def new_sizes(self, new: int) -> dict[Axis, int]:
        """Return the new size of each axis."""
        return dict.fromkeys(self.axes, new) | {
            axis: new * ratio for axis, ratio in self.following.items()
        }


@dataclass(slots=True)
class Sides:
    """The axes of one size: written by a product, read by one, or rows of an embedding."""

    written: set[Axis] = field(default_factory=set)
    read: set[Axis] = field(default_factory=set)
    looked_up: set[Axis] = field(default_factory=set)


@dataclass(slots=True)
class Ends:
    """The axis that the first product of a forward reads, and the weight that the last one meets.

    Lookups of an embedding read no axis.
    """

    first: Axis | None = None
    last: str | None = None


def find_widths(seen: SeenProducts) -> list[Width]:
    """Return the widths of a model, with those that the data give."""
    weights = {one.name: one for one in seen.weights}
    sides, ends = _sides(seen, weights)
    found: list[Width] = []
    following = _following(sides, weights, seen, ends.last)
    for size, side in sorted(sides.items()):
        width = _width(size, side, sides, weights, following)
        if width is not None:
            found.append(width)
            if ends.first in side.read:
                width.role = "data"  # what the data have, the outputs may have too
    for width in found:
        width.following = {axis: r for axis, (base, r) in following.items() if base == width.size}
        width.multiple_of = _multiple_of(width, seen)
    return found


# -- which axis is written and which is read


def _sides(seen: SeenProducts, weights: Mapping[str, WeightSeen]) -> tuple[dict[int, Sides], Ends]:
    """Return the axes by size, and where the forward begins and ends."""
    sides: dict[int, Sides] = defaultdict(Sides)
    ends = Ends()
    has_lookups = any(one.is_embedding for one in seen.weights)
    for one in sorted(seen.products, key=lambda product: product.order):
        weight = weights.get(one.weight or "")
        if weight is None:
            continue
        for axis, is_written in axes_in(one):
            side = sides[weight.shape[axis]]
            (side.written if is_written else side.read).add((weight.name, axis))
            if not (is_written or has_lookups) and ends.first is None:
                ends.first = weight.name, axis
        if one.which == "forward":
            ends.last = weight.name
    for weight in weights.values():
        if is_recurrent(weight):
            sides[weight.shape[0]].written.add((weight.name, 0))
            sides[weight.shape[1]].read.add((weight.name, 1))
        if weight.is_embedding:
            sides[weight.shape[0]].looked_up.add((weight.name, 0))
            sides[weight.shape[1]].written.add((weight.name, 1))
    for size in list(sides):  # one axis, one side: a tied embedding is read by lookups alone
        sides[size].written -= sides[size].looked_up
    return sides, ends


def axes_in(product: Product) -> Iterator[tuple[int, bool]]:
    """Yield each axis of its weight that a forward product meets, and whether it is written."""
    if product.which != "forward":
        return
    axes = product.sizes.get("axes")
    if product.kind == "matmul" and isinstance(axes, tuple):
        for at, axis in enumerate(axes):
            if axis is not None:
                yield int(axis), at != 2
    elif product.kind == "convolution":
        is_turned = bool(product.sizes["transposed"])
        yield 0, not is_turned
        yield 1, is_turned


# -- what a size is


def _width(
    size: int,
    side: Sides,
    sides: Mapping[int, Sides],
    weights: Mapping[str, WeightSeen],
    following: Mapping[Axis, tuple[int, int]],
) -> Width | None:
    """Return the width of one size; None where all of it follows another one."""
    written = {axis for axis in side.written if axis not in following}
    if side.looked_up:
        return Width(size=size, role="vocabulary", axes=side.looked_up | written)
    if _holds_state(side.read, weights):
        return Width(size=size, role="recurrent", axes=written | side.read)
    if written and side.read:
        is_channels = any(len(weights[name].shape) > 2 for name, _ in written | side.read)
        role = "channels" if is_channels else "hidden"
        width = Width(size=size, role=role, axes=written | side.read)
        return width if is_channels else _inner(width, written, side.read, sides, weights)
    if written:
        is_read = any(base == size for base, _ in following.values())
        return Width(size=size, role="channels" if is_read else "outputs", axes=written)
    if not side.read - following.keys():
        return None
    return Width(size=size, role="data", axes=side.read - following.keys())


def is_recurrent(weight: WeightSeen) -> bool:
    """Return whether it is a matrix of torch's recurrent layers or cells."""
    is_matrix = "weight_hh" in weight.name or "weight_ih" in weight.name
    return is_matrix and weight.module_kind.startswith(("LSTM", "GRU", "RNN"))


def _holds_state(read: Iterable[Axis], weights: Mapping[str, WeightSeen]) -> bool:
    """Return whether some of the axes read the state of a recurrent layer."""
    return any(
        axis == 1 and "weight_hh" in name and is_recurrent(weights[name]) for name, axis in read
    )


def _inner(
    width: Width,
    written: set[Axis],
    read: set[Axis],
    sides: Mapping[int, Sides],
    weights: Mapping[str, WeightSeen],
) -> Width:
    """Return the width as the inner one of MLPs, if all that write it read one other width."""
    outer = {weights[name].shape[1 - axis] for name, axis in (*written, *read)}
    if len(outer) == 1 and (hidden := outer.pop()) < width.size and sides[hidden].read:
        width.hidden = hidden
        width.role = "gated" if len(written) >= MIN_INNER * len(read) else "inner"
    return width


def _following(
    sides: Mapping[int, Sides],
    weights: Mapping[str, WeightSeen],
    seen: SeenProducts,
    last: str | None,
) -> dict[Axis, tuple[int, int]]:
    """Return the axes that are multiples of another width: its size and the ratio."""
    found: dict[Axis, tuple[int, int]] = {}
    for size, side in sides.items():
        if side.read or side.looked_up:
            continue
        for name, axis in side.written:
            shape = weights[name].shape
            base = shape[1 - axis] if len(shape) == 2 else 0
            is_gate = "weight_ih" in name  # its input has another size than its state
            if is_gate:
                other = weights.get(name.replace("weight_ih", "weight_hh"))
                base = 0 if other is None else other.shape[1]
            ratio, rest = divmod(size, base) if base else (0, 1)
            is_multiple = not rest and 1 < ratio <= MAX_RATIO
            if is_multiple and (name != last or is_gate or "weight_hh" in name):
                found[name, axis] = base, ratio
    found.update(_flattened(sides, weights, seen))
    return found


def _flattened(
    sides: Mapping[int, Sides], weights: Mapping[str, WeightSeen], seen: SeenProducts
) -> dict[Axis, tuple[int, int]]:
    """Return the axes that read channels times places: what a convolution wrote, flattened.

    In the order of the forward, the matrix that comes next after a convolution reads it.
    """
    found: dict[Axis, tuple[int, int]] = {}
    channels = 0
    for one in sorted(seen.products, key=lambda product: product.order):
        weight = weights.get(one.weight or "")
        if weight is None or one.which != "forward":
            continue
        if one.kind == "convolution":
            channels = weight.shape[1 if one.sizes["transposed"] else 0]
            continue
        for axis, is_written in axes_in(one):
            ratio, rest = divmod(weight.shape[axis], channels) if channels else (0, 1)
            is_read_only = not is_written and not sides[weight.shape[axis]].written
            if is_read_only and not rest and ratio > 1:
                found[weight.name, axis] = channels, ratio
        channels = 0
    return found


def _multiple_of(width: Width, seen: SeenProducts) -> int:
    """Return what a new size must be a multiple of: the heads or groups that share it."""
    found = 1
    names = {name for name, _ in width.axes}
    for one in seen.products:
        heads, size = one.sizes.get("heads"), one.sizes.get("head_size")
        if isinstance(heads, int) and isinstance(size, int) and heads * size == width.size:
            found = max(found, heads)
        groups = one.sizes.get("groups")
        if one.weight in names and isinstance(groups, int) and width.role == "channels":
            found = max(found, groups)
    return found
