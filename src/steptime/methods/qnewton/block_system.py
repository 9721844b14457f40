"""One block's damped linear system, in the form that its curvature comes in.

In: gradient, damping, and the curvature as a matrix, as rows whose product it is, or as a product
with vectors. Out: products and, where somebody asks, the dense matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockSystem:
    """(C + damping I) x = gradient, for one block of N parameters.

    Attributes:
        name: the parameter's name.
        gradient: (N).
        damping: added to the diagonal, at least 0.
        factor: rows (r, N) with C = factor^T factor, or None.
        dense: C as (N, N), or None. Where pruning made it, `factor` is None.
        operator: v -> C v without a matrix, or None.
        operator_s: time of one such product [s], as it was seen.
        kronecker: K-FAC's factors of inputs and of output gradients, or None.
        shape: of the parameter.
        kappa: estimated condition number of C + damping I, at least 1.
        tridiagonal: Lanczos's matrix of C + damping I from the gradient (or one like it), or None.
        sparsity: most entries other than zero in a row.
    """

    name: str
    gradient: torch.Tensor
    damping: float
    factor: torch.Tensor | None = None
    dense: torch.Tensor | None = None
    operator: Callable[[torch.Tensor], torch.Tensor] | None = None
    operator_s: float = 0.0
    kronecker: tuple[torch.Tensor, torch.Tensor] | None = None
    shape: tuple[int, ...] = ()
    kappa: float = 1.0
    tridiagonal: torch.Tensor | None = None
    sparsity: int = 0

    @property
    def num_unknowns(self) -> int:
        """N."""
        return len(self.gradient)

    @property
    def rank(self) -> int:
        """Rows of the factor; 0 where there is none."""
        return 0 if self.factor is None else len(self.factor)

    def product(self, vector: torch.Tensor) -> torch.Tensor:
        """(C + damping I) v, by the cheapest form that is there."""
        if self.factor is not None:
            return torch.addmv(self.damping * vector, self.factor.T, self.factor @ vector)
        if self.dense is not None:
            return torch.addmv(self.damping * vector, self.dense, vector)
        if self.operator is None:
            raise ValueError(f"block {self.name} has no curvature in any form")
        return self.operator(vector) + self.damping * vector

    def matrix(self) -> torch.Tensor:
        """C + damping I as (N, N), newly made."""
        if self.dense is not None:
            made = self.dense.clone()
        elif self.factor is not None:
            made = self.factor.T @ self.factor
        elif self.operator is not None:
            ones = torch.eye(
                self.num_unknowns, dtype=self.gradient.dtype, device=self.gradient.device
            )
            made = torch.func.vmap(self.operator, chunk_size=64)(ones)
            made = (made + made.T) / 2
        else:
            raise ValueError(f"block {self.name} has no curvature in any form")
        made.diagonal().add_(self.damping)
        return made

    def residual(self, solution: torch.Tensor) -> float:
        """|(C + damping I) x - gradient| over |gradient|; 0 where the gradient is 0."""
        length = float(self.gradient.norm())
        left = float((self.product(solution) - self.gradient).norm())
        return left / length if length else 0.0
