"""Limits what torch's allocator may take of each CUDA device, in a trial.

The limit is set when the script first uses a device, since setting it would start the device, and a
script may choose its devices, or fork, after it has imported torch.
"""

from __future__ import annotations

from typing import Any


def limit_devices(torch: Any, most_bytes: int) -> None:
    """Let allocations fail that would take torch's allocator beyond a size on a device.

    Whether that worked, the parent sees in what the allocator held at its peak.

    Args:
        torch: the module.
        most_bytes: what the allocator of this process may hold on each device [bytes].
    """

    def limit() -> None:
        for number in range(torch.cuda.device_count()):
            whole = torch.cuda.get_device_properties(number).total_memory
            fraction = min(1.0, most_bytes / whole)
            torch.cuda.set_per_process_memory_fraction(fraction, number)

    torch.cuda._lazy_call(limit)
