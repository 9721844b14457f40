"""A trained network as a list of operators on named values, before it is quantized.

Shapes are without the batch. A picture is (height, width, channels), whatever it was in training,
because that is what kernels for small processors read; everything else is as in training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """What makes one value from others.

    Attributes:
        name: the path of its module, such as `layer1.0.conv2`.
        inputs, output: names of values.
    """

    name: str
    inputs: tuple[str, ...]
    output: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution(Operator):
    """A convolution, with batch normalization and clamp folded in.

    Attributes:
        weight: (num_outputs, height, width, num_inputs / groups).
        bias: (num_outputs,).
        padding: rows above and below, columns left and right.
        low, high: what the output is clamped to; None where it is not.
    """

    weight: Floats
    bias: Floats
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Matmul(Operator):
    """A matmul over the last axis: weight (num_outputs, num_inputs), bias (num_outputs,)."""

    weight: Floats
    bias: Floats
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition(Operator):
    """The sum of two values of one shape."""

    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiplication(Operator):
    """The product of two values; the second may have ones in its shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooling(Operator):
    """The largest or the mean of each window of a picture.

    Attributes:
        is_mean: the mean; else the largest.
        kernel, stride: height and width.
        padding: as of a convolution.
        counts_padding: whether zeros outside count in a mean.
    """

    is_mean: bool
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    counts_padding: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Concatenation(Operator):
    """Values one after the other along an axis."""

    axis: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Elementwise(Operator):
    """A function of each number, which becomes a table of 256 entries.

    Attributes:
        function: its name, such as `sigmoid`.
        parameters: its numbers, such as the slope of a leaky ReLU.
    """

    function: str
    parameters: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reorder(Operator):
    """The axes in another order."""

    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reshape(Operator):
    """The same numbers in another shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence(Operator):
    """One direction of one layer of an LSTM, over the first axis; it begins with zeros.

    Attributes:
        weight: (4 * num_hidden, num_inputs), of the input, forget, cell and output gates.
        hidden: the same of its own output before, (4 * num_hidden, num_hidden).
        bias: (4 * num_hidden,).
        is_backward: it begins at the end.
    """

    weight: Floats
    hidden: Floats
    bias: Floats
    is_backward: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection(Operator):
    """The part at one index of the first axis."""

    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant(Operator):
    """Numbers that are the same for each input."""

    values: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup(Operator):
    """The row of a table (num_rows, num) for each whole number of the input."""

    weight: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisPart(Operator):
    """What lies between two places of an axis."""

    axis: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Contraction(Operator):
    """The matmul of two values (..., m, k) and (..., k, n), or (..., n, k) where `is_turned`."""

    is_turned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Softmax(Operator):
    """The softmax of `factor` times a value over its last axis.

    Attributes:
        factor: of the input.
        is_causal: row i has the entries up to i alone.
    """

    factor: float = 1.0
    is_causal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalization(Operator):
    """A layer normalization over the last axis: weight and bias (num,)."""

    weight: Floats
    bias: Floats
    epsilon: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisMean(Operator):
    """The mean of a sequence (num_steps, num) over its steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requantization(Operator):
    """The same numbers with fewer bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotTaken:
    """An operator that is not in the table.

    Attributes:
        operator: what torch calls it.
        name: the path of its module.
        macs: its multiplications, as far as they are known.
    """

    operator: str
    name: str
    macs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Operators in the order in which they run.

    Attributes:
        input, output: the names of the first and the last value.
        input_axes: the axes of the input of training in the order of `input`, without the batch.
        shapes: of each value.
        pictures: the values whose last axis is channels, which are first in training.
        operators: what makes them.
        bits: of values that are kept wider than a byte.
    """

    input: str
    output: str
    input_axes: tuple[int, ...]
    shapes: Mapping[str, Shape]
    pictures: frozenset[str] = frozenset()
    operators: tuple[Operator, ...] = ()
    bits: Mapping[str, int] = field(default_factory=dict)
