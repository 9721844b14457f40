"""The kernels of MaxK in numba, for machines that have no C++ compiler.

Plain loops over arrays of NumPy, float32 or float64, compiled at their first call; each takes a
range of rows (or of columns, by its splits) so that the caller may give one to each thread: they
hold no lock of Python. The order of every sum is that of the compiled kernels.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np


def _select(bits: Any, most: Any, first: int, last: int, val: Any, idx: Any) -> int:
    """Keep the k largest of each row, of equal ones the first; the row of a NaN, or -1.

    Bisection as in the compiled kernels: bits are the values' own as integers, which a flip of the
    negative ones puts in the order of the values; most is the largest integer, and the bits of
    infinity.
    """
    width, k = bits.shape[1], val.shape[1]
    keys = np.empty(width, np.int64)
    for row in range(first, last):
        low, high = np.int64(most[0]), np.int64(-most[0])
        for d in range(width):
            key = np.int64(bits[row, d])
            keys[d] = key ^ most[0] if key < 0 else key
            low, high = min(low, keys[d]), max(high, keys[d])
        if high > most[1] or low < ~most[1]:
            return row
        while low < high:
            middle = (low | high) - ((low ^ high) >> 1)
            reach = 0
            for d in range(width):
                reach += keys[d] >= middle
            if reach >= k:
                low = middle
            else:
                high = middle - 1
        ties = k
        for d in range(width):
            ties -= keys[d] > low
        at = 0
        for d in range(width):
            take = keys[d] > low
            if keys[d] == low and ties > 0:
                take = True
                ties -= 1
            if take:
                val[row, at] = bits[row, d]
                idx[row, at] = d
                at += 1
    return -1


def _forward(
    indptr: Any, indices: Any, weight: Any, rows: tuple[int, int], val: Any, idx: Any, y: Any
) -> None:
    """Rows first to last of the product; y holds zeros there."""
    k = val.shape[1]
    for row in range(rows[0], rows[1]):
        for e in range(indptr[row], indptr[row + 1]):
            j = indices[e]
            for s in range(k):
                y[row, idx[j, s]] += weight[e] * val[j, s]


def _backward(
    splits: tuple[Any, Any], indices: Any, weight: Any, dy: Any, idx: Any, grad: Any
) -> None:
    """One range of columns; grad holds zeros there."""
    begin, end = splits
    k = idx.shape[1]
    for row in range(begin.shape[0]):
        for e in range(begin[row], end[row]):
            j = indices[e]
            for s in range(k):
                grad[j, s] += weight[e] * dy[row, idx[j, s]]


def _weight_gradient(
    indptr: Any, indices: Any, rows: tuple[int, int], val: Any, idx: Any, dy: Any, out: Any
) -> None:
    """The products of each edge's two rows."""
    k = val.shape[1]
    for row in range(rows[0], rows[1]):
        for e in range(indptr[row], indptr[row + 1]):
            j = indices[e]
            total = out[e] * 0
            for s in range(k):
                total += val[j, s] * dy[row, idx[j, s]]
            out[e] = total


# No lock of Python is held while one of them runs; each is compiled at its first call.
_jit = numba.njit(nogil=True)
select_rows = _jit(_select)
forward_rows = _jit(_forward)
backward_range = _jit(_backward)
weight_gradient_rows = _jit(_weight_gradient)
