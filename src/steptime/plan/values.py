"""What the memory of a run adds up to, and what would free some of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """Something that would free memory.

    Attributes:
        name: what would be done, a machine word.
        frees_bytes: an estimate; None if no measurement says how much.
        is_enough: whether it frees enough by itself; None if that is not known.
    """

    name: str
    frees_bytes: int | None = None
    is_enough: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeFit:
    """What the parameters of a model would take under one way to train.

    Attributes:
        name: precision and optimizer.
        bytes_per_parameter: bytes of weights, gradients and optimizer states.
        bytes: the same for this model; only trained parameters have gradients and states.
    """

    name: str
    bytes_per_parameter: float
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFit:
    """What the memory of a run adds up to, and what would free some of it.

    Attributes:
        states_bytes: bytes of weights, buffers, gradients and optimizer states.
        bytes_per_parameter: weights, gradients and optimizer states over the number of parameters.
        would_take: other ways to train.
        remedies: what would free memory, the cheapest first.
    """

    states_bytes: int
    bytes_per_parameter: float | None
    would_take: tuple[ModeFit, ...]
    remedies: tuple[Remedy, ...]
