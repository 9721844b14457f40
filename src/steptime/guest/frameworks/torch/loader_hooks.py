"""Hooks on the DataLoader: the wait for a batch, fetch and collate in the process, the workers.

A worker process never becomes a rank: it writes its sums to a file of its own.
"""

from __future__ import annotations

import multiprocessing.util
import os
import sys
import weakref
from json import dumps
from time import perf_counter_ns, process_time_ns, time
from typing import Any

from ....record import kinds
from ....record.buckets import COLLATE, EPOCH_START, FETCH, INPUT_WAIT, NUM_BUCKETS
from ....record.files import SCHEMA, worker_file
from ...hooks.patching import drop_frame, put, replace
from ...sense.worker_facts import watch_worker
from ...timeline.acts import ENTER_EPOCH, ENTER_INPUT, LEAVE, LEAVE_INPUT, LEAVE_SPAN
from ...timeline.recorder import FLUSH_NS, append
from ...watchers.process_memory import read_rollup
from .torch_context import TorchContext


def hook_loaders(context: TorchContext) -> None:
    """Patch the iterators' `__next__`, the loader's `__iter__`, and the creation of fetchers."""
    dataloader = context.torch.utils.data.dataloader
    hook_next(context, dataloader._BaseDataLoaderIter)
    hook_iter(context, dataloader.DataLoader)
    hook_fetchers(context, dataloader._DatasetKind)


def hook_next(context: TorchContext, iterator_class: Any) -> None:
    """Time the wait for a batch; the workers' first batch and their end count as epoch start."""
    original = iterator_class.__next__
    local, fail, epochs = context.local, context.recorder.fail, context.epochs

    def __next__(self: Any) -> Any:
        try:
            journal = local.journal
            outer = journal.top
            if 0 < outer < NUM_BUCKETS:
                return original(self)
            # Every batch has arrived: this call stops the workers and returns no batch.
            spins_up = self._num_workers > 0 and (
                self._num_yielded == 0
                or getattr(self, "_rcvd_idx", 0) >= getattr(self, "_send_idx", 1)
            )
            try:
                if spins_up:
                    journal.note_with_cpu(ENTER_EPOCH, EPOCH_START)
                else:
                    journal.note(ENTER_INPUT, INPUT_WAIT)
            except BaseException:
                fail("loader")
            try:
                batch = original(self)
                journal.batches += 1
                context.num_batches += 1
                context.dataset = id(self._dataset)
                if context.anatomy is not None and context.anatomy.awaits_batch:
                    context.guarded("anatomy", context.dissect, "see_batch", self, batch)
                if context.layers is not None:
                    context.guarded("layers", context.layers.see_batch, self, batch)
                if context.trial is not None:
                    context.trial.take_batch(self, batch)
                if journal.num_updates >= context.padding.due:
                    context.guarded("padding", context.padding.see_batch, batch)
                if id(self._dataset) in context.trained_datasets:
                    context.guarded("again", context.repeats.see_batch, self._dataset, batch)
                if id(self) == epochs.current:
                    epochs.num_handed += 1
                if journal.num_updates >= epochs.due:
                    context.guarded("longest", context.see_epoch, journal, self, batch)
                return batch
            finally:
                try:
                    (journal.note_with_cpu if spins_up else journal.note)(LEAVE_INPUT, outer)
                except BaseException:
                    fail("loader")
        except BaseException as error:
            if type(error) is StopIteration:
                context.guarded("sense", context.sense.end_epoch, self)
            drop_frame(error)
            raise

    replace(iterator_class, "__next__", __next__)


def hook_iter(context: TorchContext, loader_class: Any) -> None:
    """Book the start of workers as an epoch's start, not as part of a step."""
    original = loader_class.__iter__
    local, guarded = context.local, context.guarded

    def __iter__(self: Any) -> Any:
        journal = local.journal
        if not journal.due_ns and id(self.dataset) not in context.trained_datasets:
            guarded("rest", journal.flush)  # an evaluation, perhaps
        guarded("inputs", context.inputs.see, self)
        guarded("longest", context.epochs.begin, self)
        guarded("sense", context.sense.begin_epoch, self)
        if not getattr(self, "num_workers", 0) or 0 < journal.top < NUM_BUCKETS:
            return original(self)
        outer = journal.top
        guarded("loader", journal.note_with_cpu, EPOCH_START, EPOCH_START)
        try:
            return original(self)
        except BaseException as error:
            drop_frame(error)
            raise
        finally:
            guarded("loader", journal.note_with_cpu, LEAVE_SPAN, outer)

    replace(loader_class, "__iter__", __iter__)


def hook_fetchers(context: TorchContext, kind_class: Any) -> None:
    """Wrap a fetcher's two callables on the fetcher itself: it belongs to torch's iterator."""
    original = kind_class.create_fetcher

    def create_fetcher(*args: Any, **kwargs: Any) -> Any:
        fetcher = original(*args, **kwargs)
        try:
            if context.torch.utils.data.get_worker_info() is not None:
                time_worker(context, fetcher)
            else:
                time_in_process(context, fetcher)
        except BaseException:
            context.recorder.fail("fetcher")
        return fetcher

    replace(kind_class, "create_fetcher", create_fetcher)
    put(kind_class, "create_fetcher", staticmethod(kind_class.create_fetcher))


def loosely_bound_fetch(fetcher: Any) -> Any:
    """Return the fetcher's own fetch, bound so that keeping it on the fetcher makes no cycle.

    In a cycle the user's data set would live until the next collection. The `finally` of its
    generator would then not run when the loader's iterator is released, and in a worker never.
    The class is asked at each call: a lever may have changed what it does.
    """
    kind, itself = type(fetcher), weakref.proxy(fetcher)

    def fetch(indices: Any) -> Any:
        try:
            return kind.fetch(itself, indices)
        except BaseException as error:
            drop_frame(error)
            raise

    return fetch


def makes_samples(fetcher: Any) -> bool:
    """Return whether collating is part of fetching: no samples are put together to a batch.

    PyG samples neighbors there, of a data set of bare indices; and without automatic batching the
    data set itself gives whole batches.
    """
    is_bare = isinstance(getattr(fetcher, "dataset", None), range)
    return is_bare or not getattr(fetcher, "auto_collation", True)


def time_in_process(context: TorchContext, fetcher: Any) -> None:
    """Time fetch and collate of a loader without workers."""
    fetch, collate = loosely_bound_fetch(fetcher), fetcher.collate_fn
    local, guarded = context.local, context.guarded

    def timed(call: Any, bucket: int) -> Any:
        def wrapper(argument: Any) -> Any:
            try:
                journal = local.journal
                outer = journal.top
                if not journal.is_sampled or outer not in (INPUT_WAIT, FETCH):
                    return call(argument)  # also inside an evaluation or an epoch's start
                guarded("loader", journal.note, bucket, bucket)
                try:
                    return call(argument)
                finally:
                    guarded("loader", journal.note, LEAVE, outer)
            except BaseException as error:
                drop_frame(error)
                raise

        wrapper.__wrapped__ = call  # type: ignore[attr-defined]
        return wrapper

    context.fetchers.put(fetcher, "fetch", timed(fetch, FETCH))
    if not makes_samples(fetcher):
        context.fetchers.put(fetcher, "collate_fn", timed(collate, COLLATE))


class WorkerFile:
    """The sums of one worker process, written to `worker-PPID-NUMBER.jsonl` from time to time.

    Workers with the same number share the file over all epochs, so a thousand epochs do not make
    thousands of files.
    """

    def __init__(self, context: TorchContext, number: int) -> None:
        name = worker_file(os.getppid(), number)
        self.path = os.path.join(context.recorder.run, name)
        self.torch = context.torch
        self.batches = 0
        self.fetch_ns = 0
        self.collate_ns = 0
        self.cpu_zero_ns = process_time_ns()
        self.began_ns = perf_counter_ns()
        self.due_ns = 0
        self.memory_due_ns = 0
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        os.close(os.open(self.path, flags, 0o644))
        head = {"k": kinds.HEAD, "schema": SCHEMA, "pid": os.getpid(), "ppid": os.getppid()}
        head |= {"worker": number, "t_unix_s": round(time(), 4)}
        append(self.path, dumps(head | self.memory(self.began_ns)) + "\n")

    def memory(self, now: int) -> dict[str, int]:
        """Return what of the memory is shared, where it is time to look: for 0.5 % of its time."""
        if now < self.memory_due_ns:
            return {}
        found = read_rollup()
        after = perf_counter_ns()
        self.memory_due_ns = after + max(FLUSH_NS, 200 * (after - now))
        return found

    def write(self, now: int) -> None:
        """Append the sums so far; the last line of a pid counts.

        The time until the next line grows with the worker's age (2 % of it), so the file of a long
        run stays small.
        """
        self.due_ns = now + max(FLUSH_NS, (now - self.began_ns) // 50)
        sums = {
            "k": kinds.WORKER,
            "pid": os.getpid(),
            "batches": self.batches,
            "fetch_ns": self.fetch_ns - self.collate_ns,
            "collate_ns": self.collate_ns,
            "cpu_ns": process_time_ns() - self.cpu_zero_ns,
            "num_threads": self.torch.get_num_threads(),
        }
        if "PIL.JpegImagePlugin" in sys.modules:  # Pillow loads it when it opens an image
            sums["opens_images"] = True
        sums |= self.memory(perf_counter_ns())
        append(self.path, dumps(sums) + "\n")

    def write_last(self) -> None:
        """Append the sums when the process ends, with its memory."""
        self.memory_due_ns = 0
        self.write(perf_counter_ns())


SUMS: dict[int, WorkerFile] = {}
"""By process id: a persistent worker makes a new fetcher each epoch and keeps its sums."""


def sums_of_this_worker(context: TorchContext) -> WorkerFile:
    """Return the sums of this process, which are written a last time when it ends."""
    sums = SUMS.get(os.getpid())
    if sums is None:
        sums = WorkerFile(context, context.torch.utils.data.get_worker_info().id)
        SUMS[os.getpid()] = sums
        multiprocessing.util.Finalize(
            None,
            lambda: context.guarded("worker", sums.write_last),
            exitpriority=1,
        )
    return sums


def time_worker(context: TorchContext, fetcher: Any) -> None:
    """Sum up fetch and collate in a worker process, which from here on is no rank."""
    context.is_worker = True
    sums = sums_of_this_worker(context)
    number = context.torch.utils.data.get_worker_info().id
    facts = watch_worker(context, fetcher.dataset, number)
    fetch, collate = loosely_bound_fetch(fetcher), fetcher.collate_fn
    clock = perf_counter_ns

    def timed_fetch(index: Any) -> Any:
        began = clock()
        try:
            batch = fetch(index)
            sums.batches += 1
            if facts is not None and not facts.is_over:
                context.guarded("sense", facts.see_batch, batch, sums.path)
            return batch
        except BaseException as error:
            drop_frame(error)
            raise
        finally:
            now = clock()
            sums.fetch_ns += now - began
            if now > sums.due_ns:
                context.guarded("worker", sums.write, now)

    def timed_collate(samples: Any) -> Any:
        began = clock()
        try:
            return collate(samples)
        except BaseException as error:
            drop_frame(error)
            raise
        finally:
            sums.collate_ns += clock() - began

    timed_collate.__wrapped__ = collate  # type: ignore[attr-defined]
    fetcher.fetch = timed_fetch
    if not makes_samples(fetcher):
        fetcher.collate_fn = timed_collate
