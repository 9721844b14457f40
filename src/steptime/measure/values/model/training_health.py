"""The values of what makes a training learn less than it could, though its numbers are finite."""

from __future__ import annotations

from dataclasses import dataclass

from steptime.core.interval import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightGroup:
    """Weights that have something in common.

    Attributes:
        num: how many weights.
        elements: how many numbers they hold.
        names: their names in the model, the first eight.
    """

    num: int
    elements: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingUse:
    """The rows of an embedding that had a gradient, where all of them were updated.

    Attributes:
        name: of its weight in the model.
        optimizer: class of the optimizer that updates it.
        moves: whether it changes a row without a gradient, by momentum or decay.
        rows: how many it has, from 10,000 on.
        touched: the most of them that had a gradient, in up to two early updates; of a gradient
            over 20 million elements an estimate, from one row in so many.
        elements: how many numbers it holds.
    """

    name: str
    optimizer: str
    moves: bool
    rows: int
    touched: int
    elements: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightUse:
    """Which weights learned nothing, in each of at least two samples of the first thread.

    Attributes:
        update: updates before the last sample.
        num: weights that should train: those of the optimizers, and of models that were called
            with gradients.
        elements: how many numbers they hold.
        without_gradient: an optimizer holds them, but they had no gradient when it stepped.
        zero_gradient: their gradient was exactly zero when their optimizer stepped; on the CPU.
        unused_gradient: they got a gradient, but no optimizer holds them, and no code wrote to
            them; on the CPU.
        replaced: how many of these have the shape of a weight that an optimizer holds and no model
            has: the optimizer was made before they were.
        unregistered: the same as `unused_gradient`, of weights in a list, tuple or dictionary of a
            module, which torch does not register; None in older records.
        holders: class and attribute of these lists.
        embeddings: large embeddings whose gradients are dense.
    """

    update: int
    num: int
    elements: int
    without_gradient: WeightGroup
    zero_gradient: WeightGroup
    unused_gradient: WeightGroup
    replaced: int = 0
    unregistered: WeightGroup | None = None
    holders: tuple[str, ...] = ()
    embeddings: tuple[EmbeddingUse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptGraphs:
    """Whether the graphs of early updates are still alive.

    Attributes:
        update: updates that had ended when that was checked.
        first_marked: the first update whose graph was marked, from 1.
        last_marked: the last one of four.
        are_kept: whether all of them were alive, at least in part.
    """

    update: int
    first_marked: int
    last_marked: int
    are_kept: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationCurve:
    """The losses of a run's evaluations, where a loss module or the model computed them.

    Attributes:
        num: how many evaluations; fewer than five make no curve.
        first: the loss of the first one.
        lowest: the lowest level before the last three: the median of an evaluation and its
            neighbors.
        lowest_update: the update after which that was.
        last: the level at the end, the median of the last three.
        last_update: the update after which the last one was.
        num_above: evaluations in a row at the end that lie above the lowest level.
        rise: from the lowest level to the last one. The interval is of the scatter from evaluation
            to evaluation, or among batches if that is more; its lower end allows for the lowest
            of many being low by chance.
        training_then: the level of the training's losses before the lowest evaluation; None if
            they are not known.
        training_last: the same before the last one.
        gap: evaluation less training at the end; None where the two are not on one scale.
    """

    num: int
    first: float
    lowest: float
    lowest_update: int
    last: float
    last_update: int
    num_above: int
    rise: Interval
    training_then: float | None = None
    training_last: float | None = None
    gap: Interval | None = None
