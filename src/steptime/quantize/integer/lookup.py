"""Rows of a table of bytes, by whole numbers of two bytes each in the input, the low one first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from steptime.errors import DataError
from steptime.quantize.integer.integer_operators import IntegerOperator

if TYPE_CHECKING:
    from steptime.quantize.scheme import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerLookup(IntegerOperator):
    """The row of `table` (num_rows, num) for each number; one that is too large takes the last."""

    table: Bytes

    def run(self, *values: Bytes) -> Bytes:
        """Return the output (batch, ..., num) of numbers (batch, ..., 2)."""
        numbers = np.ascontiguousarray(values[0]).view("<u2")[..., 0].astype(np.int64)
        return np.asarray(self.table[np.minimum(numbers, len(self.table) - 1)])


def to_numbers(inputs: Any, num_rows: int) -> Bytes:
    """Return whole numbers (batch, ...) as pairs of bytes (batch, ..., 2).

    Raises:
        DataError: a number has no row in a table of `num_rows`.
    """
    given = np.asarray(inputs)
    if given.size and not 0 <= int(given.min()) <= int(given.max()) < num_rows:
        raise DataError(
            f"the inputs have whole numbers from {int(given.min())} to {int(given.max())}; the "
            f"network looks them up in a table of {num_rows} rows.",
            hint=f"Give numbers from 0 to {num_rows - 1}.",
        )
    return np.asarray(given.astype("<u2")[..., None].view(np.int8))
