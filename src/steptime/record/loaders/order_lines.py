"""The lines that a child of `steptime data check` writes about the loaders of a script.

They are in `order-PID.jsonl` of the child's folder, and each says by `k` what it is.
"""

from __future__ import annotations

ORDERS = "order-*.jsonl"
"""The files; the guest writes them, the parent reads them."""

LOADER = "loader"
"""A loader with a number: how it was made, and where."""

PASS = "pass"
"""An iteration over a loader begins."""

INDICES = "indices"
"""A part of the order that the sampler gave for a pass."""

BATCH = "batch"
"""A batch that was handed to the script: digests and labels of its samples."""

PASS_END = "pass_end"
"""A pass is over, or enough of it was seen."""

SAVE = "save"
"""The script saved a checkpoint."""

SAMPLES = "samples"
"""Contents of samples that the child read from a data set."""

MAX_IN_LINE = 200_000
"""Numbers in one line; a reader takes no line above 16 MiB."""


def order_file(pid: int) -> str:
    """Return the name of the file of a process."""
    return f"order-{pid}.jsonl"
