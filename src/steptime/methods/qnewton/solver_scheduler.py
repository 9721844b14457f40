"""Which solver takes each block: the cheapest that keeps the error bound, and a log of why.

In: a block's system. Out: its solution, and a `SolverDecision`. Measured seconds and modeled time
stay apart: the quantum solver never solves a block of a training; the log says what the model
would have chosen under the assumptions given, and at which gate time that would begin to be true.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import torch

from steptime.methods.qnewton.block_solvers import SOLVERS, BlockSolver
from steptime.methods.qnewton.block_system import BlockSystem
from steptime.methods.qnewton.modeled_time import (
    ModeledTime,
    QuantumAssumptions,
    break_even_gate_time_s,
    num_gates,
    quantum_time,
)
from steptime.methods.qnewton.solver_times import SolverTimes

# Steps after which a solver whose error only a trial shows is tried again.
TRY_AGAIN_STEPS = 50
LOG_SIZE = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverDecision:
    """Why one block of one step was solved as it was.

    Attributes:
        step: of the optimizer.
        block: the parameter's name.
        num_unknowns: N.
        kappa: estimated condition number.
        sparsity: most entries other than zero in a row.
        damping: what was added to the diagonal.
        predicted_s: solver and predicted time [s], of those that were not refused.
        refused: solver and the reason why it was not taken.
        chosen: the solver whose solution was used.
        took_s: measured time of its solution [s].
        residual: relative residual of the solution, measured.
        keeps_bound: whether that is within the bound.
        modeled: what a quantum solver would take, or None where nothing was assumed.
        would_choose: `quantum` where the model is below the chosen solver's prediction, else the
            solver chosen; None where nothing was assumed.
        break_even_gate_time_s: gate time [s] below which that begins; None likewise.
    """

    step: int
    block: str
    num_unknowns: int
    kappa: float
    sparsity: int
    damping: float
    predicted_s: tuple[tuple[str, float], ...]
    refused: tuple[tuple[str, str], ...]
    chosen: str
    took_s: float
    residual: float
    keeps_bound: bool
    modeled: ModeledTime | None = None
    would_choose: str | None = None
    break_even_gate_time_s: float | None = None


class Scheduler:
    """Takes the cheapest solver under an error bound, block by block.

    Args:
        times: fitted times; calibrated at the first block where there are none.
        error_bound: largest relative residual of a solution that is used.
        solvers: those to choose from; a single one is used always.
        quantum: assumptions under which the log compares with a quantum solver; None compares
            with nothing.

    Raises:
        ValueError: the bound is not in (0, 1), or there is no solver.
    """

    def __init__(
        self,
        times: SolverTimes | None = None,
        *,
        error_bound: float = 1e-2,
        solvers: tuple[BlockSolver, ...] = SOLVERS,
        quantum: QuantumAssumptions | None = None,
    ) -> None:
        if not 0 < error_bound < 1:
            raise ValueError(f"`0 < error_bound < 1` must hold, got {error_bound=}")
        if not solvers:
            raise ValueError("a scheduler needs at least one solver, got none")
        self.times = times or SolverTimes()
        self.error_bound = error_bound
        self.solvers = solvers
        self.quantum = quantum
        self.log: deque[SolverDecision] = deque(maxlen=LOG_SIZE)
        self._tried: dict[tuple[str, str], tuple[int, float]] = {}

    def uses(self, name: str) -> bool:
        """Whether a solver is among those to choose from."""
        return any(solver.name == name for solver in self.solvers)

    def _refusal(self, solver: BlockSolver, system: BlockSystem, step: int) -> str | None:
        reason = solver.refuses(system)
        if reason is not None:
            return reason
        error = solver.error(system, self.error_bound)
        if math.isnan(error):
            tried = self._tried.get((system.name, solver.name))
            if tried is None or step - tried[0] >= TRY_AGAIN_STEPS:
                return None
            error = tried[1]
        if error > self.error_bound:
            return f"its residual is about {error:.2g}, above {self.error_bound:g}"
        return None

    def rank(
        self, system: BlockSystem, step: int = 0
    ) -> tuple[list[tuple[BlockSolver, float]], tuple[tuple[str, str], ...]]:
        """Return the solvers with predicted times [s], cheapest first, and those refused, and why.

        A single solver is not refused for its error: there is nothing to take in its place.
        """
        if any(one.name not in self.times.coefficients for one in self.solvers):
            self.times.calibrate(system.gradient, bound=self.error_bound)
        able, refused = [], []
        for solver in self.solvers:
            reason = self._refusal(solver, system, step)
            if reason is None:
                able.append((solver, self.times.predict(solver, system, self.error_bound)))
            else:
                refused.append((solver.name, reason))
        if not able:
            possible = [one for one in self.solvers if one.refuses(system) is None]
            able = [(one, self.times.predict(one, system, self.error_bound)) for one in possible]
        return sorted(able, key=lambda one: one[1]), tuple(refused)

    def solve(self, system: BlockSystem, step: int = 0) -> tuple[torch.Tensor, SolverDecision]:
        """Solve one block by the cheapest solver that keeps the bound; the next one if it fails.

        Raises:
            ValueError: no solver can do it, or all failed.
        """
        ranked, refused = self.rank(system, step)
        notes = list(refused)
        best: tuple[float, torch.Tensor, BlockSolver, float] | None = None
        for solver, _ in ranked:
            solution, took = self.times.timed(solver, system, self.error_bound)
            if solution.values is None:
                notes.append((solver.name, f"tried: {solution.failure}"))
                continue
            residual = system.residual(solution.values)
            if math.isnan(solver.error(system, self.error_bound)):
                self._tried[system.name, solver.name] = (step, residual)
            if not math.isfinite(residual):
                notes.append((solver.name, "tried: its solution is not finite"))
                continue
            self.times.observe(solver, system, bound=self.error_bound, took_s=took)
            if best is None or residual < best[0]:
                best = (residual, solution.values, solver, took)
            if residual <= self.error_bound:
                break
            notes.append((solver.name, f"tried: residual {residual:.2g}"))
        if best is None:
            reasons = "; ".join(f"{name}: {why}" for name, why in notes)
            raise ValueError(f"no solver could solve block {system.name} ({reasons})")
        predicted = tuple((solver.name, found) for solver, found in ranked)
        decision = self._decide(system, step, predicted=predicted, notes=tuple(notes), best=best)
        self.log.append(decision)
        return best[1], decision

    def _decide(
        self,
        system: BlockSystem,
        step: int,
        *,
        predicted: tuple[tuple[str, float], ...],
        notes: tuple[tuple[str, str], ...],
        best: tuple[float, torch.Tensor, BlockSolver, float],
    ) -> SolverDecision:
        residual, _, solver, took = best
        modeled, would, even = None, None, None
        if self.quantum is not None:
            num, kappa = system.num_unknowns, max(1.0, system.kappa)
            modeled = quantum_time(num, system.sparsity, kappa, self.quantum)
            hoped = dict(predicted)[solver.name]
            is_less = modeled < ModeledTime.of_classical(hoped, self.quantum)
            would = "quantum" if is_less else solver.name
            gates = num_gates(num, system.sparsity, kappa, self.quantum)
            even = break_even_gate_time_s(hoped, gates)
        return SolverDecision(
            step=step,
            block=system.name,
            num_unknowns=system.num_unknowns,
            kappa=system.kappa,
            sparsity=system.sparsity,
            damping=system.damping,
            predicted_s=predicted,
            refused=notes,
            chosen=solver.name,
            took_s=took,
            residual=residual,
            keeps_bound=residual <= self.error_bound,
            modeled=modeled,
            would_choose=would,
            break_even_gate_time_s=even,
        )
