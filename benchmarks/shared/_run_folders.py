"""Synthetic run folders, as the guest of a long run writes them (docs/internals/run-folder.md).

A language model on the processor: about 30 ms a step, an evaluation each 500 steps, a checkpoint
each 2,000, a slower step now and then. Raw markers for the first 2,000 updates and each hundredth
after, a row an update up to 20,000, blocks of a hundred steps from there on. The same numbers
come out of the same seed.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

BUCKETS = (
    *("other", "input_wait", "fetch", "collate", "h2d", "forward", "loss", "backward"),
    *("gradient_processing", "communication", "optimizer", "sync", "forward_and_loss"),
    *("evaluation", "checkpoint", "epoch_start", "compile"),
)
COUNTS = (
    *("batches", "copies", "syncs", "forwards", "backwards", "inner_steps"),
    *("gc_pauses", "gc_ns", "prepare_ns"),
)
PENDING = ("after_forward", "after_backward", "closure_head", "closure_tail")
SPANS = tuple(map(BUCKETS.index, ("evaluation", "checkpoint", "epoch_start", "compile")))
NUM_WRITTEN = len(BUCKETS) + len(COUNTS)

FULL_UPDATES = 20_000
EVENT_UPDATES = 2_000
EVENT_EVERY = 100
BLOCK = 100
DETAILED_UPDATES = 256
DETAILED_EVERY = 8
FLUSH_NS = 200_000_000
COST_NS = 2_000_000_000
MAX_HOST_LINES = 20_000

USUAL_MS = {
    "other": 0.6,
    "fetch": 1.1,
    "collate": 0.4,
    "forward": 8.0,
    "loss": 0.7,
    "backward": 15.0,
    "gradient_processing": 0.5,
    "communication": 1.5,
    "optimizer": 2.0,
    "sync": 0.1,
}
"""What a step takes by bucket; communication only where there are several ranks."""

Row = list[int]


def write_folder(folder: Path, *, num_steps: int, num_ranks: int) -> None:
    """Write the files that the guest and the sampler leave; `command.json` is left to others."""
    folder.mkdir(parents=True)
    pids = [1000 + rank for rank in range(num_ranks)]
    starts: list[dict[str, Any]] = [
        {"k": "start", "pid": pid, "ppid": 1, "python": "3.11.7", "argv": ["train.py"], "t": 1e9}
        for pid in pids
    ]
    torches = [{"k": "torch", "pid": pid, "version": "2.13.0", "t": 1e9 + 1} for pid in pids]
    ends_ns = [
        _Rank(rank, num_steps=num_steps, num_ranks=num_ranks).write(folder / f"rank-{rank}.jsonl")
        for rank in range(num_ranks)
    ]
    exits = [
        {"k": "exit", "pid": pid, "t": 1e9 + ns / 1e9, "updates": num_steps, "failures": {}}
        | {"backwards": num_steps, "forwards": num_steps, "batches": num_steps}
        for pid, ns in zip(pids, ends_ns, strict=True)
    ]
    _write_lines(folder / "processes.jsonl", [*starts, *torches, *exits])
    _write_lines(folder / "host.jsonl", _host_lines(max(ends_ns) / 1e9, num_ranks))


def _write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _host_lines(seconds: float, num_ranks: int) -> list[dict[str, Any]]:
    chance, num = random.Random("host"), min(MAX_HOST_LINES, int(seconds))
    head = {"k": "head", "schema": 1, "num_cores": 2 * num_ranks}
    samples = (
        {"k": "h", "t_unix_s": 1e9 + second * seconds / num, "dt_s": seconds / num}
        | {"busy_cores": num_ranks + chance.random() / 10, "job_cores": float(num_ranks)}
        | {"swap_in_bytes": 0, "available_bytes": 12_000_000_000, "oom_kills": 0}
        | {"io_wait_cores": 0.0, "cached_bytes": 900_000_000, "job_resident_bytes": 512 << 20}
        for second in range(num)
    )
    return [head, *samples]


class _Rank:
    """The file of one rank in the making."""

    def __init__(self, rank: int, *, num_steps: int, num_ranks: int) -> None:
        self.rank, self.num_steps, self.num_ranks = rank, num_steps, num_ranks
        self.chance = random.Random(f"{rank} {num_steps} {num_ranks}")
        self.usual = dict(USUAL_MS)
        if num_ranks == 1:
            del self.usual["communication"]
        self.now = 1_000_000_000
        self.rows: list[Row] = []
        self.fresh: list[Row] = []
        self.block: list[Row] = []

    def write(self, path: Path) -> int:
        """Write it all; when the last update ended [ns]."""
        flush_ns = cost_ns = memory_ns = 0
        with path.open("w") as file:
            file.write(json.dumps(self._head()) + "\n")
            for number in range(self.num_steps):
                lines = self._take(number)
                if self.now >= flush_ns or number + 1 == self.num_steps:
                    lines = [*self._flush(), *lines]
                    flush_ns = self.now + FLUSH_NS
                    if self.now >= memory_ns:
                        lines.append(self._memory(number))
                        memory_ns = self.now + max(FLUSH_NS, self.now // 1000)
                    if self.now >= cost_ns:
                        lines.append(self._cost(number + 1))
                        cost_ns = self.now + COST_NS
                file.writelines(lines)
            if self.block:
                file.write(self._block_line())
            file.write(self._end())
        return self.now

    def _take(self, number: int) -> list[str]:
        """Make an update; lines that go beside the rows."""
        row, lines = self._row(number), []
        if number < EVENT_UPDATES or number % EVENT_EVERY == 0:
            lines.append(_compact("e", n=number, e=self._markers(row)))
        if number < FULL_UPDATES:
            self.rows.append(row)
            return lines
        if len(self.block) == BLOCK:
            lines.append(self._block_line())
            self.block = []
        self.block.append(row)
        times = [_step_ns(row[7:]) // 1000, _step_ns(row[7 + NUM_WRITTEN :]) // 1000]
        self.fresh.append([number, 0, 0, row[4], 0, 1, *times])
        return lines

    def _row(self, number: int) -> Row:
        wall = [0] * len(BUCKETS)
        slow = 3.0 if self.chance.random() < 0.003 else 1.0
        for name, ms in self.usual.items():
            wall[BUCKETS.index(name)] = int(ms * 1e6 * slow * self.chance.gauss(1, 0.04))
        if number and number % 500 == 0:
            wall[BUCKETS.index("evaluation")] = 800_000_000
        if number and number % 2000 == 0:
            wall[BUCKETS.index("checkpoint")] = 300_000_000
        cpu = [int(value * 0.98) for value in wall]
        is_detailed = number < DETAILED_UPDATES or number % DETAILED_EVERY == 0
        if not is_detailed:
            wall[1] += wall[2] + wall[3]
            wall[2] = wall[3] = 0
            cpu = [_step_ns(cpu), *[0] * (len(BUCKETS) - 1)]
        pauses = int(number % 300 == 299)
        counts = [1, 0, 1, 1, 1, 0, pauses, pauses * 4_000_000, 200_000]
        start, self.now = self.now, self.now + sum(wall)
        return [number, 0, 0, start, self.now, 0, int(is_detailed), *wall, *counts, *cpu]

    def _markers(self, row: Row) -> Row:
        found, offset = [], 0
        for bucket, value in enumerate(row[7 : 7 + len(BUCKETS)]):
            if value:
                found += [offset, bucket]
                offset += value
        return found

    def _flush(self) -> list[str]:
        lines = []
        if self.rows:
            lines.append(_compact("u", rows=self.rows))
        if self.fresh:
            lines.append(_compact("p", rows=self.fresh))
        self.rows, self.fresh = [], []
        return lines

    def _block_line(self) -> str:
        block = self.block
        sums = [sum(column) for column in zip(*(row[7:] for row in block), strict=True)]
        detailed = [row[7 + NUM_WRITTEN :] for row in block if row[6]]
        cpu = [sum(column) for column in zip(*detailed, strict=True)] or [0] * len(BUCKETS)
        num = len(block)
        leading = [block[0][0], 0, num, num, 0, block[0][3], block[-1][4]]
        return _compact(
            "b",
            row=[*leading, *sums[:NUM_WRITTEN], len(detailed), *cpu],
            rw=[_step_ns(row[7:]) // 1000 for row in block],
            rc=[_step_ns(row[7 + NUM_WRITTEN :]) // 1000 for row in block],
        )

    def _head(self) -> dict[str, Any]:
        return (
            {"k": "head", "schema": 1, "pid": 1000 + self.rank, "rank": self.rank}
            | {"rank_source": "environment", "world_size": self.num_ranks}
            | {"local_rank": self.rank, "python": "3.11.7", "torch": "2.13.0", "device": "cpu"}
            | {"device_name": None, "num_threads": 2, "versions": {}, "argv": ["train.py"]}
            | {"t_unix_s": 1e9 + 2, "t_ns": 0}
            | {"buckets": BUCKETS, "counts": COUNTS, "pending": PENDING}
        )

    def _memory(self, number: int) -> str:
        line = {"k": "m", "n": number, "t": self.now, "rss": (500 << 20) + number, "bucket": 5}
        more = {"minflt": 90_000 + number, "majflt": 2, "stime_ns": number * 1000}
        return json.dumps(line | more | dict.fromkeys(("allocated", "reserved", "peak"))) + "\n"

    def _cost(self, num: int) -> str:
        line = {"k": "o", "updates": num, "rows": num, "self_ns": num * 3000, "flush_ns": num * 900}
        return json.dumps(line | {"nested_calls": 20, "nested_ns": 380, "lost_updates": 0}) + "\n"

    def _end(self) -> str:
        tail = [0] * len(BUCKETS)
        line = {"k": "end", "t": self.now, "updates": self.num_steps, "backwards": self.num_steps}
        return json.dumps(line | {"tail": tail, "failures": {}, "failure_texts": {}}) + "\n"


def _step_ns(values: Row) -> int:
    """The sum of a row's first buckets without spans."""
    return sum(values[: len(BUCKETS)]) - sum(values[place] for place in SPANS)


def _compact(kind: str, **values: Any) -> str:
    return json.dumps({"k": kind, **values}, separators=(",", ":")) + "\n"
