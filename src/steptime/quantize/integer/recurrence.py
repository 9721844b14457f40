"""An LSTM on bytes: gates from bytes, its cell in 16 bits, sigmoid and tanh by a table.

What goes into a gate is a 16-bit number in steps of 2 ** -11, and so is the cell, between -16 and
16; what comes out of sigmoid and tanh is one in steps of 2 ** -15.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from steptime.quantize.integer.integer_operators import IntegerOperator
from steptime.quantize.scheme import HIGH, LOW, Affine, fraction_of, scaled, shifted, weights_of
from steptime.quantize.trained_network import Recurrence

if TYPE_CHECKING:
    from steptime.quantize.scheme import Bytes, Wide

CELL_BITS, GATE_BITS = 11, 15
STEP_BITS = 7
"""Of a 16-bit number, the bits between two entries of the table."""

OUTPUTS = Affine(scale=1 / 128, zero=0)
"""An output is the product of a sigmoid and a tanh."""

_LOW, _HIGH = -(2**15), 2**15 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerRecurrence(IntegerOperator):
    """One layer of an LSTM, whose outputs are in steps of 1 / 128.

    Attributes:
        weight, hidden: bytes (4 * num_hidden, ...), of the input and of the output before.
        bias: (4 * num_hidden,) at the step of the sums over the input.
        fractions: multiplier and shift of each row, of the input and of the output before
            (2, 2, 4 * num_hidden).
        zero_in: the zero of the input.
    """

    weight: Bytes
    hidden: Bytes
    bias: Wide
    fractions: Wide
    zero_in: int

    @property
    def num_hidden(self) -> int:
        """Return the number of outputs."""
        return int(self.hidden.shape[1])

    def run(self, *values: Bytes) -> Bytes:
        """Return the output (batch, num_steps, num_hidden)."""
        moved = values[0].astype(np.float64) - self.zero_in
        sums = np.rint(moved @ self.weight.astype(np.float64).T).astype(np.int64) + self.bias
        given = scaled(sums, *self.fractions[0])
        batch, num_steps = given.shape[:2]
        cell = np.zeros((batch, self.num_hidden), dtype=np.int64)
        found = np.zeros((batch, num_steps, self.num_hidden), dtype=np.int8)
        before, weights = np.zeros((batch, self.num_hidden)), self.hidden.astype(np.float64).T
        for step in range(num_steps):
            own = scaled(np.rint(before @ weights).astype(np.int64), *self.fractions[1])
            gates = np.split(np.clip(given[:, step] + own, _LOW, _HIGH), 4, axis=1)
            taken, kept, new, out = (
                looked_up(one, TANH if i == 2 else SIGMOID) for i, one in enumerate(gates)
            )
            cell = shifted(kept * cell, np.int64(GATE_BITS))
            cell = cell + shifted(taken * new, np.int64(2 * GATE_BITS - CELL_BITS))
            cell = np.clip(cell, _LOW, _HIGH)
            whole = shifted(out * looked_up(cell, TANH), np.int64(2 * GATE_BITS - 7))
            found[:, step] = np.clip(whole, LOW, HIGH)
            before = found[:, step].astype(np.float64)
        return found


def _table(function: Any) -> Wide:
    """Return a function of 16-bit numbers at every 2 ** STEP_BITS of them."""
    at = np.arange(_LOW, _HIGH + 2, 2**STEP_BITS) / 2**CELL_BITS
    return np.asarray(np.clip(np.rint(function(at) * 2**GATE_BITS), _LOW, _HIGH).astype(np.int64))


SIGMOID = _table(lambda x: 1 / (1 + np.exp(-x)))
TANH = _table(np.tanh)


def looked_up(values: Wide, table: Wide) -> Wide:
    """Return a function of 16-bit numbers, straight between the entries of its table."""
    places, rest = (values - _LOW) >> STEP_BITS, (values - _LOW) & (2**STEP_BITS - 1)
    begin = table[places]
    return np.asarray(begin + (((table[places + 1] - begin) * rest) >> STEP_BITS))


def recurrence_of(one: Recurrence, base: dict[str, Any], before: Affine) -> IntegerRecurrence:
    """Return a layer on bytes whose input is kept as `before` says."""
    weight, scales = weights_of(one.weight)
    hidden, own_scales = weights_of(one.hidden)
    steps = [
        [fraction_of(step.scale * scale * 2**CELL_BITS) for scale in each.tolist()]
        for step, each in ((before, scales), (OUTPUTS, own_scales))
    ]
    return IntegerRecurrence(
        **base,
        weight=weight,
        hidden=hidden,
        bias=np.rint(one.bias / (before.scale * scales)).astype(np.int64),
        fractions=np.array(steps, dtype=np.int64).transpose(0, 2, 1),
        zero_in=before.zero,
    )
