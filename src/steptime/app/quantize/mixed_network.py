"""Networks whose layers are kept in different forms: what they compute, and what they take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from steptime.app.quantize.network_sizes import bytes_of, num_weights
from steptime.quantize.integer.integer_network import IntegerNetwork, build
from steptime.quantize.observers import Range
from steptime.quantize.trained_network import Network, Operator
from steptime.quantize.wider_values import LAYERS, widened
from steptime.quantize.write_onnx import onnx_model


@dataclass(frozen=True, kw_only=True)
class Mix:
    """A network with the form of each layer.

    Attributes:
        network: in floats.
        ranges: of each value.
        bits: of the layers, by the name of their output: 4, 16 or 32; the others have 8.
    """

    network: Network
    ranges: Mapping[str, Range]
    bits: Mapping[str, int] = field(default_factory=dict)

    @property
    def layers(self) -> tuple[Operator, ...]:
        """The layers that have a choice."""
        return tuple(one for one in self.network.operators if isinstance(one, LAYERS))

    def moved(self, output: str, bits: int) -> Mix:
        """Return the same with one layer in another form."""
        return self.with_bits({**self.bits, output: bits})

    def with_bits(self, bits: Mapping[str, int]) -> Mix:
        """Return the same with other forms."""
        return Mix(network=self.network, ranges=self.ranges, bits=bits)

    @cached_property
    def written(self) -> Network:
        """The network with the bits of its values."""
        wider = {name: bits for name, bits in self.bits.items() if bits > 8}
        return widened(self.network, wider)

    @cached_property
    def integer(self) -> IntegerNetwork:
        """What it computes."""
        four = frozenset(name for name, bits in self.bits.items() if bits == 4)
        return build(self.written, self.ranges, in_four_bits=four)

    @property
    def num_bytes(self) -> int:
        """All constants; two weights of four bits share a byte."""
        saved = sum(num_weights(one) // 2 for one in self.layers if self.bits.get(one.output) == 4)
        return sum(bytes_of(one) for one in self.integer.operators) - saved

    def in_onnx(self) -> Any:
        """Return the model for ONNX Runtime."""
        return onnx_model(self.written, self.integer)
