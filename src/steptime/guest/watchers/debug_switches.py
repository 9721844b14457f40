"""Debug switches that slow a training down and are easily forgotten: is one of them on?

They are sampled inside the backward, because a context manager may hold one only there: in the
first few backward calls, then in one for each write. Switches are read, never set.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from json import dumps
from typing import Any

from ...record import kinds
from ..timeline.recorder import Recorder

FIRST_SAMPLES = 4

ENOUGH_SAMPLES = 20
"""A switch is written once it was on in half of this many samples (some seconds), or in half of all
samples at the end: a profiler around the first ten steps of a thousand slows nothing down."""

DEBUGGING_MALLOCS = ("debug", "malloc_debug", "pymalloc_debug")


class SwitchWatcher:
    """Counts the samples in which each switch was on; writes a `q` line for those mostly on.

    `due` is the number of samples to take in the next backward calls.
    """

    place = "switches"

    def __init__(self, torch: Any, recorder: Recorder) -> None:
        self.torch = torch
        self.recorder = recorder
        self.debugs_malloc = (
            sys.flags.dev_mode or os.environ.get("PYTHONMALLOC") in DEBUGGING_MALLOCS
        )
        self.is_profiled = False  # by us, because the user asked for it
        self.reset()

    def reset(self) -> None:
        """Forget everything: this is a new process."""
        self.due = FIRST_SAMPLES
        self.samples = self.samples_before = 0
        self.on: Counter[str] = Counter()
        self.told: set[str] = set()

    def take_sample(self) -> None:
        """Count the switches that are on now."""
        self.due -= 1
        self.samples += 1
        self.on.update(self.find_on())

    def poll(self, bucket: int, *, is_last: bool) -> str:
        """Return a line if a switch is on that no line has named yet."""
        if self.samples == self.samples_before:
            self.take_sample()  # no backward call was seen
        self.samples_before = self.samples
        self.due = max(self.due, 1)
        if self.samples < ENOUGH_SAMPLES and not is_last:
            return ""
        on = self.mostly_on() - self.told
        if not on:
            return ""
        self.told |= on
        line = {"k": kinds.SWITCHES, "n": self.recorder.num_updates, "on": sorted(on)}
        return dumps(line) + "\n"

    def mostly_on(self) -> set[str]:
        """Return the switches that were on in half of the samples so far."""
        return {name for name, times in self.on.items() if 2 * times >= self.samples}

    def find_on(self) -> Iterator[str]:
        """Yield the switches that are on now."""
        torch = self.torch
        if torch.is_anomaly_enabled():
            yield "anomaly_mode"
        if torch.are_deterministic_algorithms_enabled():
            yield "deterministic"
        if self.is_profiled:
            pass
        elif torch.autograd._profiler_enabled():
            yield "profiler"
        elif sys.getprofile() is not None or sys.gettrace() is not None:
            yield "tracing"
        if self.debugs_malloc:
            yield "malloc_debug"
        if is_set("CUDA_LAUNCH_BLOCKING") and torch.cuda.is_initialized():
            yield "launch_blocking"
        if debugs_collectives(torch):
            yield "distributed_debug"


def is_set(name: str) -> bool:
    """Return whether an environment variable is set and not zero."""
    return os.environ.get(name, "0") not in ("", "0")


def debugs_collectives(torch: Any) -> bool:
    """Return whether torch checks each collective of this process against the other ranks."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return False
    return bool(distributed.get_debug_level() == distributed.DebugLevel.DETAIL)
