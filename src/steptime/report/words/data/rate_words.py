"""Says how a learning rate follows a global batch that changes."""

from __future__ import annotations

from collections.abc import Iterator

from steptime.plan.values.batch_values import LearningRateAdvice

CAUTION = "It is another training all the same: judge its quality."


def describe_rate(advice: LearningRateAdvice) -> Iterator[str]:
    """Yield what to do, how betas and epsilon follow, the source, and the caution."""
    ratio = f"The global batch changes by {advice.batch_ratio:.3g}x"
    if advice.factor is None:
        yield f"{ratio}; no rule is published for {advice.optimizer}: search the learning rate."
        return
    rule = "linearly" if advice.rule == "linear" else "by the square root"
    new = "" if advice.learning_rate is None else f", to {advice.learning_rate:.4g}"
    yield f"{ratio}: scale the learning rate {rule}, by {advice.factor:.4g}{new}."
    if advice.betas_factor is not None and advice.epsilon_factor is not None:
        yield (
            f"Scale 1 - beta of both betas by {advice.betas_factor:.4g}, epsilon by "
            f"{advice.epsilon_factor:.4g}."
        )
    yield f"Source: {advice.source}; {advice.limit}."
    yield CAUTION
