"""Relates the counted work of a step to its parameters and tokens, as papers print it.

In: a Measurement and its MFU. Out: a `ModelWork`, or None where the work or the parameters are not
known. A product has its forward (2 FLOP a weight and token), the gradient of its input (2) and of
its weight (2); frozen ones lack the last, and the second too where nothing before is trained.
"""

from __future__ import annotations

from steptime.diagnose.values.utilization_values import Utilization
from steptime.measure.values.measurement import Measurement
from steptime.plan.values import ModelWork


def parameter_flops_per_token(
    params: float, *, trained: float | None = None, reached: float | None = None
) -> float:
    """Return the work of one token by parameters alone: 6 N, or 4 N where few are trained [FLOP].

    It leaves out attention and takes every parameter for a weight of a product, as 6 N does.

    Args:
        params: number of all parameters, including adapters.
        trained: number of those that are trained; None means all.
        reached: number of those whose input needs a gradient, because something before them is
            trained; None means all.

    Raises:
        ValueError: a part is larger than the whole.
    """
    trained = params if trained is None else trained
    reached = params if reached is None else reached
    if not (0 <= trained <= params and 0 <= reached <= params):
        raise ValueError(
            "`0 <= trained <= params` and `0 <= reached <= params` must hold, got "
            f"{trained=}, {reached=}, {params=}"
        )
    return 2 * params + 2 * reached + 2 * trained


def relate_work(m: Measurement, mfu: Utilization) -> ModelWork | None:
    """Return the work by parameter and token; None without a count, or without all parameters.

    Args:
        m: the measurement.
        mfu: the model FLOP utilization of the same run.
    """
    count, memory = m.count, m.memory
    if count is None or memory is None or not memory.num_parameters:
        return None
    if memory.part("weights").is_sharded:
        return None  # a rank counts the parameters that it holds, and works with all of them
    params, trained = memory.num_parameters, memory.num_trainable
    by_parameters = parameter_flops_per_token(params, trained=trained) / params
    tokens = _tokens(m)
    if tokens is None or (count.basis is not None and count.basis.how == "range"):
        return ModelWork(
            num_parameters=params,
            num_trained=trained,
            by_parameters=by_parameters,
            tokens_per_step=tokens,
        )
    per_token = count.rank_ratio / (params * tokens)
    model = count.model_flops * per_token
    return ModelWork(
        num_parameters=params,
        num_trained=trained,
        by_parameters=by_parameters,
        tokens_per_step=tokens,
        flops_per_parameter=model,
        executed_per_parameter=count.total * per_token if count.is_executed else None,
        is_at_least=count.is_complete is False,
        six_n_fraction=None if mfu.fraction is None or not model else mfu.fraction * 6 / model,
    )


def _tokens(m: Measurement) -> float | None:
    """Return the tokens of a step of one rank, as the mean of the ranks."""
    found = [rank.tokens_per_step for rank in m.ranks]
    known = [tokens for tokens in found if tokens]
    return sum(known) / len(known) if known and len(known) == len(found) else None
