"""Looks whether models are called with one and the same matrix each time, and what of it is zeros.

In: the arguments of outermost calls with gradients. Out: the fact `zero_fraction`. Numbers are read
once for each matrix, when it comes for the second time.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from ..trial_plan import lever_tool

MAX_MATRICES = 8
NODE_FEATURES = "x"
"""The attribute of PyG's graphs that holds what nodes are described by."""


class InputLook:
    """What is known of the matrices that models were called with."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.num_calls = 0
        self.zero_fraction = 0.0
        self.seen: dict[int, Any] = {}  # references by id; None once its numbers were read

    def see(self, args: Any, kwargs: Any) -> None:
        """Take the arguments of a call."""
        self.num_calls += 1
        rows = lever_tool("kernels/zero_rows")
        for matrix in matrices_in((*args, *kwargs.values())):
            if not rows.is_candidate(self.torch, matrix):
                continue
            key = id(matrix)
            if key not in self.seen:
                if len(self.seen) < MAX_MATRICES:
                    self.seen[key] = weakref.ref(matrix)
            elif self.seen[key] is not None and self.seen[key]() is matrix:
                self.seen[key] = None
                self.zero_fraction = max(self.zero_fraction, rows.zero_fraction(matrix))

    def describe(self) -> dict[str, Any]:
        """Return the fact, once a matrix could have come twice."""
        return {"zero_fraction": round(self.zero_fraction, 4)} if self.num_calls > 1 else {}


def matrices_in(values: Iterable[Any]) -> Iterator[Any]:
    """Return what may be matrices among arguments: themselves, in lists, or a graph's features."""
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from value
        elif hasattr(value, "dim"):
            yield value
        else:
            yield getattr(value, NODE_FEATURES, None)
