"""Names the numbers in the rows of lines on evaluations and layers, as `record.rows` does."""

from __future__ import annotations

from typing import Any, NamedTuple

from .lines import Line
from .rows import MisshapenError, _get, _int, _ints, _real, _rows, _typed


class EvaluationRow(NamedTuple):
    """The losses of one evaluation after `number` updates: how many, their mean and deviation."""

    number: int
    num: int
    mean: float | None
    scatter: float | None


class LayerRow(NamedTuple):
    """A module with weights of its own; `num_units` is 0 where its units are not watched."""

    layer: int
    name: str
    kind: str
    model: str
    num_elements: int
    num_units: int


class LayerNormRow(NamedTuple):
    """Norms of a layer in one update, which may be infinite or NaN.

    `gradient` is None where no weight had one. `num_dead`: units without any gradient in the last
    samples.
    """

    layer: int
    gradient: float | None
    weight: float | None
    update: float | None
    num_dead: int


def evaluations(line: Line) -> list[EvaluationRow]:
    """Return the losses of evaluations; they may be infinite, or NaN."""
    return [_evaluation(values) for values in _rows(line)]


def _evaluation(values: Any) -> EvaluationRow:
    if not isinstance(values, list) or len(values) != len(EvaluationRow._fields):
        raise MisshapenError(f"the loss of an evaluation is wanted, got {values!r:.60}")
    return EvaluationRow(*_ints(values[:2], 2), *map(_real, values[2:]))


def layers(line: Line) -> list[LayerRow]:
    """Return the layers that a line names."""
    return [LayerRow(*_typed(values, int, str, str, str, int, int)) for values in _rows(line)]


def layer_norms(line: Line) -> tuple[int, list[LayerNormRow]]:
    """Return the number of an update, and the norms of its layers."""
    return _int(_get(line, "n")), [_layer_norm(values) for values in _rows(line)]


def _layer_norm(values: Any) -> LayerNormRow:
    if not isinstance(values, list) or len(values) != len(LayerNormRow._fields):
        raise MisshapenError(f"the norms of a layer are wanted, got {values!r:.60}")
    layer, num_dead = _ints([values[0], values[-1]], 2)
    gradient, weight, update = map(_real, values[1:-1])
    return LayerNormRow(layer, gradient, weight, update, num_dead)
