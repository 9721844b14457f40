"""Observes between which numbers each value of a network lies.

In: torch's exported program, and inputs to calibrate with. Out: a `Range` of each value. Beside the
least and the largest number stand two ways that give up a few extremes for finer steps.

Source: R. Krishnamoorthi, arXiv 1806.08342, sections 3.1 and 3.3; B. Jacob et al., CVPR 2018.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from steptime.errors import DataError, UsageError
from steptime.quantize.attention_readers import scores_of

_NUM_BINS = 2048
_CUT = 0.9999
_STEPS = 100
"""Cuts that are tried for the least squared error."""


class Observer(str, Enum):
    """How a range is taken from what was seen."""

    MIN_MAX = "min_max"
    PERCENTILE = "percentile"
    MSE = "mse"


@dataclass(slots=True)
class _Spread:
    """A histogram that grows, by whole factors of two, as far as values lie."""

    low: float = np.inf
    high: float = -np.inf
    reach: float = 0.0
    counts: Any = field(default_factory=lambda: np.zeros(_NUM_BINS))

    def add(self, values: Any) -> None:
        low, high = float(values.min()), float(values.max())
        self.low, self.high = min(self.low, low), max(self.high, high)
        most = max(abs(low), abs(high))
        if not self.reach:
            self.reach = most or 1.0
        while most > self.reach:
            folded = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts = np.zeros(_NUM_BINS)
            begin = _NUM_BINS // 4
            self.counts[begin : begin + len(folded)] = folded
            self.reach *= 2
        self.counts += np.histogram(values, bins=_NUM_BINS, range=(-self.reach, self.reach))[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Between which numbers a value lies; 0 is always within.

    Attributes:
        low, high: which bytes reach.
        reach: the largest size that was seen, which 16 bits reach; 0 where it is not known.
    """

    low: float
    high: float
    reach: float = 0.0


def observe(
    program: Any,
    batches: Iterable[Any],
    *,
    observer: Observer = Observer.MIN_MAX,
    divisors: Mapping[str, Any] | None = None,
) -> dict[str, Range]:
    """Return the range of each value, by the name of its node.

    Args:
        program: what `torch.export` made.
        batches: inputs (batch, ...).
        observer: how a range is taken.
        divisors: by what a value is divided (as the value, or a shape that spreads to it).

    Raises:
        UsageError: there is no input.
        DataError: a value is not finite, or the same for each input.
    """
    seen, divisors = dict[str, _Spread](), divisors or {}

    def see(name: str, values: Any) -> None:
        seen.setdefault(name, _Spread()).add(values / divisors.get(name, 1.0))

    watch(program, batches, see)
    return {name: _range_of(one, observer) for name, one in seen.items()}


def watch(program: Any, batches: Iterable[Any], see: Callable[[str, Any], None]) -> None:
    """Show what each node makes of inputs: its name, and an array (batch, ...).

    Args:
        program: what `torch.export` made.
        batches: inputs (batch, ...).
        see: called with each value.

    Raises:
        UsageError: there is no input.
        DataError: a value is not finite.
    """
    import torch

    class Watch(torch.fx.Interpreter):  # type: ignore[misc]
        def run_node(self, n: Any) -> Any:
            found = super().run_node(n)
            if isinstance(found, torch.Tensor) and found.is_floating_point() and n.name in given:
                values = found.detach().cpu().double().numpy()
                if not np.isfinite(values).all():
                    raise DataError(
                        f"NonFiniteActivation: `{n.name}` has values that are no finite numbers.",
                        hint="Calibrate with inputs as the network was trained on.",
                    )
                see(n.name, values)
                if "scaled_dot_product_attention" in str(n.target):
                    see(scores_of(n.name), self._scores(n).double().numpy())
            return found

        def _scores(self, n: Any) -> Any:
            """Return the products of queries and keys that count."""
            query, key = (self.env[one] for one in n.args[:2])
            scores = query @ key.transpose(-1, -2)
            is_causal = len(n.args) > 5 and n.args[5]
            return scores.tril() if is_causal else scores

    state, names = _state(program)
    given = {node.name for node in program.graph.nodes} - set(names)
    interpreter = Watch(program.graph_module)
    num = 0
    with torch.no_grad():
        for batch in batches:
            num += len(batch)
            interpreter.run(*state, batch)
    if not num:
        raise UsageError("there are no inputs to calibrate with.")


def _state(program: Any) -> tuple[list[Any], list[str]]:
    """Return what the graph takes before its input, and how these are called."""
    values, names = [], []
    for spec in program.graph_signature.input_specs:
        if spec.kind.name == "USER_INPUT":
            continue
        target = spec.target
        values.append(
            program.state_dict[target]
            if target in program.state_dict
            else program.constants[target]
        )
        names.append(spec.arg.name)
    return values, names


def _range_of(seen: _Spread, observer: Observer) -> Range:
    low, high = seen.low, seen.high
    if observer is Observer.PERCENTILE:
        low, high = _percentile(seen)
    elif observer is Observer.MSE:
        low, high = _least_error(seen)
    reach = max(-seen.low, seen.high)
    return Range(low=min(low, 0.0), high=max(high, 0.0), reach=reach)


def _middles(seen: _Spread) -> Any:
    edges = np.linspace(-seen.reach, seen.reach, _NUM_BINS + 1)
    return (edges[:-1] + edges[1:]) / 2


def _percentile(seen: _Spread) -> tuple[float, float]:
    share = np.cumsum(seen.counts) / seen.counts.sum()
    edges = np.linspace(-seen.reach, seen.reach, _NUM_BINS + 1)
    low = edges[int(np.searchsorted(share, 1 - _CUT))]
    high = edges[1:][min(int(np.searchsorted(share, _CUT)), _NUM_BINS - 1)]
    return max(float(low), seen.low), min(float(high), seen.high)


def _least_error(seen: _Spread) -> tuple[float, float]:
    """Return the ends, both drawn in by one factor, at which values err least in squares."""
    middles, counts = _middles(seen), seen.counts
    best, found = np.inf, (seen.low, seen.high)
    for step in range(_STEPS // 2, _STEPS + 1):
        low, high = seen.low * step / _STEPS, seen.high * step / _STEPS
        width = max(high, 0.0) - min(low, 0.0)
        if not width:
            break
        scale = width / 255
        clipped = np.clip(middles, min(low, 0.0), max(high, 0.0))
        error = float((counts * (middles - np.rint(clipped / scale) * scale) ** 2).sum())
        if error < best:
            best, found = error, (low, high)
    return found


def refuse_constant(ranges: Mapping[str, Range], wanted: Iterable[str]) -> None:
    """Refuse a network of which a value is 0 for each input.

    Raises:
        DataError: that is so, and which.
    """
    for name in wanted:
        if name in ranges and ranges[name].high == ranges[name].low:
            raise DataError(
                f"ConstantActivation: `{name}` is 0 for each input that it was calibrated with.",
                hint="Calibrate with inputs as the network was trained on.",
            )
