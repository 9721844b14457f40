"""Looks once whether a model multiplies an input that is mostly zeros, as a bag of words is.

In: the operators of one counted update. Out: facts on the input whose products took longest. Memory
on the CPU is read as it is, at some places, and no operator is called; what lies on a device is
left alone, because reading it would wait for the device.
"""

from __future__ import annotations

import sys
from array import array
from ctypes import string_at
from typing import Any

from ...sites.frames import Frames, Place, innermost
from ..tally import Tally

MIN_ELEMENTS = 1 << 16
"""A smaller matrix is multiplied in microseconds."""

MIN_ZEROS = 0.9
"""With fewer zeros a sparse product is no faster than a dense one."""

MAX_LOOKS = 8
NUM_RUNS, RUN = 64, 256
"""As many runs of as many neighbors are read, spread over the matrix: half a millisecond."""

_WORDS = {2: "H", 4: "I", 8: "Q"}
"""Whole numbers of the size of an element: zero is 0, or the sign alone."""

Shape = tuple[int, ...]


class ZeroInputs:
    """The inputs without gradients that products of one update read, and what they take."""

    def __init__(self, torch: Any, frames: Frames) -> None:
        aten = torch.ops.aten
        self.frames = frames
        self.of_c = torch._C
        self.floats = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
        self.left_at = {aten.mm.default: 0, aten.addmm.default: 1}
        self.zeros: dict[tuple[int, int], float] = {}  # by address and number of elements
        self.product_ns: dict[tuple[int, int], int] = {}
        self.places: dict[tuple[int, int], tuple[Shape, tuple[str, str], Place | None]] = {}
        self.other_ns: dict[Shape, int] = {}  # of operators that multiply nothing, by shape

    def see(self, func: Any, args: Any, ns: int, tally: Tally) -> None:
        """Take an operator that has run in `ns`."""
        at = self.left_at.get(func)
        if at is None:
            if args and hasattr(args[0], "numel") and self._is_large(args[0]):
                shape = tuple(args[0].shape)
                self.other_ns[shape] = self.other_ns.get(shape, 0) + ns
            return
        pair = args[at : at + 2]
        left = pair[0]
        # Without a graph node running it is the forward: the second matrix is a weight there.
        if self.of_c._current_autograd_node() is None and self._is_input(left):
            self._look(left, tally)
        known = [key for key in map(_key, pair) if key in self.zeros]
        if known:
            self.product_ns[known[0]] = self.product_ns.get(known[0], 0) + ns

    def facts(self) -> dict[str, Any]:
        """Return the facts on the input with the longest products; empty without one."""
        sparse = [key for key in self.product_ns if self.zeros[key] >= MIN_ZEROS]
        if not sparse:
            return {}
        key = max(sparse, key=lambda one: self.product_ns[one])
        shape, (path, kind), place = self.places[key]
        file, line = (None, None) if place is None else place[:2]
        found: dict[str, Any] = {
            "rows": shape[0],
            "columns": shape[1],
            "zero_fraction": round(self.zeros[key], 4),
            "product_s": self.product_ns[key] * 1e-9,
            "other_s": self.other_ns.get(shape, 0) * 1e-9,
        }
        found |= {"module": path, "module_kind": kind, "file": file, "line": line}
        return {"zero_input": found}

    def _is_large(self, tensor: Any) -> bool:
        return not tensor.requires_grad and tensor.dim() == 2 and tensor.numel() >= MIN_ELEMENTS

    def _is_input(self, tensor: Any) -> bool:
        return (
            self._is_large(tensor)
            and tensor.device.type == "cpu"
            and tensor.dtype in self.floats
            and tensor.is_contiguous()
        )

    def _look(self, tensor: Any, tally: Tally) -> None:
        key = _key(tensor)
        if key in self.zeros or len(self.zeros) >= MAX_LOOKS:
            return
        call = tally.place_of_product()[1]
        names = ("", "") if call is None else tally.names.get(call.key, ("", ""))
        place = innermost(self.frames.stack(sys._getframe(1)))
        self.places[key] = tuple(tensor.shape), names, place
        self.zeros[key] = count_zeros(tensor.data_ptr(), tensor.numel(), tensor.element_size())


def _key(tensor: Any) -> tuple[int, int]:
    """Return what a matrix and its transpose share."""
    return tensor.data_ptr(), tensor.numel()


def count_zeros(address: int, num: int, size: int) -> float:
    """Return the share of zeros among some of the elements of a matrix.

    Args:
        address: of the first element.
        num: number of elements, which lie behind each other.
        size: of an element [bytes].
    """
    every = max(RUN, num // NUM_RUNS)
    sign = 1 << (8 * size - 1)
    zeros = seen = 0
    for start in range(0, num, every):
        length = min(RUN, num - start)
        words = array(_WORDS[size], string_at(address + start * size, length * size))
        zeros += words.count(0) + words.count(sign)
        seen += length
    return zeros / seen if seen else 0.0
