"""Sums up what the DataLoader's workers wrote: their work, their memory, and how they began.

In: the records of a run. Out: a `WorkerSummary`. Memory is of the kernel's `smaps_rollup`, which
each worker reads about itself when it begins, now and then, and when it ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from steptime.measure.fold.run_records import RunRecords, WorkerHead, WorkerSums
from steptime.measure.values.machine_load import WorkerSummary
from steptime.record.places import NS

Workers = Sequence[tuple[WorkerHead, WorkerSums]]


def summarize_workers(records: RunRecords) -> WorkerSummary | None:
    """Return the sums over all worker processes; a later epoch replaces the earlier."""
    num_batches = sum(sums.batches for _, sums in records.workers)
    if num_batches == 0:
        return None
    cpu_ns = [sums.cpu_ns for _, sums in records.workers if sums.cpu_ns is not None]
    has_cpu = len(cpu_ns) == len(records.workers)
    return replace(
        WorkerSummary(
            num_workers=len({(head.ppid, head.worker) for head, _ in records.workers}),
            num_batches=num_batches,
            fetch_s_per_batch=sum(s.fetch_ns for _, s in records.workers) * NS / num_batches,
            collate_s_per_batch=sum(s.collate_ns for _, s in records.workers) * NS / num_batches,
            cpu_s_per_batch=sum(cpu_ns) * NS / num_batches if has_cpu else None,
            opens_images=any(sums.opens_images for _, sums in records.workers),
            num_threads=max((s.num_threads or 0 for _, s in records.workers), default=0) or None,
        ),
        **memory_of_workers(records.workers),
        **first_of_workers(records),
    )


def memory_of_workers(workers: Workers) -> dict[str, Any]:
    """Return what workers copied, of those with each number the one that copied most [bytes].

    A page that is shared and then written to becomes a worker's own: shared memory becomes less.
    """
    rows: dict[tuple[int, int], tuple[int, int, int]] = {}
    for head, sums in workers:
        before, after = head.shared_dirty, sums.shared_dirty
        at_first, own = head.private_dirty, sums.private_dirty
        if before is None or after is None or at_first is None or own is None:
            continue
        grown = max(0, own - at_first)
        row = (min(max(0, before - after), grown), own, grown)
        key = (head.ppid, head.worker)
        rows[key] = max(row, rows.get(key, row))
    if not rows:
        return {}
    names = ("copied_bytes", "private_bytes", "private_growth_bytes")
    return dict(zip(names, map(sum, zip(*rows.values(), strict=True)), strict=True))


def first_of_workers(records: RunRecords) -> dict[str, Any]:
    """Return how long the first worker took to start and to make its first batch [s]."""
    known = [one for one in records.workers if one[0].t_unix_s is not None]
    loaders = [use for stream in records.streams for use in stream.signals.loaders]
    began = [use.began_unix_s for use in loaders if use.num_workers and use.began_unix_s]
    if not known or not began:
        return {}
    ready = [(head.t_unix_s or 0.0, sums) for head, sums in known]
    when, first = min(ready, key=lambda one: one[0])
    found = {"first_start_s": when - min(began)} if when >= min(began) else {}
    if first.first_fetch_ns is not None:
        found["first_fetch_s"] = first.first_fetch_ns * NS
    return found
