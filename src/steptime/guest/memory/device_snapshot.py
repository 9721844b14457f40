"""Leaves torch's own snapshot of a device's memory when a process ran out of it.

It is the pickle that https://docs.pytorch.org/memory_viz opens: every segment and block that the
allocator holds, and the allocations before, if the script records them. It was never run on a
device: it is tested with made-up facts.
"""

from __future__ import annotations

import os
from typing import Any

from ...record.files import snapshot_file


def leave_snapshot(torch: Any, run: str) -> str | None:
    """Write the snapshot of this process into the run's folder; return its file's name.

    None where no device is in use, or torch cannot say.
    """
    dump = getattr(getattr(torch.cuda, "memory", None), "_dump_snapshot", None)
    if dump is None or not torch.cuda.is_initialized():
        return None
    name = snapshot_file(os.getpid())
    dump(os.path.join(run, name))
    return name
