"""The kernels of MaxK in Triton, for a CUDA device: UNTESTED on one, and chosen by name alone.

`STEPTIME_MAXK_PATH=triton` or `path="triton"` asks for them; without it a CUDA device takes torch's
own operators. One program takes one row of the graph: it adds k entries an edge into its row
(forward), or adds at the k kept places of each neighbor's row (backward). Sums are atomic, so
their order, and with it the last bits, differ from run to run. Selection is torch's stable sort.
The logic is tested in Triton's interpreter, on a CPU; speed has not been seen.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from steptime.graph.adjacency import Adjacency
from steptime.graph.maxk_torch import TorchKernels

# An edge takes a few lanes, so that more than one warp would only wait.
NUM_WARPS = 1


@triton.jit  # type: ignore[untyped-decorator]
def _forward(
    edges: Any, val: Any, idx: Any, y: Any, width: Any, k: Any, lanes: tl.constexpr
) -> None:
    """Add the kept entries of each neighbor into one row of y (float32, zeros before)."""
    row = tl.program_id(0)
    lane = tl.arange(0, lanes)
    kept = lane < k
    for e in range(tl.load(edges[0] + row), tl.load(edges[0] + row + 1)):
        j = tl.load(edges[1] + e).to(tl.int64)
        a = tl.load(edges[2] + e).to(tl.float32)
        v = tl.load(val + j * k + lane, mask=kept, other=0.0).to(tl.float32)
        at = tl.load(idx + j * k + lane, mask=kept, other=0).to(tl.int64)
        tl.atomic_add(y + row * width + at, v * a, mask=kept)


@triton.jit  # type: ignore[untyped-decorator]
def _backward(
    edges: Any, dy: Any, idx: Any, grad: Any, width: Any, k: Any, lanes: tl.constexpr
) -> None:
    """Add one row of dy at the kept places of each neighbor's row of grad (float32)."""
    row = tl.program_id(0)
    lane = tl.arange(0, lanes)
    kept = lane < k
    for e in range(tl.load(edges[0] + row), tl.load(edges[0] + row + 1)):
        j = tl.load(edges[1] + e).to(tl.int64)
        a = tl.load(edges[2] + e).to(tl.float32)
        at = tl.load(idx + j * k + lane, mask=kept, other=0).to(tl.int64)
        g = tl.load(dy + row * width + at, mask=kept, other=0.0).to(tl.float32)
        tl.atomic_add(grad + j * k + lane, g * a, mask=kept)


class TritonKernels:
    """Triton's two products; everything else is torch's."""

    def __init__(self) -> None:
        """Take torch's operators for what is no product."""
        torchs = TorchKernels()
        self.select, self.weight_gradient = torchs.select, torchs.weight_gradient
        self.scatter, self.gather = torchs.scatter, torchs.gather

    def forward(self, graph: Adjacency, weight: Any, val: Any, idx: Any, width: int) -> Any:
        """One program a row of the graph; sums are float32."""
        y = torch.zeros(graph.num_rows, width, dtype=torch.float32, device=val.device)
        k = val.shape[1]
        _forward[(graph.num_rows,)](
            _edges_of(graph, weight, val),
            *(val, idx, y, width, k),
            lanes=triton.next_power_of_2(k),
            num_warps=NUM_WARPS,
        )
        return y.to(val.dtype)

    def backward(self, graph: Adjacency, weight: Any, dy: Any, idx: Any) -> Any:
        """One program a row of the graph; sums are float32."""
        k = idx.shape[1]
        grad = torch.zeros(idx.shape, dtype=torch.float32, device=dy.device)
        _backward[(graph.num_rows,)](
            _edges_of(graph, weight, dy),
            *(dy, idx, grad, dy.shape[1], k),
            lanes=triton.next_power_of_2(k),
            num_warps=NUM_WARPS,
        )
        return grad.to(dy.dtype)


def _edges_of(graph: Adjacency, weight: Any, like: Any) -> tuple[Any, Any, Any]:
    if weight is None:
        weight = torch.ones(len(graph.indices), dtype=like.dtype, device=like.device)
    return graph.indptr, graph.indices, weight
