"""Which kernels compute MaxK: compiled for AVX-512, AVX2 or any processor, or torch's own.

`kernels_for(device)` is the one choice; `STEPTIME_MAXK_PATH` or the argument `path` forces it. Each
kind has the same five calls over contiguous tensors, and the same result: of equal values the first
ones are kept, and sums run in the order of the graph. `maxk` is the only caller.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Protocol

import torch

from steptime.graph import maxk_build
from steptime.graph.adjacency import Adjacency
from steptime.graph.maxk_torch import TorchKernels, index_type

PATHS = ("portable", "avx2", "avx512", "torch")
COMPILED = {"portable": 0, "avx2": 1, "avx512": 2}
VARIABLE = "STEPTIME_MAXK_PATH"
DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float64: 2}


class MaxKKernels(Protocol):
    """What MaxK computes; val and idx are (rows, k), dense is (rows, width)."""

    def select(self, x: Any, k: int) -> tuple[Any, Any, int]:
        """Values, indices in ascending order, and a row that holds a NaN or -1."""
        ...

    def forward(self, graph: Adjacency, weight: Any, val: Any, idx: Any, width: int) -> Any:
        """The product of the graph and the rows, dense."""
        ...

    def backward(self, graph: Adjacency, weight: Any, dy: Any, idx: Any) -> Any:
        """The product of the transposed graph and dy, at the kept places alone."""
        ...

    def weight_gradient(self, graph: Adjacency, val: Any, idx: Any, dy: Any) -> Any:
        """The derivative by each edge's weight, in the order of the graph."""
        ...

    def scatter(self, val: Any, idx: Any, width: int) -> Any:
        """The rows with zeros where nothing was kept."""
        ...

    def gather(self, dense: Any, idx: Any) -> Any:
        """The kept places of dense rows."""
        ...


def kernels_for(device: Any, path: str | None = None) -> MaxKKernels:
    """The kernels for tensors on a device.

    Args:
        device: where the tensors are.
        path: one of PATHS, or None for the fastest that runs here.

    Raises:
        ValueError: the path is unknown, or does not run here.
    """
    path = path or os.environ.get(VARIABLE) or None
    if path is not None and path not in PATHS:
        raise ValueError(f"the path of MaxK is one of {', '.join(PATHS)}, got {path!r}")
    if path == "torch" or (device.type != "cpu" and path is None):
        return TorchKernels()
    if device.type != "cpu":
        raise ValueError(f"the path {path!r} of MaxK computes on a CPU, got tensors on {device}")
    library = maxk_build.load_library()
    if library is None:
        if path in COMPILED:
            raise ValueError(f"the path {path!r} of MaxK could not be built on this machine")
        return TorchKernels()
    best = library.steptime_best_path()
    level = best if path is None else COMPILED[path]
    if level > best:
        raise ValueError(f"the path {path!r} of MaxK needs instructions this processor lacks")
    return CompiledKernels(library, level)


def _at(tensor: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


class CompiledKernels:
    """The kernels of `maxk_kernels.cpp` at one level of instructions."""

    def __init__(self, library: ctypes.CDLL, level: int) -> None:
        self._library = library
        self._level = level

    def _call(self, name: str, kinds: tuple[Any, Any], *arguments: Any) -> int:
        """Call by name; integers become 64 bits, tensors their address."""
        given = [DTYPES[kinds[0].dtype], kinds[1].element_size(), *arguments]
        as_c = [ctypes.c_int64(one) if isinstance(one, int) else _at(one) for one in given]
        function = getattr(self._library, f"steptime_{name}")
        function.restype = ctypes.c_int64
        return int(function(*as_c))

    def select(self, x: Any, k: int) -> tuple[Any, Any, int]:
        """Select by bisection."""
        rows, width = x.shape
        val = x.new_empty(rows, k)
        idx = torch.empty(rows, k, dtype=index_type(width), device=x.device)
        threads = torch.get_num_threads()
        row = self._call("select", (x, idx), self._level, threads, x, rows, width, k, val, idx)
        return val, idx, row

    def forward(self, graph: Adjacency, weight: Any, val: Any, idx: Any, width: int) -> Any:
        """Rows of the product, shared among threads."""
        y = val.new_empty(graph.num_rows, width)
        self._call(
            "forward",
            (val, idx),
            *(self._level, torch.get_num_threads(), graph.indptr, graph.indices, weight),
            *(graph.num_rows, graph.num_cols, val.shape[1], width, val, idx, y),
        )
        return y

    def backward(self, graph: Adjacency, weight: Any, dy: Any, idx: Any) -> Any:
        """Ranges of columns, shared among threads; sums of bfloat16 are float32."""
        threads = torch.get_num_threads()
        wide = torch.float32 if dy.dtype == torch.bfloat16 else dy.dtype
        grad = torch.zeros(idx.shape, dtype=wide, device=dy.device)
        splits = graph.splits(threads)
        self._call(
            "backward",
            (dy, idx),
            *(self._level, threads, splits, threads, graph.indices, weight),
            *(graph.num_rows, graph.num_cols, idx.shape[1], dy.shape[1], dy, idx, grad),
        )
        return grad.to(dy.dtype)

    def weight_gradient(self, graph: Adjacency, val: Any, idx: Any, dy: Any) -> Any:
        """Products of rows, shared among threads."""
        out = val.new_empty(len(graph.indices))
        self._call(
            "weight_gradient",
            (val, idx),
            *(torch.get_num_threads(), graph.indptr, graph.indices, graph.num_rows),
            *(val.shape[1], dy.shape[1], val, idx, dy, out),
        )
        return out

    def scatter(self, val: Any, idx: Any, width: int) -> Any:
        """Write zeros, and the kept entries."""
        rows, k = val.shape
        dense = val.new_empty(rows, width)
        threads = torch.get_num_threads()
        self._call("scatter", (val, idx), threads, val, idx, rows, k, width, dense)
        return dense

    def gather(self, dense: Any, idx: Any) -> Any:
        """Read the kept places."""
        rows, k = idx.shape
        val = dense.new_empty(rows, k)
        threads = torch.get_num_threads()
        self._call("gather", (dense, idx), threads, dense, idx, rows, k, dense.shape[1], val)
        return val
