"""Reads batches of a loader apart from the loop: with their bytes in the page cache, and without.

Each pass is a forked copy of the process, as a worker is, with one thread of torch's. All passes
read the same batches: the copies start with the same random states.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from functools import partial
from itertools import islice
from time import perf_counter_ns
from typing import Any

from ...record import kinds
from ..trial.trial_plan import lever_tool
from .opened_files import OpenedFiles, drop_from_cache, num_read_bytes
from .part_timer import PartTimer
from .sample_parts import ChunkReads, Transforms, hook_decoders

do_apart = lever_tool("tools/forked_copy").do_apart

MAX_BATCHES = 32
PASS_S = 2.0
"""For the reading of a pass: after it no further batch is begun."""

LIMIT_S = 120.0
CURVE_BATCHES = 48
CURVE_S = 1.5
NS = 1_000_000_000


def measure_loader(torch: Any, loader: Any, *, with_curve: bool) -> Iterator[dict[str, Any]]:
    """Yield a line for each pass over the loader."""

    def warm_up() -> dict[str, Any]:
        files = OpenedFiles()
        found = read_batches(torch, loader, files=files)
        return found | {"files": files.found()}

    warm = do_apart(warm_up, limit_s=LIMIT_S)
    files = warm.pop("files", [])
    yield {"k": kinds.BENCH_PASS, "pass": "warm", "num_files": len(files)} | warm
    if "error" in warm:
        return
    num = max(1, warm["batches"])
    cached = do_apart(lambda: read_batches(torch, loader, num=num), limit_s=LIMIT_S)
    yield {"k": kinds.BENCH_PASS, "pass": "cached"} | cached
    if files:

        def read_cold() -> dict[str, Any]:
            num_dropped = drop_from_cache(files)
            return read_batches(torch, loader, num=num) | {"num_dropped": num_dropped}

        yield {"k": kinds.BENCH_PASS, "pass": "cold"} | do_apart(read_cold, limit_s=LIMIT_S)
    if with_curve:
        for num_workers in worker_counts():
            found = do_apart(partial(time_workers, torch, loader, num_workers), limit_s=LIMIT_S)
            yield {"k": kinds.BENCH_WORKERS, "num_workers": num_workers} | found


def read_batches(
    torch: Any, loader: Any, *, num: int | None = None, files: OpenedFiles | None = None
) -> dict[str, Any]:
    """Read batches as a worker would, and time their parts; in a copy of the process.

    Args:
        torch: the module.
        loader: of the script's.
        num: how many batches; None for as many as there is time for.
        files: notes those that are opened.

    Returns:
        batches and samples that were read, times by part [ns] over all batches but the first,
        unless there is only one, and the spans of a sample.
    """
    torch.set_num_threads(1)
    be_worker(torch, loader)
    timer = PartTimer()
    transforms = Transforms(timer)
    transforms.hook_chains()
    transforms.take_dataset(loader.dataset)
    hook_decoders(timer, lambda path: None if files is None else files.add(path))
    chunk_reads, before = ChunkReads(), num_read_bytes()
    fetcher, times_ns = timed_fetcher(torch, loader, timer), list[int]()
    due = perf_counter_ns() + int(PASS_S * NS)
    for indices in islice(loader._index_sampler, num or MAX_BATCHES):
        began = perf_counter_ns()
        try:
            fetcher.fetch(indices)
        except StopIteration:
            break
        times_ns.append(perf_counter_ns() - began)
        if len(times_ns) == 1 and num != 1:
            first = timer.num_samples, dict(timer.wall_ns), dict(timer.cpu_ns)
            timer.forget()
        if num is None and perf_counter_ns() > due:
            break
    if len(times_ns) == 1 and num != 1:
        timer.num_samples, timer.wall_ns, timer.cpu_ns = first
    after = num_read_bytes()
    return {
        "batches": len(times_ns),
        "timed_batches": max(1, len(times_ns) - 1) if times_ns else 0,
        "samples": timer.num_samples,
        "first_ns": times_ns[0] if times_ns else None,
        "wall_ns": dict(timer.wall_ns),
        "cpu_ns": dict(timer.cpu_ns),
        "transforms": transforms.found,
        "sample": timer.middle_sample(),
        "chunk_bytes": [chunk_reads.asked, chunk_reads.chunks],
        "is_whole_batch": callable(getattr(loader.dataset, "__getitems__", None)),
        "read_bytes": None if before is None or after is None else after - before,
    }


def be_worker(torch: Any, loader: Any) -> None:
    """Let the data set see a worker, where it is read by workers."""
    if not loader.num_workers:
        return
    worker = torch.utils.data._utils.worker
    worker._worker_info = worker.WorkerInfo(
        id=0, num_workers=1, seed=torch.initial_seed(), dataset=loader.dataset
    )
    if loader.worker_init_fn is not None:
        loader.worker_init_fn(0)


def timed_fetcher(torch: Any, loader: Any, timer: PartTimer) -> Any:
    """Return torch's own fetcher over a data set and a collate function that are timed."""
    fetch, data = torch.utils.data._utils.fetch, loader.dataset
    collate = timer.timed("collate", loader.collate_fn)
    arguments = loader._auto_collation, collate, loader.drop_last
    if isinstance(data, torch.utils.data.IterableDataset):
        fetcher = fetch._IterableDatasetFetcher(data, *arguments)
        fetcher.dataset_iter = TimedRows.of_iterator(fetcher.dataset_iter, timer)
        return fetcher
    rows = TimedRows(data, timer)
    many = getattr(data, "__getitems__", None)
    if many is not None and many:
        rows.__getitems__ = lambda keys: timer.timed_sample(many, keys, num=len(keys))  # type: ignore[attr-defined]
    return fetch._MapDatasetFetcher(rows, *arguments)


class TimedRows:
    """A data set whose reading is timed sample by sample."""

    def __init__(self, dataset: Any, timer: PartTimer) -> None:
        self.dataset = dataset
        self.timer = timer

    @staticmethod
    def of_iterator(iterator: Iterator[Any], timer: PartTimer) -> Iterator[Any]:
        """Yield what an iterator gives, timed."""
        try:
            while True:
                yield timer.timed_sample(next, iterator)
        except StopIteration:
            return

    def __getitem__(self, key: Any) -> Any:
        return self.timer.timed_sample(self.dataset.__getitem__, key)


# -- the curve


def worker_counts() -> list[int]:
    """Return the numbers of workers that are tried: none, and powers of two up to the cores."""
    cores = len(os.sched_getaffinity(0))
    return sorted({0, cores} | {1 << power for power in range(cores.bit_length())})


def time_workers(torch: Any, loader: Any, num_workers: int) -> dict[str, Any]:
    """Read batches by so many workers, and nothing else; in a copy of the process."""
    own = copy.copy(loader)
    vars(own).update(
        num_workers=num_workers,
        prefetch_factor=2 if num_workers else None,
        persistent_workers=False,
        pin_memory=False,
        timeout=0,
        _iterator=None,
    )
    if not num_workers:
        torch.set_num_threads(1)
    iterator, num_read = iter(own), 0
    for _ in islice(iterator, 1 + 2 * num_workers):  # what was fetched ahead
        pass
    began = perf_counter_ns()
    for _ in islice(iterator, CURVE_BATCHES):
        num_read += 1
        if perf_counter_ns() - began > CURVE_S * NS:
            break
    took_ns = perf_counter_ns() - began
    del iterator  # its workers end with it
    return {"batches": num_read, "took_ns": took_ns}
