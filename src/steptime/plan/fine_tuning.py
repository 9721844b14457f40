"""Computes the FLOP of training where not everything is trained, or not every position is a token.

In: a transformer's sizes, and which weights are trained; lengths of documents. Out: FLOP per token,
by the convention that is named. A product has its forward (2 FLOP a weight and token), the gradient
of its input (2) and of its weight (2). A frozen weight lacks the last, and the second too where
nothing before it is trained. `conventions.py` has full training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from steptime.plan.conventions import (
    Recompute,
    Transformer,
    hardware_flops_per_token,
    model_flops_per_token,
)


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


def tuned_flops_per_token(
    shape: Transformer,
    convention: str,
    *,
    adapters: float | None = None,
    frozen_blocks: int = 0,
    recompute: Recompute = Recompute.NONE,
) -> float:
    """Return the work of one token where weights are frozen, by a published convention [FLOP].

    Args:
        shape: the sizes of the model, without adapters.
        convention: one of `conventions.CONVENTIONS`, which counts the model that is wholly trained.
        adapters: number of the adapters' weights, as in LoRA, while all others are frozen; None
            means that the blocks that are not frozen, and the head, are trained.
        frozen_blocks: number of blocks, the first ones, that the backward does not reach.
        recompute: what checkpointing runs again; without it, this is the model's work.

    Raises:
        ValueError: no formula has that name, or there are not so many blocks.
    """
    if not 0 <= frozen_blocks <= shape.layers:
        raise ValueError(
            f"`0 <= frozen_blocks <= layers` must hold, got {frozen_blocks=}, {shape.layers=}"
        )
    whole = model_flops_per_token(shape, convention)
    weights = model_flops_per_token(replace(shape, seq=0), convention) / 6
    attention = (whole - 6 * weights) / shape.layers
    unreached = frozen_blocks * (4 * shape.block_params + 2 / 3 * attention)
    again = hardware_flops_per_token(shape, convention, recompute=recompute) - whole
    if adapters is None:
        return whole + again - unreached
    reached = weights - frozen_blocks * shape.block_params
    low = 8 if recompute is Recompute.FULL else 6
    return whole + again - unreached - 2 * reached + low * adapters


def packed_seq(lengths: Sequence[int]) -> float:
    """Return the length of sequence that has the attention of packed documents.

    Attention within documents meets s² positions in a document of s tokens, so a token meets the
    squares over the sum. As `Transformer.seq` it gives the work of one real token.

    Raises:
        ValueError: there is no token.
    """
    if not sum(lengths) > 0 or min(lengths) < 0:
        raise ValueError(f"`lengths` must hold tokens, got {lengths!r}")
    return sum(length * length for length in lengths) / sum(lengths)
