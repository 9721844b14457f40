"""Times nested parts of the making of a batch: the time of each without that of those inside it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from time import perf_counter_ns, process_time_ns
from typing import Any

MAX_SAMPLES = 64
"""Samples whose spans are kept, to show one of middle length."""


class PartTimer:
    """Wall and CPU time by part [ns], and the spans of single samples.

    The CPU time is that of all threads of the process: decoders may use several.
    """

    def __init__(self) -> None:
        self.stack: list[list[Any]] = []
        self.wall_ns: dict[str, int] = defaultdict(int)
        self.cpu_ns: dict[str, int] = defaultdict(int)
        self.num_samples = 0
        self.samples: list[tuple[int, list[list[Any]]]] = []
        self.spans: list[list[Any]] | None = None

    def forget(self) -> None:
        """Start again from nothing: what was timed until now was the first batch."""
        self.wall_ns.clear()
        self.cpu_ns.clear()
        self.samples.clear()
        self.num_samples = 0

    def timed(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the call, timed as a part."""

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self.enter(part)
            try:
                return call(*args, **kwargs)
            finally:
                self.leave()

        return wrapper

    def timed_sample(self, call: Callable[..., Any], *args: Any, num: int = 1) -> Any:
        """Run what reads `num` samples, and keep the spans of its parts."""
        is_kept = len(self.samples) < MAX_SAMPLES
        self.spans = [] if is_kept else None
        began = perf_counter_ns()
        self.enter("fetch")
        try:
            result = call(*args)
            self.num_samples += num
            return result
        finally:
            self.leave()
            if self.spans is not None:
                spans = [[part, start - began, end - began] for part, start, end in self.spans]
                self.samples.append((perf_counter_ns() - began, spans))
                self.spans = None

    def enter(self, part: str) -> None:
        """Begin a part."""
        self.stack.append([part, perf_counter_ns(), process_time_ns(), 0, 0])

    def leave(self) -> None:
        """End the part that began last."""
        part, wall, cpu, inner_wall, inner_cpu = self.stack.pop()
        cpu_ns, now = process_time_ns() - cpu, perf_counter_ns()
        wall_ns = now - wall
        self.wall_ns[part] += wall_ns - inner_wall
        self.cpu_ns[part] += cpu_ns - inner_cpu
        if self.stack:
            self.stack[-1][3] += wall_ns
            self.stack[-1][4] += cpu_ns
        if self.spans is not None:
            self.spans.append([part, wall, now])

    def middle_sample(self) -> list[list[Any]]:
        """Return the spans of a sample of middle length: part, start and end [ns], outer first."""
        if not self.samples:
            return []
        spans = sorted(self.samples, key=lambda one: one[0])[len(self.samples) // 2][1]
        return sorted(spans, key=lambda span: (span[1], -span[2]))
