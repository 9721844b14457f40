"""Relates the counted work of a step to its parameters and tokens, as papers print it.

In: a Measurement and its MFU. Out: a `ModelWork`, or None where the work or the parameters are not
known. `fine_tuning.py` has the closed forms.
"""

from __future__ import annotations

from steptime.diagnose.values.utilization_values import Utilization
from steptime.measure.values.measurement import Measurement
from steptime.plan.fine_tuning import parameter_flops_per_token
from steptime.plan.values import ModelWork


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
