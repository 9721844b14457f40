"""Convolutions of PyG whose input keeps its k largest entries: GCN, SAGE and GIN with MaxK.

Each has the arguments and the parameters of PyG's layer (a `state_dict` fits both) and the result
of that layer on `maxk(x, k)`; the product with the graph reads k entries an edge in place of the
whole row. Graphs come as PyG takes them: an `edge_index`, or a sparse `adj_t`. torch_geometric is
not needed. What is worked out of an `edge_index` is kept for as long as it stays the same.

Sources: Kipf & Welling 2017 (GCN), Hamilton et al. 2017 (SAGE), Xu et al. 2019 (GIN); the order of
MaxK and sum is that of Peng et al., MaxK-GNN, ASPLOS 2024.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from steptime.graph.adjacency import Adjacency, adjacency_of, remember
from steptime.graph.maxk import aggregate, compress


def _edges(graph: Any, weight: Any) -> tuple[Any, Any]:
    """An edge_index and weights of what PyG takes as a graph."""
    if not isinstance(graph, torch.Tensor):
        raise ValueError(f"a graph is an edge_index or a sparse adj_t, got {type(graph).__name__}")
    if graph.layout == torch.strided:
        if graph.dim() != 2 or graph.shape[0] != 2 or graph.is_floating_point():
            raise ValueError(
                f"an edge_index has two rows of ids, got {tuple(graph.shape)} of {graph.dtype}"
            )
        return graph, weight
    if weight is not None:
        raise ValueError("a sparse adj_t holds its weights itself, and edge_weight was given too")

    def unpacked() -> tuple[Any, Any]:
        coo = graph.to_sparse_coo().coalesce()
        return coo.indices().flip(0), coo.values()

    if graph.requires_grad:
        return unpacked()
    found: tuple[Any, Any] = remember(graph, ("edges",), unpacked)
    return found


def _same_device(x: Any, graph: Any) -> None:
    if x.device != graph.device:
        raise ValueError(f"the rows lie on {x.device} and the graph on {graph.device}")


def _check_k(k: int, width: int) -> None:
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= width:
        raise ValueError(f"k is an integer from 1 to the width {width}, got {k!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GCNOptions:
    """The settings of PyG's `GCNConv`, with its names and defaults."""

    improved: bool = False
    cached: bool = False
    add_self_loops: bool | None = None
    normalize: bool = True
    bias: bool = True

    def __post_init__(self) -> None:
        """Refuse what PyG refuses."""
        if self.add_self_loops and not self.normalize:
            raise ValueError("self-loops are added where the graph is normalized: normalize=True")

    @property
    def loops(self) -> bool:
        """Whether each node counts as its own neighbor."""
        return self.normalize if self.add_self_loops is None else self.add_self_loops


class MaxKGCNConv(nn.Module):  # type: ignore[misc]
    """`GCNConv(in_channels, out_channels)` of `maxk(x, k)`."""

    def __init__(
        self, in_channels: int, out_channels: int, *, k: int, **options: bool | None
    ) -> None:
        """A layer.

        Args:
            in_channels: the width of x.
            out_channels: the width of the result.
            k: how many entries of each row of x are kept.
            options: improved, cached, add_self_loops, normalize and bias, as for PyG's layer.

        Raises:
            ValueError: k does not fit in_channels, or options contradict each other.
        """
        super().__init__()
        _check_k(k, in_channels)
        self.in_channels, self.out_channels, self.k = in_channels, out_channels, k
        self.options = GCNOptions(**options)  # type: ignore[arg-type]
        self.lin = nn.Linear(in_channels, out_channels, bias=False)
        self.bias = nn.Parameter(torch.empty(out_channels)) if self.options.bias else None
        self._cached: tuple[Adjacency, Any] | None = None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Fill the parameters again, and forget the graph of `cached=True`."""
        # uniform, after Glorot & Bengio (2010), as PyG fills the weights of GCN
        bound = math.sqrt(6 / (self.lin.weight.shape[0] + self.lin.weight.shape[1]))
        nn.init.uniform_(self.lin.weight, -bound, bound)
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        self._cached = None

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
        """(num_nodes, out_channels) The layer's result.

        Args:
            x: (num_nodes, in_channels).
            edge_index: (2, num_edges) ids, or a sparse adj_t (num_nodes, num_nodes).
            edge_weight: (num_edges,), or None for ones.

        Raises:
            ValueError: ids, sizes or devices do not fit, or x holds a NaN.
        """
        _same_device(x, edge_index)
        graph, weight = self._cached or self._normalized(edge_index, edge_weight, x)
        if self.options.cached and self._cached is None:
            self._cached = (graph, weight)
        out = self.lin(aggregate(graph, compress(x, self.k), weight))
        return out if self.bias is None else out + self.bias

    def _normalized(self, edges: Any, weight: Any, x: Any) -> tuple[Adjacency, Any]:
        """The graph with its weights, in its order."""
        num_nodes = len(x)
        is_sparse = edges.layout != torch.strided
        edges, weight = _edges(edges, weight)
        if not self.options.normalize:
            graph = adjacency_of(edges, num_nodes, num_nodes)
            return graph, None if weight is None else weight[graph.order]
        # As in PyG, `improved` shows only where edges have weights, and loops of an adj_t add up.
        loop = 2.0 if self.options.improved and weight is not None else 1.0
        how = (num_nodes, loop if self.options.loops else None)
        if weight is not None:
            return gcn_weights(edges, weight, *how, add=is_sparse)

        def of_ones() -> tuple[Adjacency, Any]:
            ones = torch.ones(edges.shape[1], dtype=x.dtype, device=x.device)
            return gcn_weights(edges, ones, *how)

        found: tuple[Adjacency, Any] = remember(edges, ("gcn", *how, x.dtype), of_ones)
        return found

    def extra_repr(self) -> str:
        """What a person sees of the layer."""
        return f"{self.in_channels}, {self.out_channels}, k={self.k}"


def gcn_weights(
    edges: Any, weight: Any, num_nodes: int, loop: float | None, *, add: bool = False
) -> tuple[Adjacency, Any]:
    """A graph with the symmetric normalization of GCN, d_i^-1/2 w_ij d_j^-1/2.

    Args:
        edges: (2, num_edges) ids.
        weight: (num_edges,).
        num_nodes: the number of nodes.
        loop: the weight of the self-loop of each node that has none, or None for no loops.
        add: a node that has a loop gets this one besides.

    Source: Kipf & Welling, 2017, equation 2; the degrees are sums over incoming edges, as in PyG.
    """
    if loop is not None:
        is_loop = (edges[0] == edges[1]) & (not add)
        nodes = torch.arange(num_nodes, device=edges.device)
        loops = torch.full((num_nodes,), loop, dtype=weight.dtype, device=edges.device)
        if bool(is_loop.any()):
            loops = loops.index_put((edges[0][is_loop],), weight[is_loop])
        edges = torch.cat([edges[:, ~is_loop], torch.stack([nodes, nodes])], dim=1)
        weight = torch.cat([weight[~is_loop], loops])
    graph = Adjacency.from_edge_index(edges, num_nodes, num_nodes)
    degree = weight.new_zeros(num_nodes).index_add(0, edges[1], weight)
    root = degree.pow(-0.5)
    root = root.masked_fill(root == math.inf, 0.0)
    return graph, (root[edges[0]] * weight * root[edges[1]])[graph.order]


@dataclass(frozen=True, slots=True, kw_only=True)
class SAGEOptions:
    """The settings of PyG's `SAGEConv`, with its names and defaults."""

    aggr: str = "mean"
    normalize: bool = False
    root_weight: bool = True
    project: bool = False
    bias: bool = True

    def __post_init__(self) -> None:
        """Refuse what is no product with a graph."""
        if self.aggr not in ("mean", "sum", "add"):
            raise ValueError(
                f"MaxK is a product with the graph, so aggr is 'mean', 'sum' or 'add', "
                f"got {self.aggr!r}"
            )
        if self.project:
            raise ValueError(
                "project=True makes the kept rows dense again; put a Linear and a ReLU before "
                "MaxKSAGEConv"
            )


class MaxKSAGEConv(nn.Module):  # type: ignore[misc]
    """`SAGEConv(in_channels, out_channels)` of `maxk(x, k)`, its own rows included."""

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        *,
        k: int,
        **options: bool | str,
    ) -> None:
        """A layer.

        Args:
            in_channels: the width of x, or those of sources and targets.
            out_channels: the width of the result.
            k: how many entries of each row are kept.
            options: aggr, normalize, root_weight and bias, as for PyG's layer.

        Raises:
            ValueError: k does not fit in_channels, or aggr is no sum.
        """
        super().__init__()
        self.in_channels = in_channels
        both = in_channels if isinstance(in_channels, tuple) else (in_channels, in_channels)
        _check_k(k, min(both))
        self.out_channels, self.k = out_channels, k
        self.options = SAGEOptions(**options)  # type: ignore[arg-type]
        self.lin_l = nn.Linear(both[0], out_channels, bias=self.options.bias)
        self.lin_r = None
        if self.options.root_weight:
            self.lin_r = nn.Linear(both[1], out_channels, bias=False)

    def reset_parameters(self) -> None:
        """Fill the parameters again."""
        self.lin_l.reset_parameters()
        if self.lin_r is not None:
            self.lin_r.reset_parameters()

    def forward(self, x: Any, edge_index: Any, size: tuple[int, int] | None = None) -> Any:
        """(num_targets, out_channels) The layer's result.

        Args:
            x: (num_nodes, in_channels), or a pair of sources and targets (or None).
            edge_index: (2, num_edges) ids, or a sparse adj_t (num_targets, num_sources).
            size: numbers of sources and targets, where x does not say.

        Raises:
            ValueError: ids, sizes or devices do not fit, or x holds a NaN.
        """
        sources, targets, num = _pair(x, size)
        _same_device(sources, edge_index)
        rows = compress(sources, self.k)
        graph, weight = self._graph(edge_index, num, sources)
        out = self.lin_l(aggregate(graph, rows, weight))
        if self.lin_r is not None and targets is not None:
            own = rows if targets is sources else compress(targets, self.k)
            out = out + self.lin_r(own.dense())
        return functional.normalize(out, dim=-1) if self.options.normalize else out

    def _graph(self, edges: Any, num_targets: int, x: Any) -> tuple[Adjacency, Any]:
        """The graph, with the inverse of each degree where the mean is wanted."""
        edges, _ = _edges(edges, None)  # as in PyG, weights of adj_t take no part
        graph = adjacency_of(edges, num_targets, len(x))
        if self.options.aggr != "mean":
            return graph, None

        def inverse() -> Any:
            degrees = (graph.indptr[1:] - graph.indptr[:-1]).clamp(min=1)
            return degrees.to(x.dtype).reciprocal()[graph.rows()]

        return graph, remember(edges, ("mean", num_targets, len(x), x.dtype), inverse)

    def extra_repr(self) -> str:
        """What a person sees of the layer."""
        return f"{self.in_channels}, {self.out_channels}, aggr={self.options.aggr}, k={self.k}"


class MaxKGINConv(nn.Module):  # type: ignore[misc]
    """`GINConv(nn)` of `maxk(x, k)`, its own rows included."""

    def __init__(self, nn: Any, eps: float = 0.0, *, train_eps: bool = False, k: int) -> None:
        """A layer.

        Args:
            nn: the network on top of the sums.
            eps: how much more a node counts than a neighbor.
            train_eps: eps is a parameter.
            k: how many entries of each row are kept.
        """
        super().__init__()
        self.nn, self.k = nn, k
        self.initial_eps = eps
        value = torch.tensor([float(eps)])
        if train_eps:
            self.eps = torch.nn.Parameter(value)
        else:
            self.register_buffer("eps", value)

    def reset_parameters(self) -> None:
        """Fill the parameters of the network again, and eps."""
        for module in self.nn.modules() if isinstance(self.nn, nn.Module) else ():
            if module is not self.nn or not list(self.nn.children()):
                getattr(module, "reset_parameters", lambda: None)()
        self.eps.data.fill_(self.initial_eps)

    def forward(self, x: Any, edge_index: Any, size: tuple[int, int] | None = None) -> Any:
        """What the network makes of (1 + eps) x_i plus the sum over the neighbors of i.

        Args:
            x: (num_nodes, width), or a pair of sources and targets (or None).
            edge_index: (2, num_edges) ids, or a sparse adj_t (num_targets, num_sources).
            size: numbers of sources and targets, where x does not say.

        Raises:
            ValueError: k, ids, sizes or devices do not fit, or x holds a NaN.
        """
        sources, targets, num = _pair(x, size)
        _same_device(sources, edge_index)
        rows = compress(sources, self.k)
        edges, _ = _edges(edge_index, None)
        out = aggregate(adjacency_of(edges, num, len(sources)), rows)
        if targets is not None:
            own = rows if targets is sources else compress(targets, self.k)
            out = out + (1 + self.eps) * own.dense()
        return self.nn(out)

    def extra_repr(self) -> str:
        """What a person sees of the layer."""
        return f"k={self.k}"


def _pair(x: Any, size: tuple[int, int] | None) -> tuple[Any, Any, int]:
    """Rows of sources, rows of targets or None, and the number of targets."""
    sources, targets = x if isinstance(x, (tuple, list)) else (x, x)
    if targets is not None:
        return sources, targets, len(targets)
    if size is None:
        raise ValueError("the targets have no rows, so size=(num_sources, num_targets) is needed")
    return sources, None, size[1]
