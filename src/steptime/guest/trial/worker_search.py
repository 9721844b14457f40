"""Tries numbers of loader workers in one process, while the script trains with what they deliver.

It exists only in a trial that is made for this. The training's loader is replaced by a feed: for
each setting the feed starts new workers, hands out some batches unmeasured until the queue is
as full as it gets, and then counts batches over a window. What is counted is the whole loop,
consumer and loader on the same cores. Before, the consumer alone is measured with one kept batch.

Settings are none, one, two, four workers and so on up to the cores; beyond the cores as long as
that pays, because workers that wait for a disk or a network need no core. The better half gets
twice as many windows, in turns, and again. It ends as soon as a setting feeds the consumer as fast
as it can train. Source: Karnin, Koren and Somekh, Almost Optimal Exploration in Multi-Armed Bandits
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
from .trial_plan import SCHEMA, lever_tool

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

MIN_BATCHES = 8
WINDOW_S = 1.0
"""A window ends after this time, but not before the first eight batches."""

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


Search = Generator[tuple[QueueSetting | None, float], BatchCount, None]
"""Yields what to measure, None for the consumer alone, and for how long at most [s]; is sent what
was counted."""


def ladder(cores: int) -> list[QueueSetting]:
    """Return none, one, two, four workers and so on, up to the cores."""
    counts = sorted({0, cores} | {1 << power for power in range(cores.bit_length())})
    return [setting_of(count) for count in counts if count <= min(cores, MAX_WORKERS)]


def setting_of(num_workers: int, prefetch: int = PREFETCH) -> QueueSetting:
    """Return a setting; without workers nothing is made ahead."""
    return QueueSetting(num_workers, prefetch if num_workers else None)


def search(cores: int, found: dict[QueueSetting, BatchCount], consumer: BatchCount) -> Search:
    """Measure settings until one is fast enough or the best is known.

    Args:
        cores: that the process may use.
        found: takes in what was counted, by setting.
        consumer: takes in what was counted of the consumer alone, in its fastest window.
    """
    yield from time_consumer(consumer)
    for setting in ladder(cores):
        yield from take(found, setting)
        if (yield from is_enough(found, consumer)):
            return
    while (more := next_beyond(found)) is not None:
        yield from take(found, more)
        if (yield from is_enough(found, consumer)):
            return
    alive, num_visits = list(found), 1
    while len(alive) > 2 or num_visits == 1:
        ordered = sorted(alive, key=lambda one: -found[one].rate)
        alive, num_visits = ordered[: max(2, (len(ordered) + 1) // 2)], 2 * num_visits
        for _ in range(num_visits):  # in turns, because other programs come and go
            for setting in alive:
                yield from take(found, setting)
    best = ranked(found)[0]
    if best.num_workers:
        for _ in range(2):
            yield from take(found, setting_of(best.num_workers, DEEP_PREFETCH))
            yield from take(found, best)


def take(found: dict[QueueSetting, BatchCount], setting: QueueSetting) -> Search:
    """Measure a setting once more."""
    count = yield setting, WINDOW_S
    known = found.setdefault(setting, BatchCount())
    known.batches += count.batches
    known.seconds += count.seconds


def time_consumer(consumer: BatchCount) -> Search:
    """Measure the consumer alone; other programs can only make it slower, so the best counts."""
    count = yield None, CONSUMER_S
    if count.rate > consumer.rate:
        consumer.batches, consumer.seconds = count.batches, count.seconds


def is_enough(
    found: dict[QueueSetting, BatchCount], consumer: BatchCount
) -> Generator[tuple[QueueSetting | None, float], BatchCount, bool]:
    """Return whether a setting feeds the consumer, which is measured again where it seems so."""
    best = max(one.rate for one in found.values())
    if best >= FAST * consumer.rate:
        yield from time_consumer(consumer)
    return best >= FAST * consumer.rate


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
        can_change = lever_tool("input/dataloader").can_change

        def __iter__(loader: Any) -> Any:
            if self.feed is not None:
                is_fed = self.feed.loader is loader and not self.feed.is_told
                return self.feed if is_fed else iterate(loader)
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
    """What a script gets in place of its loader's iterator, until the search is over."""

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
        self.is_told = False
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
        windows, count = search(num_cores(), self.found, self.consumer), None
        setting = setting_of(0)
        while not self.is_over:
            try:
                wanted, seconds = next(windows) if count is None else windows.send(count)
            except StopIteration:
                break
            if wanted is None:
                yield kept
                count = yield from self.count(lambda: kept, seconds)
                continue
            if wanted != setting:
                del source
                setting, source = wanted, self.start(wanted)
            yield from self.warm(source, setting)
            count = yield from self.count(source.__next__, seconds)
        self.tell(self.found, self.consumer, self.clock() - self.began_s)
        self.is_told = True

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
        while passed_s < most_s or num < MIN_BATCHES:
            if num and self.is_over:
                break
            yield take()
            num, passed_s = num + 1, self.clock() - began_s
        return BatchCount(num, passed_s)
