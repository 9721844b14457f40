"""Gradients of parameters as parts: what this rank has of each, and sums over all of it.

In: parameters with gradients, dense, sparse, or shards of a DTensor. Out: values that transforms
change in place (`gradient_transforms.py`). This is no lever.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(slots=True)
class GradientPart:
    """The gradient of one parameter, as far as this rank has it.

    Attributes:
        values: local numbers, dense, changed in place; of a sparse gradient those that it stores.
        weights: the same of the parameter; of a sparse gradient the rows that it names.
        numel, ndim: of the whole parameter.
        is_sparse: it stores rows; all others are zero.
        groups: process groups over which its sums are reduced; empty where all of it is here.
        splits_rows: an output slice is spread over ranks.
        origin: where `values` is written back, of another type; None: it is the gradient itself.
    """

    values: Any
    weights: Any
    numel: int
    ndim: int
    is_sparse: bool = False
    groups: tuple[Any, ...] = ()
    splits_rows: bool = False
    origin: Any = None


def collect(parameters: Iterable[Any]) -> list[GradientPart]:
    """Return the gradients as parts; sparse ones are coalesced first."""
    parts, plain = [], import_module("torch").Tensor
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is None or gradient.is_complex() or parameter.numel() == 0:
            continue
        weights, groups, splits_rows = parameter, (), False
        if type(gradient) is not plain and hasattr(gradient, "placements"):
            groups, splits_rows = _sharding(gradient)
            gradient, weights = gradient.to_local(), weights.to_local()
        is_sparse = gradient.is_sparse
        if is_sparse:
            gradient = parameter.grad = gradient.coalesce()
            if gradient.sparse_dim() == 1:
                weights = weights[gradient.indices()[0]]
            values = gradient.values()
        else:
            values = gradient
        is_short = values.dtype.itemsize < 4
        parts.append(
            GradientPart(
                values=values.float() if is_short else values,
                weights=weights,
                numel=parameter.numel(),
                ndim=parameter.dim(),
                is_sparse=is_sparse,
                groups=groups,
                splits_rows=splits_rows,
                origin=values if is_short else None,
            )
        )
    return parts


def _sharding(gradient: Any) -> tuple[tuple[Any, ...], bool]:
    """Return the groups over which a DTensor is split, and whether rows are split."""
    groups, splits_rows = [], False
    for number, placement in enumerate(gradient.placements):
        if placement.is_partial():
            raise ValueError(
                f"gradients must be reduced before they are transformed, got {gradient.placements}"
            )
        if placement.is_shard():
            groups.append(gradient.device_mesh.get_group(number))
            splits_rows = splits_rows or placement.dim != 0
    return tuple(groups), splits_rows


# -- sums over all of a parameter


def total(parts: Sequence[GradientPart], local: Any) -> Any:
    """Return sums (num_parts,) over the ranks that share each part; one exchange for each group."""
    if not any(part.groups for part in parts):
        return local
    dist = import_module("torch.distributed")

    local = local.clone()
    by_groups: dict[tuple[int, ...], list[int]] = {}
    for number, part in enumerate(parts):
        by_groups.setdefault(tuple(map(id, part.groups)), []).append(number)
    for numbers in by_groups.values():
        some = local[numbers]
        for group in parts[numbers[0]].groups:
            dist.all_reduce(some, group=group)
        local[numbers] = some
    return local


def sums(parts: Sequence[GradientPart], values: Sequence[Any]) -> Any:
    """Return the sum of each part (num_parts,)."""
    torch = import_module("torch")

    return total(parts, torch.stack([one.sum() for one in values]))


def squares(parts: Sequence[GradientPart], values: Sequence[Any]) -> Any:
    """Return the sum of squares of each part (num_parts,)."""
    torch = import_module("torch")

    return total(parts, torch.stack(torch._foreach_norm(list(values))).square())


def counts(parts: Sequence[GradientPart], like: Any) -> Any:
    """Return the number of elements of each whole parameter (num_parts,)."""
    torch = import_module("torch")

    return torch.tensor([part.numel for part in parts], dtype=like.dtype, device=like.device)


def scale(parts: Sequence[GradientPart], factors: Any) -> None:
    """Multiply each part by its factor (num_parts,)."""
    torch = import_module("torch")

    torch._foreach_mul_([part.values for part in parts], list(factors.unbind()))


def in_batches(parts: Iterable[GradientPart]) -> Iterable[list[GradientPart]]:
    """Yield parts of one type on one device: their statistics go into one tensor."""
    batches: dict[tuple[Any, Any], list[GradientPart]] = {}
    for part in parts:
        batches.setdefault((part.values.dtype, part.values.device), []).append(part)
    return batches.values()


def need_whole_rows(part: GradientPart, transform: object) -> None:
    """Refuse a gradient whose output slices are spread over ranks.

    Raises:
        ValueError: they are.
    """
    if part.splits_rows:
        name = type(transform).__name__
        raise ValueError(
            f"{name} needs whole output slices on a rank: shard the first dimension alone"
        )
