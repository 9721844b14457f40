"""Graphs made from a few numbers, and a plain sampler over them, for the benchmarks of partitions.

Graphs are in compressed sparse columns with ids of 32 bits. The sampler's picks are a function of
key, layer and node alone, so that whoever samples a node picks the same neighbors.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

Array = np.ndarray[Any, Any]

RMAT = (0.57, 0.19, 0.19)
"""The first three chances of the recursive matrix (Graph500's)."""


@numba.njit(cache=True)
def _mixed(x: int) -> int:
    """The end of SplitMix64: all bits of the input reach all bits of the output."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@numba.njit(cache=True)
def _rmat_edges(scale: int, num_edges: int, seed: int, a: float, b: float, c: float):
    np.random.seed(seed)
    sources = np.empty(num_edges, dtype=np.int32)
    targets = np.empty(num_edges, dtype=np.int32)
    for edge in range(num_edges):
        row = column = 0
        for _ in range(scale):
            at = np.random.random()
            row = 2 * row + (at >= a + b)
            column = 2 * column + ((a <= at < a + b) or at >= a + b + c)
        sources[edge], targets[edge] = row, column
    return sources, targets


@numba.njit(cache=True)
def _columns(sources: Array, targets: Array, names: Array):
    """Compressed sparse columns, with nodes renamed so that numbers say nothing of degrees."""
    num_nodes = len(names)
    indptr = np.zeros(num_nodes + 1, dtype=np.int64)
    for target in targets:
        indptr[names[target] + 1] += 1
    for node in range(num_nodes):
        indptr[node + 1] += indptr[node]
    cursor = indptr[:-1].copy()
    indices = np.empty(len(sources), dtype=np.int32)
    for source, target in zip(sources, targets):  # noqa: B905 (numba)
        node = names[target]
        indices[cursor[node]] = names[source]
        cursor[node] += 1
    return indptr, indices


def make_rmat(scale: int, num_edges: int, *, seed: int = 0) -> tuple[Array, Array]:
    """A recursive matrix graph of 2**scale nodes: indptr, indices."""
    sources, targets = _rmat_edges(scale, num_edges, seed, *RMAT)
    names = np.random.default_rng(seed).permutation(1 << scale).astype(np.int32)
    return _columns(sources, targets, names)


def make_blocks(
    num_nodes: int, num_blocks: int, *, degree: int, inside: float, seed: int = 0
) -> tuple[Array, Array]:
    """A stochastic block model: each node's in-neighbors, a fraction `inside` from its block."""
    chance = np.random.default_rng(seed)
    names = chance.permutation(num_nodes).astype(np.int32)
    size = num_nodes // num_blocks
    targets = np.repeat(np.arange(size * num_blocks, dtype=np.int32), degree)
    near = targets // size * size + chance.integers(size, size=len(targets))
    far = chance.integers(num_nodes, size=len(targets))
    sources = np.where(chance.random(len(targets)) < inside, near, far).astype(np.int32)
    return _columns(sources, targets, names)


@numba.njit(cache=True, nogil=True)
def pick_neighbors(
    indptr: Array, indices: Array, nodes: Array, fanout: int, layer: int, key: int
) -> Array:
    """At most `fanout` different in-edges a node: (num_nodes, fanout) neighbors, -1 where none.

    Robert Floyd's sampling without replacement.
    """
    out = np.full((len(nodes), fanout), -1, dtype=np.int32)
    chosen = np.empty(fanout, dtype=np.int64)
    for row in range(len(nodes)):
        node = nodes[row]
        begin, degree = indptr[node], indptr[node + 1] - indptr[node]
        if degree <= fanout:
            for at in range(degree):
                out[row, at] = indices[begin + at]
            continue
        state = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(layer)
        state = _mixed(_mixed(state) + np.uint64(node))
        for at in range(fanout):
            last = degree - fanout + at
            state = _mixed(state + np.uint64(0x9E3779B97F4A7C15))
            pick = np.int64(state % np.uint64(last + 1))
            for other in range(at):
                if chosen[other] == pick:
                    pick = last
                    break
            chosen[at] = pick
            out[row, at] = indices[begin + pick]
    return out


def widen(nodes: Array, neighbors: Array) -> Array:
    """All nodes of a batch so far, ascending, each once."""
    return np.unique(np.concatenate([nodes, neighbors[neighbors >= 0]]))


def sample(
    indptr: Array, indices: Array, seeds: Array, fanouts: tuple[int, ...], key: int
) -> Array:
    """The nodes of a batch; every layer samples for all nodes so far, as DGL and FastSample do."""
    nodes = seeds
    for layer, fanout in enumerate(fanouts):
        nodes = widen(nodes, pick_neighbors(indptr, indices, nodes, fanout, layer, key))
    return nodes
