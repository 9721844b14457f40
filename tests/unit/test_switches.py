"""Debug switches: told where they are on in most of the looks, and once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from steptime.guest.timeline.recorder import Recorder
from steptime.guest.watchers.debug_switches import ENOUGH_SAMPLES, FIRST_SAMPLES, SwitchWatcher
from steptime.record.buckets import OTHER


class Torch:
    """What the watcher asks of torch, answered by fields."""

    def __init__(self) -> None:
        self.anomaly = self.is_deterministic = self.is_profiling = False
        self.has_device = self.is_distributed = False
        self.level = "OFF"
        self.is_anomaly_enabled = lambda: self.anomaly
        self.are_deterministic_algorithms_enabled = lambda: self.is_deterministic
        self.autograd = SimpleNamespace(_profiler_enabled=lambda: self.is_profiling)
        self.cuda = SimpleNamespace(is_initialized=lambda: self.has_device)
        self.distributed = SimpleNamespace(
            is_available=lambda: True,
            is_initialized=lambda: self.is_distributed,
            get_debug_level=lambda: self.level,
            DebugLevel=SimpleNamespace(DETAIL="DETAIL"),
        )


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    monkeypatch.setattr(sys, "gettrace", lambda: None)  # coverage may be on
    monkeypatch.setattr(sys, "getprofile", lambda: None)
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING", raising=False)
    monkeypatch.delenv("PYTHONMALLOC", raising=False)
    return Torch()


def make_watcher(torch: Torch, folder: Path) -> SwitchWatcher:
    return SwitchWatcher(torch, Recorder(str(folder), lambda: {"rank": 0}))


@pytest.fixture
def watcher(torch: Torch, tmp_path: Path) -> SwitchWatcher:
    return make_watcher(torch, tmp_path)


def backward(watcher: SwitchWatcher) -> None:
    """As the wrapper of `backward` does it."""
    if watcher.due:
        watcher.take_sample()


def told(watcher: SwitchWatcher, *, is_last: bool = False) -> list[str]:
    text = watcher.poll(OTHER, is_last=is_last)
    return json.loads(text)["on"] if text else []


def test_a_training_without_switches_tells_nothing(watcher: SwitchWatcher) -> None:
    backward(watcher)
    assert told(watcher, is_last=True) == []


def test_a_switch_of_a_short_run_is_told_at_its_end(torch: Torch, watcher: SwitchWatcher) -> None:
    torch.anomaly = torch.is_deterministic = True
    backward(watcher)
    assert told(watcher) == []
    assert told(watcher, is_last=True) == ["anomaly_mode", "deterministic"]


def test_a_switch_of_a_long_run_is_told_once_and_early(
    torch: Torch, watcher: SwitchWatcher
) -> None:
    torch.is_profiling = True
    found = []
    for _ in range(3 * ENOUGH_SAMPLES):
        backward(watcher)
        found.append(told(watcher))
    found.append(told(watcher, is_last=True))
    assert found.index(["profiler"]) < ENOUGH_SAMPLES
    assert sum(map(len, found)) == 1


def test_a_context_around_the_backward_alone_is_seen(torch: Torch, watcher: SwitchWatcher) -> None:
    for _ in range(10):
        torch.anomaly = True
        backward(watcher)
        torch.anomaly = False
        told(watcher)
    assert told(watcher, is_last=True) == ["anomaly_mode"]


def test_a_profiler_of_the_first_steps_is_no_ailment_of_a_long_run(
    torch: Torch, watcher: SwitchWatcher
) -> None:
    found = []
    for number in range(100):
        torch.is_profiling = number < 5
        backward(watcher)
        found += told(watcher)
    assert found == []


def test_where_no_backward_is_seen_the_writes_take_the_samples(
    torch: Torch, watcher: SwitchWatcher
) -> None:
    torch.anomaly = True
    assert told(watcher, is_last=True) == ["anomaly_mode"]


def test_not_every_backward_is_looked_into(watcher: SwitchWatcher) -> None:
    for _ in range(1000):
        backward(watcher)
    assert watcher.samples == FIRST_SAMPLES
    told(watcher)
    for _ in range(1000):
        backward(watcher)
    assert watcher.samples == FIRST_SAMPLES + 1


def test_tracing_is_told_and_a_profilers_own_is_not(
    torch: Torch, watcher: SwitchWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "gettrace", lambda: print)
    assert list(watcher.find_on()) == ["tracing"]
    torch.is_profiling = True
    assert list(watcher.find_on()) == ["profiler"]


def test_blocking_launches_matter_where_there_is_a_device(
    torch: Torch, watcher: SwitchWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    assert list(watcher.find_on()) == []
    torch.has_device = True
    assert list(watcher.find_on()) == ["launch_blocking"]
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "0")
    assert list(watcher.find_on()) == []


def test_checked_collectives_matter_where_there_are_ranks(
    torch: Torch, watcher: SwitchWatcher
) -> None:
    torch.level = "DETAIL"
    assert list(watcher.find_on()) == []
    torch.is_distributed = True
    assert list(watcher.find_on()) == ["distributed_debug"]


def test_a_debugging_allocator_is_told(
    torch: Torch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONMALLOC", "debug")
    assert list(make_watcher(torch, tmp_path).find_on()) == ["malloc_debug"]


def test_a_new_process_tells_again(torch: Torch, watcher: SwitchWatcher) -> None:
    torch.anomaly = True
    assert told(watcher, is_last=True) == ["anomaly_mode"]
    watcher.reset()
    assert told(watcher, is_last=True) == ["anomaly_mode"]
