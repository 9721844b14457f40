"""What the memory of a run adds up to and what would free some; its work by parameter and token."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWork:
    """The work of a step by parameter and token, as papers print it, on one rank.

    Attributes:
        num_parameters: elements of all parameters, including frozen ones.
        num_trained: how many of these are trained.
        by_parameters: FLOP per parameter and token by parameters alone, without attention: 6 where
            all are trained, 4 and a little where few are (LoRA).
        tokens_per_step: tokens of a step, including padding; null where inputs are no tokens.
        flops_per_parameter: counted forward and backward work per parameter and token [FLOP].
        executed_per_parameter: the same with what checkpointing runs again [FLOP].
        is_at_least: the count is not proven to be whole, so these two are lower bounds.
        six_n_fraction: MFU by the convention of 6 FLOP per parameter and token; null without a
            peak.
    """

    num_parameters: int
    num_trained: int
    by_parameters: float
    tokens_per_step: float | None = None
    flops_per_parameter: float | None = None
    executed_per_parameter: float | None = None
    is_at_least: bool = False
    six_n_fraction: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakRange:
    """The most memory that a step holds at once: an estimate, and what it lies between.

    Attributes:
        low: bytes that the step holds at least [bytes].
        estimate: the likeliest peak [bytes].
        high: bytes that the step holds at most, as far as all of it is known [bytes].
    """

    low: int
    estimate: int
    high: int


def peak_range(
    sizes: Mapping[str, int], by_category: Mapping[str, int], unknown: Collection[str]
) -> PeakRange:
    """Return the peak that facts of a step say.

    Where a size was made up, calls may keep and take half of theirs, or double.
    """
    more = 0
    if any(one.startswith("made_up_size") for one in unknown):
        more = sum(by_category.get(name, 0) for name in ("activations", "logits", "temporaries"))
    low, high = sizes["low"] - more // 2, sizes["high"] + more
    return PeakRange(low=low, estimate=sizes["estimate"], high=high)


UNSURE = 0.1
"""Of an estimate: what is known has a range of 2 %; wider ones come of workspaces' formulas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryForecast:
    """The peak of a training step of one rank, known before the step has run.

    Attributes:
        peak: the peak; None where there is none, and `unknown` says why.
        by_category: bytes at the instant of the estimated peak by the parts of the memory anatomy:
            `weights`, `buffers`, `gradients`, `optimizer`, `activations`, `logits`, `inputs`,
            `temporaries`, `communication`, `others`. They add up to the estimate.
        unknown: what the forecast does not know; each is a machine word, or one with a colon and a
            detail, such as `no_fake_kernel: mylib::scan`.
        how: how it is known: `fake` (no operator ran), `measured` (each different operator with a
            workspace ran once, alone) or `none`.
        phase: the phase of the step in which the peak lies; None without a peak.
        operator: the operator at the peak; None without a peak.
    """

    peak: PeakRange | None
    by_category: Mapping[str, int]
    unknown: tuple[str, ...] = ()
    how: str = "fake"
    phase: str | None = None
    operator: str | None = None

    @property
    def is_unsure(self) -> bool:
        """Whether running its operators would say more: formulas leave a wide range, or nothing."""
        if self.peak is None:
            return any(one.startswith("no_fake_kernel") for one in self.unknown)
        is_wide = self.peak.high - self.peak.low > UNSURE * self.peak.estimate
        return is_wide and self.how == "fake"
