"""The graph of PyG's data, one `Csc` for each relation, with weights and times where asked for.

In: `Data` or `HeteroData` with `edge_index`. Out: what `FusedSampler` takes.
"""

from __future__ import annotations

from typing import Any

from steptime.errors import GraphError
from steptime.graph.csc import Csc, csc_of_edges


def graphs_of(
    data: Any, time_attr: str | None, weight_attr: str | None
) -> Csc | dict[tuple[str, str, str], Csc]:
    """Return the graph of PyG's data, or one for each type of edges.

    Raises:
        GraphError: there is no `edge_index`, or no such attribute.
    """
    if not hasattr(data, "edge_stores"):
        raise GraphError(
            f"The data is a {type(data).__name__}; pass PyG's Data or HeteroData, or a ready graph "
            "as `graph=`."
        )
    if not hasattr(data, "edge_types"):
        return _graph_of(data, data, data.num_nodes, (time_attr, weight_attr))
    times = node_times_of(data, time_attr)
    graphs = {}
    for relation in data.edge_types:
        sizes = (data[relation[0]].num_nodes, data[relation[2]].num_nodes)
        node_times = None if times is None else times.get(relation[0])
        graphs[relation] = _graph_of(
            data[relation], None, sizes, (time_attr, weight_attr), node_times
        )
    if not graphs:
        raise GraphError("The graph is empty: it has no edge types; add at least one.")
    return graphs


def _graph_of(
    store: Any,
    data: Any,
    num_nodes: Any,
    names: tuple[str | None, str | None],
    node_times: Any = None,
) -> Csc:
    if "edge_index" not in store:
        raise GraphError(
            "The data has no `edge_index`: give it one, or pass a ready graph as `graph=`."
        )
    time_attr, weight_attr = names
    if weight_attr and weight_attr not in store:
        raise GraphError(f"The data has no {weight_attr!r} for `weight_attr`.")
    times = None
    if time_attr and data is not None and time_attr in data:
        node_times = data[time_attr] if data.is_node_attr(time_attr) else None
    if time_attr and node_times is None:
        if time_attr not in store:
            raise GraphError(f"The data has no {time_attr!r} for `time_attr`, at nodes or edges.")
        times = store[time_attr]
    sources, targets = store.edge_index
    return csc_of_edges(
        sources,
        targets,
        num_nodes=num_nodes,
        weights=store[weight_attr] if weight_attr else None,
        times=times,
        node_times=node_times,
    )


def node_times_of(data: Any, time_attr: str | None) -> Any:
    """Return the times of the nodes, by type where there are types; None where edges have them."""
    if time_attr is None:
        return None
    if not hasattr(data, "edge_types"):
        return data[time_attr] if time_attr in data and data.is_node_attr(time_attr) else None
    times = {kind: data[kind][time_attr] for kind in data.node_types if time_attr in data[kind]}
    return times or None
