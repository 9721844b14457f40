"""PyG's neighbor sampling, found in a loader and replaced in its class.

In: a loader of the script, or PyG's module. Out: whether its sampling can be fused, or the class
with another `_sample`. The guest asks with this file too, so it knows the standard library alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

MODULE = "torch_geometric.sampler.neighbor_sampler"
FUSABLE = "fusable"
INDUCED = "induced"
"""Edges between sampled nodes that were not picked."""
REMOTE = "remote"
"""The graph is not in this process's memory."""
OTHER = "other"
"""A sampler that is not PyG's own."""


def sampling_of(loader: Any) -> str:
    """Return how a loader samples neighbors; empty where it does not."""
    sampler = getattr(loader, "node_sampler", None) or getattr(loader, "link_sampler", None)
    module = sys.modules.get(MODULE)
    if sampler is None or module is None:
        return ""
    if type(sampler) is not module.NeighborSampler:
        return OTHER
    if sampler.data_type.value == "remote" or sampler.sample_direction != "forward":
        return REMOTE
    return INDUCED if sampler.subgraph_type.value == "induced" else FUSABLE


def replace_sampling(sampler_class: Any, graph: Any) -> Callable[[], None]:
    """Let a class of PyG sample by `steptime.graph`; return what takes that back.

    Samplers are kept beside PyG's, never on them: they would be pickled with them.
    """
    original, made = sampler_class._sample, WeakKeyDictionary[Any, Any]()

    def _sample(self: Any, seed: Any, seed_time: Any = None, **options: Any) -> Any:
        kind = self.data_type.value
        if kind == "remote" or self.subgraph_type.value == "induced":
            return original(self, seed, seed_time, **options)
        if self.sample_direction != "forward":
            return original(self, seed, seed_time, **options)
        fused = made.get(self)
        if fused is None:
            fused = made[self] = graph.sampler_like(self)
        return graph.sample_like(self, fused, seed, seed_time)

    def undo() -> None:
        sampler_class._sample = original

    sampler_class._sample = _sample
    return undo


def modules() -> tuple[Any, Any]:
    """Return PyG's module and ours.

    Raises:
        ImportError: the script's Python lacks one of them.
    """
    return import_module(MODULE), import_module("steptime.graph.pyg_sampling")
