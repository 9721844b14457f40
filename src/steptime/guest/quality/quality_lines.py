"""The two files of a quality recording, and the values in their lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from json import dumps
from typing import Any

from ...record import kinds
from ...record.files import MAX_RANKS, SCHEMA, quality_file, quality_values_file
from ...record.numbers_told import rank_told
from ..timeline.recorder import append
from .checksums import as_bytes

SWITCHES = ("fused", "foreach", "capturable", "differentiable", "params", "lr", "initial_lr")
"""Keys of an optimizer's group that change no mathematics or are written elsewhere."""


class QualityFiles:
    """The two files of this process."""

    def __init__(self, torch: Any, folder: str, facts: dict[str, Any]) -> None:
        self.folder = folder
        rank, world = find_rank(torch)
        if rank is None:
            rank = next(r for r in range(MAX_RANKS) if self._claim(r))
        else:
            self._claim(rank)
        self.path = os.path.join(self.folder, quality_file(rank))
        self.values_path = os.path.join(self.folder, quality_values_file(rank))
        self.offset = 0
        self.write({"k": kinds.HEAD, "schema": SCHEMA, "rank": rank, "world_size": world} | facts)

    def _claim(self, rank: int) -> bool:
        for name in (quality_file(rank), quality_values_file(rank)):
            path = os.path.join(self.folder, name)
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644))
            except OSError:
                return False
        return True

    def write(self, row: dict[str, Any]) -> None:
        """Append a line."""
        append(self.path, dumps(row) + "\n")

    def write_values(self, row: dict[str, Any], values: Any) -> None:
        """Append float64 values, and a line that says where they are."""
        data = as_bytes(values)
        with open(self.values_path, "ab") as file:
            file.write(data)
        self.write(row | {"offset": self.offset})
        self.offset += len(data) // 8


def find_rank(torch: Any) -> tuple[int | None, int]:
    """Return rank and world size from torch.distributed, or else from the environment."""
    dist = torch.distributed
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return rank_told(os.environ)


def describe_groups(optimizer: Any) -> list[dict[str, str]]:
    """Return the settings of an optimizer's groups that change the mathematics."""
    return [
        {key: repr(plain(value)) for key, value in sorted(group.items()) if key not in SWITCHES}
        for group in optimizer.param_groups
    ]


def plain(value: Any) -> Any:
    """Return a number, a text or a list of them; for anything else the name of its class."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return float(value) if getattr(value, "numel", lambda: 0)() == 1 else type(value).__name__


def norms(values: Any, counts: list[int]) -> Iterator[str]:
    """Yield the Euclidean norm of each of several tensors that lie one after another."""
    for part in values.split(counts):
        yield float(part.norm()).hex()


def count_graphs() -> dict[str, int]:
    """Return how many graphs torch.compile made, and how often it gave up and ran eagerly."""
    books: Any = sys.modules.get("torch._dynamo.utils")
    counters = getattr(books, "counters", {})
    reasons = counters.get("unimplemented", {})
    limits = [times for reason, times in reasons.items() if "limit" in str(reason).lower()]
    graphs = counters.get("stats", {}).get("unique_graphs", 0)
    return {"graphs": int(graphs), "fallbacks": int(sum(limits))}
