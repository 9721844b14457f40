"""Samples a step, from the lines in which the guest counted them.

In: a trial's folder. Out: the mean over its updates and all ranks, or None where a batch had no
size that was seen.
"""

from __future__ import annotations

from pathlib import Path

from steptime.measure.jsonl import Torn, read_rows

_SAMPLES = 5  # place in a row of a `t` line; docs/reference/study-folder.md


def samples_per_step(folder: Path) -> float | None:
    """Mean samples of an update over all ranks; the first update is left out."""
    total = 0.0
    for path in sorted(folder.glob("rank-*.jsonl")):
        counts = _counts(path)
        if not counts:
            continue  # it stepped and told no samples, or is another process of a rank
        if min(counts) < 0:
            return None
        total += sum(counts) / len(counts)
    return total or None


def _counts(path: Path) -> list[int]:
    rows = [row for line in read_rows(path, Torn()) if line["k"] == "t" for row in line["rows"]]
    return [row[_SAMPLES] for row in rows if len(row) > _SAMPLES][1:]
