"""The values of a training's numerical health: losses, and numbers that are not finite."""

from __future__ import annotations

from dataclasses import dataclass

from steptime.measure.values.model.layer_health import LayerHealth
from steptime.measure.values.model.training_health import EvaluationCurve, KeptGraphs, WeightUse


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFinite:
    """Numbers of the training that became infinite or NaN.

    Attributes:
        value: what was seen to be bad first: `loss`, `gradient_norm`, `weights` (the loss of the
            next update showed it) or `skipped_updates` (the gradient scaler skips all of them).
        what: `nan` or `infinity`.
        rank: the rank that had it first.
        first_update: the first bad update, counted from 1; where not every update was seen, the
            first that was seen.
        last_finite_update: the last update before it that was seen to be good; None if there is
            none.
        num_wasted: updates from a bad one until the numbers were finite again, over the whole run.
        num_updates: updates of that rank.
        is_going_on: whether the last number that was seen was bad.
        is_skipped: whether the gradient scaler skipped them, so that the weights are as they were.
        file: the file with the line that went backward from the loss, or clipped the gradients.
        line: that line.
        weights: the names of the first eight bad weights, where others were still sound: their
            gradients were bad in the update that broke them.
        masked: the module nearest to a softmax over masked scores, where the model has one and an
            update with a finite loss broke the weights.
    """

    value: str
    what: str
    rank: int
    first_update: int
    last_finite_update: int | None
    num_wasted: int
    num_updates: int
    is_going_on: bool
    is_skipped: bool = False
    file: str | None = None
    line: int | None = None
    weights: tuple[str, ...] = ()
    masked: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRise:
    """The loss rose at once, far beyond what it scattered before.

    Attributes:
        first_update: the first update that was too high, counted from 1.
        before: the level before, the median of 32 updates.
        peak: the largest loss of the rise.
        sigmas: the rise over the robust deviation of the updates before.
        over_largest: the rise over the largest deviation among the 512 updates before.
        num_values: how many known losses it lasted, until half of the rise was gone.
        is_over: whether half of it was gone within 64 known losses.
    """

    first_update: int
    before: float
    peak: float
    sigmas: float
    over_largest: float
    num_values: int
    is_over: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LossCurve:
    """The losses that one optimizer stepped on.

    Attributes:
        optimizer: its number, in the order of first steps.
        num_values: how many losses are known and finite.
        first: median of the first sixteenth (of 8 losses at least).
        last: median of the last sixteenth.
        lowest: the lowest median of any 32 losses in a row; None if there are fewer.
        rises: sudden rises, in order.
        repeats_since: the update from which on the losses repeat to six digits; None if they do
            not.
        repeats_every: after how many known losses they repeat; 1 where the loss is constant.
        growth: level at the end of the last quarter over that at its beginning, if it rose in
            every part of it; None otherwise.
        end: the last known loss.
    """

    optimizer: int
    num_values: int
    first: float
    last: float
    lowest: float | None = None
    rises: tuple[LossRise, ...] = ()
    repeats_since: int | None = None
    repeats_every: int | None = None
    growth: float | None = None
    end: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What the losses and gradients of a run say about its arithmetic.

    Attributes:
        num_seen: updates of which a number is known, in the busiest rank.
        non_finite: the numbers that became infinite or NaN; None where none was seen.
        curves: the losses of the busiest rank by optimizer, with most values first.
        weights: which weights learned nothing; None where they were seen once only.
        kept_graphs: whether the graphs of early updates are still alive; None where that was not
            seen.
        evaluations: the losses of evaluations; None where fewer than five were seen.
        layers: what a probe of the layers saw; None without `--health`.
    """

    num_seen: int
    non_finite: NonFinite | None = None
    curves: tuple[LossCurve, ...] = ()
    weights: WeightUse | None = None
    kept_graphs: KeptGraphs | None = None
    evaluations: EvaluationCurve | None = None
    layers: LayerHealth | None = None
