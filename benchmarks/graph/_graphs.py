"""Generated graphs, and DGL 2.1.0 where it can be loaded, for the benchmarks of graphs."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np


def rmat(scale: int, num_edges: int, seed: int = 0) -> tuple[Any, Any]:
    """Return sources and targets of an RMAT graph (.57, .19, .19, .05), its nodes shuffled.

    Source: Chakrabarti et al. (2004), https://doi.org/10.1137/1.9781611972740.43.
    """
    draw = np.random.default_rng(seed)
    names = draw.permutation(1 << scale)
    parts = []
    for size in pieces(num_edges, 4_000_000):
        sources, targets = np.zeros(size, np.int64), np.zeros(size, np.int64)
        for _ in range(scale):
            chance = draw.random(size, np.float32)
            sources = 2 * sources + (chance >= 0.76)
            targets = 2 * targets + (((chance >= 0.57) & (chance < 0.76)) | (chance >= 0.95))
        parts.append((names[sources].astype(np.int32), names[targets].astype(np.int32)))
    sources, targets = (np.concatenate(ends) for ends in zip(*parts, strict=True))
    return sources, targets


def pieces(total: int, most: int) -> list[int]:
    """Return sizes of at most so many that add up."""
    return [min(most, total - start) for start in range(0, total, most)]


def load_dgl(folder: str | None) -> Any:
    """Return DGL, its GraphBolt replaced by an empty module: that one wants an older torch.

    Its C++ core does not depend on torch's version, so its samplers run.
    """
    if folder:
        sys.path.append(folder)
    sys.modules["dgl.graphbolt"] = types.ModuleType("dgl.graphbolt")
    import dgl

    return dgl
