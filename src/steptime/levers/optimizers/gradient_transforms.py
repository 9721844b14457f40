"""Transforms of gradients between the backward and the update, as functions of parameters.

In: parameters with gradients. Out: the same gradients, changed in place, in one collected pass:
statistics of all tensors at once, and one scale or shift by `torch._foreach_*`. A transform is a
value that is called with parts; `transform_gradients` chains them. Gradients of low precision are
transformed in float32. Of shards (DTensor) the sums are reduced, so each rank gets what one process
would. Not a lever: `gradient_transform` applies it, and `steptime.methods.gradients` offers it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from .gradient_parts import (
    GradientPart,
    collect,
    counts,
    in_batches,
    need_whole_rows,
    scale,
    squares,
    sums,
)

ZERO_ROUNDOFFS = 4.0
"""A deviation of at most so many roundoffs of the mean is rounding: the tensor counts as constant.
"""

CLIP_EPS = 1e-6
"""Added to the norm, as in torch.nn.utils.clip_grad_norm_."""


GradTransform = Callable[[Sequence[GradientPart]], None]
"""Changes the values of parts in place."""


def transform_gradients(parameters: Iterable[Any], *transforms: GradTransform) -> None:
    """Apply transforms to the gradients of parameters, one after another.

    Args:
        parameters: those without a gradient are left out; complex ones, too.
        transforms: in the order in which they act.

    Raises:
        ValueError: a gradient is not reduced yet (a DTensor with partial sums), or an output slice
            that a transform needs whole is spread over ranks.
    """
    torch = import_module("torch")

    with torch.no_grad():
        parts = collect(parameters)
        for transform in transforms:
            if parts:
                transform(parts)
        for part in parts:
            if part.origin is not None:
                part.origin.copy_(part.values)


@dataclass(frozen=True, slots=True)
class ZNorm:
    """Subtract the mean of each tensor, and divide by its standard deviation.

    The deviation is that of the population (divisor n), over all elements of a tensor. A tensor of
    one element, one whose deviation is zero, one with a number that is not finite, and a sparse
    gradient, which would no longer be sparse, pass through. There is no epsilon: with one, small
    gradients would keep a smaller deviation than others.

    Attributes:
        min_dims: tensors with fewer dimensions pass through: 1 takes all, 2 leaves out biases and
            gains of norms.

    Source: Yun, ZNorm (arXiv 2408.01215).
    """

    min_dims: int = 1

    def __call__(self, parts: Sequence[GradientPart]) -> None:
        """Standardize each tensor."""
        chosen = [
            part
            for part in parts
            if not part.is_sparse and part.numel > 1 and part.ndim >= self.min_dims
        ]
        for batch in in_batches(chosen):
            standardize(standardize_at_once(batch))


def standardize_at_once(parts: Sequence[GradientPart]) -> list[GradientPart]:
    """Standardize gradients on a CPU that need no care; return the others as they are.

    The deviation comes from the sum and the sum of squares, which is exact enough where the mean
    is no larger than the deviation. Numbers are read at once, which would stall a device.
    """
    torch = import_module("torch")
    here = [part for part in parts if not part.groups and part.values.device.type == "cpu"]
    if not here:
        return list(parts)
    values = [part.values for part in here]
    norms = torch.stack(torch._foreach_norm(values)).tolist()
    totals = torch.stack([one.sum() for one in values]).tolist()
    done, factors, shifts = [], [], []
    for part, norm, whole in zip(here, norms, totals, strict=True):
        mean = whole / part.numel
        variance = norm / part.numel * norm - mean * mean
        if mean * mean <= variance < math.inf and variance > 0:
            factors.append(1 / math.sqrt(variance))
            shifts.append(-mean * factors[-1])
            done.append(part)
    # Scale and shift in one pass; `_foreach_mul_` and `_foreach_add_` would take two.
    for part, factor, shift in zip(
        done, factors, torch.tensor(shifts, dtype=values[0].dtype).unbind(), strict=True
    ):
        torch.add(shift, part.values, alpha=factor, out=part.values)
    known = set(map(id, done))
    return [part for part in parts if id(part) not in known]


def standardize(parts: Sequence[GradientPart]) -> None:
    """Standardize gradients of any form; a second pass is free of the rounding of the first."""
    if not parts:
        return
    torch = import_module("torch")
    values = [part.values for part in parts]
    mean = sums(parts, values)
    mean = mean / counts(parts, mean)
    centered = torch._foreach_sub(values, list(mean.unbind()))
    rest = sums(parts, centered) / counts(parts, mean)
    variance = squares(parts, centered) / counts(parts, mean) - rest.square()
    deviation = variance.clamp(min=0).sqrt()
    smallest = ZERO_ROUNDOFFS * torch.finfo(mean.dtype).eps * mean.abs()
    is_right = (deviation > smallest) & deviation.isfinite()
    torch._foreach_sub_(centered, list(rest.unbind()))
    torch._foreach_div_(centered, list(deviation.unbind()))
    for one, made, right in zip(values, centered, is_right.unbind(), strict=True):
        torch.where(right, made, one, out=one) if one.is_contiguous() else one.copy_(
            torch.where(right, made, one)
        )


@dataclass(frozen=True, slots=True)
class DampedZNorm:
    """Subtract each tensor's mean, and divide by its deviation plus that of all tensors together.

    A tensor whose deviation is small is not blown up to one: the noise of ZNorm's division. It is
    our reading of Yun, Gradient Autoscaled Normalization (arXiv 2509.03677), which removes means
    by layer and scales by a global factor: the text of its formula could not be read.

    Attributes:
        min_dims: as of `ZNorm`.
    """

    min_dims: int = 1

    def __call__(self, parts: Sequence[GradientPart]) -> None:
        """Center and scale each tensor."""
        torch = import_module("torch")

        chosen = [
            part for part in parts
            if not part.is_sparse and part.numel > 1 and part.ndim >= self.min_dims
        ]  # fmt: skip
        batches, found = list(in_batches(chosen)), []
        for batch in batches:
            values = [part.values for part in batch]
            mean = sums(batch, values)
            num = counts(batch, mean)
            torch._foreach_sub_(values, list((mean / num).unbind()))
            found.append((squares(batch, values), num))
        whole = math.fsum(float(sq.sum()) for sq, _ in found)
        number = math.fsum(float(num.sum()) for _, num in found)
        of_all = math.sqrt(whole / number) if number else 0.0
        if not 0 < of_all < math.inf:
            return
        for batch, (sq, num) in zip(batches, found, strict=True):
            scale(batch, 1 / ((sq / num).sqrt() + of_all))


@dataclass(frozen=True, slots=True)
class Centralize:
    """Subtract from each output slice (first dimension) its mean; vectors pass through.

    Source: Yong et al., Gradient Centralization (arXiv 2004.01461).
    """

    def __call__(self, parts: Sequence[GradientPart]) -> None:
        """Center each output slice."""
        torch = import_module("torch")

        values = []
        for part in parts:
            if part.ndim < 2 or part.is_sparse or part.values.numel() == 0:
                continue
            need_whole_rows(part, self)
            values.append(part.values)
        means = [one.mean(dim=tuple(range(1, one.dim())), keepdim=True) for one in values]
        if values:
            torch._foreach_sub_(values, means)


@dataclass(frozen=True, slots=True)
class UnitNorm:
    """Scale each tensor to Euclidean norm 1; zeros stay zeros. Source: You et al., LARS (2017)."""

    def __call__(self, parts: Sequence[GradientPart]) -> None:
        """Scale each tensor."""
        for batch in in_batches(parts):
            scale(batch, safe_inverse(squares(batch, [one.values for one in batch]).sqrt()))


@dataclass(frozen=True, slots=True)
class UnitRms:
    """Scale each tensor to root mean square 1: ZNorm without the mean; zeros stay zeros."""

    def __call__(self, parts: Sequence[GradientPart]) -> None:
        """Scale each tensor."""
        for batch in in_batches(parts):
            found = squares(batch, [one.values for one in batch])
            scale(batch, safe_inverse((found / counts(batch, found)).sqrt()))


def safe_inverse(found: Any) -> Any:
    """Return 1 / found, and 1 where that is not a finite number."""
    inverse = 1 / found
    return inverse.where(inverse.isfinite() & found.isfinite(), found.new_ones(()))


@dataclass(frozen=True, slots=True)
class ClipNorm:
    """Scale all gradients so that their norm together is at most `max_norm`.

    Source: Pascanu et al., On the difficulty of training recurrent neural networks (2013).
    """

    max_norm: float = 1.0

    def __call__(self, parts: Sequence[GradientPart]) -> None:
        """Scale all tensors alike."""
        batches = list(in_batches(parts))
        found = [squares(batch, [one.values for one in batch]).sum() for batch in batches]
        norm = sum(one.to(found[0]) for one in found).sqrt()
        factor = (self.max_norm / (norm + CLIP_EPS)).clamp(max=1.0)
        for batch in batches:
            scale(batch, factor.to(batch[0].values).expand(len(batch)))


@dataclass(frozen=True, slots=True)
class ClipValue:
    """Limit each number to between -`limit` and `limit`."""

    limit: float = 1.0

    def __call__(self, parts: Sequence[GradientPart]) -> None:
        """Limit each number."""
        torch = import_module("torch")

        values = [part.values for part in parts]
        torch._foreach_clamp_min_(values, -self.limit)
        torch._foreach_clamp_max_(values, self.limit)


@dataclass(frozen=True, slots=True)
class ClipAdaptive:
    """Limit the norm of each output slice to a part of the norm of its weights.

    Vectors and scalars are one slice. `eps` is the least norm of weights, so that weights that are
    zero can move.

    Source: Brock et al., High-Performance Large-Scale Image Recognition Without Normalization
    (arXiv 2102.06171), section 4.1, with its values.
    """

    factor: float = 0.01
    eps: float = 1e-3

    def __call__(self, parts: Sequence[GradientPart]) -> None:
        """Limit each output slice."""
        for batch in in_batches(part for part in parts if part.ndim > 1):
            for part in batch:
                need_whole_rows(part, self)
                own, weights = slice_norms(part.values), slice_norms(part.weights.to(part.values))
                part.values.mul_(self.factors(own, weights))
        for batch in in_batches(part for part in parts if part.ndim < 2):
            own = squares(batch, [part.values for part in batch]).sqrt()
            weights = squares(batch, [part.weights.to(part.values) for part in batch]).sqrt()
            scale(batch, self.factors(own, weights))

    def factors(self, own: Any, weights: Any) -> Any:
        """Return by what gradients with these norms are multiplied: 1 where they are within."""
        most = self.factor * weights.clamp(min=self.eps)
        return (most / own.clamp(min=CLIP_EPS)).where(own > most, own.new_ones(()))


def slice_norms(values: Any) -> Any:
    """Return the norm of each slice of the first dimension (num_slices, 1, …)."""
    return values.square().sum(dim=tuple(range(1, values.dim())), keepdim=True).sqrt()


# -- on an optimizer


def parameters_of(optimizer: Any) -> list[Any]:
    """Return the parameters of all groups."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def transform_before_step(optimizer: Any, transforms: Sequence[GradTransform]) -> None:
    """Transform the gradients of an optimizer that is about to step.

    A scaler has unscaled them by now, except for an optimizer that does so itself (fused): its
    scale is taken out here and from the optimizer, whose step is skipped as before where a number
    is not finite.
    """
    torch = import_module("torch")

    weights = parameters_of(optimizer)
    if getattr(optimizer, "grad_scale", None) is not None:
        inverse = optimizer.grad_scale.double().reciprocal().float()
        with torch.no_grad():
            for weight in weights:
                if weight.grad is not None:
                    weight.grad.mul_(inverse.to(weight.grad.device))
        optimizer.grad_scale = None
    transform_gradients(weights, *transforms)


def attach(optimizer: Any, *transforms: GradTransform) -> Any:
    """Transform gradients before each step of an optimizer; return a handle with `remove()`.

    Under accumulation it acts on the sum, once an update; after DistributedDataParallel's exchange,
    so equally on each rank. A closure's gradients are transformed after each call of it.
    """

    def before(optimizer: Any, args: Any, kwargs: Any) -> Any:
        given = kwargs.get("closure", args[1] if len(args) > 1 else None)  # after the optimizer
        if given is None:
            transform_before_step(optimizer, transforms)
            return None

        def closure() -> Any:
            loss = given()
            transform_before_step(optimizer, transforms)
            return loss

        if "closure" in kwargs:
            return args, {**kwargs, "closure": closure}
        return (args[0], closure, *args[2:]), kwargs

    return optimizer.register_step_pre_hook(before)
