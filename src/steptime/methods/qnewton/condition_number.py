"""Estimates of a condition number from a few products with the matrix, by Lanczos.

In: a product, or a matrix. Out: the extreme Ritz values and the ratio that they point to. The
paper's bound, from norm and determinant, stands here too, as what it is: useless beyond toy sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

Product = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionEstimate:
    """Extreme eigenvalues as far as they were seen, and their ratio.

    Attributes:
        smallest: at least the true one, unless it is the floor that was given.
        largest: at most the true one.
        lower: largest over smallest, a lower bound of the condition number.
        kappa: the estimate: `lower`, carried on by as much as the second half of the products
            raised it, and at most what the floor allows; infinite where `smallest` is not positive.
        num_products: products with the matrix that this took.
    """

    smallest: float
    largest: float
    lower: float
    kappa: float
    num_products: int


def lanczos(product: Product, start: torch.Tensor, num_products: int) -> torch.Tensor:
    """Return the tridiagonal matrix of a symmetric operator, (products, products), in float64.

    Each vector is orthogonalized against all before it, twice: in float32 once is not enough where
    values have converged, and copies of the largest take the place of small ones.

    Args:
        product: from (N) to (N).
        start: (N), not zero.
        num_products: at most this many; fewer where the space is used up.

    Source: Lanczos (1950); full orthogonalization: Parlett, The Symmetric Eigenvalue Problem.
    """
    num = min(num_products, len(start))
    basis = torch.zeros(num, len(start), dtype=start.dtype, device=start.device)
    basis[0] = start / start.norm()
    diagonal, beside = [], []
    for i in range(num):
        image = product(basis[i])
        before = image.norm()
        known = basis[: i + 1]
        parts = known @ image
        diagonal.append(parts[i])
        if i == num - 1:
            break
        image = torch.addmv(image, known.T, parts, alpha=-1)
        image = torch.addmv(image, known.T, known @ image, alpha=-1)
        length = image.norm()
        # What is left is rounding: the space is used up.
        if not float(length) > 100 * torch.finfo(start.dtype).eps * float(before):
            break
        beside.append(length)
        torch.div(image, length, out=basis[i + 1])
    small = torch.diag(torch.stack(diagonal).double().cpu())
    if beside[: len(diagonal) - 1]:
        sides = torch.stack(beside[: len(diagonal) - 1]).double().cpu()
        small += torch.diag(sides, 1) + torch.diag(sides, -1)
    return small


def iterations_of_cg(small: torch.Tensor, bound: float) -> float:
    """Iterations of conjugate gradients to a relative residual, from Lanczos on the right side.

    Both methods span one space, so the residual after k of them is the product of side over pivot
    of the tridiagonal matrix; past the last product it goes on at the rate of the second half.

    Args:
        small: (products, products), as `lanczos` gave it from the right side; positive definite.
        bound: relative residual, in (0, 1).

    Source: Saad, Iterative Methods for Sparse Linear Systems, section 6.7.
    """
    diagonal = small.diagonal().tolist()
    sides = small.diagonal(1).tolist()
    ratios, ratio, pivot = [1.0], 1.0, 0.0
    for i, side in enumerate(sides):
        pivot = diagonal[i] - (sides[i - 1] ** 2 / pivot if i else 0.0)
        if not pivot > 0:
            return math.inf
        ratio *= side / pivot
        ratios.append(ratio)
        if ratio <= bound:
            return float(len(ratios) - 1)
    count, half = len(ratios) - 1, (len(ratios) - 1) // 2
    if count < 2:
        return float(len(diagonal))
    rate = math.log(ratios[half] / ratios[-1]) / (count - half)
    return count + math.log(ratios[-1] / bound) / rate if rate > 0 else math.inf


def estimate_condition(
    product: Product,
    like: torch.Tensor,
    *,
    num_products: int = 28,
    floor: float | None = None,
    seed: int = 0,
) -> ConditionEstimate:
    """Estimate the condition number of a symmetric positive definite operator.

    Args:
        product: from (N) to (N).
        like: (N), whose type and device the vectors take.
        num_products: 28 are within 1.5 of 1,000 and within 4 of 10,000 for logarithmic spectra at
            N up to 1,024.
        floor: a number that no eigenvalue is below, as the damping of a positive semidefinite
            matrix.
        seed: of the start vector.

    Raises:
        ValueError: the operator gives a value that is not finite.
    """
    chance = torch.Generator().manual_seed(seed)
    start = torch.randn(len(like), generator=chance, dtype=torch.float64).to(like)
    small = lanczos(product, start, num_products)
    is_whole = len(small) < num_products or num_products >= len(like)
    return condition_from(small, floor=floor, is_whole=is_whole)


def condition_from(
    small: torch.Tensor, *, floor: float | None = None, is_whole: bool = False
) -> ConditionEstimate:
    """Estimate a condition number from Lanczos's tridiagonal matrix.

    Args:
        small: (products, products).
        floor: a number that no eigenvalue is below.
        is_whole: whether the space was used up, so that nothing is carried on.

    Raises:
        ValueError: a value is not finite.
    """
    if not bool(small.isfinite().all()):
        raise ValueError("the curvature has NaN or infinite values, so it has no condition number")
    taken = len(small)
    values = torch.linalg.eigvalsh(small)
    smallest, largest = float(values[0]), float(values[-1])
    lowest = floor or 0.0
    lower = largest / max(smallest, lowest) if max(smallest, lowest) > 0 else math.inf
    kappa = lower
    if not is_whole and taken > 1 and math.isfinite(lower):
        half = torch.linalg.eigvalsh(small[: taken // 2, : taken // 2])
        ratio = float(half[-1]) / max(float(half[0]), lowest)
        kappa = lower * max(1.0, lower / ratio)
    if floor:
        kappa = min(kappa, largest / floor)
    return ConditionEstimate(
        smallest=max(smallest, lowest) if floor else smallest,
        largest=largest,
        lower=max(1.0, lower),
        kappa=max(1.0, kappa),
        num_products=taken,
    )


def norm_determinant_bound(matrix: torch.Tensor) -> float:
    """The paper's bound of a condition number: kappa <= sqrt((1 + x) / (1 - x)).

    x = sqrt(1 - (n / |A|_F^2)^n det(A)^2). It holds, and says nothing from a few dozen unknowns on:
    x rounds to 1, and the bound to infinity. Kept so that this can be seen; nothing here uses it.

    Source: Merikoski et al. (1997); Q-Newton, arXiv 2405.00252.
    """
    num = len(matrix)
    squared = float(matrix.double().square().sum())
    log_det = float(torch.linalg.slogdet(matrix.double())[1])
    inside = math.exp(min(0.0, num * math.log(num / squared) + 2 * log_det))
    # 1 - sqrt(1 - y) without cancellation, for the tiny y that all but toys have.
    root = math.sqrt(max(0.0, 1 - inside))
    below = inside / (1 + root)
    return math.sqrt((1 + root) / below) if below > 0 else math.inf
