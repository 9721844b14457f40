"""Copies between the host and a GPU, with pinned memory and with ordinary memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from .repeat import Candidate, Clock, RepeatedWork, Search, describe

SIZES = (1 << 20, 16 << 20, 64 << 20, 256 << 20)


def measure(torch: Any, device: str, kind: str, clock: Clock, *, is_pinned: bool) -> dict[str, Any]:
    """Return the ceiling of `h2d` or `d2h` copies."""

    def make(size: int) -> RepeatedWork:
        host = torch.ones(size, dtype=torch.uint8, pin_memory=is_pinned)
        there = torch.ones(size, dtype=torch.uint8, device=device)
        source, target = (host, there) if kind == "h2d" else (there, host)
        return RepeatedWork(
            call=lambda: target.copy_(source, non_blocking=is_pinned),
            finish=lambda: torch.cuda.synchronize(device),
        )

    def candidates() -> Iterator[Candidate]:
        for size in SIZES:
            setting = {"payload_bytes": size}
            yield Candidate(setting, float(size), partial(make, size))

    search = Search(clock, errors=(RuntimeError,))
    search.try_all(candidates())
    variant = "pinned" if is_pinned else "pageable"
    return describe(kind, device, "bytes_per_s", search, variant=variant)
