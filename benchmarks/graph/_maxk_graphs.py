"""The graphs, the rival and the clock of the MaxK benchmarks."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import cpu_name, stamp

# R-MAT's usual chances of the four quarters (Chakrabarti et al., 2004, as in Graph500).
QUARTERS = (0.57, 0.19, 0.19, 0.05)


def rmat(scale: int, edge_factor: int, *, seed: int = 0) -> torch.Tensor:
    """(2, num_edges) An R-MAT graph of 2^scale nodes, without edges that stand twice."""
    draw = torch.Generator().manual_seed(seed)
    num = (1 << scale) * edge_factor
    source = torch.zeros(num, dtype=torch.int64)
    target = torch.zeros(num, dtype=torch.int64)
    a, b, c, _ = QUARTERS
    for _ in range(scale):
        chance = torch.rand(num, generator=draw)
        source = source * 2 + (chance >= a + b)
        target = target * 2 + (((chance >= a) & (chance < a + b)) | (chance >= a + b + c))
    key = torch.unique(source * (1 << scale) + target)
    return torch.stack([key >> scale, key & ((1 << scale) - 1)])


def both_ways(edges: torch.Tensor, num_nodes: int) -> torch.Tensor:
    """The graph with each edge in both directions, once."""
    key = torch.unique(
        torch.cat([edges[0] * num_nodes + edges[1], edges[1] * num_nodes + edges[0]])
    )
    return torch.stack([key // num_nodes, key % num_nodes])


class Clock:
    """CPU seconds of this process (all threads) and wall seconds of calls."""

    def __init__(self) -> None:
        self.cpu: dict[str, list[float]] = {}
        self.wall: dict[str, list[float]] = {}

    def time(self, name: str, call: Callable[[], Any]) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        found = call()
        self.cpu.setdefault(name, []).append(time.process_time() - cpu)
        self.wall.setdefault(name, []).append(time.perf_counter() - wall)
        return found

    def ratio(self, rival: str, ours: str, *, wall: bool = False) -> dict[str, float]:
        """How many times longer the rival took, a round each: median, least, most."""
        times = self.wall if wall else self.cpu
        each = [a / b for a, b in zip(times[rival], times[ours], strict=True)]
        return {
            "median": statistics.median(each),
            "least": min(each),
            "most": max(each),
            "n": len(each),
        }


def machine() -> dict[str, Any]:
    """What the figures were taken on, with how busy it was."""
    return {
        "processor": cpu_name(),
        "num_cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "torch": torch.__version__,
        **stamp(),
    }


class Results:
    """The cells of a benchmark; each is on disk once it is there."""

    def __init__(self, out: Path, settings: dict[str, Any]) -> None:
        self.out, self.cells = out, []
        self.head = {"settings": settings, "machine": machine()}

    def add(self, cell: dict[str, Any]) -> None:
        self.cells.append(cell | {"load_average": os.getloadavg()[0]})
        self.out.write_text(json.dumps(self.head | {"cells": self.cells}, indent=1) + "\n")
