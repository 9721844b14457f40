"""Fused neighbor sampling: from seeds to a numbered subgraph, without COO and without sorting.

In: a `Csc` for each relation, fan-outs, seeds. Out: a `SampledGraph` in PyG's order of nodes, or
blocks in DGL's. What is picked is a function of seed, epoch, batch, layer, relation and node alone,
so any number of threads gives the same. One sampler makes one batch at a time; `clone` gives
another that shares the graph. Batches, features and threads are `loader.py`'s.

Source: Mostafa et al., FastSample (2023), https://arxiv.org/abs/2311.17847; here each thread makes
a batch of its own, in place of many threads sharing one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from steptime.errors import GraphError, MissingExtraError
from steptime.graph.csc import Csc, as_array, check_ids, check_range
from steptime.graph.sampled import (
    EDGE,
    NODE,
    Relation,
    SampledBlock,
    SampledGraph,
    checked_fanouts,
    checked_sizes,
)

try:
    from steptime.graph import sampling_kernels as kernels
except (ImportError, RuntimeError) as error:
    raise MissingExtraError(
        f"Sampling needs numba, which cannot be imported: {error}",
        needs="steptime[graph]",
    ) from error

Array = Any
"""An array of numpy; the docstrings say of what."""

NO_TREES = np.empty(0, np.int64)
EMPTY = np.empty(0, np.int64)
NO_IDS = np.empty(0, np.int32)

_MASK = (1 << 64) - 1


@dataclass(slots=True)
class _Frontier:
    """The nodes of one type that one batch has reached, and where each hop began."""

    nodes: Array
    trees: Array
    limits: Array | None
    count: int
    has_trees: bool
    """Each seed has a tree of its own."""
    hops: list[int] = field(default_factory=lambda: [0])

    def reserve(self, more: int) -> None:
        if self.count + more > self.nodes.size:
            self.nodes = _grown(self.nodes, self.count, more)
        if self.count + more > self.trees.size and self.has_trees:
            self.trees = _grown(self.trees, self.count, more)


class FusedSampler:
    """Samples the neighbors of seeds, hop by hop.

    Beside the graph it holds 4 bytes for each node, and what one batch takes. A graph with weights
    is sampled by weight. A graph with times gives each seed a tree of its own, with only edges no
    later than that seed's time.

    Args:
        graphs: one graph, or one for each relation.
        fanouts: edges picked for each node, hop by hop, -1 for all; or that for each relation.
        replace: pick with replacement.
        disjoint: give each seed a tree of its own, as times do.
        take_latest: pick the latest edges in place of any no later than the seed.
        seed: of all random numbers.

    Raises:
        GraphError: a fan-out is 0 or too large, hops differ in number, or a relation has none.
    """

    def __init__(
        self,
        graphs: Csc | Mapping[Relation, Csc],
        fanouts: Sequence[int] | Mapping[Relation, Sequence[int]],
        *,
        replace: bool = False,
        disjoint: bool = False,
        take_latest: bool = False,
        seed: int = 0,
    ) -> None:
        self.graphs = {EDGE: graphs} if isinstance(graphs, Csc) else dict(graphs)
        self.replace, self.seed = replace, seed
        self.is_disjoint = disjoint or any(g.times is not None for g in self.graphs.values())
        self.take_latest = take_latest
        self.num_nodes = checked_sizes(self.graphs)
        self.fanouts = checked_fanouts(self.graphs, fanouts)
        self._numbers: dict[str, Array] = {}
        self._rooms: dict[str, Array] = {}
        self._is_busy = threading.Lock()

    def clone(self) -> FusedSampler:
        """Return a sampler of the same graph and settings, for another thread."""
        return FusedSampler(
            self.graphs,
            self.fanouts,
            replace=self.replace,
            disjoint=self.is_disjoint,
            take_latest=self.take_latest,
            seed=self.seed,
        )

    @property
    def num_hops(self) -> int:
        """How far from the seeds it goes."""
        return len(next(iter(self.fanouts.values())))

    @property
    def num_bytes(self) -> int:
        """What it holds between two batches, beside the graph [B]."""
        return sum(numbers.nbytes for numbers in self._numbers.values())

    def sample(
        self,
        seeds: Any,
        *,
        epoch: int = 0,
        batch: int = 0,
        times: Any = None,
    ) -> SampledGraph:
        """Return the neighborhood of some seeds; each node's edges are picked once.

        Args:
            seeds: (num_seeds,) nodes, or that for each node type.
            epoch: part of the key of the random numbers.
            batch: part of the key, too.
            times: (num_seeds,) the latest edge that each seed may see, or that for each type.

        Raises:
            GraphError: a seed is out of range, a time is missing, or another thread is in here.
        """
        if not self._is_busy.acquire(blocking=False):
            raise GraphError(
                "This sampler is making a batch in another thread; give each thread its own by "
                "`clone`."
            )
        frontiers: dict[str, _Frontier] = {}
        try:
            frontiers = self._start(seeds, times)
            return self._sample(frontiers, key_of(self.seed, epoch, batch))
        finally:
            self._forget(frontiers)
            self._is_busy.release()

    def sample_blocks(self, seeds: Any, *, epoch: int = 0, batch: int = 0) -> list[SampledBlock]:
        """Return one block for each hop, the farthest first; each hop picks for all nodes so far.

        Raises:
            GraphError: as for `sample`, or the graph has types, or trees do not share nodes.
        """
        if list(self.graphs) != [EDGE] or self.is_disjoint:
            raise GraphError("Blocks are made of a graph without types and times: use `sample`.")
        if not self._is_busy.acquire(blocking=False):
            raise GraphError("This sampler is making a batch in another thread; use a `clone`.")
        frontiers: dict[str, _Frontier] = {}
        try:
            frontiers = self._start(seeds, None)
            return self._blocks(frontiers[NODE], key_of(self.seed, epoch, batch))
        finally:
            self._forget(frontiers)
            self._is_busy.release()

    def _start(self, seeds: Any, times: Any) -> dict[str, _Frontier]:
        """Return the seeds of each type, checked, numbered and, where needed, with times."""
        by_type = seeds if isinstance(seeds, Mapping) else {NODE: seeds}
        limits = times if isinstance(times, Mapping) or times is None else {NODE: times}
        unknown = set(by_type) - set(self.num_nodes)
        if unknown or not by_type:
            raise GraphError(
                f"There are seeds of type {sorted(unknown)}, and the graph has the types "
                f"{sorted(self.num_nodes)}."
            )
        frontiers, first = {}, 0
        for kind, num in self.num_nodes.items():
            nodes = as_array(by_type.get(kind, EMPTY), "seeds")
            check_ids(nodes, "seeds")
            check_range(nodes, num, "seeds")
            trees = np.arange(first, first + nodes.size) if self.is_disjoint else NO_TREES
            room = self._room(kind, nodes.size)
            room[: nodes.size] = nodes
            limit = as_array((limits or {}).get(kind), "times")
            frontiers[kind] = _Frontier(room, trees, limit, nodes.size, self.is_disjoint)
            first += nodes.size if self.is_disjoint else 0
        if any(graph.times is not None for graph in self.graphs.values()):
            self._check_times(frontiers)
        if not self.is_disjoint:
            for kind, frontier in frontiers.items():
                self._number_seeds(kind, frontier)
        return frontiers

    def _check_times(self, frontiers: Mapping[str, _Frontier]) -> None:
        for kind, frontier in frontiers.items():
            num = 0 if frontier.limits is None else frontier.limits.size
            if num != frontier.count:
                raise GraphError(
                    f"The graph has times, {frontier.count} seeds of type {kind!r}, and {num} "
                    "times of theirs; give one for each seed."
                )

    def _number_seeds(self, kind: str, frontier: _Frontier) -> None:
        numbers = self._numbers.get(kind)
        if numbers is None:
            numbers = self._numbers[kind] = np.full(self.num_nodes[kind], -1, np.int32)
        seeds = frontier.nodes[: frontier.count]
        numbers[seeds[::-1]] = np.arange(frontier.count - 1, -1, -1, dtype=np.int32)

    def _room(self, name: str, size: int) -> Array:
        """Return memory for numbers that no batch keeps: new memory costs more than its use."""
        room = self._rooms.get(name, EMPTY)
        if room.size < size:
            room = self._rooms[name] = np.empty(size + size // 4, np.int64)
        return room

    def _forget(self, frontiers: Mapping[str, _Frontier]) -> None:
        for kind, frontier in frontiers.items():
            self._rooms[kind] = frontier.nodes
            if kind in self._numbers:
                kernels.forget(self._numbers[kind], frontier.nodes, frontier.count)

    def _sample(self, frontiers: dict[str, _Frontier], key: int) -> SampledGraph:
        limits = _limits_of_trees(frontiers)
        parts: dict[Relation, list[tuple[Array, Array, Array]]] = {r: [] for r in self.graphs}
        for hop in range(self.num_hops):
            ends = {kind: frontier.count for kind, frontier in frontiers.items()}
            for place, (relation, graph) in enumerate(self.graphs.items()):
                reached = frontiers[relation[2]]
                layer_key = key_of(key, hop, place)
                fanout = self.fanouts[relation][hop]
                begin = reached.hops[-1]
                span = (begin, ends[relation[2]])
                if relation == EDGE and self._is_plain(graph):
                    indptr, rows, edges = self._plain_hop(graph, reached, span, fanout, layer_key)
                else:
                    indptr, picks = self._pick(graph, reached, span, limits, fanout, layer_key)
                    trees, sources = reached.trees[slice(*span)], frontiers[relation[0]]
                    rows = self._number(relation[0], sources, graph, indptr, picks, trees)
                    edges = _edges(graph, picks)
                parts[relation].append((rows, kernels.columns_of(indptr, begin), edges))
            for kind, frontier in frontiers.items():
                frontier.hops.append(ends[kind])
        return _gathered(frontiers, parts, is_disjoint=self.is_disjoint)

    def _blocks(self, frontier: _Frontier, key: int) -> list[SampledBlock]:
        graph, made = self.graphs[EDGE], []
        for hop, fanout in enumerate(self.fanouts[EDGE]):
            layer_key = key_of(key, hop, 0)
            span = (0, frontier.count)
            if self._is_plain(graph):
                made.append(
                    (*self._plain_hop(graph, frontier, span, fanout, layer_key), frontier.count)
                )
                continue
            indptr, picks = self._pick(graph, frontier, span, None, fanout, layer_key)
            rows = self._number(NODE, frontier, graph, indptr, picks, NO_TREES)
            made.append((indptr, rows, _edges(graph, picks), frontier.count))
        nodes = frontier.nodes[: frontier.count].copy()
        return [
            SampledBlock(indptr=indptr, indices=rows, edges=edges, sources=nodes[:count])
            for indptr, rows, edges, count in reversed(made)
        ]

    def _is_plain(self, graph: Csc) -> bool:
        return graph.weights is None and not self.is_disjoint

    def _plain_hop(
        self, graph: Csc, reached: _Frontier, span: tuple[int, int], fanout: int, key: int
    ) -> tuple[Array, Array, Array]:
        """Return what `_pick`, `_number` and `_edges` do, from one compiled call."""
        num = span[1] - span[0]
        nodes = reached.nodes[span[0] : span[1]]
        most = num * fanout
        if fanout < 0 or (fanout > kernels.SHORT and not self.replace):
            degrees = int((graph.indptr[nodes + 1] - graph.indptr[nodes]).sum())
            most = degrees if fanout < 0 else min(degrees, most)
        rooms = tuple(self._room(f"/{n}", s) for n, s in (("starts", num), ("ends", num)))
        picks = self._room("/picks", most)
        reached.reserve(most)
        arrays = (graph.indptr, graph.indices, NO_IDS if graph.edge_ids is None else graph.edge_ids)
        indptr, rows, edges, reached.count = kernels.plain_hop(
            np.uint64(key),
            arrays,
            fanout,
            self.replace and fanout >= 0,
            self._numbers[NODE],
            reached.nodes,
            (*span, reached.count),
            (*rooms, picks),
        )
        return indptr, rows, edges

    def _pick(
        self,
        graph: Csc,
        reached: _Frontier,
        span: tuple[int, int],
        limits: Array | None,
        fanout: int,
        key: int,
    ) -> tuple[Array, Array]:
        """Return how many edges each node of a span gets, as prefix sums, and their positions."""
        nodes, trees = reached.nodes[span[0] : span[1]], reached.trees[span[0] : span[1]]
        starts = self._room("/starts", nodes.size)[: nodes.size]
        ends = self._room("/ends", nodes.size)[: nodes.size]
        if graph.times is None:
            kernels.node_ranges(graph.indptr, nodes, starts, ends)
        else:
            assert limits is not None
            latest = limits[trees]
            kernels.ranges_until(graph.indptr, graph.times, nodes, latest, starts, ends)
            if self.take_latest and fanout >= 0:
                np.maximum(starts, ends - fanout, out=starts)
        indptr, words = np.empty(nodes.size + 1, np.int64), np.uint64(key)
        repeats = self.replace and fanout >= 0
        total = kernels.count_picks(starts, ends, fanout, repeats, indptr)
        picks = self._room("/picks", total)
        given = (words, nodes, trees, starts, ends)
        if graph.weights is not None:
            pick = kernels.pick_weighted_repeated if repeats else kernels.pick_weighted
            pick(*given, graph.weights, indptr, picks)
        else:
            pick = kernels.pick_repeated if repeats else kernels.pick_uniform
            pick(*given, indptr, picks)
        return indptr, picks[: indptr[-1]]

    def _number(
        self,
        kind: str,
        frontier: _Frontier,
        graph: Csc,
        indptr: Array,
        picks: Array,
        reached: Array,
    ) -> Array:
        """Return the local numbers of the sources that were picked, the new ones appended."""
        frontier.reserve(picks.size)
        rows = np.empty(picks.size, np.int64)
        nodes, count = frontier.nodes, frontier.count
        if not self.is_disjoint:
            numbers = self._numbers[kind]
            frontier.count = kernels.number_by_map(
                graph.indices, picks, numbers, nodes, count, rows
            )
            return rows
        trees = frontier.trees
        frontier.count = kernels.number_by_table(
            graph.indices, picks, indptr, reached, nodes, trees, count, rows
        )
        return rows


def key_of(*counters: int) -> int:
    """Return 64 well-mixed bits of some counters."""
    key = 0
    for counter in counters:
        key = _mixed((key ^ (counter & _MASK)) + 0x9E3779B97F4A7C15)
    return key


def _mixed(state: int) -> int:
    """Return what `kernels.mix` does, in Python."""
    state &= _MASK
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB & _MASK
    return state ^ (state >> 31)


def _grown(values: Array, count: int, more: int) -> Array:
    grown = np.empty(count + more, values.dtype)
    grown[:count] = values[:count]
    return grown


def _limits_of_trees(frontiers: Mapping[str, _Frontier]) -> Array | None:
    """Return the time of each tree's seed, trees being numbered type after type."""
    seeded = [frontier.limits for frontier in frontiers.values() if frontier.count]
    given = [limits for limits in seeded if limits is not None]
    return np.concatenate(given) if given and len(given) == len(seeded) else None


def _edges(graph: Csc, picks: Array) -> Array:
    if graph.edge_ids is None:
        return picks.copy()
    edges = np.empty(picks.size, np.int64)
    kernels.take(graph.edge_ids, picks, edges)
    return edges


def _gathered(
    frontiers: Mapping[str, _Frontier],
    parts: Mapping[Relation, list[tuple[Array, Array, Array]]],
    *,
    is_disjoint: bool,
) -> SampledGraph:
    joined = {
        relation: [np.concatenate(arrays) for arrays in zip(*hops, strict=True)]
        for relation, hops in parts.items()
    }
    return SampledGraph(
        nodes={kind: f.nodes[: f.count].copy() for kind, f in frontiers.items()},
        trees={k: f.trees[: f.count] for k, f in frontiers.items()} if is_disjoint else {},
        rows={relation: arrays[0] for relation, arrays in joined.items()},
        columns={relation: arrays[1] for relation, arrays in joined.items()},
        edges={relation: arrays[2] for relation, arrays in joined.items()},
        num_nodes={
            kind: np.diff([0, *f.hops[1:], f.count]).tolist() for kind, f in frontiers.items()
        },
        num_edges={relation: [hop[0].size for hop in hops] for relation, hops in parts.items()},
    )
