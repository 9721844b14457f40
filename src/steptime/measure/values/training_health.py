"""The values of what makes a training learn less than it could, though its numbers are finite."""

from __future__ import annotations

from dataclasses import dataclass


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
class WeightUse:
    """Which weights learned nothing, in each of at least two samples of the first thread.

    Attributes:
        update: updates before the last sample.
        num: weights that should train: those of the optimizers, and of models that were called
            with gradients.
        elements: how many numbers they hold.
        without_gradient: an optimizer holds them, but they had no gradient when it stepped.
        zero_gradient: their gradient was exactly zero when their optimizer stepped; on the CPU.
        unused_gradient: they got a gradient, but no optimizer holds them, and nobody wrote to
            them; on the CPU.
    """

    update: int
    num: int
    elements: int
    without_gradient: WeightGroup
    zero_gradient: WeightGroup
    unused_gradient: WeightGroup


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
