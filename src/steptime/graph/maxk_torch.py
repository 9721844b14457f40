"""The kernels of MaxK in torch's own operators: any device, products that are dense, no build."""

from __future__ import annotations

from typing import Any

import torch

from steptime.graph.adjacency import Adjacency


def index_type(width: int) -> Any:
    """The type of the indices of rows of this width."""
    return torch.uint8 if width <= 256 else torch.int32


class TorchKernels:
    """Operators of torch alone, for any device; the graph's product is dense."""

    def select(self, x: Any, k: int) -> tuple[Any, Any, int]:
        """Sort stably, which keeps the first of equal values as the other kernels do."""
        nan = x.isnan().any(dim=1)
        row = int(nan.nonzero()[0]) if bool(nan.any()) else -1
        best = torch.sort(x, dim=1, descending=True, stable=True).indices[:, :k]
        at = best.sort(dim=1).values
        return x.gather(1, at), at.to(index_type(x.shape[1])), row

    def forward(self, graph: Adjacency, weight: Any, val: Any, idx: Any, width: int) -> Any:
        """A dense product of the scattered rows."""
        return graph.product(weight, scatter(val, idx, width))

    def backward(self, graph: Adjacency, weight: Any, dy: Any, idx: Any) -> Any:
        """A dense product, of which the kept places are read."""
        return dense_gather(graph.transposed_product(weight, dy), idx)

    def weight_gradient(self, graph: Adjacency, val: Any, idx: Any, dy: Any) -> Any:
        """One row of products an edge."""
        source = graph.indices.long()
        rows = dy[graph.rows()]
        return (val[source] * rows.gather(1, idx[source].long())).sum(dim=1)

    def scatter(self, val: Any, idx: Any, width: int) -> Any:
        """By torch's scatter."""
        return scatter(val, idx, width)

    def gather(self, dense: Any, idx: Any) -> Any:
        """By torch's gather."""
        return dense_gather(dense, idx)


def scatter(val: Any, idx: Any, width: int) -> Any:
    """CBSR to dense in torch's operators."""
    return val.new_zeros(val.shape[0], width).scatter_(1, idx.long(), val)


def dense_gather(dense: Any, idx: Any) -> Any:
    """The kept places of dense rows in torch's operators."""
    return dense.gather(1, idx.long())
