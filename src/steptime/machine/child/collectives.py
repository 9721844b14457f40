"""Bus bandwidth of collectives over payloads, between the available ranks.

Under a launcher (torchrun) each rank has a process of ours, and they join as the training's ranks
would. Otherwise processes are started here: one for each GPU with NCCL, or two on the processor
with gloo. The time of a repetition is that of the slowest rank. The bus bandwidth is the payload
over that time, times 2 (n - 1) / n for all-reduce and (n - 1) / n for the others, so that different
numbers of ranks can be compared.

Source of the factors and of what a payload is: NVIDIA nccl-tests, doc/PERFORMANCE.md.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from .repeat import Clock

KINDS = ("all_reduce", "all_gather", "reduce_scatter")
CPU_PAYLOADS = (64 << 10, 1 << 20, 16 << 20, 64 << 20)
GPU_PAYLOADS = (1 << 20, 16 << 20, 128 << 20, 1 << 30)
GRACE_S = 2.0
JOIN_S = 20.0
"""The time for all ranks to join: each one imports torch first."""

REPETITION_S, MIN_REPETITIONS, MAX_REPETITIONS, MAX_CALLS = 0.02, 3, 20, 200
NUM_TIMED = 2 + MIN_REPETITIONS  # calls for each payload, at least


def factor(kind: str, num_ranks: int) -> float:
    """Return the bus bandwidth divided by payload over time."""
    share = (num_ranks - 1) / num_ranks
    return 2 * share if kind == "all_reduce" else share


def measure_here(
    torch: Any, request: dict[str, Any], clock: Clock, *, boot: list[str]
) -> Iterator[dict[str, Any]]:
    """Yield the ceilings between processes of this machine, which end with this call.

    Args:
        torch: the module.
        request: of this process.
        clock: ends with the time.
        boot: the words that start a process of ours, without its request.
    """
    num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    backend = "nccl" if num_gpus > 1 else "gloo"
    num_ranks = num_gpus if num_gpus > 1 else 2
    if not torch.distributed.is_available():
        yield from _missing(backend, num_ranks, "no_distributed")
        return
    asked = {
        "role": "rank",
        "backend": backend,
        "num_ranks": num_ranks,
        "meet": f"file://{request['folder']}/meet",
        "left_s": clock.left_s(),
        "num_threads": max(1, request["num_threads"] // num_ranks),
    }
    ranks = [_start(boot, {**asked, "rank": rank}) for rank in range(num_ranks)]
    try:
        text = _answer(ranks, max(0.0, clock.left_s()) + GRACE_S)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    lines = [line for line in lines if line["k"] == "ceiling"]
    yield from lines
    seen = {line["kind"] for line in lines}
    word = "out_of_time" if clock.left_s() <= 0 else "ranks_failed"
    yield from (line for line in _missing(backend, num_ranks, word) if line["kind"] not in seen)


def _start(boot: list[str], request: dict[str, Any]) -> subprocess.Popen[bytes]:
    environment = dict(os.environ)
    if request["backend"] == "gloo" and os.path.isdir("/sys/class/net/lo"):
        # The machine's own name may lead nowhere, as in a container.
        environment["GLOO_SOCKET_IFNAME"] = "lo"
    environment["OMP_NUM_THREADS"] = str(request["num_threads"])
    stdout = subprocess.PIPE if request["rank"] == 0 else subprocess.DEVNULL
    words = [*boot, json.dumps(request)]
    return subprocess.Popen(words, stdout=stdout, stdin=subprocess.DEVNULL, env=environment)


def _answer(ranks: list[subprocess.Popen[bytes]], wait_s: float) -> str:
    try:
        out, _ = ranks[0].communicate(timeout=wait_s)
    except subprocess.TimeoutExpired as late:
        out = late.stdout or b""
    else:
        for rank in ranks[1:]:
            with suppress(subprocess.TimeoutExpired):
                rank.wait(timeout=1)
    return out.decode(errors="replace")


def _missing(backend: str, num_ranks: int, word: str) -> Iterator[dict[str, Any]]:
    for kind in KINDS:
        yield {**_head(kind, backend, num_ranks), "missing": word}


def _head(kind: str, backend: str, num_ranks: int) -> dict[str, Any]:
    return {
        "k": "ceiling",
        "kind": kind,
        "device": backend,
        "unit": "bytes_per_s",
        "dtype": "fp32",
        "num_ranks": num_ranks,
    }


def _local_rank() -> int:
    try:
        return int(os.environ["LOCAL_RANK"])
    except (KeyError, ValueError):
        return 0


def join(torch: Any, request: dict[str, Any], clock: Clock) -> Iterator[dict[str, Any]]:
    """Be one rank; only the first one yields lines.

    Args:
        torch: the module.
        request: `meet`, `rank`, `num_ranks` and `backend`; or none of them under a launcher.
        clock: ends with the time for all kinds.
    """
    distributed = torch.distributed
    is_launched = "meet" not in request
    num_ranks = int(os.environ["WORLD_SIZE"]) if is_launched else request["num_ranks"]
    rank = int(os.environ["RANK"]) if is_launched else request["rank"]
    has_gpus = torch.cuda.is_available()
    backend = request.get("backend") or ("nccl" if has_gpus else "gloo")
    local = _local_rank() if is_launched else rank
    device = f"cuda:{local}" if backend == "nccl" else "cpu"
    try:
        if backend == "nccl":
            torch.cuda.set_device(local)
        distributed.init_process_group(
            backend,
            init_method="env://" if is_launched else request["meet"],
            rank=rank,
            world_size=num_ranks,
            timeout=datetime.timedelta(seconds=JOIN_S),
        )
    except (RuntimeError, ValueError) as error:
        if rank == 0:
            detail = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            for line in _missing(backend, num_ranks, "ranks_missing"):
                yield {**line, "detail": detail}
        return
    ranks = Ranks(torch, device, rank=rank, num_ranks=num_ranks)
    try:
        for number, kind in enumerate(KINDS):
            share_s = clock.left_s() / (len(KINDS) - number)
            part = Clock(until_s=clock.read() + share_s)
            line = {**_head(kind, backend, num_ranks), **ranks.measure(kind, part)}
            if rank == 0:
                yield line
    finally:
        distributed.destroy_process_group()


class Ranks:
    """One rank of the group; all make the same calls, agreed on by the slowest rank's time."""

    def __init__(self, torch: Any, device: str, *, rank: int, num_ranks: int) -> None:
        self.torch = torch
        self.device = device
        self.rank = rank
        self.num_ranks = num_ranks

    def measure(self, kind: str, clock: Clock) -> dict[str, Any]:
        """Return what the line of a kind says beyond its head."""
        payloads = CPU_PAYLOADS if self.device == "cpu" else GPU_PAYLOADS
        points: list[dict[str, Any]] = []
        best: list[float] = []
        place = 0
        try:
            for number, payload in enumerate(payloads):
                left_s = self._agree(clock.left_s())
                expected_s = NUM_TIMED * payload / points[-1]["rate"] if points else 0.0
                if expected_s > left_s:
                    break
                tried = self._rates(kind, payload, left_s / (len(payloads) - number))
                middle = sorted(tried)[len(tried) // 2]
                setting = {"payload_bytes": payload}
                points.append({"setting": setting, "rate": middle})
                if not best or middle > points[place]["rate"]:
                    best, place = tried, len(points) - 1
        except (RuntimeError, NotImplementedError, AttributeError) as error:
            if not best:
                word = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
                return {"missing": "not_supported", "detail": word}
        return {"setting": points[place]["setting"], "rates": best, "points": points}

    def _rates(self, kind: str, payload: int, share_s: float) -> list[float]:
        call = self._call(kind, payload)
        self._timed(call, 1)
        once_s = self._agree(self._timed(call, 1))
        calls = max(1, min(MAX_CALLS, round(REPETITION_S / max(once_s, 1e-6))))
        count = int(share_s / max(once_s * calls, 1e-6))
        count = max(MIN_REPETITIONS, min(MAX_REPETITIONS, count))
        took_s = [self._timed(call, calls) for _ in range(count)]
        amount = payload * calls * factor(kind, self.num_ranks)
        return [amount / value for value in self._slowest(took_s)]

    def _call(self, kind: str, payload: int) -> Callable[[], object]:
        torch, distributed = self.torch, self.torch.distributed
        whole = torch.zeros(payload // 4, device=self.device)
        part = torch.zeros(payload // 4 // self.num_ranks, device=self.device)
        whole = whole[: part.numel() * self.num_ranks]
        if kind == "all_reduce":
            return lambda: distributed.all_reduce(whole)
        if kind == "all_gather":
            return lambda: distributed.all_gather_into_tensor(whole, part)
        return lambda: distributed.reduce_scatter_tensor(part, whole)

    def _timed(self, call: Callable[[], object], calls: int) -> float:
        clock = Clock(until_s=0.0)
        self._finish()
        self.torch.distributed.barrier()
        self._finish()  # on a GPU, a barrier may only have been queued
        began_s = clock.read()
        for _ in range(calls):
            call()
        self._finish()
        return clock.read() - began_s

    def _finish(self) -> None:
        if self.device != "cpu":
            self.torch.cuda.synchronize(self.device)

    def _agree(self, value: float) -> float:
        return self._slowest([value])[0]

    def _slowest(self, values: list[float]) -> list[float]:
        """Return, for each value, the largest one of all ranks."""
        tensor = self.torch.tensor(values, dtype=self.torch.float64, device=self.device)
        self.torch.distributed.all_reduce(tensor, op=self.torch.distributed.ReduceOp.MAX)
        found: list[float] = tensor.tolist()
        return found
