"""Reads the nodes of an exported network into operators.

In: the nodes, in order. Out: operators, with batch normalization and clamps folded into what they
follow, and a list of what is not in the table.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from steptime.errors import UsageError
from steptime.quantize.attention_readers import SEQUENCE_READERS, constant_of
from steptime.quantize.exported_nodes import (
    arguments,
    module_of,
    pair,
    pooling_padding,
    shape_of,
)
from steptime.quantize.picture_readers import read_factor, read_shuffle
from steptime.quantize.read_so_far import NotInTable, ReadSoFar
from steptime.quantize.recurrent_readers import RECURRENT_READERS
from steptime.quantize.trained_network import (
    Addition,
    Concatenation,
    Convolution,
    Elementwise,
    Matmul,
    Multiplication,
    NotTaken,
    Operator,
    Pooling,
    Reorder,
    Reshape,
)

_SAME = ("dropout", "dropout_", "contiguous", "clone", "detach", "alias", "to", "feature_dropout")
_SIZES = ("sym_size", "_assert_scalar", "_assert_tensor_metadata")
_FUNCTIONS = ("sigmoid", "tanh", "gelu", "silu", "hardswish", "hardsigmoid", "leaky_relu", "elu")
_RESHAPES = ("view", "reshape", "flatten", "squeeze", "unsqueeze", "_unsafe_view")


class NodeReaders(ReadSoFar):
    """Reads the nodes of a program, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        own: Mapping[str, Callable[[Any], None]] = {
            "conv2d": self._read_convolution,
            "conv1d": self._read_convolution,
            "linear": self._read_linear,
            "batch_norm": self._read_normalization,
            "relu": self._read_clamp,
            "relu_": self._read_clamp,
            "relu6": self._read_clamp,
            "hardtanh": self._read_clamp,
            "hardtanh_": self._read_clamp,
            "clamp": self._read_clamp,
            "add": self._read_sum,
            "add_": self._read_sum,
            "mul": self._read_product,
            "mul_": self._read_product,
            "max_pool2d": self._read_pooling,
            "avg_pool2d": self._read_pooling,
            "adaptive_avg_pool2d": self._read_whole_mean,
            "mean": self._read_whole_mean,
            "cat": self._read_concatenation,
            "slice": self._read_slice,
            **dict.fromkeys(_FUNCTIONS, self._read_function),
            **dict.fromkeys((f"{name}_" for name in _FUNCTIONS), self._read_function),
            **dict.fromkeys(_SAME, self._read_same),
            **dict.fromkeys(_RESHAPES, self._read_reshape),
        }
        self._readers: dict[str, list[Callable[[Any], bool | None]]] = {}
        for table in (SEQUENCE_READERS, RECURRENT_READERS):
            for kind, reader in table.items():
                self._readers.setdefault(kind, []).append(partial(reader, self))
        for kind, method in own.items():
            self._readers.setdefault(kind, []).append(method)

    # -- nodes

    def read_placeholder(self, node: Any, known: Mapping[str, Any]) -> None:
        """Read a constant, or the input."""
        if node.name in known:
            self.values[node.name] = known[node.name]
            return
        shape = shape_of(node)
        self.values[node.name] = self.input = node.name
        if len(shape) == 3:
            self.pictures.add(node.name)
            shape = (shape[1], shape[2], shape[0])
        if not node.meta["val"].is_floating_point():
            shape = (*shape, 2)  # numbers that are looked up, of two bytes each
        self.shapes[node.name] = shape
        self.num_users[node.name] = len(node.users)

    def read(self, node: Any) -> None:
        """Read what makes one value; what is in no table is kept in `refused`."""
        kind = str(node.target).removeprefix("aten.").partition(".")[0]
        kind = "getitem" if node.target is operator.getitem else kind
        if kind in _SIZES or "val" not in node.meta:
            return
        made, readers = node.meta["val"], self._readers.get(kind, [])
        is_unknown = not self.unknown.isdisjoint(one.name for one in node.all_input_nodes)
        if not any(_is_read(reader, node) for reader in readers):
            if isinstance(made, list | tuple):
                self._refuse(node, kind)
            if not hasattr(made, "shape"):
                return  # a size, or several values
            if not readers or not is_unknown:
                self._refuse(node, kind)
            is_unknown = True
            self.put(node, None, is_picture=len(shape_of(node)) == 3)
        self.num_users.setdefault(node.name, len(node.users))
        if is_unknown:
            self.unknown.add(node.name)

    def _refuse(self, node: Any, kind: str) -> None:
        self.refused.append(NotTaken(operator=f"aten.{kind}", name=module_of(node) or node.name))
        self.unknown.add(node.name)

    def _value(self, node: Any) -> str:
        """Return the name of a value, which is no constant."""
        found = self.values.get(node.name)
        if not isinstance(found, str):
            raise NotInTable
        return found

    def _constant(self, node: Any) -> Any:
        found = None if node is None else self.values.get(node.name)
        if node is not None and not isinstance(found, np.ndarray):
            raise NotInTable
        return found

    def _base(self, node: Any, *inputs: str) -> dict[str, Any]:
        return {"name": module_of(node) or node.name, "inputs": inputs, "output": node.name}

    # -- operators

    def _read_convolution(self, node: Any) -> None:
        source, weight, bias, stride, padding, dilation, groups = arguments(
            node, 7, (None, None, None, 1, 0, 1, 1)
        )
        kernel = self._constant(weight)
        is_flat = kernel.ndim == 3
        name = self._picture(node, source)
        if is_flat:
            kernel = kernel[:, :, None, :]
        kernel = np.ascontiguousarray(kernel.transpose(0, 2, 3, 1))
        steps = pair(stride, is_flat=is_flat, of=1)
        spread = pair(dilation, is_flat=is_flat, of=1)
        if isinstance(padding, str):
            raise NotInTable
        rows, columns = pair(padding, is_flat=is_flat, of=0)
        found = self._constant(bias)
        self.put(
            node,
            Convolution(
                **self._base(node, name),
                weight=kernel,
                bias=np.zeros(len(kernel)) if found is None else found,
                stride=steps,
                padding=(rows, rows, columns, columns),
                dilation=spread,
                groups=groups,
            ),
            is_picture=True,
        )

    def _picture(self, node: Any, source: Any) -> str:
        """Return a value with its channels last, which is made where it is not one."""
        name = self._value(source)
        if name in self.pictures:
            return name
        if len(self.shapes[name]) == 3:
            made, (channels, *sizes) = f"{name}_last", self.shapes[name]
            self.operators[made] = Reorder(
                name=module_of(node), inputs=(name,), output=made, axes=(1, 2, 0)
            )
            self.shapes[made] = (*sizes, channels)
            self.pictures.add(made)
            return made
        if len(self.shapes[name]) != 2:
            raise NotInTable
        length, made = self.shapes[name][1], f"{name}_last"
        axes = (1, 0)
        turned = f"{name}_turned"
        self.operators[turned] = Reorder(
            name=module_of(node), inputs=(name,), output=turned, axes=axes
        )
        self.shapes[turned] = (length, self.shapes[name][0])
        self.operators[made] = Reshape(name=module_of(node), inputs=(turned,), output=made)
        self.shapes[made] = (1, *self.shapes[turned])
        self.pictures.add(made)
        return made

    def _read_linear(self, node: Any) -> None:
        source, weight, bias = arguments(node, 3, (None, None, None))
        matrix, found = self._constant(weight), self._constant(bias)
        name = self._value(source)
        if name in self.pictures:
            raise NotInTable
        name, matrix = self._unturned(name, matrix)
        added = np.zeros(len(matrix)) if found is None else found
        self.put(node, Matmul(**self._base(node, name), weight=matrix, bias=added))

    def _unturned(self, name: str, matrix: Any) -> tuple[str, Any]:
        """Read a flattened picture as it lies, by weights in that order."""
        flat = self.operators.get(name)
        turned = self.operators.get(flat.inputs[0]) if isinstance(flat, Reshape) else None
        if flat is None or not isinstance(turned, Reorder) or turned.axes != (2, 0, 1):
            return name, matrix
        height, width, channels = self.shapes[turned.inputs[0]]
        order = np.arange(matrix.shape[1]).reshape(channels, height, width).transpose(1, 2, 0)
        made = f"{name}_flat"
        self.operators[made] = Reshape(name=flat.name, inputs=turned.inputs, output=made)
        self.shapes[made] = self.shapes[name]
        return made, np.ascontiguousarray(matrix[:, order.ravel()])

    def _read_normalization(self, node: Any) -> None:
        source, scale, shift, mean, variance, is_training, _, epsilon = arguments(
            node, 8, (None, None, None, None, None, False, 0.1, 1e-5)
        )
        if is_training:
            raise UsageError("the network is in training mode; call `eval()` on it first.")
        name = self._value(source)
        center, spread = self._constant(mean), np.sqrt(self._constant(variance) + epsilon)
        factor = (1.0 if scale is None else self._constant(scale)) / spread
        offset = (0.0 if shift is None else self._constant(shift)) - center * factor
        before = self.operators.get(name)
        is_alone = self.num_users.get(name) == 1
        if (
            isinstance(before, Convolution | Matmul)
            and is_alone
            and before.low is before.high is None
        ):
            shape = (-1,) + (1,) * (before.weight.ndim - 1)
            del self.operators[name]
            made: Operator = replace(
                before,
                output=node.name,
                weight=before.weight * factor.reshape(shape),
                bias=before.bias * factor + offset,
            )
        elif name in self.pictures:
            made = Convolution(
                **self._base(node, name),
                weight=factor.reshape(-1, 1, 1, 1),
                bias=offset,
                groups=len(factor),
            )
        else:
            raise NotInTable
        self.put(node, made, is_picture=name in self.pictures)

    def _read_clamp(self, node: Any) -> None:
        kind = str(node.target).removeprefix("aten.").partition(".")[0].rstrip("_")
        bounds = {"relu": (0.0, None), "relu6": (0.0, 6.0)}.get(kind)
        if bounds is None:
            _, low, high = arguments(
                node, 3, (None, -1.0, 1.0) if kind == "hardtanh" else (None,) * 3
            )
            bounds = (low, high)
        name = self._value(node.args[0])
        before, is_picture = self.operators.get(name), name in self.pictures
        is_free = (
            isinstance(before, Convolution | Matmul | Addition)
            and before.low is before.high is None
        )
        if is_free and self.num_users.get(name) == 1:
            del self.operators[name]
            made = replace(before, output=node.name, low=bounds[0], high=bounds[1])  # type: ignore[type-var]
        else:
            ends = tuple(
                end if one is None else float(one)
                for one, end in zip(bounds, (-math.inf, math.inf), strict=True)
            )
            made = Elementwise(**self._base(node, name), function="clamp", parameters=ends)
        self.put(node, made, is_picture=is_picture)

    def _read_sum(self, node: Any) -> None:
        if node.kwargs.get("alpha", 1) != 1:
            raise NotInTable
        a, b = (constant_of(self, one) or self._value(one) for one in self._tensors(node))
        if self.shapes[a] != self.shapes[b]:
            raise NotInTable
        self.put(node, Addition(**self._base(node, a, b)), is_picture=a in self.pictures)

    def _read_product(self, node: Any) -> None:
        for one, other in (self._tensors(node), self._tensors(node)[::-1]):
            factor = self.values.get(other.name)
            if isinstance(factor, np.ndarray):
                read_factor(self, node, self._value(one), factor)
                return
        a, b = (self._value(one) for one in self._tensors(node))
        if math.prod(self.shapes[a]) < math.prod(self.shapes[b]):
            a, b = b, a
        fits = len(self.shapes[a]) == len(self.shapes[b]) and all(
            y in (x, 1) for x, y in zip(self.shapes[a], self.shapes[b], strict=True)
        )
        if not fits:
            raise NotInTable
        self.put(node, Multiplication(**self._base(node, a, b)), is_picture=a in self.pictures)

    def _tensors(self, node: Any) -> tuple[Any, Any]:
        first, second = node.args[:2]
        if not hasattr(second, "name") or not hasattr(first, "name"):
            raise NotInTable
        return first, second

    def _read_pooling(self, node: Any) -> None:
        is_mean = "avg" in str(node.target)
        given = list(arguments(node, 7, (None, None, (), 0, None, None, None)))
        name = self._value(given[0])
        kernel = pair(given[1])
        stride = pair(given[2]) if given[2] else kernel
        margins = pair(given[3])
        counts = True
        if is_mean:
            is_ceiled, counts = bool(given[4]), given[5] is not False
            if given[6] is not None:
                raise NotInTable
        else:
            is_ceiled = bool(given[5])
            if given[4] not in (None, 1, [1, 1]):
                raise NotInTable
        if name not in self.pictures or (is_ceiled and is_mean):
            raise NotInTable
        made = Pooling(
            **self._base(node, name),
            is_mean=is_mean,
            kernel=kernel,
            stride=stride,
            padding=pooling_padding(self.shapes[name], shape_of(node), kernel, stride, margins),
            counts_padding=counts,
        )
        self.put(node, made, is_picture=True)

    def _read_whole_mean(self, node: Any) -> None:
        """Read a mean over height and width, or over equal parts of them; a reshape may follow."""
        name, wanted = self._value(node.args[0]), node.args[1]
        if name not in self.pictures:
            raise NotInTable
        height, width, channels = self.shapes[name]
        is_mean = "mean" in str(node.target)
        if is_mean:
            if sorted(axis % 4 for axis in wanted) != [2, 3]:
                raise NotInTable
        elif height % wanted[0] or width % wanted[-1]:
            raise NotInTable
        else:
            height, width = height // wanted[0], width // wanted[-1]
        is_flat = len(shape_of(node)) == 1
        output = f"{node.name}_mean" if is_flat else node.name
        made = Pooling(
            **{**self._base(node, name), "output": output},
            is_mean=True,
            kernel=(height, width),
            stride=(height, width),
        )
        self.operators[output] = made
        self.shapes[output] = (1, 1, channels)
        self.pictures.add(output)
        if is_flat:
            self.put(node, Reshape(**self._base(node, output)))
        else:
            self.put(node, made, is_picture=True)

    def _read_concatenation(self, node: Any) -> None:
        parts, axis = arguments(node, 2, (None, 0))
        names = [self._value(one) for one in parts]
        is_picture = all(name in self.pictures for name in names)
        rank = len(node.meta["val"].shape)
        axis = axis % rank - 1
        if axis < 0 or is_picture != any(name in self.pictures for name in names):
            raise NotInTable
        made = Concatenation(
            **self._base(node, *names), axis=(2, 0, 1)[axis] if is_picture else axis
        )
        self.put(node, made, is_picture=is_picture)

    def _read_function(self, node: Any) -> None:
        kind = str(node.target).removeprefix("aten.").partition(".")[0].rstrip("_")
        name = self._value(node.args[0])
        parameters: tuple[float, ...] = ()
        if kind == "leaky_relu":
            parameters = (float(arguments(node, 2, (None, 0.01))[1]),)
        if kind == "gelu" and node.kwargs.get("approximate", "none") != "none":
            parameters = (1.0,)
        made = Elementwise(**self._base(node, name), function=kind, parameters=parameters)
        self.put(node, made, is_picture=name in self.pictures)

    def _read_slice(self, node: Any) -> None:
        """Read a slice of everything, as `x[:, -1]` begins with."""
        _, _, begin, end, step = arguments(node, 5, (None, 0, None, None, 1))
        if begin not in (None, 0) or step != 1 or not (end is None or end >= 2**62):
            raise NotInTable
        self._read_same(node)

    def _read_same(self, node: Any) -> None:
        self.values[node.name] = self._value(node.args[0])
        name = self.values[node.name]
        self.num_users[name] = self.num_users.get(name, 1) - 1 + len(node.users)

    def _read_reshape(self, node: Any) -> None:
        name = self._value(node.args[0])
        shape = self.shapes[name]
        if read_shuffle(self, node, name):
            return
        if name in self.pictures:
            height, width, channels = shape
            if height * width > 1 and channels > 1:
                turned = f"{name}_turned"
                self.operators[turned] = Reorder(
                    name=module_of(node), inputs=(name,), output=turned, axes=(2, 0, 1)
                )
                self.shapes[turned] = (channels, height, width)
                name = turned
        self.put(node, Reshape(**self._base(node, name)), is_picture=False)


def _is_read(reader: Callable[[Any], bool | None], node: Any) -> bool:
    """Return whether a reader can read a node: it neither says no nor raises."""
    try:
        return reader(node) is not False
    except NotInTable:
        return False
