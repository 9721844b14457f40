"""The solvers of a block's system: what each needs, what it costs, and how it solves.

A solver's cost is a short row of counted terms; `solver_times` turns it into seconds on the machine
at hand. The tuple `SOLVERS` is the registry.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from steptime.methods.qnewton.block_system import BlockSystem
from steptime.methods.qnewton.condition_number import iterations_of_cg

# No more iterations than this, whatever the condition number: a direct solver is cheaper then.
MOST_ITERATIONS = 2000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """What a solver found: `values` (N), or None where it failed, with the reason."""

    values: torch.Tensor | None
    num_iterations: int = 0
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSolver:
    """One way to solve a block's system.

    Attributes:
        name: the word in logs and settings.
        terms: from a system and an error bound to counted costs, the same number for each system.
        refuses: from a system to the reason why it cannot be solved so, or None.
        solve: from a system and an error bound to a solution.
        error: the relative residual to expect, from a system and the bound; NaN where only
            trying shows it.
    """

    name: str
    terms: Callable[[BlockSystem, float], tuple[float, ...]]
    refuses: Callable[[BlockSystem], str | None]
    solve: Callable[[BlockSystem, float], Solution]
    error: Callable[[BlockSystem, float], float]


def rounding(system: BlockSystem) -> float:
    """Unit roundoff of the system's type."""
    return float(torch.finfo(system.gradient.dtype).eps)


def direct_terms(system: BlockSystem, bound: float) -> tuple[float, ...]:
    """Calls, entries, forming by rows, forming by products of operators, factorization."""
    del bound
    num = float(system.num_unknowns)
    by_operator = num * system.operator_s if system.operator else 0.0
    return (1.0, num**2, system.rank * num**2, by_operator, num**3)


def solve_lu(system: BlockSystem, bound: float) -> Solution:
    """By LU with partial pivoting: for any matrix, at twice the work of Cholesky."""
    del bound
    values, info = torch.linalg.solve_ex(system.matrix(), system.gradient)
    if int(info):
        return Solution(values=None, failure="the matrix is singular")
    return Solution(values=values)


def solve_cholesky(system: BlockSystem, bound: float) -> Solution:
    """By Cholesky; fails where the matrix is not positive definite."""
    del bound
    lower, info = torch.linalg.cholesky_ex(system.matrix())
    if int(info):
        return Solution(values=None, failure="the matrix is not positive definite")
    return Solution(values=torch.cholesky_solve(system.gradient[:, None], lower)[:, 0])


def woodbury_terms(system: BlockSystem, bound: float) -> tuple[float, ...]:
    """Calls, entries of the factor, forming of the small matrix, its factorization."""
    del bound
    rank, num = float(system.rank), float(system.num_unknowns)
    return (1.0, rank * num, rank**2 * num, rank**3)


def refuses_woodbury(system: BlockSystem) -> str | None:
    """It needs the rows, and a positive damping to divide by."""
    if system.factor is None:
        return "the curvature is not given as rows of low rank"
    return None if system.damping > 0 else "without damping the matrix has no inverse"


def solve_woodbury(system: BlockSystem, bound: float) -> Solution:
    """By a system of as many unknowns as rows: x = (g - F^T (damping I + F F^T)^-1 F g) / damping.

    Source: Woodbury (1950).
    """
    del bound
    factor = system.factor
    assert factor is not None  # `refuses_woodbury` said so
    small = factor @ factor.T
    small.diagonal().add_(system.damping)
    lower, info = torch.linalg.cholesky_ex(small)
    if int(info):
        return Solution(values=None, failure="the small matrix is not positive definite")
    inner = torch.cholesky_solve((factor @ system.gradient)[:, None], lower)[:, 0]
    return Solution(values=(system.gradient - factor.T @ inner) / system.damping)


def num_iterations(system: BlockSystem, bound: float) -> float:
    """Iterations after which conjugate gradients have the bound, at most N.

    Where Lanczos ran it has seen them. Else the error in the matrix's own norm falls by
    (sqrt(kappa) - 1) / (sqrt(kappa) + 1) each, for spectra that are not clustered.
    """
    needed = 0.5 * math.sqrt(system.kappa) * math.log(2 / bound)
    if system.tridiagonal is not None:
        seen = iterations_of_cg(system.tridiagonal, bound)
        needed = seen if math.isfinite(seen) else needed
    return max(1.0, min(needed, system.num_unknowns, MOST_ITERATIONS))


def cg_terms(system: BlockSystem, bound: float) -> tuple[float, ...]:
    """Calls, iterations, their multiplications, their time by operators."""
    num, count = float(system.num_unknowns), num_iterations(system, bound)
    per = 2.0 * system.rank * num if system.factor is not None else num**2
    if system.factor is None and system.dense is None:
        return (1.0, count, 0.0, count * system.operator_s)
    return (1.0, count, count * per, 0.0)


def solve_cg(system: BlockSystem, bound: float) -> Solution:
    """By conjugate gradients on products alone; no matrix is made.

    Source: Hestenes and Stiefel (1952); on Hessian products: Martens (2010).
    """
    solution = torch.zeros_like(system.gradient)
    residual = system.gradient.clone()
    direction = residual.clone()
    squared = float(residual @ residual)
    goal = squared * bound**2
    most = min(MOST_ITERATIONS, 2 * system.num_unknowns + 10)
    for count in range(most):
        if squared <= goal:
            return Solution(values=solution, num_iterations=count)
        image = system.product(direction)
        curved = float(direction @ image)
        if not curved > 0:
            return Solution(values=None, num_iterations=count, failure="negative curvature was met")
        step = squared / curved
        solution.add_(direction, alpha=step)
        residual.sub_(image, alpha=step)
        before, squared = squared, float(residual @ residual)
        direction.mul_(squared / before).add_(residual)
    return Solution(values=None, num_iterations=most, failure=f"not there in {most} iterations")


def kfac_terms(system: BlockSystem, bound: float) -> tuple[float, ...]:
    """Calls, the two factorizations, the two products."""
    del bound
    rows, columns = (float(one) for one in system.shape) if len(system.shape) == 2 else (1.0, 1.0)
    return (1.0, rows**3 + columns**3, rows * columns * (rows + columns))


def refuses_kfac(system: BlockSystem) -> str | None:
    """It needs a linear layer's two factors, and a matrix that was not pruned."""
    if system.kronecker is None:
        return "the block is not the weight of a linear layer that was seen"
    return None if system.dense is None else "a pruned matrix is no Kronecker product"


def solve_kfac(system: BlockSystem, bound: float) -> Solution:
    """By K-FAC's approximation: the block is taken as a Kronecker product of two small matrices.

    Source: Martens and Grosse, arXiv 1503.05671, section 6.3 for how damping is shared.
    """
    del bound
    assert system.kronecker is not None  # `refuses_kfac` said so
    inputs, outputs = system.kronecker
    mean_in = float(inputs.diagonal().mean())
    mean_out = float(outputs.diagonal().mean())
    if not (mean_in > 0 and mean_out > 0):
        return Solution(values=system.gradient / system.damping)
    share = math.sqrt(mean_in / mean_out)
    root = math.sqrt(system.damping)
    inputs, outputs = inputs.clone(), outputs.clone()
    inputs.diagonal().add_(root * share)
    outputs.diagonal().add_(root / share)
    lower_in, first = torch.linalg.cholesky_ex(inputs)
    lower_out, second = torch.linalg.cholesky_ex(outputs)
    if int(first) or int(second):
        return Solution(values=None, failure="a factor is not positive definite")
    gradient = system.gradient.view(system.shape)
    half = torch.cholesky_solve(gradient, lower_out)
    return Solution(values=torch.cholesky_solve(half.T, lower_in).T.reshape(-1))


def takes_any(system: BlockSystem) -> str | None:
    """Refuse nothing."""
    del system
    return None


def direct_error(system: BlockSystem, bound: float) -> float:
    """A direct solver is backward stable: rounding, with the size as a generous constant."""
    del bound
    return system.num_unknowns * rounding(system)


def woodbury_error(system: BlockSystem, bound: float) -> float:
    """A difference of large terms: rounding grows with the condition number."""
    del bound
    return system.kappa * rounding(system)


def cg_error(system: BlockSystem, bound: float) -> float:
    """The bound itself, until rounding keeps it away."""
    return max(0.999 * bound, system.kappa * rounding(system))


def unknown_error(system: BlockSystem, bound: float) -> float:
    """Only a product with what it found shows it."""
    del system, bound
    return math.nan


LU = BlockSolver(
    name="lu", terms=direct_terms, refuses=takes_any, solve=solve_lu, error=direct_error
)
CHOLESKY = BlockSolver(
    name="cholesky",
    terms=direct_terms,
    refuses=takes_any,
    solve=solve_cholesky,
    error=direct_error,
)
WOODBURY = BlockSolver(
    name="woodbury",
    terms=woodbury_terms,
    refuses=refuses_woodbury,
    solve=solve_woodbury,
    error=woodbury_error,
)
CG = BlockSolver(name="cg", terms=cg_terms, refuses=takes_any, solve=solve_cg, error=cg_error)
KFAC = BlockSolver(
    name="kfac", terms=kfac_terms, refuses=refuses_kfac, solve=solve_kfac, error=unknown_error
)
SOLVERS = (LU, CHOLESKY, WOODBURY, CG, KFAC)


def named(name: str) -> BlockSolver:
    """Return the solver of a name.

    Raises:
        ValueError: there is none.
    """
    for solver in SOLVERS:
        if solver.name == name:
            return solver
    raise ValueError(f"no solver {name!r}: there are {', '.join(one.name for one in SOLVERS)}")
