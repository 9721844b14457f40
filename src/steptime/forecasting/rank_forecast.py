"""Says what a training step holds at its peak on one rank of several, in a process alone.

In: a model, a rank's batch, a function that makes an optimizer, and a `RankPlan`. Out: a
`MemoryForecast`. Three steps are made on fakes, and the third one is followed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from steptime.counting.loss_outputs import Loss
from steptime.errors import UsageError
from steptime.forecasting.config_model import model_of_config
from steptime.forecasting.fake_loop import FakeLoop, copy_as_fakes, with_fakes
from steptime.forecasting.fake_ranks import RankPlan, joined
from steptime.forecasting.forecast_model import follow, to_forecast
from steptime.guest.forecast.fake_group import PATIENT_STEPS, NoFakeRanksError
from steptime.guest.forecast.fake_mode import Fakes, NoFakesError
from steptime.guest.forecast.fake_operators import FakeOperators
from steptime.guest.forecast.fake_step import make_mode
from steptime.guest.forecast.measured_operators import MeasuredOperators
from steptime.plan.values import MemoryForecast

UNUSED = "Expected to have finished reduction"
"""How DDP's message begins where a parameter had no gradient."""


def rank_memory(
    model: Any,
    batch: Any,
    optimizer: Callable[[Any], Any],
    ranks: RankPlan,
    *,
    loss: Loss = None,
    autocast: Any = None,
    num_micro_batches: int = 1,
    measure: bool | None = None,
) -> MemoryForecast:
    """The most memory that a training step of `model` holds at once on one rank of several.

    Torch's own DDP and FSDP2 run on tensors without memory, in a process group that exchanges
    nothing; no other rank is needed, and nothing of the group stays.

        ranks = steptime.plan.RankPlan(world_size=64, sharding="fsdp2")
        steptime.plan.rank_memory(model, (tokens,), torch.optim.AdamW, ranks, loss=...)

    Args:
        model: as for `memory`; not wrapped yet.
        batch: what one rank calls it with.
        optimizer: a function of parameters that makes one.
        ranks: how many ranks there are, which one is meant, and what each holds.
        loss: as for `memory`.
        autocast: as for `memory`.
        num_micro_batches: calls with this batch between two updates.
        measure: as for `memory`.

    Returns:
        The forecast; its `peak` is None where an operator has no fake kernel, or this torch no
        fake tensors or process groups, and `unknown` says which.

    Raises:
        ImportError: torch is not installed.
        UsageError: as for `memory`; or the model cannot be spread so, or this process is in a
            process group already.
    """
    import torch

    if isinstance(optimizer, torch.optim.Optimizer):
        raise UsageError(
            "for several ranks give `optimizer` as a function of parameters, since each rank makes "
            "its own from what it holds."
        )
    again = partial(
        rank_memory, model, batch, optimizer, ranks, loss=loss, autocast=autocast,
        num_micro_batches=num_micro_batches,
    )  # fmt: skip
    if isinstance(model, (str, Path)):
        model = model_of_config(torch, Path(model))
    try:
        fakes = Fakes(torch)
        operators = FakeOperators(fakes, MeasuredOperators(fakes) if measure else None)
        copied, _ = copy_as_fakes(torch, fakes, model, lambda parameters: None)
        with joined(torch, ranks, operators):
            wrapped, stepper = spread(torch, ranks, operators, copied, optimizer)
            loop = FakeLoop(
                torch=torch,
                model=wrapped,
                optimizer=stepper,
                batch=with_fakes(torch, fakes, batch),
                loss=loss,
                autocast=autocast,
                num_micro_batches=num_micro_batches,
                set_to_none=True,
            )
            facts = follow_spread(torch, loop, operators)
    except NoFakesError as error:
        return to_forecast(None, [f"no_fake_tensors: {error}"], how="none")
    except NoFakeRanksError as error:
        return to_forecast(None, [f"no_fake_ranks: {error}"], how="none")
    found = to_forecast(facts, operators.unknown, how="measured" if measure else "fake")
    return again(measure=True) if measure is None and found.is_unsure else found


def spread(
    torch: Any,
    ranks: RankPlan,
    operators: FakeOperators,
    model: Any,
    optimizer: Callable[[Any], Any],
) -> tuple[Any, Any]:
    """Return the model and the optimizer of one rank."""
    with make_mode(torch, operators, lambda: None):
        wrapped = ranks.wrap(torch, model)
        return wrapped, ranks.make_optimizer(wrapped, optimizer)


def follow_spread(torch: Any, loop: FakeLoop, operators: FakeOperators) -> dict[str, Any] | None:
    """Make steps of one rank's loop; return what the last one held."""
    try:
        return follow(torch, loop, operators, operators.measured, num_before=PATIENT_STEPS)
    except RuntimeError as error:
        if UNUSED not in str(error):
            raise
        raise UsageError(
            "DDP would stop in the second step, since the loss does not use all parameters; "
            "give `sharding` as a function that wraps the model with "
            "`find_unused_parameters=True`."
        ) from error
