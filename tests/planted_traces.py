"""Traces in the format of torch's profiler, made up: operators, kernels, launches, ranges.

Times are microseconds, as in the files.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Event = dict[str, Any]
MAIN, BACKWARD, EXCHANGE = 11, 12, 13
"""Threads."""

COMPUTE, COMMUNICATE = 7, 20
"""Streams of a device."""


class Planted:
    """A trace in the making."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.number = 0

    def op(self, name: str, start: float, end: float, *, thread: int = MAIN, **args: Any) -> int:
        """An operator of the host; its number."""
        self.number += 1
        known = {"External id": self.number, **args}
        self._add("cpu_op", name, start, end, tid=thread, args=known)
        return self.number

    def range(self, name: str, start: float, end: float, *, thread: int = MAIN) -> None:
        """A stretch with a name."""
        self.number += 1
        args = {"External id": self.number}
        self._add("user_annotation", name, start, end, tid=thread, args=args)

    def step(self, number: int, start: float, end: float) -> None:
        """A step of the training."""
        self.range(f"ProfilerStep#{number}", start, end)

    def call(self, name: str, start: float, end: float) -> None:
        """A function of Python."""
        self._add("python_function", name, start, end, tid=MAIN, args={"Python id": 1})

    def kernel(
        self,
        name: str,
        start: float,
        end: float,
        *,
        launched: float | None = None,
        by: int = 0,
        stream: int = COMPUTE,
        device: int = 0,
        cat: str = "kernel",
    ) -> None:
        """Something on a device, and the call that launched it if that was recorded."""
        self.number += 1
        correlation = self.number
        args = {"device": device, "stream": stream, "correlation": correlation}
        self._add(cat, name, start, end, tid=stream, args={**args, "External id": by})
        if launched is not None:
            args = {"correlation": correlation, "External id": by}
            self._add("cuda_runtime", "cudaLaunchKernel", launched, launched + 3, args=args)

    def runtime(self, name: str, start: float, end: float) -> None:
        """A call of the device's runtime that launches nothing."""
        self.number += 1
        self._add("cuda_runtime", name, start, end, args={"correlation": self.number})

    def write(self, path: Path) -> Path:
        """The trace as a file, laid out as torch does."""
        rows = ",\n  ".join(json.dumps(event) for event in self.events)
        path.write_text(f'{{\n  "schemaVersion": 1,\n  "traceEvents": [\n  {rows}\n  ],\n'
                        f'  "traceName": "{path.name}"\n}}\n')  # fmt: skip
        return path

    def _add(
        self, cat: str, name: str, start: float, end: float, *, tid: int = MAIN, args: Any
    ) -> None:
        event = {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid}
        self.events.append({**event, "ts": start, "dur": end - start, "args": args})


def shapes(*each: Sequence[int]) -> dict[str, Any]:
    """The inputs of an operator."""
    return {"Input Dims": [list(one) for one in each]}
