"""Time that was not measured: what a quantum linear solver would take under stated assumptions.

In: condition number, normalization, precision, gate time. Out: a `ModeledTime`, which carries its
assumptions and refuses every sum with seconds. Nothing here runs a solver.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

# The largest precision for which the bound is stated: above it the denominator is no probability.
LARGEST_PRECISION = 0.24


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantumAssumptions:
    """What a quantum computer is taken to do; none of it exists today.

    Attributes:
        gate_time_s: time of one gate, error correction included [s].
        precision: largest distance of the state from the solution, in (0, 0.24].
        readout: `none` leaves the solution a quantum state, which no optimizer can add to its
            parameters; `amplitudes` repeats everything N / precision times to read all N of them.
    """

    gate_time_s: float
    precision: float = 0.01
    readout: Literal["none", "amplitudes"] = "amplitudes"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.gate_time_s) and self.gate_time_s > 0):
            raise ValueError(f"`gate_time_s > 0` must hold, got {self.gate_time_s=}")
        if not 0 < self.precision <= LARGEST_PRECISION:
            raise ValueError(f"`0 < precision <= 0.24` must hold, got {self.precision=}")
        if self.readout not in {"none", "amplitudes"}:
            raise ValueError(f"`readout` is none or amplitudes, got {self.readout!r}")

    def __str__(self) -> str:
        return (
            f"gate time {self.gate_time_s:.3g} s, precision {self.precision:g}, "
            f"read-out: {self.readout}"
        )


@dataclass(frozen=True, slots=True, order=False, eq=True)
class ModeledTime:
    """A time from a model, in a type of its own: it never mixes with measured seconds.

    Times of equal assumptions add, are ordered and divide to a ratio; a number scales one.
    `in_model_s` is the model's figure [s], for tables that print the assumptions beside it.
    """

    in_model_s: float
    assumptions: QuantumAssumptions

    def _refuse(self, other: object) -> NoReturn:
        raise TypeError(
            f"a modeled time ({self.assumptions}) cannot be combined with {type(other).__name__} "
            f"{other!r}: it was not measured, so compare it by `break_even_gate_time_s` instead"
        )

    def _same(self, other: object) -> ModeledTime:
        if not isinstance(other, ModeledTime):
            self._refuse(other)
        if other.assumptions != self.assumptions:
            raise TypeError(
                f"modeled times of different assumptions cannot be combined: "
                f"{self.assumptions} and {other.assumptions}"
            )
        return other

    def __add__(self, other: object) -> ModeledTime:
        return dataclasses.replace(self, in_model_s=self.in_model_s + self._same(other).in_model_s)

    def __radd__(self, other: object) -> NoReturn:
        self._refuse(other)

    def __sub__(self, other: object) -> NoReturn:
        self._refuse(other)

    def __rsub__(self, other: object) -> NoReturn:
        self._refuse(other)

    def __float__(self) -> NoReturn:
        self._refuse(0.0)

    def __lt__(self, other: object) -> bool:
        return self.in_model_s < self._same(other).in_model_s

    def __le__(self, other: object) -> bool:
        return self.in_model_s <= self._same(other).in_model_s

    def __gt__(self, other: object) -> bool:
        return self.in_model_s > self._same(other).in_model_s

    def __ge__(self, other: object) -> bool:
        return self.in_model_s >= self._same(other).in_model_s

    def __mul__(self, factor: float) -> ModeledTime:
        if isinstance(factor, ModeledTime):
            self._refuse(factor)
        return dataclasses.replace(self, in_model_s=self.in_model_s * factor)

    def __truediv__(self, other: object) -> float:
        return self.in_model_s / self._same(other).in_model_s

    def __str__(self) -> str:
        return f"{self.in_model_s:.3g} s modeled, not measured ({self.assumptions})"

    @staticmethod
    def total(times: Iterable[ModeledTime]) -> ModeledTime:
        """Return the sum of modeled times; `sum` would begin with the number 0.

        Raises:
            ValueError: there are none.
        """
        rest = iter(times)
        first = next(rest, None)
        if first is None:
            raise ValueError("no modeled times to add")
        for one in rest:
            first = first + one
        return first

    @staticmethod
    def of_classical(predicted_s: float, assumptions: QuantumAssumptions) -> ModeledTime:
        """Return a classical solver's predicted time [s] as part of a hypothetical total.

        Only a prediction may come in; a measured time stays a float.
        """
        return ModeledTime(predicted_s, assumptions)


def query_bound(alpha: float, kappa: float, precision: float) -> float:
    """Upper bound on the expected calls of a block encoding that solve a linear system.

    Args:
        alpha: normalization of the block encoding over the spectral norm, at least 1.
        kappa: condition number, at least 1.
        precision: largest distance of the solution's state, in (0, 0.24].

    Raises:
        ValueError: an argument is out of its range.

    Source: Jennings et al., arXiv 2305.11352 (the first version), the randomized adiabatic method
    with filtering. Released code for Q-Newton multiplies by alpha once more, which we do not.
    """
    if not (alpha >= 1 and kappa >= 1 and 0 < precision <= LARGEST_PRECISION):
        raise ValueError(
            "`alpha >= 1`, `kappa >= 1` and `0 < precision <= 0.24` must hold, "
            f"got {alpha=}, {kappa=}, {precision=}"
        )
    log = math.log(2 * kappa + 3)
    path: float = (133 / 125 + 4 / (25 * kappa ** (1 / 3))) * math.pi * log + 1
    adiabatic: float = 1741 * alpha * math.e / 500 * math.hypot(kappa, 1) * path
    preparing: float = 351 / 50 * log**2 * (math.log(451 * log**2 / precision) + 1)
    filtering = alpha * kappa * math.log(32 / precision)
    return (adiabatic + preparing + filtering) / (0.39 - 0.204 * precision)


def num_queries(alpha: float, kappa: float, precision: float) -> float:
    """Calls of the block encoding by the best use of `query_bound`.

    A solution that is more precise than asked for is also good enough, and the bound is not
    monotone: its denominator falls with the precision faster than the logarithms gain, from about
    0.01 on. So this is the least bound of any precision up to the one asked for.
    """
    low, high = math.log(1e-12), math.log(precision)
    if high <= low:
        return query_bound(alpha, kappa, precision)
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(80):  # one minimum: 0.618**80 of the interval is left
        width = golden * (high - low)
        left, right = high - width, low + width
        if query_bound(alpha, kappa, math.exp(left)) < query_bound(alpha, kappa, math.exp(right)):
            high = right
        else:
            low = left
    best = query_bound(alpha, kappa, min(precision, math.exp(high)))
    return min(best, query_bound(alpha, kappa, precision))


def num_gates(num_unknowns: int, sparsity: int, kappa: float, assumptions: Any) -> float:
    """Gates of one solution: queries, times gates a query, times repetitions to read it.

    A query of a d-sparse matrix is taken as d log2 N gates, and its normalization as d.
    """
    alpha = max(1.0, float(sparsity))
    queries = num_queries(alpha, kappa, assumptions.precision)
    gates = queries * alpha * max(1.0, math.log2(max(2, num_unknowns)))
    if assumptions.readout == "amplitudes":
        gates *= num_unknowns / assumptions.precision
    return gates


def quantum_time(
    num_unknowns: int, sparsity: int, kappa: float, assumptions: QuantumAssumptions
) -> ModeledTime:
    """Return what the quantum solver would take for one system of `num_unknowns`."""
    gates = num_gates(num_unknowns, sparsity, kappa, assumptions)
    return ModeledTime(gates * assumptions.gate_time_s, assumptions)


def break_even_gate_time_s(classical_s: float, gates: Iterable[float] | float) -> float:
    """Return the gate time [s] below which these gates are faster than the classical solver [s]."""
    total = gates if isinstance(gates, (int, float)) else sum(gates)
    return classical_s / total
