"""Arrays in memory, or mapped from files, as a source of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steptime.data.source import Column, Values
from steptime.errors import DataError


class ArraySource:
    """Samples that are the rows of arrays, all of one length.

    Reading rows that lie one behind another gives a view, without a copy, that cannot be written
    into; any other rows are gathered at once.
    """

    name = "arrays"
    reads_in_flight = 0

    def __init__(self, arrays: Mapping[str, Any], *, place: str = "arrays") -> None:
        """Take the arrays by column, each (N, *shape); `place` names them in messages.

        Raises:
            ValueError: there is none, or their lengths differ.
        """
        self._arrays = {name: _readable(array) for name, array in arrays.items()}
        lengths = {name: len(array) for name, array in self._arrays.items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"arrays of one length are needed, got {lengths}")
        self._length = next(iter(lengths.values()))
        self._place = place

    @property
    def columns(self) -> tuple[Column, ...]:
        """Dtype and shape of each array's rows."""
        return tuple(
            Column(name, "number" if array.ndim == 1 else "array", str(array.dtype),
                   array.shape[1:])
            for name, array in self._arrays.items()
        )  # fmt: skip

    @property
    def num_bytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self._arrays.values())

    def __len__(self) -> int:
        return self._length

    def read(self, indices: Sequence[int]) -> Mapping[str, Values]:
        """Return these rows of each array.

        Raises:
            DataError: there is no such row.
        """
        rows = np.asarray(indices, dtype=np.int64)
        if len(rows) and not 0 <= rows.min() <= rows.max() < self._length:
            raise DataError(f"{self._place} has {self._length} rows, asked were {rows.min()} to "
                            f"{rows.max()}")  # fmt: skip
        start = int(rows[0]) if len(rows) else 0
        stop = start + len(rows)
        if is_run(rows):
            return {name: array[start:stop] for name, array in self._arrays.items()}
        return {name: array.take(rows, axis=0) for name, array in self._arrays.items()}

    def place_of(self, index: int) -> str:
        """Return the name of the arrays, and the row."""
        return f"{self._place}, row {index}"

    def close(self) -> None:
        """Let the arrays go."""
        self._arrays = {}


def is_run(rows: NDArray[np.int64]) -> bool:
    """Whether the rows lie one behind another."""
    num = len(rows)
    return num > 0 and rows[-1] - rows[0] == num - 1 and bool((rows[1:] > rows[:-1]).all())


def _readable(array: Any) -> NDArray[Any]:
    """Return a plain array on the same memory that nobody writes into by accident."""
    view: NDArray[Any] = np.asarray(array).view()
    view.flags.writeable = False
    return view
