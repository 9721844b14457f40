"""The fused sampler in the place of the one that PyG's own sampler calls.

In: a `NeighborSampler` of PyG, which holds its graph in CSC form. Out: what its `_sample` returns.
The lever `fused_sampling` puts it there; a script that may be edited uses `loader.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from steptime.graph.csc import Csc
from steptime.graph.pyg_sampler import drawn_key, hetero_output, plain_output
from steptime.graph.sample import FusedSampler


def sampler_like(pyg: Any) -> FusedSampler:
    """Return a fused sampler of the graph, fan-outs and options of PyG's."""
    graphs: Any = _graph(pyg, None) if not pyg.is_hetero else {
        relation: _graph(pyg, relation) for relation in pyg.edge_types
    }  # fmt: skip
    if pyg.is_hetero:
        names = pyg.num_neighbors.get_mapped_values(pyg.edge_types)
        fanouts = {pyg.to_edge_type[name]: hops for name, hops in names.items()}
    else:
        fanouts = pyg.num_neighbors.get_mapped_values()
    return FusedSampler(
        graphs,
        fanouts,
        replace=pyg.replace,
        disjoint=pyg.disjoint,
        take_latest=pyg.temporal_strategy == "last",
        seed=int(torch.randint(2**62, ())),
    )


def sample_like(pyg: Any, fused: FusedSampler, seeds: Any, times: Any) -> Any:
    """Return what PyG's `_sample` would; the key of the batch comes from torch's random state."""
    if times is None and pyg.node_time is not None:
        own = pyg.node_time
        is_typed = isinstance(seeds, Mapping)
        times = {k: own[k][v] for k, v in seeds.items()} if is_typed else own[seeds]
    epoch, batch = drawn_key()
    out = fused.sample(seeds, epoch=epoch, batch=batch, times=times)
    return hetero_output(out) if pyg.is_hetero else plain_output(out)


def _graph(pyg: Any, relation: Any) -> Csc:
    name = None if relation is None else pyg.to_rel_type[relation]
    columns, rows = (
        (pyg.colptr, pyg.row) if name is None else (pyg.colptr_dict[name], pyg.row_dict[name])
    )
    source = None if relation is None else relation[0]
    return Csc(
        indptr=columns,
        indices=rows,
        num_sources=pyg.num_nodes if source is None else pyg.num_nodes[source],
        weights=_part(pyg.edge_weight, name),
        times=_times(pyg, rows, name, source),
        is_trusted=True,
    )


def _times(pyg: Any, rows: Any, name: Any, source: Any) -> Any:
    if pyg.edge_time is not None:
        return _part(pyg.edge_time, name)
    times = _part(pyg.node_time, source)
    return None if times is None else times[rows]


def _part(values: Any, name: Any) -> Any:
    return values.get(name) if name is not None and isinstance(values, Mapping) else values
