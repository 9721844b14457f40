"""Times the script's own loop: with its loader (`full`), or with a kept batch (`consumer`).

A loader is the one that trains once a model was called with gradients on a batch of its data set.
From then on a step is the time from one batch to the next: the wait for it, and what the loop does
with it. In the pass `parts` the loop is only the way to that loader.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from json import dumps
from time import perf_counter_ns
from typing import Any

from ...record import kinds
from ...record.files import BENCH
from ..frameworks.torch.torch_context import TorchContext
from ..hooks.patching import replace
from ..sites.frames import innermost
from ..timeline.recorder import append
from ..watchers.inputs import batch_size_of
from .kept_batches import KeptBatches, parts_of, shape_of, time_copies
from .loader_passes import measure_loader
from .transform_places import told, watch_chains

FULL, CONSUMER, PARTS = "full", "consumer", "parts"
MIN_STEPS, MAX_STEPS = 20, 400
SLOW_S, SLOW_STEPS = 60.0, 5
"""Of a slow loader fewer steps are timed, once that has taken so long [s]."""
WARM_STEPS = 2
MAX_LOADERS = 20
NS = 1_000_000_000


def install_bench(
    context: TorchContext, wish: Mapping[str, Any], targets: dict[str, Callable[[Any], None]]
) -> None:
    """Put the hooks of one pass in place."""
    bench = LoopPass(context, wish)
    dataloader = context.torch.utils.data.dataloader
    hook_loader(dataloader.DataLoader, bench)
    hook_iterator(dataloader._BaseDataLoaderIter, bench)
    watch_chains(targets)
    atexit.register(bench.end)


def hook_loader(loader_class: Any, bench: LoopPass) -> None:
    """Note where loaders are made; replace the iterator of the one whose batches are kept."""
    init, iterate = loader_class.__init__, loader_class.__iter__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        bench.guarded(bench.note_made, self)
        init(self, *args, **kwargs)

    def __iter__(self: Any) -> Any:
        began = perf_counter_ns()
        kept = bench.kept_iterator(self)
        if kept is not None:
            return kept
        iterator = iterate(self)
        bench.guarded(bench.note_epoch, self, iterator, began)
        return iterator

    replace(loader_class, "__init__", __init__)
    replace(loader_class, "__iter__", __iter__)


def hook_iterator(iterator_class: Any, bench: LoopPass) -> None:
    """Let the pass give each batch."""
    original = iterator_class.__next__

    def __next__(self: Any) -> Any:
        return bench.next_batch(self, original)

    replace(iterator_class, "__next__", __next__)


class LoopPass:
    """One pass over the script's loop; it writes what it saw once it has seen enough."""

    def __init__(self, context: TorchContext, wish: Mapping[str, Any]) -> None:
        self.context = context
        self.torch = context.torch
        self.what = wish["pass"]
        self.window_ns = int(float(wish["seconds"]) * NS)
        self.max_steps = int(wish.get("steps") or MAX_STEPS)
        self.with_curve = bool(wish.get("curve"))
        self.moves = bool(wish.get("moves", True))
        self.pid = os.getpid()
        self.path = os.path.join(context.recorder.run, BENCH)
        self.made: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self.loaders: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self.began: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self.left: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self.told: dict[int, dict[str, Any]] = {}
        self.first_ns: dict[int, int] = {}
        self.loader: Any = None
        self.kept: KeptBatches | None = None
        self.steps: list[tuple[int, int]] = []
        self.shapes: set[str] = set()
        self.copies_ns = self.num_seen = self.window_began = 0
        self.copied: set[type] = set()
        self.is_over = False
        os.close(os.open(self.path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o644))

    # -- what the hooks ask

    def next_batch(self, iterator: Any, original: Callable[[Any], Any]) -> Any:
        """Return the next batch of an iterator, and take the time."""
        if self.is_over or self.context.is_worker or os.getpid() != self.pid:
            return original(iterator)
        if id(iterator._dataset) not in self.context.trained_datasets or not self.is_ours(iterator):
            batch = original(iterator)
            self.guarded(self.note_batch, iterator)
            return batch
        if self.what == PARTS:
            self.guarded(self.measure_parts)
            return original(iterator)
        if self.what == CONSUMER and self.kept is None:
            self.keep(iterator, original)
        return self.timed_batch(iterator, original)

    def timed_batch(self, iterator: Any, original: Callable[[Any], Any]) -> Any:
        """Give a batch, kept or new, and note the step before it.

        What the record has to write is written here, where it is in no time that is compared.
        """
        reached = perf_counter_ns()
        self.guarded(self.context.journal.flush)
        entered = perf_counter_ns()
        batch = original(iterator) if self.kept is None else self.kept.take(iterator)
        now = perf_counter_ns()
        before = self.left.get(iterator)
        self.left[iterator] = now
        if before is None:
            self.guarded(self.note_batch, iterator)
        else:
            self.guarded(self.note_step, reached - before, now - entered, batch)
        return batch

    def is_ours(self, iterator: Any) -> bool:
        """Whether this is the loader that is measured: the first one that trained."""
        loader = self.loaders.get(iterator)
        if self.loader is None and loader is not None:
            self.loader = loader
            due = WARM_STEPS + (self.num_queued if self.what == FULL else 0) + MIN_STEPS
            self.tell({"k": kinds.BENCH_BEGUN, "steps": min(due, self.max_steps)})
        return loader is not None and loader is self.loader

    def kept_iterator(self, loader: Any) -> Iterator[Any] | None:
        """Return what gives kept batches, in an epoch after the one in which they were kept."""
        if self.kept is None or loader is not self.loader or self.is_over:
            return None
        return KeptEpoch(self)

    # -- what is noted

    def note_made(self, loader: Any) -> None:
        """Note the user's line that makes a loader."""
        site = innermost(self.context.frames.stack(sys._getframe()))
        if site is not None:
            self.made[loader] = told(*site[:2])

    def note_epoch(self, loader: Any, iterator: Any, began: int) -> None:
        """Note that an epoch of a loader has begun."""
        self.loaders[iterator] = loader
        self.began[iterator] = began
        self.left.pop(iterator, None)
        if len(self.told) < MAX_LOADERS:
            self.told.setdefault(id(loader), self.describe(loader))

    def note_batch(self, iterator: Any) -> None:
        """Note the first batch of an epoch: how long it took since the epoch began."""
        now = perf_counter_ns()
        self.left[iterator] = now
        began, loader = self.began.pop(iterator, None), self.loaders.get(iterator)
        if began is not None and loader is not None:
            self.first_ns.setdefault(id(loader), now - began)

    def note_step(self, work_ns: int, wait_ns: int, batch: Any) -> None:
        """Note a step; the window ends with the last one that fits."""
        self.num_seen += 1
        if self.what == FULL:
            self.watch_copies(batch)
        if self.num_seen <= WARM_STEPS + (self.num_queued if self.what == FULL else 0):
            if self.torch.cuda.is_initialized():
                self.torch.cuda.synchronize()
            self.window_began = perf_counter_ns()
            self.copies_ns = 0
            return
        self.shapes.add(shape_of(batch))
        self.steps.append((work_ns, wait_ns))
        if self.is_enough(len(self.steps), perf_counter_ns() - self.window_began):
            self.finish(batch)

    @property
    def num_queued(self) -> int:
        """Batches that workers fetch ahead."""
        return int(self.loader.num_workers * (self.loader.prefetch_factor or 0))

    def is_enough(self, num_steps: int, took_ns: int) -> bool:
        """Return whether a window of so many steps ends."""
        least = MIN_STEPS if took_ns <= SLOW_S * NS else SLOW_STEPS
        is_long = took_ns > self.window_ns and num_steps >= least
        return is_long or num_steps >= self.max_steps

    def watch_copies(self, batch: Any) -> None:
        """Time the `to` of what a batch is made of, where that is no tensor."""
        for part in parts_of(batch):
            cls = type(part)
            if isinstance(part, self.torch.Tensor) or cls in self.copied or "to" not in dir(cls):
                continue
            self.copied.add(cls)
            cls.to = self.timed_copy(cls.to)

    def timed_copy(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a `to` whose time is added to that of the copies."""

        def to(own: Any, *args: Any, **kwargs: Any) -> Any:
            began = perf_counter_ns()
            try:
                return original(own, *args, **kwargs)
            finally:
                self.copies_ns += perf_counter_ns() - began

        return to

    # -- the passes

    def keep(self, iterator: Any, original: Callable[[Any], Any]) -> None:
        """Keep the next batch, or several where their shapes differ; the workers end."""
        batches = KeptBatches.read(lambda: original(iterator))
        if getattr(iterator, "_workers", None):
            iterator._shutdown_workers()
        device = self.find_device() if self.moves else None
        try:
            num = len(self.loader)
        except TypeError:
            num = None
        self.kept = KeptBatches(self.torch, batches, num=num, device=device)

    def find_device(self) -> Any:
        """Return the device of the model that is trained, unless it is the host."""
        for model in self.context.find_models():
            device = next(iter(model.parameters())).device
            if device.type != "cpu":
                return device
        return None

    def measure_parts(self) -> None:
        """Read batches apart, and write each pass as it ends."""
        self.is_over = True
        self.tell({"k": kinds.BENCH_LOADER, **self.describe(self.loader), "others": self.others()})
        for line in measure_loader(self.torch, self.loader, with_curve=self.with_curve):
            self.tell(line)
        self.tell({"k": kinds.BENCH_DONE})

    def finish(self, batch: Any) -> None:
        """Write the window, and what follows it."""
        self.is_over = True
        began = perf_counter_ns()
        if self.torch.cuda.is_initialized():
            self.torch.cuda.synchronize()
        line = self.window() | {"tail_ns": perf_counter_ns() - began}
        device = self.find_device()
        if self.what == FULL and device is not None:
            line |= time_copies(self.torch, batch, device, pins=self.loader.pin_memory)
        self.tell(line)
        self.tell({"k": kinds.BENCH_DONE})

    def window(self) -> dict[str, Any]:
        """Return what was seen of the loop so far."""
        device = self.find_device()
        return {
            "k": kinds.BENCH_LOOP,
            "pass": self.what,
            "steps": self.steps,
            "first_batch_ns": self.first_ns.get(id(self.loader)),
            "loader": self.describe(self.loader),
            "others": self.others(),
            "num_shapes": len(self.shapes),
            "num_kept": 0 if self.kept is None else len(self.kept.batches),
            "device": None if device is None else str(device.type),
            "copies_ns": self.copies_ns if self.copied else None,
        }

    def end(self) -> None:
        """Write what there is: the script ends before enough was seen."""
        if self.is_over or os.getpid() != self.pid or self.context.is_worker:
            return
        if self.loader is not None and self.what != PARTS:
            self.guarded(lambda: self.tell(self.window()))
        recorder = self.context.recorder
        told = list(self.told.values())
        seen = {"batches": self.context.num_batches, "updates": recorder.num_updates}
        self.tell({"k": kinds.BENCH_ENDED, **seen, "loaders": told})

    # -- words

    def describe(self, loader: Any) -> dict[str, Any]:
        """Return how a loader reads, and where it was made."""
        torch, dataset = self.torch, loader.dataset
        is_iterable = isinstance(dataset, torch.utils.data.IterableDataset)
        return {
            "dataset": type(dataset).__name__,
            "place": self.made.get(loader),
            "batch_size": batch_size_of(loader),
            "num_workers": int(loader.num_workers),
            "is_iterable": is_iterable,
            "num_samples": None if is_iterable else len(dataset),
            "pin_memory": bool(loader.pin_memory),
        }

    def others(self) -> list[dict[str, Any]]:
        """Return the other loaders that there are."""
        found = dict(self.told)
        for loader in list(self.made)[:MAX_LOADERS]:
            if hasattr(loader, "dataset"):  # else it failed as it was made
                found.setdefault(id(loader), self.describe(loader))
        return [facts for key, facts in found.items() if key != id(self.loader)]

    def tell(self, line: dict[str, Any]) -> None:
        """Write a line."""
        append(self.path, dumps(line) + "\n")

    def guarded(self, act: Callable[..., None], *args: Any) -> None:
        """Do something of ours; a failure is written, and stops here."""
        try:
            act(*args)
        except Exception as error:
            self.tell({"k": kinds.BENCH_FAILED, "error": f"{type(error).__name__}: {error}"[:300]})


class KeptEpoch:
    """An iterator of a loader that gives its kept batches."""

    def __init__(self, bench: LoopPass) -> None:
        self.bench = bench
        self.lock = threading.Lock()

    def __iter__(self) -> KeptEpoch:
        return self

    def __next__(self) -> Any:
        """Give the next kept batch, or end the epoch where the loader's would."""
        with self.lock:
            return self.bench.timed_batch(self, lambda _: None)
