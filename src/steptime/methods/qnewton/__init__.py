"""Newton's method by blocks, where the cheapest solver takes each block; needs torch.

In: a model with its loss. Out: an optimizer, and a log of which solver took which block and why. A
quantum solver is there as a model of time and, for small systems, as a simulation; its time is of
a type that never mixes with seconds. Start with `newton_optimizer.py`.
"""

from steptime.methods.qnewton.block_solvers import SOLVERS, named
from steptime.methods.qnewton.block_system import BlockSystem
from steptime.methods.qnewton.condition_number import estimate_condition, norm_determinant_bound
from steptime.methods.qnewton.curvature import Curvature
from steptime.methods.qnewton.modeled_time import (
    ModeledTime,
    QuantumAssumptions,
    break_even_gate_time_s,
    num_queries,
    quantum_time,
    query_bound,
)
from steptime.methods.qnewton.newton_optimizer import QNewton
from steptime.methods.qnewton.objective import Objective
from steptime.methods.qnewton.quantum_walk import solve_by_walk
from steptime.methods.qnewton.solver_scheduler import Scheduler, SolverDecision
from steptime.methods.qnewton.solver_times import SolverTimes
from steptime.methods.qnewton.symmetric_pruning import prune_symmetric

__all__ = [
    "SOLVERS",
    "BlockSystem",
    "Curvature",
    "ModeledTime",
    "Objective",
    "QNewton",
    "QuantumAssumptions",
    "Scheduler",
    "SolverDecision",
    "SolverTimes",
    "break_even_gate_time_s",
    "estimate_condition",
    "named",
    "norm_determinant_bound",
    "num_queries",
    "prune_symmetric",
    "quantum_time",
    "query_bound",
    "solve_by_walk",
]
