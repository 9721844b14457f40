"""Seven whole numbers an update: how large the inputs of its outermost calls were.

In: the shapes that the hooks kept. Out: the numbers that the update's row holds. No torch here.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

ROWS, ELEMENTS, SQUARES, NODES, PLAIN, TRAINED, LARGEST = range(7)
"""The places of `record.buckets.SIZES`: leading sizes, elements, and the squares of the elements of
a row, summed over calls with gradients; nodes made in autograd's graph from the backward call of
the update before to the last one of this; elements in calls without gradients; the weights that
need gradients, as they were last looked at; and the elements of the largest call with gradients, by
which memory goes, and no work."""

MAX_SIZE = 1 << 50
"""Sums of a hundred updates of this size still fit into 64 bits."""

MAX_SHAPES = 256
"""Of an update; where it has more calls, those so far become sums."""


def sums_of(shapes: Iterable[Any], num_nodes: int = 0, trained: int = 0) -> list[int]:
    """Return the seven numbers of an update.

    Args:
        shapes: of each call with gradients its shape, of each other call its number of elements;
            sums that this function made are added.
        num_nodes: of autograd's graph.
        trained: weights that need gradients.
    """
    sums = [0, 0, 0, num_nodes, 0, trained, 0]
    for shape in shapes:
        if type(shape) is int:
            sums[PLAIN] += shape
        elif type(shape) is list:
            sums = [*(a + b for a, b in zip(sums[:-1], shape)), max(sums[LARGEST], shape[LARGEST])]
        else:
            elements, rows = prod(shape), shape[0] if shape else 1
            sums[ROWS] += rows
            sums[ELEMENTS] += elements
            sums[LARGEST] = max(sums[LARGEST], elements)
            if rows:
                sums[SQUARES] += elements * elements // rows
    return [min(MAX_SIZE, one) for one in sums]
