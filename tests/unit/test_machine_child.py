"""The process that measures, piece by piece: its search, its sizes, its disk; without torch."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from steptime.machine.child import (
    ceiling_bench,
    collectives,
    disk_reads,
    matmul,
    memory_bandwidth,
    other_load,
)
from steptime.machine.child.repeat import (
    MAX_REPETITIONS,
    MIN_REPETITIONS,
    Candidate,
    Clock,
    RepeatedWork,
    Search,
    describe,
)


class FakeTime:
    """Passes only by the work that is done."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def read(self) -> float:
        self.now_s += 1e-6  # a look costs something, as everywhere
        return self.now_s

    def clock(self, left_s: float) -> Clock:
        return Clock(until_s=self.now_s + left_s, read=self.read)

    def candidate(self, name: str, *, rate: float, amount: float = 1.0) -> Candidate:
        """Work of a known rate."""

        def call() -> None:
            self.now_s += amount / rate

        return Candidate({"name": name}, amount, lambda: RepeatedWork(call))


def failing() -> RepeatedWork:
    raise RuntimeError("no kernel for that\nand more")


# -- the search


def test_the_fastest_setting_wins_and_is_repeated_after_the_search() -> None:
    time = FakeTime()
    search = Search(time.clock(10))
    search.try_all(time.candidate(name, rate=rate) for name, rate in (("a", 50), ("b", 200)))
    winner = search.finish()

    assert winner is not None
    assert winner.candidate.setting == {"name": "b"}
    assert winner.median() == pytest.approx(200, rel=1e-2)
    assert MIN_REPETITIONS <= len(winner.rates) <= MAX_REPETITIONS
    assert [point["setting"]["name"] for point in search.points()] == ["a", "b"]


def test_what_would_take_too_long_is_left_out() -> None:
    time = FakeTime()
    search = Search(time.clock(10))
    small, large = (time.candidate(name, rate=10, amount=n) for name, n in (("s", 1), ("l", 100)))
    search.try_all([small, large])

    assert [one.candidate for one in search.tried] == [small]


def test_the_first_setting_is_tried_however_little_time_there_is() -> None:
    time = FakeTime()
    search = Search(time.clock(0.0))
    search.try_all([time.candidate("a", rate=10)])
    winner = search.finish()

    assert winner is not None
    assert len(winner.rates) == MIN_REPETITIONS


def test_a_setting_that_fails_is_left_out_and_what_it_said_is_kept() -> None:
    time = FakeTime()
    search = Search(time.clock(10), errors=(RuntimeError,))
    search.try_all([Candidate({}, 1.0, failing), time.candidate("a", rate=10)])
    winner = search.finish()

    assert winner is not None
    assert winner.candidate.setting == {"name": "a"}
    assert search.failure == "RuntimeError: no kernel for that"


def test_where_all_fail_the_line_says_why() -> None:
    search = Search(FakeTime().clock(10), errors=(RuntimeError,))
    search.try_all([Candidate({}, 1.0, failing)])
    line = describe("matmul", "cpu", "flops_per_s", search, dtype="int8")

    assert (line["missing"], line["dtype"]) == ("not_supported", "int8")
    assert "rates" not in line


def test_short_work_is_called_often_enough_to_be_timed() -> None:
    time = FakeTime()
    search = Search(time.clock(10))
    search.try_all([time.candidate("a", rate=1e5)])

    assert 1_000 <= search.tried[0].calls <= 4_000  # 20 ms of 10 µs


# -- what is tried


def test_sets_of_four_times_the_caches_count_as_memory() -> None:
    small, large = memory_bandwidth.sizes(cache_bytes=32 << 20, limit_bytes=1 << 30)

    assert max(small) < 128 << 20
    assert large == [128 << 20, 256 << 20]


def test_without_the_memory_for_them_there_are_none() -> None:
    small, large = memory_bandwidth.sizes(cache_bytes=32 << 20, limit_bytes=63 << 20)

    assert large == []
    assert max(small) <= 63 << 20


def test_a_set_that_is_alone_may_be_larger_than_one_of_several() -> None:
    _, large = memory_bandwidth.sizes(cache_bytes=32 << 20, limit_bytes=64 << 20)

    assert large == [128 << 20]


class FakeFull:
    """As much of torch as arrays ask for; counts them."""

    def __init__(self) -> None:
        self.num_made = 0

    def full(self, shape: tuple[int], value: float, *, device: str) -> list[float]:
        self.num_made += 1
        return []


def test_memory_is_tried_in_several_places_and_a_cache_in_one() -> None:
    torch = FakeFull()
    sweep = memory_bandwidth.Sweep(torch, "cpu", "copy", 1)
    for candidate in sweep.in_memory([1 << 20, 2 << 20]):
        candidate.make()
    first, torch.num_made = torch.num_made, 0
    best = {"payload_bytes": 2 << 20, "num_threads": 1}
    for candidate in sweep.places(best, limit_bytes=8 << 20):
        candidate.make()
        assert candidate.setting == best
    further, torch.num_made = torch.num_made, 0
    for candidate in sweep.in_cache([1 << 18, 1 << 19]):
        candidate.make()

    assert first == 2 * 2
    assert further == 2 * 3
    assert torch.num_made == 2


def settings(candidates: Iterator[Candidate]) -> list[tuple[Any, ...]]:
    return [
        (tuple(c.setting["shape"]), c.setting["layout"], c.setting["num_threads"])
        for c in candidates
    ]


def test_near_the_best_square_lie_its_other_layout_one_thread_and_rectangles() -> None:
    products = matmul.Products(None, "cpu", "bf16", num_threads=4, limit_bytes=1 << 30)
    near = settings(products.near({"shape": [512, 512, 512], "layout": "nt"}))

    assert near[:2] == [((512, 512, 512), "nn", 4), ((512, 512, 512), "nt", 1)]
    assert ((2048, 512, 512), "nt", 4) in near


def test_a_gpu_has_no_threads_to_try() -> None:
    products = matmul.Products(None, "cuda:0", "bf16", num_threads=4, limit_bytes=1 << 30)
    near = settings(products.near({"shape": [4096] * 3, "layout": "nn"}))

    assert {threads for _, _, threads in near} == {None}


def test_a_product_counts_a_multiplication_and_an_addition() -> None:
    products = matmul.Products(None, "cpu", "fp32", num_threads=1, limit_bytes=1)

    assert products.candidate((2, 3, 5), layout="nn").amount == 60


@pytest.mark.parametrize(
    ("kind", "num_ranks", "factor"),
    [("all_reduce", 2, 1.0), ("all_reduce", 8, 1.75), ("all_gather", 2, 0.5)],
)
def test_bus_bandwidth_has_the_factors_of_nccl_tests(
    kind: str, num_ranks: int, factor: float
) -> None:
    assert collectives.factor(kind, num_ranks) == factor


# -- the disk


@pytest.fixture(autouse=True)
def _small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_reads, "MIN_BYTES", 4 << 20)
    monkeypatch.setattr(disk_reads, "READS", 4)


def measure_disk(tmp_path: Path, **request: Any) -> list[dict[str, Any]]:
    asked = {"store": str(tmp_path), "data": str(tmp_path), **request}
    return list(disk_reads.measure(asked, Clock(until_s=0.0)))  # the least that it does


def test_the_disk_is_read_through_a_file_that_leaves_nothing(tmp_path: Path) -> None:
    sequential, at_random = measure_disk(tmp_path)

    assert (sequential["kind"], at_random["kind"]) == ("disk_sequential", "disk_random")
    assert sequential["variant"] in ("direct", "warm")
    assert min(sequential["rates"]) > 0
    assert os.listdir(tmp_path) == []


def test_the_file_has_no_name_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    write = os.write

    def look(descriptor: int, data: bytes) -> int:
        seen.append(os.listdir(tmp_path))
        return write(descriptor, data)

    monkeypatch.setattr(disk_reads.os, "write", look)
    measure_disk(tmp_path)

    assert seen
    assert not any(seen)


def test_a_file_system_without_direct_reads_gives_a_warm_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_reads, "_open_direct", lambda path: None)

    assert {line["variant"] for line in measure_disk(tmp_path)} == {"warm"}


def test_a_file_system_in_memory_is_never_direct(tmp_path: Path) -> None:
    assert {line["variant"] for line in measure_disk(tmp_path, in_memory=True)} == {"warm"}


def test_without_room_the_disk_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_reads, "FREE_SHARE", 0.0)

    assert [line["missing"] for line in measure_disk(tmp_path)] == ["no_space"] * 2
    assert os.listdir(tmp_path) == []


def test_data_elsewhere_than_the_store_is_read_and_never_written(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    empty = measure_disk(tmp_path, store=None, data=str(data))
    (data / "large.bin").write_bytes(bytes(5 << 20))
    read = measure_disk(tmp_path, store=None, data=str(data))

    assert {line["missing"] for line in empty} == {"no_store"}
    assert all(min(line["rates"]) > 0 for line in read)
    assert os.listdir(data) == ["large.bin"]


# -- others


def test_busy_time_of_our_cores_alone_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_load.os, "sched_getaffinity", lambda pid: {1}, raising=False)
    others = other_load.Others()

    assert others.num_cores == 1
    assert others._ticks("cpu0 100 0 100 5 5 0 0 0 0 0") == (0, 0)
    assert others._ticks("cpu 100 0 100 5 5 0 0 0 0 0") == (0, 0)
    assert others._ticks("cpu1 100 0 50 999 999 1 2 47 3 3") == (200, 47)


# -- the order of things


class FakeTorch:
    """As much of torch as the order of stages asks for."""

    def __init__(self, num_gpus: int) -> None:
        self.cuda = self
        self.num_gpus = num_gpus

    def is_available(self) -> bool:
        return self.num_gpus > 0

    def device_count(self) -> int:
        return self.num_gpus


def stages(num_gpus: int, **request: Any) -> list[tuple[str, str]]:
    asked = {"num_threads": 2, **request}
    measuring = ceiling_bench.CeilingBench(FakeTorch(num_gpus), asked, Clock(until_s=0.0), [])
    return [(device, name) for device, name, _ in measuring._stages()]


def test_without_a_gpu_there_are_no_copies_to_one() -> None:
    found = stages(0)

    assert {device for device, _ in found} == {"cpu", "disk", "ranks"}
    assert not any(name.startswith(("h2d", "matmul tf32")) for _, name in found)


def test_further_gpus_are_measured_at_what_the_first_one_chose() -> None:
    found = stages(3)

    assert [name for device, name in found if device == "cuda:2"] == ["matmul bf16", "copy"]
    assert ("cuda:0", "h2d pinned") in found


def test_under_a_launcher_the_ranks_meet_first() -> None:
    assert stages(0, is_launched=True)[0] == ("ranks", "collectives")


def test_every_line_is_json(tmp_path: Path) -> None:
    for line in measure_disk(tmp_path):
        assert json.loads(json.dumps(line)) == line
