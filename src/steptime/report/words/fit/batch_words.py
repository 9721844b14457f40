"""Says what larger batches give, as a fit measured it, and how the learning rate follows."""

from __future__ import annotations

from collections.abc import Iterator

from steptime.core.interval import Interval
from steptime.core.units import format_bytes
from steptime.plan.values.batch_values import LearningRateAdvice
from steptime.report.words.fit.fit_words import describe_reason
from steptime.tune.values.fit_values import BatchTrial, FitStudy

REASONS = {
    "excluded": "the lever `larger_batch` was left out",
    "growth_not_known": "it is not known what grows with the batch",
    "no_room": "the limit has no room for twice the batch",
    "other_device": "that device is not here, and its rates are not those of this machine",
    "too_few_rounds": "there were too few rounds in turns",
}

_REPEATED = (
    "The script makes its batches itself, so the rows of each call of the model were repeated: "
    "what makes batches, and a loss outside of the model, is not in these figures."
)

_SILENT = frozenset({"no_room", "excluded"})
"""What the report says elsewhere, or the user knows."""


def describe_batches(study: FitStudy) -> list[str]:
    """Return sentences: whether the rate rises, by how much, and what to do about it."""
    if not study.larger_batches:
        word = study.batch_reason
        if word is None or word in _SILENT:
            return []
        return [f"whether a larger batch would be faster is not known: {_why_none(study)}"]
    lines = [_finding(study.larger_batches)]
    lines += [describe_trial(one) for one in study.larger_batches]
    if any(one.how == "repeated" for one in study.larger_batches):
        lines.append(_REPEATED)
    best = _best(study.larger_batches)
    if best is not None:
        lines += _advice(best)
    return lines


def _why_none(study: FitStudy) -> str:
    text = (study.batch_facts or {}).get("text")
    word = study.batch_reason or ""
    return str(text) if text is not None else REASONS.get(word, word)


def _finding(trials: tuple[BatchTrial, ...]) -> str:
    if any(one.rises for one in trials):
        return "the batch is too small for this device: the rate still rises with it"
    if all(one.rises is False for one in trials):
        return "the batch is large enough for this device: a larger one gives nothing"
    return "it cannot be told whether the rate rises with the batch"


def describe_trial(one: BatchTrial) -> str:
    """Return what one size of the batch gives."""
    size = f"{one.factor} times the batch"
    if one.rate_gain is None:
        word = one.reason or "too_few_rounds"
        why = REASONS.get(word) or describe_reason(word, one.facts)
        return f"{size}: not measured: {why}"
    text = f"{size}: {format_gain(one.rate_gain)} samples in a second, in turns in one process"
    text += ", by the processor's time" if one.clock == "cpu" else ""
    if one.estimate_bytes is not None:
        text += f"; its peak should be {format_bytes(one.estimate_bytes)}"
    if one.same_global_gain is not None:
        text += (
            f"; with 1/{one.factor} of the accumulation the global batch stays, and a step should "
            f"be {format_gain(one.same_global_gain)} as fast"
        )
    return text


def format_gain(gain: Interval) -> str:
    """Return a gain with its interval."""
    return f"{gain.estimate:.2f}x [{gain.low:.2f}, {gain.high:.2f}] (n {gain.n})"


def _best(trials: tuple[BatchTrial, ...]) -> BatchTrial | None:
    rising = [one for one in trials if one.rises and one.rate_gain is not None]
    return max(rising, key=lambda one: one.rate_gain.low if one.rate_gain else 0.0, default=None)


def _advice(best: BatchTrial) -> list[str]:
    if best.same_global_gain is not None:
        return [
            "With less accumulation it is the same training, except batch statistics and means "
            "over tokens of a micro-batch; the loss is divided by the new number of micro-batches."
        ]
    caution = "It is another training, and its quality was not judged."
    if best.learning_rate is None:
        return [caution]
    told = (one for one in describe_rate(best.learning_rate) if one != CAUTION)
    return [caution, *told]


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
