"""Tries numbers of loader workers in one process, while the script trains with what they deliver.

It exists only in a trial that is made for this. The training's loader is replaced by a feed: for
each setting the feed starts the workers anew, hands out some batches unmeasured until the queue is
as full as it gets, and then counts batches over a window. What is counted is the whole loop,
consumer and loader on the same cores. Before, the consumer alone is measured with one kept batch.

Settings are none, one, two, four workers and so on up to the cores; beyond the cores as long as
that pays, because workers that wait for a disk or a network need no core. The better half gets
windows of twice the length, and again. It ends as soon as a setting feeds the consumer as fast as
it can train. Source: Karnin, Koren and Somekh, Almost Optimal Exploration in Multi-Armed Bandits
(2013).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from json import dumps
from time import perf_counter
from typing import Any

from ..watchers.inputs import num_cores
from .trial_plan import FOLDER, SCHEMA, load_file

FILE = "workers.json"
MAX_WORKERS = 16
PREFETCH = 2
DEEP_PREFETCH = 4
FAST = 0.95
"""Of the consumer's own rate: nothing that a loader does can give more."""

PAYS = 1.15
"""Times the rate of half as many workers: then twice as many are tried, also beyond the cores."""

CLOSE = 0.95
"""Of the best rate: of settings above it, the smallest one is taken."""

MIN_BATCHES, MAX_BATCHES = 8, 100
FIRST_S, MAX_S = 1.0, 3.0
"""The first window ends after 100 batches or this time, and the longest likewise."""

CONSUMER_S = 0.5
WARM_S = 1.0
"""For filling the queue, from the first batch on."""


@dataclass(frozen=True)
class QueueSetting:
    """Workers, and batches that each makes ahead."""

    num_workers: int
    prefetch_factor: int | None = None

    @property
    def in_flight(self) -> int:
        """Batches that are being made or wait, at most."""
        return self.num_workers * (self.prefetch_factor or 1)


@dataclass
class BatchCount:
    """What was seen of a setting."""

    batches: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """In batches a second."""
        return self.batches / self.seconds if self.seconds > 0 else 0.0


Search = Generator[tuple[QueueSetting, float], BatchCount, None]
"""Yields what to measure, and for how long at most [s]; is sent what was counted."""


def ladder(cores: int) -> list[QueueSetting]:
    """Return none, one, two, four workers and so on, up to the cores."""
    counts = sorted({0, cores} | {1 << power for power in range(cores.bit_length())})
    return [setting_of(count) for count in counts if count <= min(cores, MAX_WORKERS)]


def setting_of(num_workers: int, prefetch: int = PREFETCH) -> QueueSetting:
    """Return a setting; without workers nothing is made ahead."""
    return QueueSetting(num_workers, prefetch if num_workers else None)


def search(cores: int, consumer: float, found: dict[QueueSetting, BatchCount]) -> Search:
    """Measure settings until one is fast enough or the best is known; `found` takes them in.

    Args:
        cores: that the process may use.
        consumer: rate of the consumer alone; 0 where it is not known.
        found: what was counted, by setting.
    """

    def take(setting: QueueSetting, seconds: float) -> Search:
        count = yield setting, seconds
        known = found.setdefault(setting, BatchCount())
        known.batches += count.batches
        known.seconds += count.seconds

    def is_enough() -> bool:
        return consumer > 0 and any(one.rate >= FAST * consumer for one in found.values())

    for setting in ladder(cores):
        yield from take(setting, FIRST_S)
        if is_enough():
            return
    while (more := next_beyond(found)) is not None:
        yield from take(more, FIRST_S)
        if is_enough():
            return
    alive, seconds = list(found), FIRST_S
    while len(alive) > 2 or seconds == FIRST_S:
        ordered = sorted(alive, key=lambda one: -found[one].rate)
        alive, seconds = ordered[: max(2, (len(ordered) + 1) // 2)], min(MAX_S, 2 * seconds)
        for setting in alive:
            yield from take(setting, seconds)
    best = ranked(found)[0]
    if best.num_workers:
        yield from take(setting_of(best.num_workers, DEEP_PREFETCH), seconds)


def ranked(found: dict[QueueSetting, BatchCount]) -> list[QueueSetting]:
    """Return the settings, the fastest first."""
    return sorted(found, key=lambda one: -found[one].rate)


def next_beyond(found: dict[QueueSetting, BatchCount]) -> QueueSetting | None:
    """Return twice the most workers tried so far, if these paid and were the fastest."""
    most = max(found, key=lambda one: one.num_workers)
    twice = setting_of(2 * max(1, most.num_workers))
    fewer = [count.rate for one, count in found.items() if 2 * one.num_workers <= most.num_workers]
    if twice.num_workers > MAX_WORKERS or not fewer or ranked(found)[0] != most:
        return None
    return twice if found[most].rate >= PAYS * max(fewer) else None


class WorkerSearch:
    """Replaces the first loader that feeds training, and writes what it found to a file."""

    def __init__(
        self,
        torch: Any,
        folder: str,
        limit_s: float,
        *,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.torch = torch
        self.path = os.path.join(folder, FILE)
        self.limit_s = limit_s
        self.clock = clock
        self.feed: Feed | None = None

    def hook(self) -> None:
        """Hand out the feed in place of the first loader's iterator."""
        loader_class = self.torch.utils.data.DataLoader
        iterate = loader_class.__iter__
        can_change = load_file(os.path.join(FOLDER, "dataloader.py")).can_change

        def __iter__(loader: Any) -> Any:
            if self.feed is not None:
                return self.feed if self.feed.loader is loader else iterate(loader)
            if not self.torch.is_grad_enabled() or not can_change(self.torch, loader, 1):
                return iterate(loader)
            self.feed = Feed(loader, iterate, self.limit_s, self.clock, self.tell)
            return self.feed

        loader_class.__iter__ = __iter__

    def tell(
        self, found: dict[QueueSetting, BatchCount], consumer: BatchCount, took_s: float
    ) -> None:
        """Write what was counted; the file appears when it is complete."""
        rows = [
            {
                "num_workers": one.num_workers,
                "prefetch_factor": one.prefetch_factor,
                "num_batches": count.batches,
                "batches_per_s": count.rate,
            }
            for one, count in found.items()
        ]
        document = {"schema": SCHEMA, "rates": rows, "consumer_per_s": consumer.rate or None}
        part = f"{self.path}.part"
        with open(part, "w", encoding="utf-8") as file:
            file.write(dumps(document | {"took_s": took_s}) + "\n")
        os.replace(part, self.path)


class Feed:
    """The iterator that a script gets in place of its loader's; it never ends."""

    def __init__(
        self,
        loader: Any,
        iterate: Callable[[Any], Iterator[Any]],
        limit_s: float,
        clock: Callable[[], float],
        tell: Callable[[dict[QueueSetting, BatchCount], BatchCount, float], None],
    ) -> None:
        self.loader, self.iterate, self.clock = loader, iterate, clock
        self.limit_s, self.tell = limit_s, tell
        self.found: dict[QueueSetting, BatchCount] = {}
        self.consumer = BatchCount()
        self.began_s = clock()
        self.batches = self.run()

    def __iter__(self) -> Feed:
        return self

    def __len__(self) -> int:
        return len(self.loader)

    def __next__(self) -> Any:
        return next(self.batches)

    def run(self) -> Generator[Any, None, None]:
        """Yield batches without end, of one setting after the other."""
        source = self.start(setting_of(0))
        kept = next(source)
        yield kept  # the first step is slow, whatever feeds it
        self.consumer = yield from self.count(lambda: kept, CONSUMER_S)
        windows, count = search(num_cores(), self.consumer.rate, self.found), None
        setting = setting_of(0)
        while not self.is_over:
            try:
                wanted, seconds = next(windows) if count is None else windows.send(count)
            except StopIteration:
                break
            if wanted != setting:
                del source
                setting, source = wanted, self.start(wanted)
            yield from self.warm(source, setting)
            count = yield from self.count(source.__next__, seconds)
        self.tell(self.found, self.consumer, self.clock() - self.began_s)
        yield from source

    @property
    def is_over(self) -> bool:
        """Whether the time for all settings is spent."""
        return self.clock() - self.began_s > self.limit_s

    def start(self, setting: QueueSetting) -> Iterator[Any]:
        """Return batches without end, of a loader with this setting."""
        fields = {"num_workers": setting.num_workers, "prefetch_factor": setting.prefetch_factor}
        vars(self.loader).update(fields | {"persistent_workers": False, "timeout": 0})
        self.loader._iterator = None
        return self.epochs()

    def epochs(self) -> Generator[Any, None, None]:
        """Yield the batches of one epoch after the other."""
        while True:
            yield from self.iterate(self.loader)

    def warm(self, source: Iterator[Any], setting: QueueSetting) -> Generator[Any, None, None]:
        """Hand out batches until the queue is as full or as empty as it stays."""
        yield next(source)
        began_s = self.clock()
        for _ in range(2 * setting.in_flight):
            if self.clock() - began_s > WARM_S:
                break
            yield next(source)

    def count(self, take: Callable[[], Any], most_s: float) -> Generator[Any, None, BatchCount]:
        """Hand out batches for a window; return how many there were in what time."""
        began_s, num, passed_s = self.clock(), 0, 0.0
        while num < MAX_BATCHES and (passed_s < most_s or num < MIN_BATCHES):
            if num and self.is_over:
                break
            yield take()
            num, passed_s = num + 1, self.clock() - began_s
        return BatchCount(num, passed_s)
