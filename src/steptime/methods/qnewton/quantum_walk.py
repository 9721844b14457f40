"""A quantum linear solver, simulated on vectors with its queries counted; for small systems.

In: a symmetric positive definite matrix (N, N), N up to 32, and a right side. Out: the direction
of the solution and how often the block encoding was called. The method is the discrete adiabatic
walk with a filter behind it; it is the stronger of those with published constants.

Sources: Costa et al., arXiv 2111.08152 (walk and schedule); Lin and Tong, arXiv 1910.14596
(filter); constants in practice: Costa et al., arXiv 2312.07690.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

LARGEST_SYSTEM = 32
# T = 1.84 kappa / error was found in practice (arXiv 2312.07690); the filter does the rest, so
# that a distance of 0.4 after the walk (84 % of attempts succeed) needs the fewest calls.
WALK_CONSTANT = 1.84
WALK_DISTANCE = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkSolution:
    """What a simulated solver found: `direction` (N) of length 1, calls and attempts counted."""

    direction: torch.Tensor
    num_queries: int
    num_attempts: int


class CountedEncoding:
    """The block encoding of H(s) on 4N dimensions; each application is one counted query.

    H(s) is [[0, A(s) P], [P A(s), 0]] with A(s) = (1 - f) Z x I + f X x A and P the projector away
    from (+, b). One call of A's encoding serves a call of H's: P is put before and behind it.
    """

    def __init__(self, matrix: torch.Tensor, right: torch.Tensor) -> None:
        num = len(right)
        ones = torch.eye(num, dtype=matrix.dtype)
        self.z = torch.kron(torch.diag(matrix.new_tensor([1.0, -1.0])), ones)
        self.x = torch.kron(matrix.new_tensor([[0.0, 1.0], [1.0, 0.0]]), matrix)
        plus = torch.cat([right, right]) / math.sqrt(2)
        self.projector = torch.eye(2 * num, dtype=matrix.dtype) - torch.outer(plus, plus)
        self.num_queries = 0

    def hamiltonian(self, f: float) -> torch.Tensor:
        """H at the schedule's value f, (4N, 4N)."""
        upper = ((1 - f) * self.z + f * self.x) @ self.projector
        zero = torch.zeros_like(upper)
        return torch.cat([torch.cat([zero, upper], 1), torch.cat([upper.T, zero], 1)])

    def walk(self, state: torch.Tensor, f: float) -> torch.Tensor:
        """One qubitized step on a state (2, 4N): reflection times encoding. One query."""
        self.num_queries += 1
        values, vectors = torch.linalg.eigh(self.hamiltonian(f))
        rest = (1 - values.square()).clamp_min(0).sqrt()
        first, second = state @ vectors
        above, below = values * first + rest * second, rest * first - values * second
        return torch.stack([above, -below]) @ vectors.T

    def apply(self, state: torch.Tensor, hamiltonian: torch.Tensor) -> torch.Tensor:
        """H at the end of the path on a vector (4N). One query."""
        self.num_queries += 1
        return hamiltonian @ state


def schedule(progress: float, kappa: float, power: float = 1.4) -> float:
    """The path's f at a progress in [0, 1]: slow where the gap is small (arXiv 2111.08152)."""
    if kappa <= 1 + 1e-9:
        return progress
    inner: float = (1 + progress * (kappa ** (power - 1) - 1)) ** (1 / (1 - power))
    return kappa / (kappa - 1) * (1 - inner)


def filter_degree(gap: float, leak: float) -> int:
    """Return l: the polynomial of degree 2 l keeps at most `leak` of what is past the gap."""
    if gap >= 1:
        return 1
    argument = 1 + 2 * gap**2 / (1 - gap**2)
    return max(1, math.ceil(math.acosh(1 / leak) / math.acosh(argument)))


def filtered(
    encoding: CountedEncoding, state: torch.Tensor, gap: float, leak: float
) -> torch.Tensor:
    """What is left of a vector (4N) behind the filter: its square is the chance to succeed."""
    degree = filter_degree(gap, leak)
    if gap >= 1:
        gap = 1 - 1e-6
    hamiltonian = encoding.hamiltonian(1.0)
    width = 1 - gap**2

    def inner(vector: torch.Tensor) -> torch.Tensor:
        squared = encoding.apply(encoding.apply(vector, hamiltonian), hamiltonian)
        return -vector + 2 * (squared - gap**2 * vector) / width

    before, now = state, inner(state)
    for _ in range(degree - 1):
        before, now = now, 2 * inner(now) - before
    at_zero = math.cosh(degree * math.acosh(1 + 2 * gap**2 / width))
    return now / at_zero


def solve_by_walk(
    matrix: torch.Tensor,
    right: torch.Tensor,
    *,
    precision: float,
    kappa: float | None = None,
    seed: int = 0,
) -> WalkSolution:
    """The direction of matrix^-1 right by a simulated quantum solver, with its queries.

    Args:
        matrix: (N, N), symmetric positive definite.
        right: (N), not zero.
        precision: largest distance of the direction, in (0, 0.24].
        kappa: an upper bound of the condition number; computed where it is not given.
        seed: for what measurements of ancillas give; attempts that fail are counted.

    Raises:
        ValueError: the system is too large to simulate, or is not positive definite.
    """
    num = len(right)
    if matrix.shape != (num, num) or num > LARGEST_SYSTEM:
        raise ValueError(
            f"a simulation takes square matrices up to {LARGEST_SYSTEM} unknowns, "
            f"got shape {tuple(matrix.shape)} and {num} right sides"
        )
    matrix, right = matrix.double(), right.double()
    values = torch.linalg.eigvalsh(matrix)
    if not float(values[0]) > 0 or not float(right.norm()) > 0:
        raise ValueError("the matrix must be positive definite and the right side not zero")
    kappa = max(1.0, kappa or float(values[-1] / values[0]))
    encoding = CountedEncoding(matrix / values[-1], right / right.norm())
    chance = torch.Generator().manual_seed(seed)
    # Even, so that both branches of the walk, +i and -i, come back with one sign.
    steps = 2 * max(4, math.ceil(WALK_CONSTANT * kappa / WALK_DISTANCE / 2))
    start = torch.zeros(2, 4 * num, dtype=torch.float64)
    start[0, :num] = right / right.norm() / math.sqrt(2)
    start[0, num : 2 * num] = -start[0, :num]
    for attempt in range(1, 1000):
        state = start
        for step in range(1, steps + 1):
            state = encoding.walk(state, schedule(step / steps, kappa))
        left = filtered(encoding, state[0], 1 / kappa, 0.9 * precision)
        if float(torch.rand((), generator=chance)) < float(left.square().sum()):
            found = left[:num] + left[num : 2 * num]
            # A state has no sign; the solution's product with the right side is above zero.
            found = found * torch.sign(found @ right)
            return WalkSolution(
                direction=found / found.norm(),
                num_queries=encoding.num_queries,
                num_attempts=attempt,
            )
    raise ValueError("no attempt in a thousand succeeded: the condition number given is too small")
