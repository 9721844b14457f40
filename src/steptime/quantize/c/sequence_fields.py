"""The fields of what sequences go through, as C takes them: attention and recurrent layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from steptime.quantize.integer.integer_attention import (
    IntegerAxisMean,
    IntegerContraction,
    IntegerNormalization,
    IntegerSoftmax,
)
from steptime.quantize.integer.integer_operators import IntegerOperator
from steptime.quantize.integer.lookup import IntegerLookup
from steptime.quantize.integer.recurrence import IntegerRecurrence

Fields = tuple[str, dict[str, Any]]


def _contraction(one: IntegerContraction, shapes: Sequence[Any]) -> Fields:
    *lead, rows, inner = shapes[0]
    return "st_contraction", {
        "zero_a": one.zeros[0],
        "zero_b": one.zeros[1],
        "multiplier": one.multiplier,
        "shift": one.shift,
        "zero_out": one.zero_out,
        "is_turned": int(one.is_turned),
        "times": math.prod(lead),
        "rows": rows,
        "inner": inner,
        "columns": one.shape[-1],
    }


def _softmax(one: IntegerSoftmax, shapes: Sequence[Any]) -> Fields:
    rows = one.shape[-2] if len(one.shape) > 1 else 1
    return "st_softmax", {
        "times": math.prod(one.shape) // (rows * one.shape[-1]),
        "rows": rows,
        "num": one.shape[-1],
        "is_causal": int(one.is_causal),
    }


def _normalization(one: IntegerNormalization, shapes: Sequence[Any]) -> Fields:
    num = one.shape[-1]
    return "st_normalization", {
        "added": f"INT64_C({one.added})",
        "multiplier": one.multiplier,
        "shift": one.shift,
        "zero_out": one.zero_out,
        "times": math.prod(one.shape) // num,
        "num": num,
    }


def _recurrence(one: IntegerRecurrence, shapes: Sequence[Any]) -> Fields:
    steps, inputs = shapes[0]
    tables = {"sigmoid": "st_sigmoid", "tanh": "st_tanh"}
    sizes = {"inputs": inputs, "outputs": one.num_hidden, "steps": steps}
    return "st_recurrence", {**tables, "zero_in": one.zero_in, **sizes}


def _axis_mean(one: IntegerAxisMean, shapes: Sequence[Any]) -> Fields:
    """Return those of a pooling over a picture of one column."""
    steps, num = shapes[0]
    sizes = {"height": steps, "width": 1, "depth": num, "rows": 1, "columns": 1}
    kernel = {"tall": steps, "wide": 1, "step_y": 1, "step_x": 1}
    edges = dict.fromkeys(("top", "left", "bottom", "right"), 0)
    flags = {"is_mean": 1, "counts_padding": 1, "zero": one.zero}
    return "st_pooling", {**flags, **sizes, **kernel, **edges}


def _lookup(one: IntegerLookup, shapes: Sequence[Any]) -> Fields:
    rows, num = one.table.shape
    return "st_lookup", {"rows": rows, "num": num, "times": math.prod(one.shape) // num}


SEQUENCE_FIELDS: Mapping[type[IntegerOperator], Callable[[Any, Any], Fields]] = {
    IntegerContraction: _contraction,
    IntegerSoftmax: _softmax,
    IntegerNormalization: _normalization,
    IntegerAxisMean: _axis_mean,
    IntegerLookup: _lookup,
    IntegerRecurrence: _recurrence,
}
