"""Reads the lines on weights that learn nothing, and on graphs that are kept."""

from __future__ import annotations

from dataclasses import dataclass

from steptime.core.codec import from_json
from steptime.measure.values.model.training_health import KeptGraphs, WeightGroup, WeightUse
from steptime.record.lines import Line


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weights:
    n: int
    num: int
    elements: int
    none: WeightGroup
    zero: WeightGroup
    unused: WeightGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class _Graphs:
    n: int
    marked: tuple[int, ...]
    is_kept: bool


def read_weights(line: Line) -> WeightUse:
    """Return which weights learned nothing so far."""
    told = from_json(_Weights, line)
    return WeightUse(
        update=told.n,
        num=told.num,
        elements=told.elements,
        without_gradient=told.none,
        zero_gradient=told.zero,
        unused_gradient=told.unused,
    )


def read_graphs(line: Line) -> KeptGraphs:
    """Return whether marked graphs are alive; the line counts updates that had ended.

    Raises:
        ValueError: no graph was marked.
    """
    told = from_json(_Graphs, line)
    if not told.marked:
        raise ValueError("`marked` must not be empty")
    return KeptGraphs(
        update=told.n,
        first_marked=min(told.marked) + 1,
        last_marked=max(told.marked) + 1,
        are_kept=told.is_kept,
    )
