"""Networks whose layers are kept in different forms: what they compute, and what they take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from steptime.app.quantize.network_sizes import bytes_of, num_weights
from steptime.quantize.calibrate import Calibrated
from steptime.quantize.integer.integer_network import IntegerNetwork
from steptime.quantize.observers import Range
from steptime.quantize.rounding.round_weights import Rounding
from steptime.quantize.trained_network import Network, Operator
from steptime.quantize.wider_values import LAYERS
from steptime.quantize.write_onnx import onnx_model


@dataclass(frozen=True, kw_only=True)
class Mix:
    """A network with the form of each layer.

    Attributes:
        calibrated: the network in floats, with the range of each value.
        bits: of the layers, by the name of their output: 4, 16 or 32; the others have 8.
    """

    calibrated: Calibrated
    bits: Mapping[str, int] = field(default_factory=dict)
    _made: list[tuple[Network, IntegerNetwork]] = field(default_factory=list, repr=False)

    @property
    def network(self) -> Network:
        """In floats."""
        return self.calibrated.network

    @property
    def ranges(self) -> Mapping[str, Range]:
        """Of each value."""
        return self.calibrated.ranges

    @property
    def layers(self) -> tuple[Operator, ...]:
        """The layers that have a choice."""
        return tuple(one for one in self.network.operators if isinstance(one, LAYERS))

    def moved(self, output: str, bits: int) -> Mix:
        """Return the same with one layer in another form."""
        return self.with_bits({**self.bits, output: bits})

    def with_bits(self, bits: Mapping[str, int]) -> Mix:
        """Return the same with other forms."""
        return Mix(calibrated=self.calibrated, bits=bits)

    def made(self, tell: Callable[[str], None] = lambda _: None) -> tuple[Network, IntegerNetwork]:
        """Return the network with the bits of its values, and the integer one; made once."""
        if not self._made:
            self._made.append(self.calibrated.to_integers(self.bits, tell=tell))
        return self._made[0]

    @property
    def integer(self) -> IntegerNetwork:
        """What it computes."""
        return self.made()[1]

    @property
    def num_bytes(self) -> int:
        """All constants; two weights of four bits share a byte."""
        saved = sum(num_weights(one) // 2 for one in self.layers if self.bits.get(one.output) == 4)
        alike = replace(self.calibrated, rounding=Rounding.NEAREST)  # as large, and made at once
        _, integer = alike.to_integers(self.bits)
        return sum(bytes_of(one) for one in integer.operators) - saved

    def in_onnx(self) -> Any:
        """Return the model for ONNX Runtime."""
        return onnx_model(*self.made())
