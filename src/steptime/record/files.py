"""Names the files of a run folder, and the schema number of their lines."""

from __future__ import annotations

import os

SCHEMA = 1
"""It is in the `head` line of each file of lines; readers refuse another number."""

PROCESSES = "processes.jsonl"
HOST = "host.jsonl"
OUTPUT = "output.txt"
STALLS = "stalls.jsonl"
COUNTED = "count.jsonl"
BENCH = "bench.jsonl"
FORECAST = "forecast.jsonl"

RANKS = "rank-*.jsonl"
WORKERS = "worker-*.jsonl"
TF_DATA = "tfdata-*.jsonl"
QUALITY = "quality-*.jsonl"
CHECKSUMS = "checksums-*.jsonl"

MAX_RANKS = 1000
"""A process that does not know its rank takes the first free number, up to this one."""


MAX_RANK_BYTES = 4 << 30
"""A rank's file grows by some 60 bytes a step, for as long as the training runs."""

MAX_LINES_BYTES = 256 << 20
"""All other files of lines stay far below: a line a second at first, fewer and fewer later."""

MAX_PROCESSES_BYTES = 16 << 20
"""Of a longer `processes.jsonl` (100,000 processes) the beginning and the end are read."""


def max_bytes_of(path: str | os.PathLike[str]) -> int:
    """Return how many bytes a file of lines may have."""
    is_ranks = os.path.basename(os.fspath(path)).startswith("rank-")
    return MAX_RANK_BYTES if is_ranks else MAX_LINES_BYTES


def rank_file(rank: int, pid: int | None = None) -> str:
    """Return the file of a rank's stream; with `pid`, of a further process with the same rank."""
    return f"rank-{rank}.jsonl" if pid is None else f"rank-{rank}-{pid}.jsonl"


def worker_file(ppid: int, number: int) -> str:
    """Return the file with the sums of a DataLoader worker of `ppid`, and of its successors."""
    return f"worker-{ppid}-{number}.jsonl"


def quality_file(rank: int) -> str:
    """Return the file with the lines of a quality recording; the next function has its values."""
    return f"quality-{rank}.jsonl"


def quality_values_file(rank: int) -> str:
    """Return the file with the float64 values that lines of a quality recording point to."""
    return f"quality-{rank}.bin"


def checksum_file(rank: int) -> str:
    """Return the file with the checksums that a rank keeps."""
    return f"checksums-{rank}.jsonl"


def snapshot_file(pid: int) -> str:
    """Return the file with torch's own snapshot of a process that ran out of device memory."""
    return f"memory-{pid}.pickle"


def tf_data_file(pid: int) -> str:
    """Return the file with what tf.data says of the pipelines of one process."""
    return f"tfdata-{pid}.jsonl"
