"""Divides the nodes of a graph among ranks: by METIS, or at random.

In: a graph in compressed sparse columns (the neighbors that send to node v are
`indices[indptr[v]:indptr[v + 1]]`). Out: a `Partition`, which says who owns each node's features
and label. The topology is not divided: every rank holds all of it and samples without a message
(Mostafa et al., FastSample, 2023). Files are `partition_files`'s, exchange `feature_exchange`'s.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from steptime.errors import MissingExtraError
from steptime.graph.partitions.partition_kernels import (
    count_both_ways,
    count_cut,
    place_both_ways,
)

Array = np.ndarray[Any, Any]
Method = Literal["metis", "random"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Partition:
    """Who owns each node.

    Attributes:
        owner: (num_nodes,) the rank that holds the node's features and label, unsigned.
        num_parts: how many ranks there are.
        method: how it was made; `given` for one of the caller's own.
        edge_cut: how many of the stored edges join nodes of different owners.
        num_edges: how many edges are stored.
    """

    owner: Array
    num_parts: int
    method: str
    edge_cut: int
    num_edges: int

    @property
    def num_nodes(self) -> int:
        """How many nodes there are."""
        return len(self.owner)

    @property
    def sizes(self) -> Array:
        """(num_parts,) how many nodes each rank owns."""
        return np.bincount(self.owner, minlength=self.num_parts)

    @property
    def cut_fraction(self) -> float:
        """The edges between owners over all edges; 0 for a graph without edges."""
        return self.edge_cut / self.num_edges if self.num_edges else 0.0

    @property
    def imbalance(self) -> float:
        """The largest part over the mean part; 1 is even."""
        return float(self.sizes.max()) * self.num_parts / self.num_nodes

    def nodes_of(self, rank: int) -> Array:
        """Return the nodes of one rank, ascending (int64): row i of its features is node i's."""
        return np.flatnonzero(self.owner == rank)


def partition_graph(
    indptr: Array,
    indices: Array,
    num_parts: int,
    *,
    method: Method = "metis",
    seed: int = 0,
) -> Partition:
    """Divide the nodes into parts of about the same size, with few edges between them.

    Args:
        indptr: (num_nodes + 1,) where each node's neighbors begin; integers, ascending.
        indices: (num_edges,) the neighbors, integers from 0 to num_nodes - 1.
        num_parts: the number of ranks.
        method: `metis` (k-way, by pymetis) or `random` (even, and blind to edges).
        seed: for the same seed and graph the parts are the same.

    METIS sees each edge both ways and once, and needs many times 16 bytes for each meanwhile.

    Raises:
        ValueError: the arrays are no graph, or there are more parts than nodes.
        MissingExtraError: `metis` is wanted and pymetis is not installed.

    Source: Karypis and Kumar, METIS (SIAM J. Sci. Comput. 1998).
    """
    check_graph(indptr, indices)
    num_nodes = len(indptr) - 1
    if not 1 <= num_parts <= num_nodes:
        raise ValueError(f"`1 <= num_parts <= num_nodes` must hold, got {num_parts=}, {num_nodes=}")
    if method not in get_args(Method):
        raise ValueError(f"`method` must be one of {', '.join(get_args(Method))}, got {method!r}")
    if num_parts == 1:
        owner = np.zeros(num_nodes, dtype=np.int64)
    elif method == "random":
        owner = np.random.default_rng(seed).permutation(np.arange(num_nodes) % num_parts)
    else:
        owner = _by_metis(indptr, indices, num_parts, seed)
    return make_partition(owner, indptr, indices, num_parts=num_parts, method=method)


def make_partition(
    owner: Array, indptr: Array, indices: Array, *, num_parts: int, method: str = "given"
) -> Partition:
    """Return a `Partition` of owners that the caller chose: (num_nodes,) ranks.

    Raises:
        ValueError: an owner is no rank, or there are not as many as nodes.
    """
    check_graph(indptr, indices)
    if owner.shape != (len(indptr) - 1,) or owner.dtype.kind not in "iu":
        raise ValueError(
            f"`owner` must be one integer for each of {len(indptr) - 1} nodes, "
            f"got shape {owner.shape} of {owner.dtype}"
        )
    if owner.min() < 0 or owner.max() >= num_parts:
        raise ValueError(
            f"owners must be ranks from 0 to {num_parts - 1}, got {owner.min()} to {owner.max()}"
        )
    small = owner.astype(np.min_scalar_type(num_parts - 1))
    small.flags.writeable = False
    return Partition(
        owner=small,
        num_parts=num_parts,
        method=method,
        edge_cut=int(count_cut(indptr, indices, small)),
        num_edges=len(indices),
    )


def check_graph(indptr: Array, indices: Array) -> None:
    """Refuse arrays that are no graph in compressed sparse columns.

    Raises:
        ValueError: says which rule does not hold, with the values.
    """
    for name, array in (("indptr", indptr), ("indices", indices)):
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise ValueError(
                f"`{name}` must be integers in one dimension, got {array.dtype} of {array.shape}"
            )
    num_nodes = len(indptr) - 1
    if num_nodes < 1:
        raise ValueError("the graph is empty: `indptr` must have num_nodes + 1 entries, at least 2")
    if indptr[0] != 0 or indptr[-1] != len(indices):
        raise ValueError(
            f"`indptr` must begin at 0 and end at the number of edges, {len(indices)}; "
            f"it goes from {indptr[0]} to {indptr[-1]}"
        )
    falls = np.flatnonzero(indptr[1:] < indptr[:-1])
    if len(falls):
        raise ValueError(f"`indptr` must not fall, and does after node {falls[0]}")
    if len(indices) and (indices.min() < 0 or indices.max() >= num_nodes):
        raise ValueError(
            f"neighbors must lie between 0 and {num_nodes - 1}, "
            f"got {indices.min()} to {indices.max()}"
        )


def sum_of_bytes(array: Array, start: int = 0) -> int:
    """Return a checksum of an array's bytes (CRC-32), which goes on from `start`."""
    return zlib.crc32(np.ascontiguousarray(array).data, start)


def _both_ways(indptr: Array, indices: Array) -> tuple[Array, Array]:
    """The graph without directions, loops and copies, as METIS wants it."""
    starts = np.empty(len(indptr), dtype=np.int64)
    count_both_ways(indptr, indices, starts)
    neighbors = np.empty(starts[-1], dtype=np.int64)
    num_kept = place_both_ways(indptr, indices, starts, neighbors)
    return starts, neighbors[:num_kept]


def _by_metis(indptr: Array, indices: Array, num_parts: int, seed: int) -> Array:
    try:
        import pymetis
    except ImportError as error:
        raise MissingExtraError(
            f"partitions by METIS need pymetis, which cannot be imported: {error}",
            needs="steptime[graph]",
            hint=", or take method='random'",
        ) from error
    starts, neighbors = _both_ways(indptr, indices)
    kind = pymetis.zero_copy_dtype()
    graph = pymetis.CSRAdjacency(starts.astype(kind), neighbors.astype(kind, copy=False))
    options = pymetis.Options(seed=seed)
    found = pymetis.part_graph(num_parts, graph, recursive=False, options=options)
    return np.asarray(found.vertex_part, dtype=np.int64)
