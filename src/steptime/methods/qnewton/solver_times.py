"""How long each solver takes on this machine: fitted once, corrected by what is seen.

In: counted terms of a solver, timed solutions. Out: predicted seconds.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import torch

from steptime.methods.qnewton.block_solvers import SOLVERS, BlockSolver, Solution, num_iterations
from steptime.methods.qnewton.block_system import BlockSystem

# (unknowns, rows, condition number): from what overhead decides to what the cache does not hold.
CALIBRATION = (
    *((16, 8, 10.0), (16, 256, 100.0), (64, 32, 10.0), (64, 512, 100.0), (200, 64, 100.0)),
    *((200, 512, 10.0), (500, 64, 100.0), (500, 800, 10.0), (1000, 32, 1000.0), (1000, 256, 10.0)),
    *((1600, 128, 100.0), (2400, 64, 10.0)),
)
ROUNDS = 3
SEEN = 5
OPTIMISM = 0.7


def nonnegative_fit(rows: torch.Tensor, values: torch.Tensor) -> list[float]:
    """Coefficients at least 0 with the least relative squared error; for a handful of columns.

    Of all subsets of columns whose plain least-squares fit has no negative coefficient, the best
    one is the answer to the constrained problem. A column of zeros was not seen: its coefficient
    is 1, since the only terms that calibration lacks are seconds already.

    Args:
        rows: (samples, terms), at least 0.
        values: (samples), above 0.
    """
    scaled = (rows / values[:, None]).double()
    size = scaled.abs().max(0).values
    used = [i for i in range(rows.shape[1]) if float(size[i]) > 0]
    ones = torch.ones(len(values), dtype=torch.float64)
    best: tuple[float, list[float]] = (math.inf, [])
    for count in range(1, len(used) + 1):
        for chosen in itertools.combinations(used, count):
            part = scaled[:, chosen] / size[list(chosen)]
            found = torch.linalg.lstsq(part, ones[:, None]).solution[:, 0]
            if bool((found < 0).any()):
                continue
            error = float((part @ found - 1).square().sum())
            if error < best[0]:
                whole = [0.0 if i in used else 1.0 for i in range(rows.shape[1])]
                for i, value in zip(chosen, found.tolist(), strict=True):
                    whole[i] = value / float(size[i])
                best = (error, whole)
    return best[1]


def random_system(num: int, rank: int, kappa: float, like: torch.Tensor) -> BlockSystem:
    """A system of low rank with about this condition number, and factors for K-FAC."""
    chance = torch.Generator().manual_seed(num * 1000 + rank)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=chance).to(like)

    factor = draw(rank, num) / math.sqrt(rank)
    largest = (1 + math.sqrt(num / rank)) ** 2
    rows = 2 ** round(math.log2(math.sqrt(num)))
    inputs, outputs = draw(2 * num // rows, num // rows), draw(2 * rows, rows)
    fits = rows * (num // rows) == num
    return BlockSystem(
        name="calibration",
        gradient=draw(num),
        damping=largest / kappa,
        factor=factor,
        kronecker=(inputs.T @ inputs, outputs.T @ outputs) if fits else None,
        shape=(rows, num // rows) if fits else (num,),
        kappa=kappa,
        sparsity=num,
    )


class SolverTimes:
    """Predicted seconds of each solver.

    Args:
        clock: what reads the time [s]; `time.process_time` on a machine that others use too.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.coefficients: dict[str, list[float]] = {}
        self._seen: dict[tuple[Any, ...], deque[float]] = {}

    def timed(
        self, solver: BlockSolver, system: BlockSystem, bound: float
    ) -> tuple[Solution, float]:
        """Solve, and return what it took [s]; a device has finished when the time is read."""
        wait = torch.cuda.synchronize if system.gradient.is_cuda else None
        if wait is not None:
            wait()
        began = self.clock()
        solution = solver.solve(system, bound)
        if wait is not None:
            wait()
        return solution, self.clock() - began

    def calibrate(
        self, like: torch.Tensor, *, solvers: Iterable[BlockSolver] = SOLVERS, bound: float = 1e-2
    ) -> None:
        """Time each solver on systems of several sizes, of one type and device; a second or two."""
        samples: dict[str, list[tuple[tuple[float, ...], float]]] = {}
        for num, rank, kappa in CALIBRATION:
            system = random_system(num, rank, kappa, like)
            for solver in solvers:
                if solver.refuses(system):
                    continue
                done = [self.timed(solver, system, bound) for _ in range(ROUNDS)]
                terms = list(solver.terms(system, bound))
                if solver.name == "cg":  # by what was iterated, not by what was feared
                    count = max(1, done[0][0].num_iterations)
                    terms = [1.0, float(count), count * 2.0 * rank * num, 0.0]
                took = statistics.median(one for _, one in done)
                samples.setdefault(solver.name, []).append((tuple(terms), max(took, 1e-7)))
        for name, found in samples.items():
            self.coefficients[name] = nonnegative_fit(
                torch.tensor([terms for terms, _ in found], dtype=torch.float64),
                torch.tensor([took for _, took in found], dtype=torch.float64),
            )

    def _key(self, solver: BlockSolver, system: BlockSystem, bound: float) -> tuple[Any, ...]:
        count = 0
        if solver.name == "cg":  # within a quarter is the same
            count = round(math.log(num_iterations(system, bound), 1.25))
        is_dense = system.dense is not None
        return (solver.name, system.num_unknowns, system.rank, system.shape, is_dense, count)

    def predict(self, solver: BlockSolver, system: BlockSystem, bound: float) -> float:
        """Return the time that a solution should take [s]: as seen for this size, or as fitted.

        What was not seen at this size is taken as a little faster than fitted, so that a near
        rival is tried once and known from then on.

        Raises:
            ValueError: nothing was calibrated.
        """
        seen = self._seen.get(self._key(solver, system, bound))
        if seen:
            return statistics.median(seen)
        return OPTIMISM * self.fitted(solver, system, bound)

    def fitted(self, solver: BlockSolver, system: BlockSystem, bound: float) -> float:
        """Return the time that calibration gives a solution [s].

        Raises:
            ValueError: nothing was calibrated.
        """
        if solver.name not in self.coefficients:
            raise ValueError(f"the times of {solver.name!r} are not known: call calibrate() first")
        terms = solver.terms(system, bound)
        return sum(a * b for a, b in zip(self.coefficients[solver.name], terms, strict=True))

    def observe(
        self, solver: BlockSolver, system: BlockSystem, *, bound: float, took_s: float
    ) -> None:
        """Note what a solution took [s]; the median of the last five counts from now on."""
        key = self._key(solver, system, bound)
        self._seen.setdefault(key, deque(maxlen=SEEN)).append(took_s)
