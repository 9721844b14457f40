"""What looking at the padding of batches costs an update: the looks, and the updates between them.

    python benchmarks/data/padding_cost.py [--repeats 300]

For batches of several sizes and ways to show their padding, a look is timed by the CPU time of the
thread, as the hooks make it (at the loader's batch and at the call of the model), with caches that
are warm. How many looks a run of so many updates has follows from the guest's own rule. `between`
is the comparison in all other updates. Results go to benchmarks/results/padding_cost.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

BENCHMARKS = Path(__file__).resolve().parents[1]
SIZES = ((8, 64), (32, 128), (32, 512), (64, 2048), (512, 128))
WAYS = ("mask", "labels", "token", "images")
UPDATES = (300, 1_000, 10_000, 100_000)


def make_batch(torch: Any, way: str, rows: int, width: int) -> dict[str, Any]:
    """Return a batch whose rows are half padding on average."""
    lengths = torch.randint(1, width + 1, (rows, 1))
    mask = (torch.arange(width) < lengths).long()
    ids = torch.randint(5, 30_000, (rows, width)) * mask
    if way == "images":
        return {"x": torch.randn(rows, 3, 8, 8)}
    more = {"mask": {"attention_mask": mask}, "labels": {"labels": ids - 100 * (1 - mask)}}
    return {"input_ids": ids, **more.get(way, {})}


def time_looks(torch: Any, batch: dict[str, Any], repeats: int) -> tuple[float, list[int]]:
    """Return the median time of a look [µs], and how many looks runs of `UPDATES` have."""
    from steptime.guest.padding.batch_watch import BatchWatch
    from steptime.guest.timeline.recorder import Recorder

    times, clock = [], time.thread_time_ns
    watch = BatchWatch(torch, Recorder(tempfile.gettempdir(), lambda: {"rank": 0}))
    nums, num, number = [], 0, 0
    while number < UPDATES[-1]:
        began = clock()
        watch.see_batch(batch)
        watch.see_call((), batch, number)
        if len(times) < repeats:
            times.append(clock() - began)
        num += 1
        nums += [num] * sum(number < one <= watch.due for one in UPDATES)
        number = watch.due
    assert not watch.recorder.failures
    return statistics.median(times) / 1000, nums


def time_between(torch: Any) -> float:
    """Return what the comparison in an update without a look takes [µs]."""
    from types import SimpleNamespace

    context = SimpleNamespace(padding=SimpleNamespace(due=1 << 40))
    journal = SimpleNamespace(num_updates=5)
    num, clock = 200_000, time.thread_time_ns
    began = clock()
    for _ in range(num):
        pass
    middle = clock()
    for _ in range(num):
        if journal.num_updates >= context.padding.due:
            raise RuntimeError
        if journal.num_updates >= context.padding.due:
            raise RuntimeError
    return max(0, clock() - middle - (middle - began)) / num / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=300)
    args = parser.parse_args()
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    between_us = time_between(torch)
    print(f"between looks {between_us:.3f} us an update")
    found = []
    for way in WAYS:
        for rows, width in SIZES if way != "images" else SIZES[:1]:
            look_us, nums = time_looks(torch, make_batch(torch, way, rows, width), args.repeats)
            costs = {n: look_us * num / n for n, num in zip(UPDATES, nums, strict=True)}
            found.append(
                {
                    "way": way,
                    "rows": rows,
                    "width": width,
                    "look_us": round(look_us, 1),
                    "us_an_update": {str(n): round(cost, 3) for n, cost in costs.items()},
                }
            )
            told = ", ".join(f"{cost:.2f} over {n:,}" for n, cost in costs.items())
            print(f"{way} {rows}x{width}: a look {look_us:.0f} us; us an update: {told}")
    result = {
        **stamp(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "between_us": round(between_us, 3),
        "batches": found,
    }
    path = BENCHMARKS / "results" / "padding_cost.json"
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
