"""Memory, page faults and system CPU time of the process, read when the recorder writes.

Without /proc (macOS) the resident bytes are the peak so far. Nothing here runs inside a step: only
at a write, at most five times a second.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from json import dumps
from time import perf_counter_ns
from typing import Any

from ...record import kinds
from ..timeline.recorder import Recorder

GROWTH = 0.05
"""A line is written at once where resident memory is this much above all earlier lines."""

PACE = 1000
"""Otherwise a line for each thousandth of the process's age: 7,000 lines in a day, 10,000 in a
month."""


class MemoryWatcher:
    """Writes an `m` line where one is due."""

    place = "memory"

    def __init__(
        self,
        torch: Any,
        recorder: Recorder,
        *,
        clock: Callable[[], int] = perf_counter_ns,
        read_rss: Callable[[], int | None] | None = None,
        read_rss_peak: Callable[[], int | None] | None = None,
    ) -> None:
        self.torch = torch
        self.recorder = recorder
        self.clock = clock
        self.resource = load_resource()
        self.read_rss = read_rss if read_rss is not None else make_reader(self.resource)
        self.read_rss_peak = read_rss_peak or make_peak_reader(self.resource)
        self.reset()

    def reset(self) -> None:
        """Forget what was written: this is a new process."""
        self.written_ns: int | None = None
        self.highest = 0

    def poll(self, bucket: int, *, is_last: bool) -> str:
        """Return a line if it is time for one, or if memory grew."""
        now, rss = self.clock(), self.read_rss()
        age = now - self.recorder.zero_ns
        has_grown = rss is not None and rss > self.highest * (1 + GROWTH)
        is_due = self.written_ns is None or now - self.written_ns >= age // PACE
        if not (is_due or has_grown or is_last):
            return ""
        self.written_ns = now
        self.highest = max(self.highest, rss or 0)
        line = {"k": kinds.MEMORY, "n": self.recorder.num_updates, "t": age, "rss": rss}
        line |= {"rss_peak": self.read_rss_peak()} | used(self.resource) | {"bucket": bucket}
        line |= device_memory(self.torch)
        return dumps(line) + "\n"


def load_resource() -> Any:
    """Return Python's own `resource`, under no public name: a script may have a file called so."""
    if "resource" in sys.builtin_module_names:
        import resource

        return resource
    folders = [folder for folder in sys.path if os.path.basename(folder) == "lib-dynload"]
    spec = PathFinder.find_spec("resource", folders)
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_reader(resource: Any) -> Callable[[], int | None]:
    """Return what reads the resident bytes on this system."""
    if os.path.exists("/proc/self/statm"):
        return read_statm
    if resource is None:
        return lambda: None
    unit = 1 if sys.platform == "darwin" else 1024
    return lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def make_peak_reader(resource: Any) -> Callable[[], int | None]:
    """Return what reads the most that was resident so far on this system."""
    if os.path.exists("/proc/self/status"):
        return read_high_water
    return make_reader(resource)


def read_high_water() -> int | None:
    """Return the kernel's high-water mark of the resident bytes of this program.

    That of `getrusage` would hold the program that was there before `exec`, too.
    """
    try:
        fd = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = os.read(fd, 4096)
    finally:
        os.close(fd)
    at = text.find(b"VmHWM:")
    return None if at < 0 else int(text[at + 6 :].split(None, 1)[0]) * 1024


def read_statm(page_bytes: int = os.sysconf("SC_PAGE_SIZE")) -> int | None:
    """Return the resident bytes."""
    try:
        fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None  # no descriptor is left, or the root folder was changed
    try:
        return int(os.read(fd, 256).split()[1]) * page_bytes
    finally:
        os.close(fd)


ROLLUP = {b"Pss:": "pss", b"Shared_Dirty:": "shared_dirty", b"Private_Dirty:": "private_dirty"}


def read_rollup() -> dict[str, int]:
    """Return how much of this process's memory is its own, and how much is shared [bytes].

    The kernel walks all pages for it: some milliseconds for each gigabyte. Empty where it does not
    say.
    """
    try:
        fd = os.open("/proc/self/smaps_rollup", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        lines = os.read(fd, 4096).splitlines()
    finally:
        os.close(fd)
    words = (line.split(None, 2) for line in lines)
    return {ROLLUP[w[0]]: int(w[1]) * 1024 for w in words if len(w) > 1 and w[0] in ROLLUP}


def used(resource: Any) -> dict[str, Any]:
    """Return page faults and system CPU time of the process so far."""
    if resource is None:
        return {"minflt": None, "majflt": None, "stime_ns": None}
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "minflt": usage.ru_minflt,
        "majflt": usage.ru_majflt,
        "stime_ns": round(usage.ru_stime * 1e9),
    }


def device_memory(torch: Any) -> dict[str, Any]:
    """Return the current device's bytes that torch gave out and holds; asks no device."""
    stats: dict[str, Any] = {}
    if torch.cuda.is_initialized():
        stats = torch.cuda.memory_stats_as_nested_dict()
    allocated = stats.get("allocated_bytes", {}).get("all", {})
    reserved = stats.get("reserved_bytes", {}).get("all", {})
    return {
        "allocated": allocated.get("current"),
        "reserved": reserved.get("current"),
        "peak": allocated.get("peak"),
    }
