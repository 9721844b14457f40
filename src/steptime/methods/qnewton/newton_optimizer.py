"""`QNewton`: a damped Newton method by blocks, as a torch optimizer that one trains with."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch

from steptime.methods.qnewton.block_system import BlockSystem
from steptime.methods.qnewton.curvature import (
    Curvature,
    condition_known,
    curvature_along,
    damped,
    systems_of,
    with_condition,
)
from steptime.methods.qnewton.objective import Objective
from steptime.methods.qnewton.solver_scheduler import Scheduler, SolverDecision

Closure = Callable[[], torch.Tensor]

# Levenberg and Marquardt's rule: damping falls where the quadratic model predicted the loss well.
GOOD, BAD = 0.75, 0.25
LESS, MORE, MUCH_MORE = 0.5, 2.0, 4.0
MOST_DAMPING = 1e4
# Lengths tried where the loss rose, each half of the one before.
MOST_HALVINGS = 6
# Blocks seen apart make a direction too long; a much longer one would trust the model too far.
MOST_LENGTH = 2.0


class QNewton(torch.optim.Optimizer):  # type: ignore[misc]
    """A Newton step a block: (C + damping I)^-1 gradient, by the cheapest solver for each.

    A block is one parameter: a layer's weights, its biases apart. `step(closure)` wants a closure
    that calls the objective and returns its loss; whether it also calls `backward()` is its choice.

        objective = Objective(model, torch.nn.functional.cross_entropy)
        optimizer = QNewton(objective, lr=1.0)
        for inputs, targets in batches:
            loss = optimizer.step(lambda: objective(inputs, targets))

    Args:
        objective: the model with its loss; what requires a gradient is trained.
        lr: multiple of the Newton step.
        curvature: which curvature, its damping and pruning.
        scheduler: who chooses solvers; its `log` has every decision.
        max_block_size: largest number of entries in a parameter. A dense block of 4,096 takes
            64 MiB in float32, and 46 GFLOP to solve by LU.

    Raises:
        ValueError: a parameter is larger, or of a type that solvers do not have.

    Source: Li et al., Q-Newton, arXiv 2405.00252; damping: Marquardt (1963).
    """

    def __init__(
        self,
        objective: Objective,
        *,
        lr: float = 1.0,
        curvature: Curvature | None = None,
        scheduler: Scheduler | None = None,
        max_block_size: int = 4096,
    ) -> None:
        if not (math.isfinite(lr) and lr > 0):
            raise ValueError(f"`lr > 0` must hold, got {lr=}")
        self.objective = objective
        self.curvature = curvature or Curvature()
        self.scheduler = scheduler or Scheduler()
        for name, parameter in objective.parameters.items():
            if parameter.numel() > max_block_size:
                raise ValueError(
                    f"{name} has {parameter.numel():,} entries, and a block may have "
                    f"{max_block_size:,}: train it by another optimizer (requires_grad=False "
                    "here), or raise max_block_size"
                )
            if parameter.dtype not in {torch.float32, torch.float64}:
                raise ValueError(
                    f"{name} is {parameter.dtype}, and solvers need float32 or float64: "
                    "keep the parameters in float32"
                )
        defaults = {"lr": lr, "damping": self.curvature.damping, "step": 0}
        super().__init__(list(objective.parameters.values()), defaults)

    @property
    def decisions(self) -> tuple[SolverDecision, ...]:
        """Every decision so far, the oldest first (the last 100,000)."""
        return tuple(self.scheduler.log)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Closure | None = None) -> torch.Tensor:
        """Take one step, and return the loss before it.

        Raises:
            ValueError: there is no closure, it did not call the objective, or the loss, a
                gradient or the curvature is not finite or is sparse; no parameter was changed.
        """
        if closure is None:
            raise ValueError(
                "QNewton needs a closure that returns the loss: "
                "optimizer.step(lambda: objective(inputs, targets))"
            )
        group = self.param_groups[0]
        loss, gradients = self._evaluate(closure)
        batch = self.objective.batch or ()
        part = tuple(one[: self.curvature.num_samples] for one in batch)
        systems = systems_of(
            self.objective,
            gradients,
            self.curvature,
            batch=part,
            with_kronecker=self.scheduler.uses("kfac"),
        )
        directions = {}
        along = penalty = 0.0
        for name, system in systems.items():
            ready = self._prepare(system, group)
            found, _ = self.scheduler.solve(ready, group["step"])
            directions[name] = -self._lr_of(name) * found
            along += float(system.gradient @ directions[name])
            penalty += ready.damping * float(directions[name].square().sum())
        curved = curvature_along(self.objective, systems, directions, batch=part)
        # The best length along the joint direction, as far as the damped quadratic model knows.
        length = 1.0
        if self.curvature.rescales and curved + penalty > 0:
            length = min(MOST_LENGTH, -along / (curved + penalty))
        predicted = length * along + length**2 / 2 * curved
        moves = {n: length * d.view(systems[n].shape) for n, d in directions.items()}
        self._move(moves, loss, predicted=predicted)
        for one in self.param_groups:
            one["step"] += 1
        return loss

    def _evaluate(self, closure: Closure) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The closure's loss, and the gradient of each parameter that has one."""
        parameters = self.objective.parameters
        known = {id(parameter) for parameter in parameters.values()}
        if any(id(p) not in known for group in self.param_groups for p in group["params"]):
            raise ValueError(
                "a parameter group has parameters that are not of the objective's model"
            )
        self.objective.batch = None
        for parameter in parameters.values():
            parameter.grad = None
        with torch.enable_grad():
            loss = closure()
        if self.objective.batch is None:
            raise ValueError(
                "the closure did not call the objective, so its batch is not known: "
                "return objective(inputs, targets)"
            )
        if all(parameter.grad is None for parameter in parameters.values()):
            if not (isinstance(loss, torch.Tensor) and loss.requires_grad):
                raise ValueError(
                    "the closure returned no loss with a graph, and called no backward()"
                )
            found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
            for parameter, gradient in zip(parameters.values(), found, strict=True):
                parameter.grad = gradient
        gradients = {n: p.grad for n, p in parameters.items() if p.grad is not None}
        if not math.isfinite(float(loss)):
            raise ValueError(f"the loss is {float(loss)}: no step was taken; look at the batch")
        for name, gradient in gradients.items():
            if gradient.layout != torch.strided:
                raise ValueError(
                    f"{name} has a sparse gradient, which has no dense curvature: "
                    "build its layer with sparse=False"
                )
            if not bool(gradient.isfinite().all()):
                raise ValueError(
                    f"the gradient of {name} has NaN or infinite values: no step taken"
                )
        return loss.detach(), gradients

    def _prepare(self, system: BlockSystem, group: dict[str, Any]) -> BlockSystem:
        """Damp, prune, and know the condition number, from this step or an earlier one."""
        ready = damped(system, self.curvature, group["damping"])
        state = self.state[self.objective.parameters[system.name]]
        since = group["step"] - state.get("estimated_at", -self.curvature.refresh_steps)
        if since >= self.curvature.refresh_steps:
            ready = with_condition(ready, self.curvature)
            if ready.tridiagonal is None:  # no gradient: nothing was looked at
                return ready
            state["estimated_at"] = group["step"]
            small = ready.tridiagonal.clone()
            small.diagonal().sub_(ready.damping)
            state["tridiagonal"], state["operator_s"] = small, ready.operator_s
            return ready
        ready = dataclasses.replace(ready, operator_s=state["operator_s"])
        return condition_known(ready, state["tridiagonal"])

    def _lr_of(self, name: str) -> float:
        parameter = self.objective.parameters[name]
        for group in self.param_groups:
            if any(one is parameter for one in group["params"]):
                return float(group["lr"])
        return 0.0

    def _move(
        self, moves: dict[str, torch.Tensor], loss: torch.Tensor, *, predicted: float
    ) -> None:
        """Apply the moves; with a damping that adapts, only as far as the loss falls."""
        parameters = self.objective.parameters
        adapts = self.curvature.adapts
        before = {name: parameters[name].clone() for name in moves} if adapts else {}
        for name, move in moves.items():
            parameters[name].add_(move)
        if not adapts:
            return
        batch = self.objective.batch
        assert batch is not None  # `_evaluate` refused
        length, change = 1.0, math.inf
        for _ in range(MOST_HALVINGS):
            after = float(self.objective.loss(self.objective.model(batch[0]), batch[1]))
            change = after - float(loss)
            if math.isfinite(after) and change <= 0:
                break
            length /= 2
            for name, move in moves.items():
                parameters[name].copy_(torch.add(before[name], move, alpha=length))
        else:
            for name, value in before.items():
                parameters[name].copy_(value)
        ratio = change / predicted if predicted < 0 else 0.0
        bad = MORE if length == 1 else MUCH_MORE
        factor = LESS if ratio > GOOD and length == 1 else bad if ratio < BAD else 1.0
        group = self.param_groups[0]
        least = self.curvature.damping
        group["damping"] = min(MOST_DAMPING, max(least, group["damping"] * factor))
