"""The curvature of each block of parameters: Hessian, Gauss-Newton, or empirical Fisher.

In: an objective, a batch, gradients. Out: a `BlockSystem` a block, where a block is one parameter:
a layer's weights, and its biases apart.
"""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import dataclass
from typing import Any, Literal

import torch

from steptime.methods.qnewton.block_system import BlockSystem
from steptime.methods.qnewton.condition_number import condition_from, lanczos
from steptime.methods.qnewton.objective import Objective, kronecker_factors
from steptime.methods.qnewton.symmetric_pruning import Symmetry, prune_symmetric

Kind = Literal["hessian", "gauss_newton", "fisher"]
KINDS = ("hessian", "gauss_newton", "fisher")
# Each failed check multiplies the damping; 1e12 times as much is no curvature any more.
RAISE_DAMPING, MOST_RAISES = 10.0, 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Curvature:
    """Which curvature, and what is done to it before it is solved with.

    Attributes:
        kind: `hessian`, exact and perhaps indefinite; `gauss_newton`, the outputs' Jacobian with
            the loss's own Hessian; `fisher`, the mean outer product of the samples' gradients.
        num_samples: samples of a batch, from its beginning, that curvature is taken from.
        damping: added to the diagonal, as a multiple of the largest entry (of the largest
            eigenvalue for `hessian`, which no other form shows).
        adapts: whether the damping rises above that and falls back by how well the quadratic
            model predicted the loss (Levenberg and Marquardt); a step that raised the loss is
            halved, and taken back after six halvings.
        rescales: whether the joint direction gets the length that the quadratic model over all
            blocks together wants (Martens and Grosse, arXiv 1503.05671, section 6.4).
        keep: fraction of each row that pruning keeps; 1 prunes nothing.
        symmetry: how pruning stays symmetric; see `prune_symmetric`.
        num_products: products a condition number is estimated from.
        refresh_steps: steps between two estimates of a condition number.
    """

    kind: Kind = "gauss_newton"
    num_samples: int = 256
    damping: float = 5e-3
    adapts: bool = True
    rescales: bool = True
    keep: float = 1.0
    symmetry: Symmetry = "union"
    num_products: int = 28
    refresh_steps: int = 10

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"`kind` is one of {', '.join(KINDS)}, got {self.kind!r}")
        if not (math.isfinite(self.damping) and self.damping > 0):
            raise ValueError(f"`damping > 0` must hold, got {self.damping=}")
        if not 0 < self.keep <= 1:
            raise ValueError(f"`0 < keep <= 1` must hold, got {self.keep=}")
        if self.num_products < 2 or self.refresh_steps < 1 or self.num_samples < 1:
            raise ValueError(
                "`num_products >= 2`, `refresh_steps >= 1` and `num_samples >= 1` must hold, "
                f"got {self.num_products=}, {self.refresh_steps=}, {self.num_samples=}"
            )


def refuse_not_finite(what: str, values: torch.Tensor) -> None:
    """Refuse a curvature that has no meaning.

    Raises:
        ValueError: a value is NaN or infinite.
    """
    if not bool(values.isfinite().all()):
        raise ValueError(
            f"the curvature of {what} has NaN or infinite values: no step was taken; "
            "look at the batch, or lower the learning rate"
        )


def sample_gradients(objective: Objective, names: Any, batch: Any) -> dict[str, torch.Tensor]:
    """Rows (samples, N) over the square root of the samples: their product is the Fisher matrix."""
    objective.refuse_mixing()

    def of_sample(some: Any, one: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return objective.loss_at(some, (one[None], target[None]))

    each = torch.func.vmap(torch.func.grad(of_sample), in_dims=(None, 0, 0))
    found = each(objective.current(names), *batch)
    num = len(batch[0])
    return {name: rows.reshape(num, -1) / math.sqrt(num) for name, rows in found.items()}


def gauss_newton_rows(objective: Objective, names: Any, batch: Any) -> dict[str, torch.Tensor]:
    """Rows (samples * outputs, N) whose product is the Gauss-Newton matrix."""
    objective.refuse_mixing()

    def outputs(some: Any, one: torch.Tensor) -> torch.Tensor:
        return objective.outputs_at(some, one[None])[0]

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return objective.loss(output[None], target[None])

    inputs, targets = batch
    some = objective.current(names)
    with torch.no_grad():
        values = objective.outputs_at(some, inputs)
    inner = torch.func.vmap(torch.func.jacrev(torch.func.jacrev(loss)))(values, targets)
    num, size = len(values), values[0].numel()
    refuse_not_finite("the loss by its outputs", inner)
    eigenvalues, vectors = torch.linalg.eigh(inner.reshape(num, size, size))
    # Root of the loss's Hessian: what is below 0 by rounding is 0.
    root = eigenvalues.clamp_min(0).sqrt()[:, :, None] * vectors.transpose(1, 2)
    each = torch.func.vmap(torch.func.jacrev(outputs), in_dims=(None, 0))(some, inputs)
    scale = 1 / math.sqrt(num)
    return {
        name: (root @ rows.reshape(num, size, -1)).flatten(0, 1) * scale
        for name, rows in each.items()
    }


def hessian_product(objective: Objective, name: str, batch: Any) -> Any:
    """Return the product of one block's Hessian with a vector (N), without the matrix."""
    value = objective.current([name])[name]

    def gradient(flat: torch.Tensor) -> torch.Tensor:
        def loss(one: torch.Tensor) -> torch.Tensor:
            return objective.loss_at({name: one.view_as(value)}, batch)

        return torch.func.grad(loss)(flat)

    # The matrix is symmetric, so the backward product is as good as the forward one, and what it
    # needs of the point is computed once.
    backward = torch.func.vjp(gradient, value.flatten())[1]

    def product(vector: torch.Tensor) -> torch.Tensor:
        return backward(vector)[0]

    return product


def systems_of(
    objective: Objective,
    gradients: dict[str, torch.Tensor],
    curvature: Curvature,
    *,
    batch: Any,
    with_kronecker: bool = False,
) -> dict[str, BlockSystem]:
    """Return each block's system, undamped, by the parameter's name.

    Raises:
        ValueError: a value of the curvature is NaN or infinite, or samples are mixed.
    """
    names = list(gradients)
    factors: dict[str, torch.Tensor] = {}
    if curvature.kind == "fisher":
        factors = sample_gradients(objective, names, batch)
    elif curvature.kind == "gauss_newton":
        factors = gauss_newton_rows(objective, names, batch)
    kronecker = kronecker_factors(objective, batch) if with_kronecker else {}
    systems = {}
    for name, gradient in gradients.items():
        factor = factors.get(name)
        if factor is not None:
            refuse_not_finite(name, factor)
        is_hessian = curvature.kind == "hessian"
        systems[name] = BlockSystem(
            name=name,
            gradient=gradient.flatten(),
            damping=0.0,
            factor=factor,
            operator=hessian_product(objective, name, batch) if is_hessian else None,
            kronecker=kronecker.get(name),
            shape=tuple(gradient.shape),
            sparsity=gradient.numel(),
        )
    return systems


def curvature_along(
    objective: Objective,
    systems: dict[str, BlockSystem],
    directions: dict[str, torch.Tensor],
    *,
    batch: Any,
) -> float:
    """d^T C d with the curvature between blocks too, for one joint direction, undamped."""
    rows = [
        one.factor @ directions[name] for name, one in systems.items() if one.factor is not None
    ]
    if rows:
        return float(torch.stack(rows).sum(0).square().sum())
    some = objective.current(systems)
    moves = {name: directions[name].view(systems[name].shape) for name in systems}

    def at(length: torch.Tensor) -> torch.Tensor:
        return objective.loss_at({n: some[n] + length * moves[n] for n in some}, batch)

    return float(
        torch.func.grad(torch.func.grad(at))(torch.zeros_like(next(iter(moves.values())).sum()))
    )


def scale_of(system: BlockSystem) -> tuple[float, float]:
    """Return what damping is a multiple of, and a number that no eigenvalue is below.

    The largest entry of a positive semidefinite matrix is on its diagonal.
    """
    if system.factor is not None:
        return float(system.factor.square().sum(0).max()), 0.0
    if system.dense is not None:
        return float(system.dense.abs().max()), -math.inf
    start = torch.randn(
        system.num_unknowns, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    ).to(system.gradient)
    small = lanczos(system.product, start, 12)
    refuse_not_finite(system.name, small)
    values = torch.linalg.eigvalsh(small)
    return float(values.abs().max()), float(values[0])


def damped(system: BlockSystem, curvature: Curvature, multiple: float) -> BlockSystem:
    """Damp a system, and prune it where that was asked for; it is positive definite then.

    Raises:
        ValueError: no damping made it positive definite.
    """
    scale, lowest = scale_of(system)
    # A block without curvature (a dead layer) is left to the damping alone.
    damping = multiple * scale if scale > 0 else multiple
    if math.isfinite(lowest) and lowest < 0:
        # Lanczos sees the lowest eigenvalue from above: a tenth of the scale covers the rest.
        damping += -lowest + 0.1 * scale
    if curvature.keep == 1:
        return dataclasses.replace(system, damping=damping)
    whole = system.matrix()  # undamped still
    for _ in range(MOST_RAISES):
        # At half the damping, so that no eigenvalue is below the other half: barely positive
        # definite would be a condition number without bound.
        pruned = prune_symmetric(
            whole, keep=curvature.keep, symmetry=curvature.symmetry, damping=damping / 2
        )
        if pruned.is_positive_definite:
            return dataclasses.replace(
                system,
                damping=damping,
                factor=None,
                operator=None,
                dense=pruned.matrix,
                sparsity=pruned.sparsity,
            )
        damping *= RAISE_DAMPING
    raise ValueError(f"the pruned curvature of {system.name} is positive definite at no damping")


def with_condition(system: BlockSystem, curvature: Curvature) -> BlockSystem:
    """Run Lanczos on a damped system from its gradient, and time its product on the way.

    What comes back is good for other dampings too: they only shift the tridiagonal matrix.
    """
    if not float(system.gradient.norm()) > 0:
        return system
    began = time.perf_counter()
    small = lanczos(system.product, system.gradient, curvature.num_products)
    took = time.perf_counter() - began
    refuse_not_finite(system.name, small)
    small.diagonal().sub_(system.damping)
    return condition_known(
        dataclasses.replace(system, operator_s=took / len(small) if system.operator else 0.0), small
    )


def condition_known(system: BlockSystem, small: torch.Tensor) -> BlockSystem:
    """Give a damped system what Lanczos on its undamped curvature, (products, products), says."""
    small = small.double().clone()
    small.diagonal().add_(system.damping)
    is_semidefinite = system.factor is not None
    floor = system.damping if is_semidefinite else None
    if system.dense is not None:
        floor = system.damping / 2  # as `damped` saw to it
    is_whole = len(small) >= system.num_unknowns
    found = condition_from(small, floor=floor, is_whole=is_whole)
    kappa = found.kappa
    if is_semidefinite and system.rank < system.num_unknowns:
        kappa = found.largest / system.damping  # what the rows do not reach has the damping alone
    if not math.isfinite(kappa):
        kappa = 1 / torch.finfo(torch.float32).eps
    return dataclasses.replace(system, kappa=max(1.0, kappa), tridiagonal=small)
