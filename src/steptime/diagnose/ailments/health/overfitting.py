"""The ailment of a training that learns its samples by heart: evaluations worsen while it improves.

It is asked of runs that evaluate at least five times, with a loss module or a model's own loss.
"""

from __future__ import annotations

from steptime.core.evidence import Evidence
from steptime.core.interval import Interval
from steptime.diagnose.ailments.ailment import Ailment, Asked, by_facts
from steptime.diagnose.ailments.scale import Threshold
from steptime.diagnose.ailments.signals import count, make_finding
from steptime.diagnose.values.finding import Finding, Severity
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.training_health import EvaluationCurve

MIN_RISE = Threshold(
    name="MIN_RISE",
    value=0.05,
    why="of the lowest level: evaluations that level off wander by less",
)
MIN_ABOVE = Threshold(
    name="MIN_ABOVE",
    value=4,
    why="evaluations in a row at the end above the lowest level: fewer may be chance",
)
LONG_ABOVE = Threshold(
    name="LONG_ABOVE",
    value=0.25,
    why="of all evaluations must lie above it, too: the lowest of many is low by chance, and what "
    "follows it is higher",
)


def find_overfitting(measurement: Measurement) -> Finding | None:
    """No bottleneck: the loss of evaluations rises, while that of the training falls."""
    health = measurement.health
    curve = None if health is None else health.evaluations
    if curve is None or not _is_overfit(curve):
        return None
    return make_finding(
        OVERFITTING,
        severity=Severity.WARNING,
        evidence=(
            count("lowest_update", curve.lowest_update),
            count("lowest_evaluation", curve.lowest),
            count("last_evaluation", curve.last),
            count("rise", curve.rise.estimate),
            count("rise_low", curve.rise.low),
            count("rise_high", curve.rise.high),
            *(() if curve.gap is None else _gap(curve.gap)),
            count("training_then", curve.training_then or 0.0),
            count("training_last", curve.training_last or 0.0),
            count("last_update", curve.last_update),
        ),
    )


def _is_overfit(curve: EvaluationCurve) -> bool:
    then, last = curve.training_then, curve.training_last
    return (
        curve.num_above >= max(MIN_ABOVE.value, LONG_ABOVE.value * curve.num)
        and curve.rise.low > 0
        and curve.rise.estimate >= MIN_RISE.value * abs(curve.lowest)
        and then is not None
        and last is not None
        and last < then
    )


def _gap(found: Interval) -> tuple[Evidence, ...]:
    return (
        count("gap", found.estimate),
        count("gap_low", found.low),
        count("gap_high", found.high),
    )


OVERFITTING = Ailment(
    cause="overfitting",
    what="the loss of evaluations rises while that of the training falls",
    needs="`health.evaluations`",
    rule=find_overfitting,
    asked=Asked.ALWAYS,
    thresholds=(MIN_RISE, MIN_ABOVE, LONG_ABOVE),
    title="overfitting",
    sentence="the loss of evaluations was lowest after update {lowest_update} "
    "({lowest_evaluation}) and has risen by {rise} (95 % interval {rise_low} to {rise_high}) to "
    "{last_evaluation}, while that of the training fell from {training_then} to {training_last}.",
    remedy="Keep the weights of update {lowest_update}, or regularize: weight decay, dropout, "
    "augmentation, more data.",
    when_contended=by_facts("Other programs do not change the losses."),
)
AILMENTS = (OVERFITTING,)
