"""Calibrates a network: reads it, equalizes its channels, and takes the range of each value.

In: a module and inputs. Out: what integer networks are made of, with all weights in bytes or some
of them in four bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from steptime.quantize.capture import capture
from steptime.quantize.integer.integer_network import IntegerNetwork, build
from steptime.quantize.integer.lookup import to_numbers
from steptime.quantize.observers import Observer, Range, observe
from steptime.quantize.rounding.equalize import equalized
from steptime.quantize.rounding.round_weights import Rounding, rounded
from steptime.quantize.trained_network import Lookup, Network
from steptime.quantize.wider_values import widened

_BATCH = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """A network in floats with all that its bytes are made from.

    Attributes:
        network: in floats; it computes what was trained.
        ranges: of each value.
        inputs: those of calibration (num_inputs, ...).
        rounding: of weights and biases.
    """

    network: Network
    ranges: Mapping[str, Range]
    inputs: Any
    rounding: Rounding

    def to_integers(
        self,
        bits: Mapping[str, int] = MappingProxyType({}),
        *,
        tell: Callable[[str], None] = lambda _: None,
    ) -> tuple[Network, IntegerNetwork]:
        """Return the network with weights that bytes can have, and the integer one.

        Args:
            bits: of layers, by the name of their output: 4 of weights, or 16 or 32 of outputs; the
                others have 8.
            tell: called with a line now and then.

        Raises:
            DataError: a value is 0 for each input.
            UsageError: a sum does not fit into 32 bits.
            MissingExtraError: onnx or ONNX Runtime is not installed.
        """
        four = frozenset(name for name, num in bits.items() if num == 4)
        wider = widened(self.network, {name: num for name, num in bits.items() if num > 8})
        made = rounded(
            *(wider, self.ranges, self.inputs, self.rounding), in_four_bits=four, tell=tell
        )
        return made, build(made, self.ranges, in_four_bits=four)


def as_inputs(model: Any, values: Any) -> Any:
    """Return an array as inputs of a module: whole numbers if it looks them up, or else floats."""
    import torch

    given = np.asarray(values)
    has_tables = any(isinstance(one, torch.nn.Embedding) for one in model.modules())
    return given.astype(np.int64 if has_tables and given.dtype.kind in "iu" else np.float32)


def calibrate(
    model: Any,
    inputs: Any,
    *,
    observer: Observer = Observer.MSE,
    rounding: Rounding = Rounding.CORRECTED,
) -> Calibrated:
    """Return a network with the ranges of its values.

    Args:
        model: a `torch.nn.Module` in evaluation mode.
        inputs: as in training (num_inputs, ...).
        observer: how ranges are taken.
        rounding: how weights and biases are rounded.

    Raises:
        UsageError: torch cannot export the network, or an operator is not in the table.
        DataError: a value is not finite.
    """
    import torch

    given = torch.from_numpy(as_inputs(model, inputs))
    example = given[:2] if len(given) > 1 else given.repeat(2, *(1,) * (given.ndim - 1))
    network, program = capture(model, example)
    for one in network.operators:
        if isinstance(one, Lookup) and one.inputs == (network.input,):
            to_numbers(inputs, len(one.weight))  # refuses those outside of the table
    batches = given.split(_BATCH)
    network, divisors = equalized(network, program, batches)
    ranges = observe(program, batches, observer=observer, divisors=divisors)
    return Calibrated(network=network, ranges=ranges, inputs=given.numpy(), rounding=rounding)
