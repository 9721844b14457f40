"""Says how a learning rate follows a global batch that changes, by optimizer, with its source.

In: an optimizer's name, both batches. Out: a `LearningRateAdvice`; no rule where none is published
for that optimizer. Another global batch is another training: no rule makes it the same one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from steptime.plan.values.batch_values import LearningRateAdvice


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRule:
    """A published rule: `linear` or `square_root`, who says so, how far it holds."""

    rule: str
    source: str
    limit: str
    scales_moments: bool = False


_GOYAL = ScalingRule(
    rule="linear",
    source="Goyal et al. 2017 (arXiv:1706.02677), section 2.1",
    limit="with a warm-up of some epochs; it held up to 8,192 images on ImageNet and not beyond",
)
_LARS = ScalingRule(
    rule="linear",
    source="You et al. 2017 (arXiv:1708.03888)",
    limit="with a warm-up; it held up to 32,768 images on ImageNet",
)
_MALLADI = ScalingRule(
    rule="square_root",
    source="Malladi et al. 2022 (arXiv:2205.10287), definition 5.2; DeepSpeed's autotuner too",
    limit="while 1 - beta stays well below 1, and the gradient's noise is larger than its mean",
    scales_moments=True,
)
_LAMB = ScalingRule(
    rule="square_root",
    source="You et al. 2019 (arXiv:1904.00962), section 4",
    limit="with a warm-up that grows with the batch; it held up to 32,768 sequences on BERT",
)

RULES = {
    "sgd": _GOYAL,
    "lars": _LARS,
    "adam": _MALLADI,
    "adamw": _MALLADI,
    "rmsprop": _MALLADI,
    "lamb": _LAMB,
}
"""By the name of the optimizer. Adafactor, Lion, Muon and others have no published rule."""


def advise_learning_rate(
    optimizer: str, *, old_batch: int, new_batch: int, learning_rate: float | None = None
) -> LearningRateAdvice:
    """Return how the learning rate follows from one global batch to another.

    Args:
        optimizer: its name, in any case, as torch writes it.
        old_batch: global batch that the learning rate was chosen for.
        new_batch: the new one.
        learning_rate: the old learning rate.

    Raises:
        ValueError: a batch or the learning rate is not positive.
    """
    if old_batch < 1 or new_batch < 1 or (learning_rate is not None and learning_rate <= 0):
        raise ValueError(
            "`old_batch >= 1`, `new_batch >= 1` and `learning_rate > 0` must hold, got "
            f"{old_batch=}, {new_batch=}, {learning_rate=}"
        )
    ratio = new_batch / old_batch
    known = RULES.get(optimizer.lower())
    if known is None:
        return LearningRateAdvice(optimizer=optimizer, batch_ratio=ratio, rule=None, factor=None)
    factor = ratio if known.rule == "linear" else math.sqrt(ratio)
    return LearningRateAdvice(
        optimizer=optimizer,
        batch_ratio=ratio,
        rule=known.rule,
        factor=factor,
        learning_rate=None if learning_rate is None else learning_rate * factor,
        betas_factor=ratio if known.scales_moments else None,
        epsilon_factor=1 / math.sqrt(ratio) if known.scales_moments else None,
        source=known.source,
        limit=known.limit,
    )
