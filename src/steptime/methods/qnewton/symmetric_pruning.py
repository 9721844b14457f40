"""Pruning of a symmetric matrix that leaves it symmetric, and says what it did to it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

Symmetry = Literal["union", "intersection"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedMatrix:
    """A pruned matrix with what is true of it.

    Attributes:
        matrix: (N, N), symmetric.
        sparsity: most entries other than zero in a row: what a quantum solver pays for.
        kept_fraction: entries other than zero over all.
        is_positive_definite: by a Cholesky factorization, with the damping that was given.
    """

    matrix: torch.Tensor
    sparsity: int
    kept_fraction: float
    is_positive_definite: bool


def prune_symmetric(
    matrix: torch.Tensor, *, keep: float, symmetry: Symmetry = "union", damping: float = 0.0
) -> PrunedMatrix:
    """Keep the largest entries of each row, the same in both triangles.

    Args:
        matrix: (N, N), symmetric.
        keep: fraction of each row, in (0, 1]; its diagonal entry always stays.
        symmetry: `union` keeps an entry that either of its two rows keeps, up to twice as many
            in all; `intersection` one that both keep, and at most `keep` of a row.
        damping: what is added to the diagonal before positive definiteness is checked.

    Raises:
        ValueError: `keep` or `symmetry` is none of those.
    """
    if not 0 < keep <= 1:
        raise ValueError(f"`0 < keep <= 1` must hold, got {keep=}")
    if symmetry not in {"union", "intersection"}:
        raise ValueError(f"`symmetry` is union or intersection, got {symmetry!r}")
    num = len(matrix)
    if keep < 1:
        count = max(1, math.ceil(keep * num))
        places = matrix.abs().topk(count, dim=1).indices
        kept = torch.zeros(num, num, dtype=torch.bool, device=matrix.device)
        kept.scatter_(1, places, value=True)
        kept = kept | kept.T if symmetry == "union" else kept & kept.T
        kept.fill_diagonal_(True)
        matrix = torch.where(kept, matrix, 0)
    used = matrix != 0
    damped = matrix + damping * torch.eye(num, dtype=matrix.dtype, device=matrix.device)
    failed = int(torch.linalg.cholesky_ex(damped).info)
    return PrunedMatrix(
        matrix=matrix,
        sparsity=max(1, int(used.sum(1).max())),
        kept_fraction=float(used.double().mean()),
        is_positive_definite=not failed,
    )
