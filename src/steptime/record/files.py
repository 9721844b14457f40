"""What the files of a run folder are called, and the schema number of their lines."""

from __future__ import annotations

SCHEMA = 1
"""In the `head` line of each file of lines; another number is refused."""

PROCESSES = "processes.jsonl"
HOST = "host.jsonl"
STALLS = "stalls.jsonl"
COUNTED = "count.jsonl"

RANKS = "rank-*.jsonl"
WORKERS = "worker-*.jsonl"
QUALITY = "quality-*.jsonl"

MAX_RANKS = 1000
"""Processes that know no rank of their own take the first number that is free, up to here."""


def rank_file(rank: int, pid: int | None = None) -> str:
    """The stream of a rank; with `pid`, of a further process with the same rank."""
    return f"rank-{rank}.jsonl" if pid is None else f"rank-{rank}-{pid}.jsonl"


def worker_file(ppid: int, number: int) -> str:
    """The sums of one DataLoader worker of the process `ppid`, and of its successors."""
    return f"worker-{ppid}-{number}.jsonl"


def quality_file(rank: int) -> str:
    """The lines of a quality recording; its values are in the file of the next function."""
    return f"quality-{rank}.jsonl"


def quality_values_file(rank: int) -> str:
    """The float64 values that lines of a quality recording point to."""
    return f"quality-{rank}.bin"
