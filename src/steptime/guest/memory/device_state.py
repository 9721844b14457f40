"""Reads what torch's allocator and the driver say about the memory of the current device."""

from __future__ import annotations

from typing import Any


def read_device(torch: Any) -> dict[str, Any] | None:
    """Return what torch's allocator and the driver say about the current device, if any."""
    if not torch.cuda.is_initialized():
        return None
    stats = torch.cuda.memory_stats_as_nested_dict()
    free, total = torch.cuda.mem_get_info()

    def of(what: str, which: str = "current") -> int | None:
        found = stats.get(what, {}).get("all", {}).get(which)
        return None if found is None else int(found)

    return {
        "allocated": of("allocated_bytes"),
        "reserved": of("reserved_bytes"),
        "peak_allocated": of("allocated_bytes", "peak"),
        "peak_reserved": of("reserved_bytes", "peak"),
        "split": of("inactive_split_bytes"),
        "largest_free_block": largest_free_block(torch),
        "free": free,
        "total": total,
        "pinned": read_pinned(torch),
    }


def largest_free_block(torch: Any) -> int | None:
    """Return the largest block that the allocator could give out of what it holds."""
    sizes = [
        block["size"]
        for segment in torch.cuda.memory_snapshot()
        for block in segment["blocks"]
        if block["state"] == "inactive"
    ]
    return max(sizes, default=0)


def read_pinned(torch: Any) -> int | None:
    """Return the bytes of host memory that torch has pinned; None where torch does not say."""
    read = getattr(torch.cuda, "host_memory_stats", None)
    return None if read is None else read().get("allocated_bytes.current")
