"""What the memory of a run comes to, and what would free some."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """Something that would free memory.

    Attributes:
        name: what would be done, a machine word.
        frees_bytes: an estimate; None where nothing measured says how much.
        is_enough: it frees enough by itself; None where that is not known.
    """

    name: str
    frees_bytes: int | None = None
    is_enough: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeFit:
    """What the parameters of a model would take under one way to train.

    Attributes:
        name: precision and optimizer.
        bytes_per_parameter: weights, gradients and optimizer states.
        bytes: the same for this model; only trained parameters have gradients and states.
    """

    name: str
    bytes_per_parameter: float
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFit:
    """What the memory of a run comes to, and what would free some.

    Attributes:
        states_bytes: weights, buffers, gradients and optimizer states.
        bytes_per_parameter: weights, gradients and optimizer states over the number of parameters.
        would_take: other ways to train.
        remedies: what would free memory, the cheapest first.
    """

    states_bytes: int
    bytes_per_parameter: float | None
    would_take: tuple[ModeFit, ...]
    remedies: tuple[Remedy, ...]
