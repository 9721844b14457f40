"""Which number of workers is picked: by given rates, and by a loader on a clock of ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from steptime.guest.trial import worker_search
from steptime.guest.trial.worker_search import (
    BatchCount,
    QueueSetting,
    WorkerSearch,
    ladder,
    search,
    setting_of,
)
from steptime.levers.base import Facts, LoaderFacts, WorkerRate
from steptime.levers.input import dataloader
from steptime.tune.trials.worker_rates import read_rates

Rate = Callable[[QueueSetting], float]


def measured(
    rate: Rate, *, cores: int = 4, consumer: float = 1e9
) -> dict[QueueSetting, BatchCount]:
    """Run a search with these rates."""
    found: dict[QueueSetting, BatchCount] = {}
    windows = search(cores, found, BatchCount())
    wanted = next(windows)
    try:
        while True:
            setting, seconds = wanted
            speed = consumer if setting is None else rate(setting)
            wanted = windows.send(BatchCount(round(1000 * speed * seconds), 1000 * seconds))
    except StopIteration:
        return found


def picked(found: dict[QueueSetting, BatchCount], **loader: Any) -> Any:
    """What the lever offers by these rates."""
    rates = tuple(
        WorkerRate(
            num_workers=one.num_workers,
            prefetch_factor=one.prefetch_factor,
            batches_per_s=count.rate,
        )
        for one, count in found.items()
    )
    facts = Facts(
        torch_version="2.13.0",
        num_cores=4,
        loaders=(LoaderFacts(dataset="Rows", **loader),),
        worker_rates=rates,
    )
    return dataloader.LEVER.space(facts), dataloader.LEVER.applies(facts)


def test_the_ladder_ends_at_the_cores() -> None:
    assert [one.num_workers for one in ladder(6)] == [0, 1, 2, 4, 6]
    assert [one.num_workers for one in ladder(1)] == [0, 1]
    assert [one.num_workers for one in ladder(64)] == [0, 1, 2, 4, 8, 16]


def test_data_in_memory_needs_no_workers() -> None:
    found = measured(lambda one: 100.0 / (1 + one.num_workers))
    rows, reason = picked(found)

    assert rows == ()
    assert reason is not None
    assert "own is the best" in reason
    assert picked(found, num_workers=2)[0] == ({"num_workers": 0},)


def test_a_reader_that_sleeps_gets_more_workers_than_cores() -> None:
    ((row,), _) = picked(measured(lambda one: 10.0 * max(1, one.num_workers), cores=2))

    assert (row["num_workers"], row["prefetch_factor"]) == (16, 2)
    assert row["persistent_workers"]


def test_work_on_the_cores_ends_at_the_cores() -> None:
    found = measured(lambda one: 10.0 * max(1, min(4, one.num_workers)))

    assert picked(found)[0][0]["num_workers"] == 4
    assert max(one.num_workers for one in found) == 8


def test_it_stops_when_the_consumer_is_the_slower_one() -> None:
    found = measured(lambda one: min(30.0, 10.0 * (1 + one.num_workers)), consumer=30.0)

    assert [one.num_workers for one in found] == [0, 1, 2]


def test_a_deeper_queue_is_taken_only_if_it_gives_more() -> None:
    deep = measured(lambda one: {0: 1.0, 1: 5.0}.get(one.num_workers, 10.0) * one.in_flight)
    same = measured(lambda one: float(min(4, one.num_workers)) + 0.1)

    assert picked(deep)[0][0]["prefetch_factor"] == 4
    assert picked(same)[0][0]["prefetch_factor"] == 2


def test_the_better_half_gets_more_windows() -> None:
    found = measured(lambda one: 10.0 + 0.1 * one.num_workers)

    assert {one: round(count.seconds / 1000) for one, count in found.items()} == {
        setting_of(0): 1,
        setting_of(1): 1,
        setting_of(2): 3,
        setting_of(4): 5,
        setting_of(4, 4): 2,
    }


# -- in a process, on a clock of ours


class Loader:
    """Takes a time for each batch that becomes less with its workers."""

    def __init__(self, clock: SimpleNamespace) -> None:
        self.clock = clock
        self.num_workers, self.prefetch_factor, self._iterator = 0, None, None
        self.persistent_workers = False
        self.dataset = SimpleNamespace()
        self.worker_init_fn = None
        self.started: list[int] = []

    def __iter__(self) -> Iterator[int]:
        return self.read()

    def read(self) -> Iterator[int]:
        self.started.append(self.num_workers)
        for number in range(20):
            self.clock.now += 0.03 / (1 + self.num_workers)
            yield number


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(worker_search, "num_cores", lambda: 2)
    data = SimpleNamespace(
        DataLoader=type("DataLoader", (Loader,), {"__iter__": Loader.__iter__}),
        IterableDataset=type("IterableDataset", (), {}),
        TensorDataset=type("TensorDataset", (), {}),
    )
    utils = SimpleNamespace(data=data)
    return SimpleNamespace(utils=utils, is_grad_enabled=lambda: True)


def test_the_script_goes_on_while_settings_are_tried(torch: Any, tmp_path: Path) -> None:
    clock = SimpleNamespace(now=0.0)
    WorkerSearch(torch, str(tmp_path), 30.0, clock=lambda: clock.now).hook()
    loader = torch.utils.data.DataLoader(clock)
    file, seen = tmp_path / worker_search.FILE, 0
    for _ in loader:
        seen += 1
        clock.now += 0.001

    rates = read_rates(file)
    assert rates is not None
    by_workers = {(one.num_workers, one.prefetch_factor): one.batches_per_s for one in rates}
    assert by_workers[2, 2] == pytest.approx(1 / 0.011, rel=0.05)
    assert by_workers[0, None] == pytest.approx(1 / 0.031, rel=0.05)
    assert json.loads(file.read_text())["consumer_per_s"] == pytest.approx(1000, rel=0.05)
    assert seen > sum(one.num_batches for one in rates)
    assert max(loader.started) == 16
    assert len(list(loader)) == 20


def test_it_ends_in_time_whatever_is_known(torch: Any, tmp_path: Path) -> None:
    clock = SimpleNamespace(now=0.0)
    WorkerSearch(torch, str(tmp_path), 3.0, clock=lambda: clock.now).hook()
    for _ in torch.utils.data.DataLoader(clock):
        clock.now += 0.2

    assert clock.now < 6.0


def test_an_evaluation_and_a_second_loader_read_as_they_are(torch: Any, tmp_path: Path) -> None:
    WorkerSearch(torch, str(tmp_path), 3.0, clock=lambda: 0.0).hook()
    clock = SimpleNamespace(now=0.0)
    torch.is_grad_enabled = lambda: False
    assert list(torch.utils.data.DataLoader(clock)) == list(range(20))

    torch.is_grad_enabled = lambda: True
    first = torch.utils.data.DataLoader(clock)
    assert iter(first) is iter(first)
    assert list(torch.utils.data.DataLoader(clock)) == list(range(20))


@pytest.mark.parametrize("text", [None, "", "[]", '{"rates": 3}', '{"rates": [{"x": 1}]}'])
def test_a_file_that_tells_nothing_is_no_answer(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "workers.json"
    if text is not None:
        path.write_text(text)

    assert read_rates(path) is None


def test_a_setting_without_workers_has_no_queue() -> None:
    assert setting_of(0) == QueueSetting(0, None)
    assert setting_of(3).in_flight == 6
