"""Writes the C sources of an integer network: its constants, and the calls in their order."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np

from steptime.quantize.c.arena import Arena, cell_of, plan_arena
from steptime.quantize.c.constant_arrays import arrays_of
from steptime.quantize.c.sequence_fields import SEQUENCE_FIELDS
from steptime.quantize.integer.integer_attention import (
    IntegerAxisPart,
    IntegerConstant,
)
from steptime.quantize.integer.integer_network import IntegerNetwork
from steptime.quantize.integer.integer_operators import (
    IntegerAddition,
    IntegerConcatenation,
    IntegerConvolution,
    IntegerLinear,
    IntegerMultiplication,
    IntegerOperator,
    IntegerPooling,
    IntegerReorder,
    IntegerReshape,
    IntegerSelection,
    IntegerTable,
)
from steptime.quantize.integer.recurrence import SIGMOID, TANH, IntegerRecurrence
from steptime.quantize.scheme import WIDE, Affine

_LINE = 100


def c_sources(
    network: IntegerNetwork, arena: Arena | None = None, *, name: str = "network"
) -> dict[str, str]:
    """Return the text of each file: the kernels, and `<name>.h` and `<name>.c`.

    Args:
        network: what is written.
        arena: where its values lie; None to plan that here.
        name: of the files and functions.
    """
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise ValueError(f"{name!r} is no name of C")
    arena = arena or plan_arena(network)
    kernels = {
        file: resources.files(__package__).joinpath(file).read_text("utf-8")
        for file in ("kernels.h", "kernels.c")
    }
    return {
        **kernels,
        f"{name}.h": _header(network, arena, name),
        f"{name}.c": _source(network, arena, name),
    }


def _kind_of(step: Affine | None) -> str:
    """Return the type of a value in C; whole numbers that are looked up have bytes."""
    return f"int{step.bits if step else 8}_t"


def _header(network: IntegerNetwork, arena: Arena, name: str) -> str:
    sizes = [math.prod(network.shapes[one]) for one in (network.input, network.output)]
    shapes = [" x ".join(map(str, network.shapes[one])) for one in (network.input, network.output)]
    guard = f"{name.upper()}_H"
    steps = [network.steps.get(one) for one in (network.input, network.output)]
    word = "byte" if {one.bits for one in steps if one} == {8} else "value"
    told = [
        f"{step.scale!r} * ({word} - {step.zero})" if step else "whole numbers, low byte first"
        for step in steps
    ]
    kinds = [_kind_of(step) for step in steps]
    return f"""\
/* {name}: in {shapes[0]}, out {shapes[1]}. A number is scale * ({word} - zero):
 * in {told[0]},
 * out {told[1]}. */
#ifndef {guard}
#define {guard}

#include <stdint.h>

#define {name.upper()}_INPUT {sizes[0]}
#define {name.upper()}_OUTPUT {sizes[1]}
#define {name.upper()}_ARENA {arena.size}

typedef {kinds[0]} {name}_input;
typedef {kinds[1]} {name}_output;

/* The arena begins at a multiple of 4, and needs no content before. */
void {name}_run(const {name}_input *input, {name}_output *output, int8_t *arena);

#endif
"""


def _source(network: IntegerNetwork, arena: Arena, name: str) -> str:
    constants, calls = list[str](), list[str]()
    if any(isinstance(one, IntegerRecurrence) for one in network.operators):
        constants += [_array("st_sigmoid", "int16_t", SIGMOID), _array("st_tanh", "int16_t", TANH)]
    for number, one in enumerate(network.operators):
        constants += [f"/* {one.name or one.output} */", *_constants(one, number, network)]
        places = [f"arena + {arena.offsets[each]}" for each in (*one.inputs, one.output)]
        if isinstance(one, IntegerRecurrence):
            places.append(f"(int16_t *)(void *)(arena + {arena.offsets[cell_of(one)]})")
        calls += _calls(one, number, places, [network.shapes[name] for name in one.inputs])
    sizes = [math.prod(network.shapes[one]) for one in (network.input, network.output)]
    kinds = [_kind_of(network.steps.get(one)) for one in (network.input, network.output)]
    ends = [f"(({kind} *)(void *)(arena + {arena.offsets[one]}))"
            for kind, one in zip(kinds, (network.input, network.output), strict=True)]  # fmt: skip
    body = "\n".join(f"    {line}" for line in calls)
    return "\n".join(
        [
            f'#include "{name}.h"',
            '#include "kernels.h"',
            "",
            *constants,
            "",
            f"void {name}_run(const {name}_input *input, {name}_output *output, int8_t *arena)",
            "{",
            f"    for (int32_t i = 0; i < {sizes[0]}; i++) {{",
            f"        {ends[0]}[i] = input[i];",
            "    }",
            body,
            f"    for (int32_t i = 0; i < {sizes[1]}; i++) {{",
            f"        output[i] = {ends[1]}[i];",
            "    }",
            "}",
            "",
        ]
    )


# -- constants


def _constants(one: IntegerOperator, number: int, network: IntegerNetwork) -> Iterator[str]:
    arrays = arrays_of(one)
    for name, (kind, values) in arrays.items():
        yield _array(f"{name}_{number}", kind, values)
    if isinstance(one, IntegerConcatenation):
        begin, width = 0, math.prod(one.shape[one.axis :])
        for i, source in enumerate(one.inputs):
            inner = math.prod(network.shapes[source][one.axis :])
            yield _struct(
                "st_part",
                f"part_{number}_{i}",
                {
                    "zero_in": one.zeros[i],
                    "multiplier": one.multipliers[i],
                    "shift": one.shifts[i],
                    "zero_out": one.zero_out,
                    "wide_in": int(one.bits_in[i] == WIDE),
                    "outer": math.prod(one.shape[: one.axis]),
                    "inner": inner,
                    "begin": begin,
                    "width": width,
                },
            )
            begin += inner
    writer = _FIELDS.get(type(one))
    if writer is not None:
        kind, fields = writer(one, [network.shapes[name] for name in one.inputs])
        fields = {name: f"{name}_{number}" for name in arrays} | fields
        yield _struct(kind, f"of_{number}", fields)


def _shared(one: IntegerConvolution | IntegerLinear) -> dict[str, Any]:
    fields = {name: getattr(one, name) for name in ("zero_in", "zero_out", "low", "high")}
    return {**fields, "wide_in": int(one.bits_in == WIDE), "wide_out": int(one.bits_out == WIDE)}


def _convolution(one: IntegerConvolution, shapes: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    places = [
        *zip(("height", "width", "depth"), shapes[0], strict=True),
        *zip(("rows", "columns", "outputs"), one.shape, strict=True),
        *zip(("tall", "wide"), one.weight.shape[1:3], strict=True),
        *zip(("step_y", "step_x"), one.stride, strict=True),
        ("top", one.padding[0]),
        ("left", one.padding[2]),
        *zip(("spread_y", "spread_x"), one.dilation, strict=True),
    ]
    return "st_convolution", {**_shared(one), **dict(places), "groups": one.groups}


def _linear(one: IntegerLinear, shapes: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """Return those of a convolution of 1 x 1 over a picture of one column."""
    outputs, inputs = one.weight.shape
    places = math.prod(shapes[0]) // inputs
    sizes = {"height": places, "depth": inputs, "rows": places, "outputs": outputs}
    ones = dict.fromkeys(("width", "columns", "tall", "wide", "step_y", "step_x"), 1)
    ones |= dict.fromkeys(("spread_y", "spread_x", "groups"), 1)
    return "st_convolution", {**_shared(one), **sizes, **ones}


def _pooling(one: IntegerPooling, shapes: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    top, bottom, left, right = one.padding
    return "st_pooling", {
        "is_mean": int(one.is_mean),
        "counts_padding": int(one.counts_padding),
        "zero": one.zero,
        "is_wide": int(one.bits == WIDE),
        **dict(zip(("height", "width", "depth"), shapes[0], strict=True)),
        "rows": one.shape[0],
        "columns": one.shape[1],
        **dict(zip(("tall", "wide"), one.kernel, strict=True)),
        **dict(zip(("step_y", "step_x"), one.stride, strict=True)),
        "top": top,
        "left": left,
        "bottom": bottom,
        "right": right,
    }


def _addition(one: IntegerAddition, shapes: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    names = ("zero_a", "zero_b", "factor_a", "factor_b", "shift", "zero_out", "low", "high", "num")
    values = (*one.zeros, *one.factors, one.shift, one.zero_out, one.low, one.high)
    fields = dict(zip(names, (*values, math.prod(one.shape)), strict=True))
    sides = zip(("a", "b", "out"), (*one.bits_in, one.bits_out), strict=True)
    return "st_addition", fields | {f"wide_{name}": int(bits == WIDE) for name, bits in sides}


def _product(one: IntegerMultiplication, shapes: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    return "st_product", {
        "zero_a": one.zeros[0],
        "zero_b": one.zeros[1],
        "multiplier": one.multiplier,
        "shift": one.shift,
        "zero_out": one.zero_out,
        "sizes": _four(shapes[0]),
        "sizes_b": _four(shapes[1]),
    }


def _reorder(one: IntegerReorder, shapes: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    added = 4 - len(one.axes)
    axes = (*range(added), *(axis + added for axis in one.axes))
    fields = {"sizes": _four(shapes[0]), "axes": axes, "is_wide": int(one.bits == WIDE)}
    return "st_order", fields


_FIELDS: Mapping[type[IntegerOperator], Callable[[Any, Any], tuple[str, dict[str, Any]]]] = {
    IntegerConvolution: _convolution,
    IntegerLinear: _linear,
    IntegerPooling: _pooling,
    IntegerAddition: _addition,
    IntegerMultiplication: _product,
    IntegerReorder: _reorder,
    **SEQUENCE_FIELDS,
}


def _four(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes of four axes, of which the first may be 1."""
    return (*(1,) * (4 - len(shape)), *shape)


def _array(name: str, kind: str, values: Any) -> str:
    lines, line = [f"static const {kind} {name}[] = {{"], "   "
    for value in np.asarray(values).ravel().tolist():
        if len(line) > _LINE - 14:
            lines.append(line)
            line = "   "
        line += f" {value},"
    return "\n".join([*lines, line, "};"])


def _struct(kind: str, name: str, fields: Mapping[str, Any]) -> str:
    def told(value: Any) -> str:
        return "{" + ", ".join(map(str, value)) + "}" if isinstance(value, tuple) else str(value)

    parts = ", ".join(f".{key} = {told(value)}" for key, value in fields.items())
    return f"static const {kind} {name} = {{{parts}}};"


# -- calls


def _calls(
    one: IntegerOperator, number: int, places: Sequence[str], shapes: Sequence[Sequence[int]]
) -> Iterator[str]:
    *sources, target = places
    if isinstance(one, IntegerReshape):
        return
    if isinstance(one, IntegerConcatenation):
        for i, source in enumerate(sources):
            yield f"st_run_part(&part_{number}_{i}, {source}, {target});"
        return
    if isinstance(one, IntegerConstant):
        yield f"st_run_copy({one.values.size}, constant_{number}, {target});"
        return
    if isinstance(one, IntegerAxisPart):
        yield from _cut(one, sources[0], target, shapes[0])
        return
    if isinstance(one, IntegerSelection):
        num = math.prod(one.shape) * one.bits // 8
        yield f"st_run_copy({num}, {sources[0]} + {one.index * num}, {target});"
        return
    if isinstance(one, IntegerTable):
        num = math.prod(one.shape)
        yield f"st_run_table(table_{number}, {num}, {sources[0]}, {target});"
        return
    kind, _ = _FIELDS[type(one)](one, shapes)
    yield f"{kind.replace('st_', 'st_run_', 1)}(&of_{number}, {', '.join(places)});"


def _cut(one: IntegerAxisPart, source: str, target: str, shape: Sequence[int]) -> Iterator[str]:
    """Yield a copy for each row of what lies before the axis."""
    inner = math.prod(shape[one.axis + 1 :]) * one.bits // 8
    num, width = (one.end - one.begin) * inner, shape[one.axis] * inner
    outer = math.prod(shape[: one.axis])
    move = f"{source} + {one.begin * inner} + i * {width}, {target} + i * {num}"
    yield f"for (int32_t i = 0; i < {outer}; i++) {{"
    yield f"    st_run_copy({num}, {move});"
    yield "}"
