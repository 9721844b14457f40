"""Memory lines: when one is due, and what stands in it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from steptime.guest.timeline.recorder import Recorder
from steptime.guest.watchers.process_memory import (
    MemoryWatcher,
    load_resource,
    make_peak_reader,
    make_reader,
    read_high_water,
    read_statm,
)
from steptime.record.buckets import BACKWARD, OTHER

MS = 1_000_000
SECOND = 1000 * MS
MIB = 1 << 20


def make_torch(stats: dict[str, Any] | None = None) -> Any:
    """A torch that has initialized a device where there are statistics of one."""
    cuda = SimpleNamespace(
        is_initialized=lambda: stats is not None, memory_stats_as_nested_dict=lambda: stats
    )
    return SimpleNamespace(cuda=cuda)


class Process:
    """A process whose clock and memory are set by hand."""

    def __init__(self, folder: Path, torch: Any = None) -> None:
        self.now = 0
        self.rss: int | None = 100 * MIB
        self.recorder = Recorder(str(folder), lambda: {"rank": 0})
        self.recorder.zero_ns = 0
        self.watcher = MemoryWatcher(
            make_torch() if torch is None else torch,
            self.recorder,
            clock=lambda: self.now,
            read_rss=lambda: self.rss,
            read_rss_peak=lambda: 300 * MIB,
        )

    def poll(self, at_ns: int, *, bucket: int = OTHER, is_last: bool = False) -> Any:
        self.now = at_ns
        text = self.watcher.poll(bucket, is_last=is_last)
        return json.loads(text) if text else None


@pytest.fixture
def process(tmp_path: Path) -> Process:
    return Process(tmp_path)


def test_the_first_look_makes_a_line(process: Process) -> None:
    process.recorder.num_updates = 3
    line = process.poll(5 * MS, bucket=BACKWARD)

    assert (line["k"], line["n"], line["t"], line["rss"]) == ("m", 3, 5 * MS, 100 * MIB)
    assert line["bucket"] == BACKWARD
    assert (line["allocated"], line["reserved"], line["peak"]) == (None, None, None)


def test_a_young_process_makes_a_line_at_each_write(process: Process) -> None:
    assert all(process.poll(i * 200 * MS) for i in range(100))


def test_an_old_process_makes_a_line_each_thousandth_of_its_age(process: Process) -> None:
    hour = 3600 * SECOND
    process.poll(hour)
    assert process.poll(hour + 3 * SECOND) is None
    assert process.poll(hour + 4 * SECOND) is not None


def test_a_day_of_writes_makes_a_few_thousand_lines(process: Process) -> None:
    num_polls = 86_400 * 5
    num_lines = sum(process.poll(i * 200 * MS) is not None for i in range(num_polls))
    assert 5_000 < num_lines < 8_000


def test_memory_that_grew_makes_a_line_at_once(process: Process) -> None:
    hour = 3600 * SECOND
    process.poll(hour)
    process.rss = 104 * MIB
    assert process.poll(hour + 200 * MS) is None
    process.rss = 106 * MIB
    assert process.poll(hour + 400 * MS)["rss"] == 106 * MIB


def test_memory_that_goes_up_and_down_makes_no_line_each_time(process: Process) -> None:
    hour = 3600 * SECOND
    process.poll(hour)
    lines = []
    for i in range(1, 15):
        process.rss = (200 if i % 2 else 100) * MIB
        lines.append(process.poll(hour + i * 200 * MS))
    assert sum(line is not None for line in lines) == 1


def test_the_last_look_makes_a_line(process: Process) -> None:
    hour = 3600 * SECOND
    process.poll(hour)
    assert process.poll(hour + 200 * MS, is_last=True) is not None


def test_a_new_process_begins_anew(process: Process) -> None:
    hour = 3600 * SECOND
    process.poll(hour)
    process.watcher.reset()
    assert process.poll(hour + 200 * MS) is not None


def test_where_resident_memory_cannot_be_read_the_rest_is_told(process: Process) -> None:
    process.rss = None
    line = process.poll(0)
    assert line["rss"] is None
    assert line["minflt"] > 0


def test_bytes_on_the_device_are_told_where_there_is_one(tmp_path: Path) -> None:
    stats = {
        "allocated_bytes": {"all": {"current": 5, "peak": 9}},
        "reserved_bytes": {"all": {"current": 16}},
    }
    line = Process(tmp_path, make_torch(stats)).poll(0)
    assert (line["allocated"], line["reserved"], line["peak"]) == (5, 16, 9)


def test_a_device_that_tells_nothing_is_not_zero(tmp_path: Path) -> None:
    line = Process(tmp_path, make_torch({})).poll(0)
    assert (line["allocated"], line["reserved"], line["peak"]) == (None, None, None)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc as on Linux")
def test_this_process_has_resident_memory_and_faults() -> None:
    rss = read_statm()
    assert rss is not None
    assert MIB < rss < 1 << 40
    resource = load_resource()
    assert abs(make_reader(resource)() - rss) < 0.5 * rss  # type: ignore[operator]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt > 0


@pytest.mark.skipif(sys.platform != "linux", reason="/proc as on Linux")
def test_the_most_that_was_resident_is_no_less_than_what_is() -> None:
    highest, now = read_high_water(), read_statm()
    assert highest is not None
    assert now is not None
    assert 0.9 * now < highest < 1 << 40


def test_the_most_that_was_resident_is_in_the_line(process: Process) -> None:
    assert process.poll(SECOND)["rss_peak"] == 300 * MIB


def test_a_file_of_the_scripts_is_not_taken_for_pythons_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "resource.py").write_text("raise RuntimeError('the script was run')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "resource", raising=False)
    resource = load_resource()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0
    assert "resource" not in sys.modules


def test_without_proc_and_resource_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "exists", lambda _: False)
    assert make_reader(None)() is None
    assert make_peak_reader(None)() is None
