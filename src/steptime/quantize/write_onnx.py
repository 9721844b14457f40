"""Writes a network as ONNX, for ONNX Runtime: as it is, or with its bytes and steps.

Activations become unsigned bytes, for these with signed weights are what its fast kernels take
(VNNI); a signed byte and the unsigned one of the same number differ by 128. It computes near
the integer reference and not bit for bit the same, for it rounds by floating point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from steptime.errors import MissingExtraError
from steptime.quantize.integer.integer_network import IntegerNetwork, is_float
from steptime.quantize.scheme import FLOAT, LOW, WIDE, Affine, weights_of
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

_OPSET, _WIDE_OPSET = 20, 21
"""The second one has steps of 16 bits."""
_NODES: Mapping[str, tuple[str, ...]] = {
    "sigmoid": ("Sigmoid",),
    "tanh": ("Tanh",),
    "gelu": ("Gelu",),
    "hardswish": ("HardSwish",),
    "hardsigmoid": ("HardSigmoid",),
    "elu": ("Elu",),
    "leaky_relu": ("LeakyRelu",),
    "silu": ("Sigmoid", "Mul"),
    "clamp": ("Clip",),
}


@dataclass(slots=True)
class _Writer:
    """The graph while it is written; pictures are channels first, as ONNX has them."""

    network: Network
    integer: IntegerNetwork | None
    kept: Mapping[str, Affine]
    sums: Sequence[str]
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def write(self) -> Any:
        from onnx import TensorProto, helper

        network = self.network
        writers: Mapping[type[Operator], Callable[[Any, list[str]], str]] = {
            Convolution: self._convolution,
            Matmul: self._linear,
            Addition: lambda one, ins: self._clamped(one, self._node("Add", ins)),
            Multiplication: lambda one, ins: self._node("Mul", ins),
            Pooling: self._pooling,
            Concatenation: self._concatenation,
            Elementwise: self._elementwise,
            Reorder: self._reorder,
            Reshape: self._reshape,
            Recurrence: self._recurrence,
            Selection: self._selection,
            Constant: self._own_constant,
            Lookup: self._lookup,
            AxisPart: self._axis_part,
            Contraction: self._contraction,
            Softmax: self._softmax,
            Normalization: self._normalization,
            AxisMean: lambda one, ins: self._node("ReduceMean", [*ins, self._axes(1)], keepdims=0),
            Requantization: lambda one, ins: ins[0],
        }
        names = {network.input: self._stepped("input", network.input)}
        for one in network.operators:
            made = writers[type(one)](one, [names[name] for name in one.inputs])
            names[one.output] = self._stepped(made, one.output)
        self.nodes.append(helper.make_node("Identity", [names[network.output]], ["output"]))
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *self._shape(value)])
            for name, value in (("input", network.input), ("output", network.output))
        ]
        if any(
            isinstance(one, Lookup) and network.input in one.inputs for one in network.operators
        ):
            shape = ["batch", *self._shape(network.input)[:-1]]
            ends[0] = helper.make_tensor_value_info("input", TensorProto.INT64, shape)
        ends += [
            helper.make_tensor_value_info(sums_of(name), TensorProto.FLOAT, None)
            for name in self.sums
        ]
        graph = helper.make_graph(
            self.nodes, "steptime", ends[:1], ends[1:], initializer=self.constants
        )
        is_wide = any(step.bits == WIDE for step in self.kept.values())
        opset = helper.make_opsetid("", _WIDE_OPSET if is_wide else _OPSET)
        made = helper.make_model(graph, opset_imports=[opset])
        made.ir_version = 10
        return made

    def _shape(self, value: str) -> list[int]:
        """Return the shape of a value as ONNX has it, without the batch."""
        shape = list(self.network.shapes[value])
        return [shape[2], *shape[:2]] if value in self.network.pictures else shape

    def _constant(self, values: Any) -> str:
        from onnx import numpy_helper

        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def _node(self, kind: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        from onnx import helper

        name = output or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def _stepped(self, name: str, value: str) -> str:
        """Return the value after it was kept in bytes."""
        step = self.kept.get(value)
        if step is None or step.bits == FLOAT:
            return name
        scale = self._constant(np.float32(step.scale))
        zero = self._constant(np.int16(0) if step.bits == WIDE else np.uint8(step.zero - LOW))
        kept = self._node("QuantizeLinear", [name, scale, zero])
        return self._node("DequantizeLinear", [kept, scale, zero])

    def _weights(self, one: Convolution | Matmul, weight: Any) -> list[str]:
        """Return weight and bias; the bytes of both where these are wanted."""
        if self.integer is None or is_float(self.network, one):
            return [self._constant(part.astype(np.float32)) for part in (weight, one.bias)]
        found, scales = weights_of(weight)
        before = self.integer.steps[one.inputs[0]]
        bias = np.rint(one.bias / (before.scale * scales))
        parts = list[str]()
        for values, steps in ((found, scales), (bias.astype(np.int32), before.scale * scales)):
            if values is not found and before.bits == WIDE:  # it may need more than 32 bits
                return [*parts, self._constant((bias * steps).astype(np.float32))]
            names = [self._constant(values), self._constant(steps.astype(np.float32))]
            zeros = self._constant(np.zeros(len(steps), dtype=values.dtype))
            parts.append(self._node("DequantizeLinear", [*names, zeros], axis=0))
        return parts

    def _clamped(self, one: Convolution | Matmul | Addition, name: str) -> str:
        if one.output in self.sums:
            self._node("Identity", [name], output=sums_of(one.output))
        if one.low is None and one.high is None:
            return name
        if one.low == 0.0 and one.high is None:
            return self._node("Relu", [name])
        low, high = one.low, one.high
        ends = [-math.inf if low is None else low, math.inf if high is None else high]
        return self._node("Clip", [name, *(self._constant(np.float32(end)) for end in ends)])

    def _convolution(self, one: Convolution, inputs: list[str]) -> str:
        weight = np.ascontiguousarray(one.weight.transpose(0, 3, 1, 2))
        top, bottom, left, right = one.padding
        made = self._node(
            "Conv",
            [*inputs, *self._weights(one, weight)],
            kernel_shape=list(weight.shape[2:]),
            strides=list(one.stride),
            pads=[top, left, bottom, right],
            dilations=list(one.dilation),
            group=one.groups,
        )
        return self._clamped(one, made)

    def _linear(self, one: Matmul, inputs: list[str]) -> str:
        flat = self._unpermuted(one)
        weight, bias = self._weights(one, flat)
        if len(self.network.shapes[one.inputs[0]]) == 1:
            made = self._node("Gemm", [*inputs, weight, bias], transB=1)
        else:
            turned = self._node("Transpose", [weight], perm=[1, 0])
            made = self._node("Add", [self._node("MatMul", [*inputs, turned]), bias])
        return self._clamped(one, made)

    def _unpermuted(self, one: Matmul) -> Any:
        """Return the weights in the order of a picture whose channels are first."""
        made = {each.output: each for each in self.network.operators}
        before = made.get(one.inputs[0])
        if isinstance(before, Requantization):
            before = made.get(before.inputs[0])
        if not isinstance(before, Reshape) or before.inputs[0] not in self.network.pictures:
            return one.weight
        shape = self.network.shapes[before.inputs[0]]
        order = np.arange(one.weight.shape[1]).reshape(shape).transpose(2, 0, 1)
        return np.ascontiguousarray(one.weight[:, order.ravel()])

    def _pooling(self, one: Pooling, inputs: list[str]) -> str:
        top, bottom, left, right = one.padding
        how: dict[str, Any] = {"count_include_pad": int(one.counts_padding)} if one.is_mean else {}
        return self._node(
            "AveragePool" if one.is_mean else "MaxPool",
            inputs,
            kernel_shape=list(one.kernel),
            strides=list(one.stride),
            pads=[top, left, bottom, right],
            **how,
        )

    def _concatenation(self, one: Concatenation, inputs: list[str]) -> str:
        is_picture = one.output in self.network.pictures
        axis = (2, 3, 1)[one.axis] if is_picture else one.axis + 1
        return self._node("Concat", inputs, axis=axis)

    def _elementwise(self, one: Elementwise, inputs: list[str]) -> str:
        how: dict[str, Any] = {}
        if one.function == "gelu" and one.parameters:
            how = {"approximate": "tanh"}
        if one.function == "leaky_relu":
            how = {"alpha": one.parameters[0]}
        if one.function == "hardsigmoid":
            how = {"alpha": 1 / 6}
        if one.function == "clamp":
            ends = [self._constant(np.float32(end)) for end in one.parameters]
            return self._node("Clip", [*inputs, *ends])
        first, *more = _NODES[one.function]
        made = self._node(first, inputs, **how)
        return self._node(more[0], [made, *inputs]) if more else made

    def _recurrence(self, one: Recurrence, inputs: list[str]) -> str:
        """Write a layer whose weights are bytes, and whose arithmetic is in floats: ONNX has none.

        torch orders input, forget, cell and output gates, ONNX input, output, forget and cell.
        """
        num = one.hidden.shape[1]
        order = np.concatenate([np.arange(num) + num * gate for gate in (0, 3, 1, 2)])
        parts = []
        for given in (one.weight, one.hidden):
            if self.integer is None:
                parts.append(self._constant(given[order][None].astype(np.float32)))
                continue
            whole, scales = weights_of(given[order])
            names = [self._constant(whole[None]), self._constant(scales.astype(np.float32))]
            parts.append(self._node("DequantizeLinear", names, axis=1))
        bias = np.concatenate([one.bias[order], np.zeros(4 * num)])[None].astype(np.float32)
        turned = self._node("Transpose", inputs, perm=[1, 0, 2])
        found = self._node("LSTM", [turned, *parts, self._constant(bias)], hidden_size=num)
        axes = self._constant(np.array([1]))
        return self._node("Transpose", [self._node("Squeeze", [found, axes])], perm=[1, 0, 2])

    def _axes(self, *axes: int) -> str:
        return self._constant(np.array(axes, dtype=np.int64))

    def _own_constant(self, one: Constant, inputs: list[str]) -> str:
        values = one.values.transpose(2, 0, 1) if self._is_picture(one.output) else one.values
        return self._constant(values[None].astype(np.float32))

    def _is_picture(self, value: str) -> bool:
        return value in self.network.pictures

    def _lookup(self, one: Lookup, inputs: list[str]) -> str:
        """Write a table, of bytes where these are wanted, and take rows of it."""
        if self.integer is None:
            return self._node("Gather", [self._constant(one.weight.astype(np.float32)), *inputs])
        step = self.integer.steps[one.output]
        table = (step.to_bytes(one.weight).astype(np.int64) - LOW).astype(np.uint8)
        taken = self._node("Gather", [self._constant(table), *inputs])
        parts = [self._constant(np.float32(step.scale)), self._constant(np.uint8(step.zero - LOW))]
        return self._node("DequantizeLinear", [taken, *parts])

    def _axis_part(self, one: AxisPart, inputs: list[str]) -> str:
        axis = (2, 3, 1)[one.axis] if self._is_picture(one.output) else one.axis + 1
        ends = [self._axes(one.begin), self._axes(one.end), self._axes(axis)]
        return self._node("Slice", [*inputs, *ends])

    def _contraction(self, one: Contraction, inputs: list[str]) -> str:
        if not one.is_turned:
            return self._node("MatMul", inputs)
        rank = len(self.network.shapes[one.inputs[1]]) + 1
        turned = [*range(rank - 2), rank - 1, rank - 2]
        return self._node("MatMul", [inputs[0], self._node("Transpose", inputs[1:], perm=turned)])

    def _softmax(self, one: Softmax, inputs: list[str]) -> str:
        (name,) = inputs
        if one.factor != 1:
            name = self._node("Mul", [name, self._constant(np.float32(one.factor))])
        if one.is_causal:
            shape = self.network.shapes[one.output][-2:]
            hidden = np.triu(np.full(shape, -1e9, dtype=np.float32), 1)
            name = self._node("Add", [name, self._constant(hidden)])
        return self._node("Softmax", [name], axis=-1)

    def _normalization(self, one: Normalization, inputs: list[str]) -> str:
        parts = [self._constant(part.astype(np.float32)) for part in (one.weight, one.bias)]
        return self._node("LayerNormalization", [*inputs, *parts], axis=-1, epsilon=one.epsilon)

    def _selection(self, one: Selection, inputs: list[str]) -> str:
        return self._node("Gather", [*inputs, self._constant(np.int64(one.index))], axis=1)

    def _reorder(self, one: Reorder, inputs: list[str]) -> str:
        before = (2, 3, 1) if self._is_picture(one.inputs[0]) else (1, 2, 3, 4)
        after = (2, 0, 1) if self._is_picture(one.output) else range(len(one.axes))
        order = [0, *(before[one.axes[axis]] for axis in after)]
        return inputs[0] if order == sorted(order) else self._node("Transpose", inputs, perm=order)

    def _reshape(self, one: Reshape, inputs: list[str]) -> str:
        pictures = self.network.pictures
        if one.output in pictures and one.inputs[0] not in pictures:
            made = self._node("Reshape", [*inputs, self._axes(0, *self.network.shapes[one.output])])
            return self._node("Transpose", [made], perm=[0, 3, 1, 2])
        if one.inputs[0] in pictures and len(self.network.shapes[one.output]) > 1:
            inputs = [self._node("Transpose", inputs, perm=[0, 2, 3, 1])]
        return self._node("Reshape", [*inputs, self._axes(0, *self._shape(one.output))])


def sums_of(output: str) -> str:
    """Return how what a layer gives before its clamp is called in a model."""
    return f"sums of {output}"


def onnx_model(
    network: Network,
    integer: IntegerNetwork | None = None,
    *,
    kept: Mapping[str, Affine] | None = None,
    sums: Sequence[str] = (),
) -> Any:
    """Return an ONNX model with a free batch.

    Args:
        network: what it computes.
        integer: its bytes, which the model then has; None for floats.
        kept: of floats, values that are rounded to bytes nevertheless.
        sums: outputs of layers that the model also gives, before their clamps: see `sums_of`.

    Raises:
        MissingExtraError: onnx is not installed.
    """
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError(
            "Writing ONNX needs onnx, which is not installed.", needs="steptime[quantize]"
        ) from error
    del onnx
    steps = kept or {} if integer is None else integer.steps
    return _Writer(network, integer, steps, sums).write()
