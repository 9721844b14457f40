"""The arrays of an operator's constants, each with its type in C."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steptime.quantize.integer.integer_attention import (
    IntegerConstant,
    IntegerNormalization,
    IntegerSoftmax,
)
from steptime.quantize.integer.integer_operators import (
    IntegerConvolution,
    IntegerLinear,
    IntegerOperator,
    IntegerTable,
)
from steptime.quantize.integer.lookup import IntegerLookup
from steptime.quantize.integer.recurrence import IntegerRecurrence
from steptime.quantize.scheme import WIDE


def arrays_of(one: IntegerOperator) -> Mapping[str, tuple[str, Any]]:
    """Return type and values by name; an operator with fields has a field of each name."""
    if isinstance(one, IntegerConvolution | IntegerLinear):
        return {
            "weight": ("int8_t", one.weight),
            **(
                {"wide_bias": ("int64_t", one.bias)}
                if one.bits_in == WIDE
                else {"bias": ("int32_t", one.bias)}
            ),
            "multipliers": ("int32_t", one.multipliers),
            "shifts": ("int8_t", one.shifts),
        }
    if isinstance(one, IntegerRecurrence):
        return {
            "weight": ("int8_t", one.weight),
            "hidden": ("int8_t", one.hidden),
            "bias": ("int32_t", one.bias),
            "multipliers": ("int32_t", one.fractions[0][0]),
            "own_multipliers": ("int32_t", one.fractions[1][0]),
            "shifts": ("int8_t", one.fractions[0][1]),
            "own_shifts": ("int8_t", one.fractions[1][1]),
        }
    if isinstance(one, IntegerNormalization):
        return {"weight": ("int16_t", one.weight), "bias": ("int32_t", one.bias)}
    if isinstance(one, IntegerSoftmax):
        return {"table": ("int32_t", one.table)}
    if isinstance(one, IntegerTable | IntegerLookup):
        return {"table": ("int8_t", one.table)}
    if isinstance(one, IntegerConstant):
        return {"constant": ("int8_t", one.values)}
    return {}
