"""The process that measures: it prints one line of JSON for each result as soon as it is known.

`{"k": "python"}` comes first, then `{"k": "head"}` about torch, `{"k": "stage"}` before each kind,
`{"k": "ceiling"}` after it, `{"k": "missing"}` where nothing can be measured, and `{"k": "end"}` at
the end. Whatever torch or a library prints goes to the standard error instead.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from typing import Any

from . import collectives, disk_reads, matmul, memory_bandwidth, operator_bench, transfers
from .other_load import Others
from .repeat import Clock

# Shares of the time. The processor comes first: others may need it later, and a GPU warms up.
CPU_STAGES = {
    "matmul fp32": 4.0,
    "matmul bf16": 4.0,
    "matmul fp16": 2.0,
    "matmul int8": 2.0,
    "copy": 5.0,
    "triad": 4.0,
}
GPU_STAGES = {
    **dict.fromkeys(("matmul fp32", "matmul tf32", "matmul bf16"), 3.0),
    **dict.fromkeys(("matmul fp16", "matmul int8"), 2.0),
    **dict.fromkeys(("copy", "triad"), 1.5),
    **dict.fromkeys(("h2d pinned", "h2d pageable", "d2h pinned", "d2h pageable"), 1.0),
}
FURTHER_GPU_STAGES = {"matmul bf16": 0.5, "copy": 0.5}
CPU_BESIDE_GPU = 0.5  # of the processor's time, if there is a GPU to measure
DISK_SHARE, COLLECTIVES_SHARE = 4.0, 7.0  # two more processes import torch
GPU_MEMORY_SHARE = 0.15
GPU_CACHE_BYTES = 64 << 20
"""More than the last-level cache of any GPU sold today; four times this is a small array there."""


def main(request: dict[str, Any], boot: list[str]) -> None:
    """Measure what the request asks for, and print it line by line.

    Args:
        request: `role` (`probe`, `bench`, `operators`, `join` or `rank`) and what each role needs.
        boot: the words that start a process of ours, without its request.
    """
    out = _take_stdout()

    def say(line: dict[str, Any]) -> None:
        out.write(json.dumps(line) + "\n")
        out.flush()

    if request["role"] == "probe":
        say({"k": "python", **_python(), "torch_version": _torch_version()})
        return
    clock = Clock(until_s=time.perf_counter() + request["left_s"])
    torch = _import_torch(say)
    if torch is None:
        return
    if request["role"] == "operators":
        for line in operator_bench.measure(torch, request, clock):
            say(line)
    elif request["role"] == "bench":
        for line in CeilingBench(torch, request, clock, boot).lines():
            say(line)
    else:
        torch.set_grad_enabled(False)
        torch.set_num_threads(request["num_threads"])
        for line in collectives.join(torch, request, clock):
            say(line)
    say({"k": "end"})


def _take_stdout() -> Any:
    """Return the standard output for us only: a library that prints would break our lines."""
    ours = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(ours, "w", encoding="ascii")


def _python() -> dict[str, Any]:
    return {"python": sys.executable, "python_version": platform.python_version()}


def _torch_version() -> str | None:
    """Return the version of the installed package, without importing it."""
    from importlib import metadata

    try:
        return metadata.version("torch")
    except (metadata.PackageNotFoundError, ValueError, OSError):
        return None


def _import_torch(say: Any) -> Any:
    try:
        import torch
    except (ImportError, RuntimeError, OSError) as error:  # its libraries may fail to load
        is_there = _torch_version() is not None
        word = "torch_broken" if is_there else "no_torch"
        lines = str(error).splitlines()
        say({"k": "missing", "missing": word, "detail": lines[0][:200] if lines else ""})
        return None
    return torch


class CeilingBench:
    """All stages in order, each with its share of the remaining time."""

    def __init__(self, torch: Any, request: dict[str, Any], clock: Clock, boot: list[str]) -> None:
        self.torch = torch
        self.request = request
        self.clock = clock
        self.boot = boot
        self.num_threads = request["num_threads"]
        self.others = Others()
        self.devices = self._devices()
        self.chosen: dict[str, Any] = {}  # settings of the first GPU, by stage

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield every line as soon as it is known."""
        self.torch.set_num_threads(self.num_threads)
        self.torch.set_grad_enabled(False)
        yield self._head()
        stages = self._stages()
        for number, (device, name, share) in enumerate(stages):
            rest = sum(one[2] for one in stages[number:])
            left_s = max(0.0, self.clock.left_s()) * share / rest
            yield {"k": "stage", "device": device, "name": name}
            if self.clock.left_s() <= 0:
                yield {"k": "out_of_time"}
                return
            self.others.sample()
            for line in self._measure(device, name, left_s):
                load = self.others.sample()
                state = {"stolen_cores": load.stolen_cores, "num_throttles": load.num_throttles}
                yield {**line, "others_cores": load.others_cores, "state": state}

    def _devices(self) -> list[str]:
        if not self.torch.cuda.is_available():
            return []
        return [f"cuda:{index}" for index in range(self.torch.cuda.device_count())]

    def _head(self) -> dict[str, Any]:
        torch = self.torch
        return {
            "k": "head",
            **_python(),
            "torch_version": str(torch.__version__),
            "num_threads": self.num_threads,
            "num_cores": self.others.num_cores,
            "wait_policy": os.environ.get("OMP_WAIT_POLICY", "default").lower(),
            "device_names": [torch.cuda.get_device_name(device) for device in self.devices],
            "device_bytes": [one.total_memory for one in self._properties()],
            "num_multiprocessors": [one.multi_processor_count for one in self._properties()],
            "cuda_version": torch.version.cuda,
        }

    def _properties(self) -> list[Any]:
        return [self.torch.cuda.get_device_properties(device) for device in self.devices]

    def _stages(self) -> list[tuple[str, str, float]]:
        """Return device, name and share of each stage."""
        together: list[tuple[str, str, float]] = []
        if self.request.get("is_launched"):  # the other ranks wait for us
            together = [("ranks", "collectives", COLLECTIVES_SHARE)]
        less = CPU_BESIDE_GPU if self.devices else 1.0
        found = [("cpu", name, share * less) for name, share in CPU_STAGES.items()]
        for device in self.devices:
            stages = GPU_STAGES if device == self.devices[0] else FURTHER_GPU_STAGES
            found += [(device, name, share) for name, share in stages.items()]
        found.append(("disk", "disk", DISK_SHARE))
        if not together:
            found.append(("ranks", "collectives", COLLECTIVES_SHARE))
        return [*together, *found]

    def _measure(self, device: str, name: str, left_s: float) -> Iterator[dict[str, Any]]:
        clock = Clock(until_s=time.perf_counter() + left_s)
        kind, _, variant = name.partition(" ")
        if kind == "matmul":
            yield self._matmul(device, variant, clock)
        elif kind in ("copy", "triad"):
            yield from self._bandwidth(device, kind, clock)
        elif kind in ("h2d", "d2h"):
            yield transfers.measure(self.torch, device, kind, clock, is_pinned=variant == "pinned")
        elif kind == "disk":
            yield from disk_reads.measure(self.request, clock)
        elif self.request.get("is_launched"):
            yield from collectives.join(self.torch, {}, clock)
        else:
            yield from collectives.measure_here(self.torch, self.request, clock, boot=self.boot)
        if device.startswith("cuda"):
            self.torch.cuda.empty_cache()

    def _matmul(self, device: str, dtype: str, clock: Clock) -> dict[str, Any]:
        limit_bytes = self._limit_bytes(device)
        setting = self.chosen.get(f"matmul {dtype}")
        if setting is not None and device not in ("cpu", *self.devices[:1]):
            return matmul.measure_again(
                self.torch, device, dtype, clock, setting=setting, limit_bytes=limit_bytes
            )
        line = matmul.measure(
            self.torch,
            device,
            dtype,
            clock,
            num_threads=self.num_threads,
            limit_bytes=limit_bytes,
        )
        if device != "cpu" and "setting" in line:
            self.chosen[f"matmul {dtype}"] = line["setting"]
        return line

    def _bandwidth(self, device: str, kind: str, clock: Clock) -> Iterator[dict[str, Any]]:
        cache_bytes = self.request["cache_bytes"] if device == "cpu" else GPU_CACHE_BYTES
        yield from memory_bandwidth.measure(
            self.torch,
            device,
            kind,
            clock,
            num_threads=self.num_threads,
            cache_bytes=cache_bytes,
            limit_bytes=self._limit_bytes(device),
        )

    def _limit_bytes(self, device: str) -> int:
        if device == "cpu":
            limit: int = self.request["limit_bytes"]
            return limit
        return int(GPU_MEMORY_SHARE * self.torch.cuda.mem_get_info(device)[0])
