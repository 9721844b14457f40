"""Passes over the edges of a graph, compiled by numba: what partitions are made and judged by.

In: arrays of a graph in compressed sparse columns. Out: arrays. Nothing here checks its arguments.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

Array = np.ndarray[Any, Any]


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def count_both_ways(indptr: Array, indices: Array, starts: Array) -> None:
    """Fill `starts` (num_nodes + 1,) with where each node's neighbors of both ways begin."""
    num_nodes = len(indptr) - 1
    starts[:] = 0
    for node in range(num_nodes):
        for at in range(indptr[node], indptr[node + 1]):
            other = indices[at]
            if other != node:
                starts[node + 1] += 1
                starts[other + 1] += 1
    for node in range(num_nodes):
        starts[node + 1] += starts[node]


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def place_both_ways(indptr: Array, indices: Array, starts: Array, neighbors: Array) -> int:
    """Fill `neighbors`, each of them once and sorted; rewrite `starts`; return how many."""
    num_nodes = len(indptr) - 1
    cursor = starts[:-1].copy()
    for node in range(num_nodes):
        for at in range(indptr[node], indptr[node + 1]):
            other = indices[at]
            if other != node:
                neighbors[cursor[node]] = other
                cursor[node] += 1
                neighbors[cursor[other]] = node
                cursor[other] += 1
    written = 0
    begin = starts[0]
    for node in range(num_nodes):
        end = starts[node + 1]
        row = neighbors[begin:end]
        row.sort()
        starts[node] = written
        for at in range(begin, end):
            if at == begin or neighbors[at] != neighbors[at - 1]:
                row_value = neighbors[at]
                # What was written lies before what is read: `written` never passes `at`.
                neighbors[written] = row_value
                written += 1
        begin = end
    starts[num_nodes] = written
    return int(written)


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def count_cut(indptr: Array, indices: Array, owner: Array) -> int:
    """Return how many stored edges join nodes of different parts."""
    cut = 0
    for node in range(len(indptr) - 1):
        for at in range(indptr[node], indptr[node + 1]):
            cut += owner[indices[at]] != owner[node]
    return cut


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def copy_rows(source: Array, picks: Array, target: Array, places: Array) -> None:
    """Copy row `picks[i]` of a table to row `places[i]` of another, for each i."""
    for at in range(len(picks)):
        target[places[at]] = source[picks[at]]


def in_words(rows: Array) -> Array:
    """The same rows of bytes in words of 8 where they are whole words: fewer steps a copy."""
    is_whole = rows.shape[1] % 8 == 0 and rows.ctypes.data % 8 == 0 and rows.flags.c_contiguous
    return rows.view(np.uint64) if is_whole else rows
