"""Makes the integer network from a network and the ranges of its values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from steptime.errors import UsageError
from steptime.quantize.integer.float_layers import FloatLayer, FloatRounding
from steptime.quantize.integer.integer_attention import (
    SHARES,
    IntegerAxisMean,
    IntegerAxisPart,
    IntegerConstant,
    IntegerContraction,
    normalization_of,
    softmax_of,
)
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
from steptime.quantize.integer.lookup import IntegerLookup, to_numbers
from steptime.quantize.integer.recurrence import OUTPUTS, recurrence_of
from steptime.quantize.integer.table_functions import function_of, step_of_function
from steptime.quantize.observers import Range, refuse_constant
from steptime.quantize.scheme import (
    FLOAT,
    HIGH,
    LOW,
    WIDE,
    Affine,
    affine_of,
    ends_of,
    fraction_of,
    weights_of,
)
from steptime.quantize.trained_network import (
    Addition,
    AxisMean,
    AxisPart,
    Concatenation,
    Constant,
    Contraction,
    Convolution,
    Elementwise,
    Lookup,
    Matmul,
    Multiplication,
    Network,
    Normalization,
    Operator,
    Pooling,
    Recurrence,
    Reorder,
    Requantization,
    Reshape,
    Selection,
    Softmax,
)

if TYPE_CHECKING:
    from steptime.quantize.scheme import Bytes
    from steptime.quantize.trained_network import Shape

_MOST_SUM, _MOST_WIDE_SUM = 2**31 - 1, 2**40 - 1
"""Sums of 16-bit numbers have 64 bits, of which a product with a fraction needs at least 22."""
_SUM_BITS, _WIDE_SUM_BITS = 20, 30
"""Of a factor of a sum: 255 times two of them fit into 32 bits, 2 ** 15 times two into 64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerNetwork:
    """A network of operators on bytes.

    Attributes:
        input, output: the names of the first and the last value.
        input_axes: the axes of the input of training in the order of `input`, without the batch.
        shapes: of each value, without the batch.
        steps: how the numbers of each value are kept.
        operators: in the order in which they run.
    """

    input: str
    output: str
    input_axes: tuple[int, ...]
    shapes: Mapping[str, Shape]
    steps: Mapping[str, Affine]
    operators: tuple[IntegerOperator, ...]

    def run(self, inputs: Any) -> Bytes:
        """Return the bytes of the output (batch, ...) of bytes (batch, ...) in the own order."""
        values = {self.input: inputs}
        for one in self.operators:
            values[one.output] = one.run(*(values[name] for name in one.inputs))
        return np.asarray(values[self.output])

    def to_bytes(self, inputs: Any) -> Bytes:
        """Return real inputs as in training (batch, ...) as bytes in the own order (batch, ...)."""
        for one in self.operators:
            if isinstance(one, IntegerLookup) and one.inputs == (self.input,):
                return to_numbers(inputs, len(one.table))
        turned = np.asarray(inputs).transpose(0, *(axis + 1 for axis in self.input_axes))
        return self.steps[self.input].to_bytes(turned)

    def predict(self, inputs: Any) -> Any:
        """Return real outputs (batch, ...) of real inputs as in training (batch, ...)."""
        return self.steps[self.output].to_numbers(self.run(self.to_bytes(inputs)))


@dataclass(slots=True)
class _Builder:
    """The integer network while it is made."""

    network: Network
    ranges: Mapping[str, Range]
    in_four_bits: frozenset[str] = frozenset()
    steps: dict[str, Affine] = field(default_factory=dict)
    made: list[IntegerOperator] = field(default_factory=list)
    origins: dict[str, str] = field(default_factory=dict)

    def build(self) -> IntegerNetwork:
        network = self.network
        if network.input in self.ranges:  # whole numbers that are looked up have no step
            bits = network.bits.get(network.input, 8)
            self.steps[network.input] = affine_of(self.ranges[network.input], bits)
        builders: Mapping[type[Operator], Callable[[Any], IntegerOperator]] = {
            Convolution: self._convolution,
            Matmul: self._linear,
            Addition: self._addition,
            Multiplication: self._product,
            Pooling: self._pooling,
            Concatenation: self._concatenation,
            Elementwise: self._table,
            Reorder: self._reorder,
            Reshape: self._reshape,
            Recurrence: self._recurrence,
            Selection: self._selection,
            Constant: self._constant,
            Lookup: self._lookup,
            AxisPart: self._cut,
            Contraction: self._contraction,
            Softmax: self._softmax,
            Normalization: self._normalization,
            AxisMean: self._axis_mean,
            Requantization: self._rounding,
        }
        for one in network.operators:
            builder = self._float_layer if is_float(network, one) else builders[type(one)]
            self.made.append(builder(one))
        return IntegerNetwork(
            input=network.input,
            output=network.output,
            input_axes=network.input_axes,
            shapes=network.shapes,
            steps=self.steps,
            operators=tuple(self.made),
        )

    def _base(self, one: Operator) -> dict[str, Any]:
        shape = self.network.shapes[one.output]
        return {"name": one.name, "inputs": one.inputs, "output": one.output, "shape": shape}

    def _own_step(self, one: Operator) -> Affine:
        bits = self.network.bits.get(one.output, 8)
        self.steps[one.output] = affine_of(self.ranges[one.output], bits)
        return self.steps[one.output]

    def _same_step(self, one: Operator) -> Affine:
        self.steps[one.output] = self.steps[one.inputs[0]]
        self.origins[one.output] = self.origins.get(one.inputs[0], one.inputs[0])
        return self.steps[one.output]

    def _rounding(self, one: Requantization) -> IntegerOperator:
        before, bits = self.steps[one.inputs[0]], self.network.bits[one.output]
        origin = self.origins.get(one.inputs[0], one.inputs[0])
        after = self.steps[one.output] = affine_of(self.ranges[origin], bits)
        if before.bits == FLOAT:
            return FloatRounding(**self._base(one), after=after)
        return self._joined(one, 0, after)

    def _weighted(self, one: Convolution | Matmul) -> dict[str, Any]:
        before, after = self.steps[one.inputs[0]], self._own_step(one)
        bits = 4 if one.output in self.in_four_bits else 8
        weight, scales = weights_of(one.weight, bits=bits)
        bias = np.rint(one.bias / (before.scale * scales)).astype(np.int64)
        reach = 2**15 if before.bits == WIDE else HIGH - LOW
        most = np.abs(weight.astype(np.int64)).reshape(len(weight), -1).sum(axis=1) * reach
        limit = _MOST_WIDE_SUM if before.bits == WIDE else _MOST_SUM
        if (most + np.abs(bias) > limit).any():
            raise UsageError(
                f"`{one.name}` sums up to {int((most + np.abs(bias)).max()):,}, which does not fit "
                f"into {limit.bit_length() + 1} bits.",
                hint=f"Split the layer, or keep it in floats: --keep {one.name}=fp32",
            )
        fractions = [
            fraction_of(before.scale * scale / after.scale, bits=min(31, 62 - size.bit_length()))
            for scale, size in zip(scales.tolist(), (most + np.abs(bias)).tolist(), strict=True)
        ]
        low, high = clamp_of(one, after)
        return {
            **self._base(one),
            "weight": weight,
            "bias": bias,
            "multipliers": np.array([multiplier for multiplier, _ in fractions], dtype=np.int64),
            "shifts": np.array([shift for _, shift in fractions], dtype=np.int64),
            "zero_in": before.zero,
            "zero_out": after.zero,
            "low": low,
            "high": high,
            "bits_in": before.bits,
            "bits_out": after.bits,
        }

    def _float_layer(self, one: Any) -> IntegerOperator:
        before = self.steps[one.inputs[0]]
        self._own_step(one)
        return FloatLayer(**self._base(one), layer=one, before=before)

    def _convolution(self, one: Convolution) -> IntegerOperator:
        return IntegerConvolution(
            **self._weighted(one),
            stride=one.stride,
            padding=one.padding,
            dilation=one.dilation,
            groups=one.groups,
        )

    def _linear(self, one: Matmul) -> IntegerOperator:
        return IntegerLinear(**self._weighted(one))

    def _addition(self, one: Addition) -> IntegerOperator:
        after = self._own_step(one)
        before = [self.steps[name] for name in one.inputs]
        factors = [step.scale / after.scale for step in before]
        sum_bits = _WIDE_SUM_BITS if WIDE in {one.bits for one in (*before, after)} else _SUM_BITS
        shift = min(sum_bits - math.frexp(max(factors))[1], sum_bits + 10)
        low, high = clamp_of(one, after)
        return IntegerAddition(
            **self._base(one),
            zeros=(before[0].zero, before[1].zero),
            factors=(round(factors[0] * 2**shift), round(factors[1] * 2**shift)),
            shift=shift,
            zero_out=after.zero,
            low=low,
            high=high,
            bits_in=(before[0].bits, before[1].bits),
            bits_out=after.bits,
        )

    def _product(self, one: Multiplication) -> IntegerOperator:
        after = self._own_step(one)
        a, b = (self.steps[name] for name in one.inputs)
        multiplier, shift = fraction_of(a.scale * b.scale / after.scale)
        return IntegerMultiplication(
            **self._base(one),
            zeros=(a.zero, b.zero),
            multiplier=multiplier,
            shift=shift,
            zero_out=after.zero,
        )

    def _pooling(self, one: Pooling) -> IntegerOperator:
        step = self._same_step(one)
        return IntegerPooling(
            **self._base(one),
            is_mean=one.is_mean,
            kernel=one.kernel,
            stride=one.stride,
            padding=one.padding,
            counts_padding=one.counts_padding,
            zero=step.zero,
            bits=step.bits,
        )

    def _concatenation(self, one: Concatenation) -> IntegerOperator:
        return self._joined(one, one.axis, self._own_step(one))

    def _joined(self, one: Operator, axis: int, after: Affine) -> IntegerOperator:
        before = [self.steps[name] for name in one.inputs]
        fractions = [fraction_of(step.scale / after.scale) for step in before]
        return IntegerConcatenation(
            **self._base(one),
            axis=axis,
            bits_in=tuple(step.bits for step in before),
            zeros=tuple(step.zero for step in before),
            multipliers=tuple(multiplier for multiplier, _ in fractions),
            shifts=tuple(shift for _, shift in fractions),
            zero_out=after.zero,
        )

    def _table(self, one: Elementwise) -> IntegerOperator:
        before = self.steps[one.inputs[0]]
        fixed = step_of_function(one.function)
        after = self._own_step(one) if fixed is None else fixed
        self.steps[one.output] = after
        numbers = before.to_numbers(np.arange(LOW, HIGH + 1))
        table = after.to_bytes(function_of(one.function, one.parameters)(numbers))
        return IntegerTable(**self._base(one), table=table)

    def _reorder(self, one: Reorder) -> IntegerOperator:
        bits = self._same_step(one).bits
        return IntegerReorder(**self._base(one), axes=one.axes, bits=bits)

    def _constant(self, one: Constant) -> IntegerOperator:
        step = self.steps[one.output] = step_of_constants(one.values)
        return IntegerConstant(**self._base(one), values=step.to_bytes(one.values))

    def _lookup(self, one: Lookup) -> IntegerOperator:
        step = self.steps[one.output] = step_of_constants(one.weight)
        return IntegerLookup(**self._base(one), table=step.to_bytes(one.weight))

    def _cut(self, one: AxisPart) -> IntegerOperator:
        return IntegerAxisPart(
            **self._base(one),
            axis=one.axis,
            begin=one.begin,
            end=one.end,
            bits=self._same_step(one).bits,
        )

    def _contraction(self, one: Contraction) -> IntegerOperator:
        after = self._own_step(one)
        a, b = (self.steps[name] for name in one.inputs)
        multiplier, shift = fraction_of(a.scale * b.scale / after.scale)
        return IntegerContraction(
            **self._base(one),
            is_turned=one.is_turned,
            zeros=(a.zero, b.zero),
            multiplier=multiplier,
            shift=shift,
            zero_out=after.zero,
        )

    def _softmax(self, one: Softmax) -> IntegerOperator:
        self.steps[one.output] = SHARES
        return softmax_of(one, self._base(one), self.steps[one.inputs[0]])

    def _normalization(self, one: Normalization) -> IntegerOperator:
        before, after = self.steps[one.inputs[0]], self._own_step(one)
        return normalization_of(one, self._base(one), before, after)

    def _axis_mean(self, one: AxisMean) -> IntegerOperator:
        return IntegerAxisMean(**self._base(one), zero=self._same_step(one).zero)

    def _selection(self, one: Selection) -> IntegerOperator:
        bits = self._same_step(one).bits
        return IntegerSelection(**self._base(one), index=one.index, bits=bits)

    def _recurrence(self, one: Recurrence) -> IntegerOperator:
        self.steps[one.output] = OUTPUTS
        return recurrence_of(one, self._base(one), self.steps[one.inputs[0]])

    def _reshape(self, one: Reshape) -> IntegerOperator:
        self._same_step(one)
        return IntegerReshape(**self._base(one))


def step_of_constants(values: Any) -> Affine:
    """Return the step that numbers fill."""
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    return affine_of(Range(low=low, high=high)) if high > low else Affine(scale=1.0, zero=0)


def clamp_of(one: Convolution | Matmul | Addition, step: Affine) -> tuple[int, int]:
    """Return the numbers to which an output is clamped."""
    least, most = ends_of(step.bits)
    low = least if one.low is None else int(step.to_bytes(one.low))
    high = most if one.high is None else int(step.to_bytes(one.high))
    return low, high


def is_float(network: Network, one: Operator) -> bool:
    """Return whether an operator is a layer that is kept in floats."""
    return isinstance(one, Convolution | Matmul) and network.bits.get(one.output) == FLOAT


def build(
    network: Network, ranges: Mapping[str, Range], *, in_four_bits: frozenset[str] = frozenset()
) -> IntegerNetwork:
    """Return the integer network.

    Args:
        network: what is quantized.
        ranges: of each value that has a step of its own.
        in_four_bits: outputs of layers whose weights have four bits.

    Raises:
        DataError: a value is 0 for each input.
        UsageError: a sum does not fit into 32 bits.
    """
    refuse_constant(ranges, (network.input, *(one.output for one in network.operators)))
    return _Builder(network, ranges, in_four_bits).build()
