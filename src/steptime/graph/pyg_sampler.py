"""The fused sampler behind PyG's interface: its inputs, its outputs, its negatives.

In: PyG's data and options. Out: a sampler that PyG's loaders, and those of `loader.py`, can call.
"""

# torch_geometric has types that strict checks do not know.
# mypy: disable-error-code="misc"

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from steptime.errors import GraphError, MissingExtraError
from steptime.graph.csc import Csc
from steptime.graph.pyg_graph import graphs_of, node_times_of
from steptime.graph.sample import FusedSampler, key_of
from steptime.graph.sampled import EDGE, NODE, SampledGraph

try:
    from torch_geometric.sampler import (
        BaseSampler,
        EdgeSamplerInput,
        HeteroSamplerOutput,
        NodeSamplerInput,
        NumNeighbors,
        SamplerOutput,
    )
    from torch_geometric.sampler.neighbor_sampler import edge_sample, node_sample
except (ImportError, RuntimeError) as error:
    raise MissingExtraError(
        f"Batches of PyG need PyG, which cannot be imported: {error}",
        needs="torch_geometric",
    ) from error

Tensor = Any
Key = tuple[int, int]
"""The numbers of the epoch and of the batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """PyG's arguments about sampling, and ours; the rest are those of torch's `DataLoader`."""

    replace: bool = False
    subgraph_type: str = "directional"
    disjoint: bool = False
    temporal_strategy: str = "uniform"
    time_attr: str | None = None
    weight_attr: str | None = None
    is_sorted: bool = False
    """Without effect: sorting by target takes one pass."""
    seed: int | None = None
    """Of the sampling; None draws it from torch's own random state."""
    graph: Csc | None = None
    """A graph that is ready, such as a mapped one; `data` then needs no `edge_index`."""
    device: Any = None
    """Where batches are copied, without blocking where they are pinned."""

    def __post_init__(self) -> None:
        kind = str(getattr(self.subgraph_type, "value", self.subgraph_type))
        if kind not in ("directional", "bidirectional"):
            raise GraphError(
                f"subgraph_type={kind!r} is not supported; it must be directional or bidirectional."
            )
        if self.temporal_strategy not in ("uniform", "last"):
            raise GraphError(
                f"temporal_strategy={self.temporal_strategy!r} must be 'uniform' or 'last'."
            )
        object.__setattr__(self, "subgraph_type", kind)


class PygSampler(BaseSampler):
    """The fused sampler behind PyG's interface of a sampler, for PyG's own loaders too.

    There no number of the batch is known, so that the key of each batch is drawn from torch's
    random state, in the process that samples.
    """

    def __init__(self, fused: FusedSampler, node_times: Any, options: SamplingOptions) -> None:
        self.fused, self.node_times, self.options = fused, node_times, options
        self.is_hetero = list(fused.graphs) != [EDGE]

    def clone(self) -> PygSampler:
        """Return another one, for another thread."""
        return PygSampler(self.fused.clone(), self.node_times, self.options)

    @property
    def edge_permutation(self) -> None:
        """None: the sampled edges have the numbers of the data."""
        return

    def sample_from_nodes(
        self, inputs: NodeSamplerInput, *, key: Key | None = None
    ) -> SamplerOutput | HeteroSamplerOutput:
        """Return the neighborhood of some nodes."""
        return self._directed(node_sample(inputs, self._bound(key)))

    def sample_from_edges(
        self, inputs: EdgeSamplerInput, neg_sampling: Any = None, *, key: Key | None = None
    ) -> SamplerOutput | HeteroSamplerOutput:
        """Return the neighborhood of the ends of some edges, and of negative ones."""
        key = drawn_key() if key is None else key
        sizes = self.fused.num_nodes
        num_nodes = sizes if self.is_hetero else sizes[NODE]
        negatives = None
        if neg_sampling is not None:
            negatives = KeyedNegatives(neg_sampling, (self.fused.seed, *key))
        args = (inputs, self._bound(key), num_nodes, self.fused.is_disjoint, self.node_times)
        return self._directed(edge_sample(*args, negatives))

    def _directed(self, out: Any) -> Any:
        is_both = self.options.subgraph_type == "bidirectional"
        return out.to_bidirectional() if is_both else out

    def _bound(self, key: Key | None) -> Callable[[Any, Any], Any]:
        epoch, batch = drawn_key() if key is None else key

        def sample(seeds: Any, times: Any = None) -> Any:
            if times is None and self.node_times is not None:
                times = _times_of(seeds, self.node_times)
            if self.is_hetero and times is not None:
                times = {kind: value for kind, value in times.items() if kind in seeds}
            out = self.fused.sample(seeds, epoch=epoch, batch=batch, times=times)
            return hetero_output(out) if self.is_hetero else plain_output(out)

        return sample


class KeyedNegatives:
    """PyG's negative sampling with random numbers that depend on the key of a batch alone."""

    def __init__(self, plain: Any, key: Sequence[int]) -> None:
        self.plain, self.amount = plain, plain.amount
        self.generator = torch.Generator().manual_seed(key_of(*key) >> 1)

    def is_binary(self) -> bool:
        """Negatives are pairs."""
        return bool(self.plain.is_binary())

    def is_triplet(self) -> bool:
        """Negatives are targets of the given sources."""
        return bool(self.plain.is_triplet())

    def sample(self, num_samples: int, endpoint: str, num_nodes: int | None = None) -> Tensor:
        """Return some nodes, by their weights where there are any."""
        weights = self.plain.src_weight if endpoint == "src" else self.plain.dst_weight
        if weights is None:
            return torch.randint(num_nodes or 0, (num_samples,), generator=self.generator)
        return torch.multinomial(weights, num_samples, replacement=True, generator=self.generator)


def drawn_key() -> Key:
    """Return a key that torch's random state gives."""
    return 0, int(torch.randint(2**62, ()))


def _times_of(seeds: Any, node_times: Any) -> Any:
    if isinstance(seeds, Mapping):
        return {kind: node_times[kind][nodes] for kind, nodes in seeds.items()}
    return node_times[seeds]


def plain_output(out: SampledGraph) -> SamplerOutput:
    """Return what was sampled of a graph without types, as PyG has it."""
    return SamplerOutput(
        node=torch.from_numpy(out.nodes[NODE]),
        row=torch.from_numpy(out.rows[EDGE]),
        col=torch.from_numpy(out.columns[EDGE]),
        edge=torch.from_numpy(out.edges[EDGE]),
        batch=torch.from_numpy(out.trees[NODE]) if out.trees else None,
        num_sampled_nodes=out.num_nodes[NODE],
        num_sampled_edges=out.num_edges[EDGE],
    )


def hetero_output(out: SampledGraph) -> HeteroSamplerOutput:
    """Return what was sampled of a graph with types, as PyG has it."""

    def tensors(arrays: Mapping[Any, Any]) -> dict[Any, Tensor]:
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    return HeteroSamplerOutput(
        node=tensors(out.nodes),
        row=tensors(out.rows),
        col=tensors(out.columns),
        edge=tensors(out.edges),
        batch=tensors(out.trees) if out.trees else None,
        num_sampled_nodes=dict(out.num_nodes),
        num_sampled_edges=dict(out.num_edges),
    )


def _fanouts(num_neighbors: Any, relations: list[Any] | None) -> Any:
    """Return PyG's `num_neighbors` as a list, or one for each relation, with PyG's defaults."""
    is_ready = isinstance(num_neighbors, NumNeighbors)
    hops = num_neighbors if is_ready else NumNeighbors(num_neighbors)
    try:
        return hops.get_values(relations)
    except ValueError as error:
        raise GraphError(f"num_neighbors does not fit the edge types: {error}.") from error


def sampler_of(data: Any, num_neighbors: Any, options: SamplingOptions) -> PygSampler:
    """Return the sampler of PyG's data.

    Raises:
        GraphError: the data, a fan-out or an option is not what it must be.
    """
    seed = int(torch.randint(2**62, ())) if options.seed is None else options.seed
    graphs = options.graph or graphs_of(data, options.time_attr, options.weight_attr)
    fused = FusedSampler(
        graphs,
        _fanouts(num_neighbors, list(graphs) if isinstance(graphs, Mapping) else None),
        replace=options.replace,
        disjoint=options.disjoint,
        take_latest=options.temporal_strategy == "last",
        seed=seed,
    )
    return PygSampler(fused, node_times_of(data, options.time_attr), options)
