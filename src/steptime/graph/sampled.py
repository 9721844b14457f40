"""What sampling takes and gives: relations, the sampled graph, and the checks of a request.

In: graphs and fan-outs. Out: the values that `sample.py` works with and returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np

from steptime.errors import GraphError
from steptime.graph.csc import Csc

Array = Any
"""An array of numpy; the docstrings say of what."""

Relation = tuple[str, str, str]
"""Type of the sources, name, type of the targets."""

NODE = "node"
EDGE: Relation = (NODE, "to", NODE)
"""The one node type and relation of a graph that has no types."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SampledGraph:
    """What was sampled; a graph without types has the type `NODE` and the relation `EDGE` alone.

    Attributes:
        nodes: by type: the sampled nodes, the seeds first, then hop by hop.
        trees: by type: the seed whose tree each node is in; empty where trees share nodes.
        rows: by relation: the local number of each edge's source.
        columns: by relation: the local number of its target.
        edges: by relation: its number before the graph was sorted.
        num_nodes: by type: new nodes of each hop, the seeds first.
        num_edges: by relation: edges of each hop.
    """

    nodes: Mapping[str, Array]
    trees: Mapping[str, Array]
    rows: Mapping[Relation, Array]
    columns: Mapping[Relation, Array]
    edges: Mapping[Relation, Array]
    num_nodes: Mapping[str, list[int]]
    num_edges: Mapping[Relation, list[int]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SampledBlock:
    """One layer between sources and targets, in CSC form; the targets are the first sources.

    Attributes:
        indptr: (num_targets + 1,) int64.
        indices: (num_edges,) int64, the local number of each edge's source.
        edges: (num_edges,) its number before the graph was sorted.
        sources: (num_sources,) the nodes of the graph that the local numbers mean.
    """

    indptr: Array
    indices: Array
    edges: Array
    sources: Array

    @property
    def num_targets(self) -> int:
        """Nodes that this layer computes."""
        return int(self.indptr.size - 1)


def checked_fanouts(
    graphs: Mapping[Relation, Csc], fanouts: Sequence[int] | Mapping[Relation, Sequence[int]]
) -> dict[Relation, list[int]]:
    """Return the fan-outs of each relation.

    Raises:
        GraphError: one is 0 or too large, hops differ in number, or a relation has none.
    """
    by_relation = fanouts if isinstance(fanouts, Mapping) else dict.fromkeys(graphs, fanouts)
    try:
        given = {name: [index(fanout) for fanout in hops] for name, hops in by_relation.items()}
    except TypeError as error:
        raise GraphError(
            f"Fan-outs are {fanouts!r}; give a list of whole numbers, one for each hop."
        ) from error
    if set(by_relation) != set(graphs):
        raise GraphError(
            f"Fan-outs are given for {sorted(by_relation)}, and the relations are "
            f"{sorted(graphs)}: give them for each relation."
        )
    lists = {relation: given[relation] for relation in graphs}
    lengths = {len(hops) for hops in lists.values()}
    if len(lengths) != 1 or 0 in lengths:
        raise GraphError(
            f"Fan-outs have {sorted(lengths)} hops; each relation needs as many, at least one."
        )
    for relation, hops in lists.items():
        largest = int(np.iinfo(graphs[relation].indices.dtype).max)
        for fanout in hops:
            if fanout == 0 or fanout < -1 or fanout > largest:
                raise GraphError(
                    f"A fan-out is {fanout}; it must lie in 1 to {largest}, as the ids are "
                    f"{graphs[relation].indices.dtype}, or be -1 for all neighbors."
                )
    return lists


def checked_sizes(graphs: Mapping[Relation, Csc]) -> dict[str, int]:
    """Return the number of nodes of each type.

    Raises:
        GraphError: two relations disagree about it, or there is none.
    """
    if not graphs:
        raise GraphError("The graph is empty: it has no relations; give at least one.")
    sizes: dict[str, int] = {}
    for relation, graph in graphs.items():
        ends = ((relation[0], graph.num_sources), (relation[2], graph.num_targets))
        for kind, num in ends:
            if sizes.setdefault(kind, num) != num:
                raise GraphError(
                    f"Relation {relation} has {num} nodes of type {kind!r}, and another has "
                    f"{sizes[kind]}; pass the same number for both."
                )
    return sizes
