"""MaxK: each row keeps its k largest entries, and products with a graph read those alone.

`maxk` is the activation, for any network. `compress` keeps the rows as CBSR (compressed balanced
sparse rows: k values and k indices each), and `aggregate` multiplies a graph with them: the forward
pass adds k entries an edge in place of the whole row, the backward pass takes the derivative at the
same k places. The three have exact first derivatives; the graph's weights have theirs too. Layers
are in `maxk_layers`, kernels in `maxk_paths`.

Source: Peng et al., MaxK-GNN, ASPLOS 2024 (arXiv 2312.08656).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.autograd import Function
from torch.autograd.function import once_differentiable

from steptime.graph.adjacency import Adjacency
from steptime.graph.maxk_paths import DTYPES, kernels_for

# Above this share of the width the dense product is as fast (benchmarks/graph/graph_maxk.py).
DENSE_ABOVE = 1 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CBSR:
    """Rows of which k entries are kept.

    val: (num_rows, k); the derivative flows through it.
    idx: (num_rows, k) uint8 where the width is at most 256, else int32; ascending in each row.
    width: the number of entries of a row before.
    """

    val: Any
    idx: Any
    width: int

    def dense(self, *, path: str | None = None) -> Any:
        """(num_rows, width) The rows with zeros where nothing was kept."""
        return _Dense.apply(self.val, self.idx, self.width, path)


def maxk(x: Any, k: int, *, path: str | None = None) -> Any:
    """The k largest entries of the last dimension, zeros elsewhere.

    Of equal entries the first are kept, so that exactly k are. The derivative is that of the kept
    entries. -0 counts as smaller than +0.

    Args:
        x: (..., width) float32, bfloat16 or float64.
        k: how many are kept, 1 to width.
        path: the kernels, one of `maxk_paths.PATHS`; None is the fastest that runs here.

    Raises:
        ValueError: k does not fit the width, or x holds a NaN or another type.
    """
    rows = x.reshape(-1, x.shape[-1]) if x.dim() else x
    return compress(rows, k, path=path).dense(path=path).reshape(x.shape)


def compress(x: Any, k: int, *, path: str | None = None) -> CBSR:
    """The k largest entries of each row, as values and places.

    Args:
        x: (num_rows, width) float32, bfloat16 or float64.
        k: how many are kept, 1 to width.
        path: the kernels, as for `maxk`.

    Raises:
        ValueError: k does not fit the width, or x holds a NaN or another type.
    """
    _check_rows(x, k)
    val, idx = _Select.apply(x, k, path)
    return CBSR(val=val, idx=idx, width=x.shape[1])


def aggregate(graph: Adjacency, rows: CBSR, weight: Any = None, *, path: str | None = None) -> Any:
    """The graph times compressed rows.

    Above a third of the width the product is dense (`torch.sparse.mm`), which is as fast there.

    Args:
        graph: (num_rows, num_cols), with as many columns as there are compressed rows.
        rows: what `compress` returned.
        weight: (num_edges,) in the order of the graph (`weight[graph.order]` of the edges that it
            was made of), or None for ones. It may require a gradient.
        path: the kernels, as for `maxk`.

    Returns:
        (graph.num_rows, rows.width), of the type of the rows.

    Raises:
        ValueError: sizes or devices do not fit.
    """
    if rows.val.device != graph.device:
        raise ValueError(f"the rows lie on {rows.val.device} and the graph on {graph.device}")
    if rows.val.shape[0] != graph.num_cols:
        raise ValueError(
            f"the graph has {graph.num_cols} columns, and there are {rows.val.shape[0]} rows"
        )
    if weight is not None:
        if weight.shape != graph.indices.shape:
            raise ValueError(
                f"there is one weight an edge, ({len(graph.indices)},), got {tuple(weight.shape)}"
            )
        if weight.device != graph.device:
            raise ValueError(f"the weights lie on {weight.device} and the graph on {graph.device}")
        weight = weight.to(rows.val.dtype)
    is_dense = rows.val.shape[1] > DENSE_ABOVE * rows.width
    return _Aggregate.apply(rows.val, weight, rows.idx, (graph, rows.width, is_dense, path))


def _check_rows(x: Any, k: int) -> None:
    """Refuse rows that have no k largest entries, in one sentence."""
    if x.dim() != 2:
        raise ValueError(f"MaxK takes rows of entries, got a shape of {tuple(x.shape)}")
    if x.dtype not in DTYPES:
        raise ValueError(f"MaxK takes float32, bfloat16 or float64 values, got {x.dtype}")
    if isinstance(k, bool) or not isinstance(k, int):
        raise ValueError(f"k is an integer, got {k!r}")
    if not 1 <= k <= x.shape[1]:
        raise ValueError(f"k is at least 1 and at most the width {x.shape[1]}, got {k}")


class _Select(Function):  # type: ignore[misc]
    """Values and places of the k largest entries; backward, zeros elsewhere."""

    @staticmethod
    def forward(ctx: Any, x: Any, k: int, path: str | None) -> tuple[Any, Any]:
        """Select; see `compress`."""
        kernels = kernels_for(x.device, path)
        val, idx, nan_row = kernels.select(x.contiguous(), k)
        if nan_row >= 0:
            raise ValueError(f"MaxK cannot order NaN values, and row {nan_row} holds one")
        ctx.mark_non_differentiable(idx)
        ctx.save_for_backward(idx)
        ctx.kernels, ctx.width = kernels, x.shape[1]
        return val, idx

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Any, _: Any) -> tuple[Any, None, None]:
        """The derivative at the kept places."""
        (idx,) = ctx.saved_tensors
        return ctx.kernels.scatter(grad.contiguous(), idx, ctx.width), None, None


class _Dense(Function):  # type: ignore[misc]
    """CBSR to dense."""

    @staticmethod
    def forward(ctx: Any, val: Any, idx: Any, width: int, path: str | None) -> Any:
        """Scatter."""
        ctx.kernels = kernels_for(val.device, path)
        ctx.save_for_backward(idx)
        return ctx.kernels.scatter(val.contiguous(), idx, width)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Any) -> tuple[Any, None, None, None]:
        """Gather."""
        (idx,) = ctx.saved_tensors
        return ctx.kernels.gather(grad.contiguous(), idx), None, None, None


class _Aggregate(Function):  # type: ignore[misc]
    """A graph times CBSR, whichever way is faster at this k."""

    @staticmethod
    def forward(ctx: Any, val: Any, weight: Any, idx: Any, how: tuple[Any, ...]) -> Any:
        """Row-wise: each row of the graph adds k entries an edge."""
        graph, width, is_dense, path = how
        kernels = kernels_for(val.device, path)
        val = val.contiguous()
        weight = None if weight is None else weight.detach().contiguous()
        ctx.save_for_backward(val, weight, idx)
        ctx.graph, ctx.is_dense, ctx.kernels = graph, is_dense, kernels
        if is_dense:
            return graph.product(weight, kernels.scatter(val, idx, width))
        return kernels.forward(graph, weight, val, idx, width)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Any) -> tuple[Any, Any, None, None]:
        """Outer products: each edge adds at the k places of its column's row."""
        val, weight, idx = ctx.saved_tensors
        graph, kernels, grad = ctx.graph, ctx.kernels, grad.contiguous()
        of_val = of_weight = None
        if ctx.needs_input_grad[0]:
            if ctx.is_dense:
                of_val = kernels.gather(graph.transposed_product(weight, grad), idx)
            else:
                of_val = kernels.backward(graph, weight, grad, idx)
        if ctx.needs_input_grad[1]:
            of_weight = kernels.weight_gradient(graph, val, idx, grad)
        return of_val, of_weight, None, None
