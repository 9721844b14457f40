"""What else a shorter type changes than products: the calls of casts, their bytes, other operators.

    python benchmarks/fit/shorter_type.py

By CPU time of one thread, so that neighbors add little; medians of 9 repetitions with their range.
Casts: layers too small to gain, forward and backward, with autocast and without, per product.
Operators: the same one in fp32 and in bf16, at three sizes. The gains of
`diagnose/waterfall/gains.py` take their ends from here. Results go to
benchmarks/results/shorter_type.json.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import BENCHMARKS, conditions

OUT = BENCHMARKS / "results" / "shorter_type.json"
REPETITIONS = 9
LAYERS, PRODUCTS = 30, 3  # a layer has one product forward and two backward
WIDTH = 1024
OPERATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": functional.gelu,
    "add": lambda x: x + x,
    "mul": lambda x: x * x,
    "sigmoid": torch.sigmoid,
    "softmax": lambda x: torch.softmax(x, -1),
    "layer_norm": lambda x: functional.layer_norm(x, (WIDTH,)),
}


def timed(call: Callable[[], object], times: int) -> list[float]:
    """CPU time of a call in each repetition [s]."""
    for _ in range(max(3, times // 10)):
        call()
    found = []
    for _ in range(REPETITIONS):
        began_s = time.process_time()
        for _ in range(times):
            call()
        found.append((time.process_time() - began_s) / times)
    return found


def casts() -> dict[str, float]:
    """What autocast adds to a product that is too small to gain [s]."""
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(LAYERS)))
    inputs = torch.randn(4, 8)

    def step(*, is_short: bool) -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_short):
            out = model(inputs)
        out.float().sum().backward()
        model.zero_grad(set_to_none=True)

    full, short = timed(lambda: step(is_short=False), 40), timed(lambda: step(is_short=True), 40)
    more = [(b - a) / LAYERS / PRODUCTS for a, b in zip(full, short, strict=True)]
    return {"median": statistics.median(more), "low": min(more), "high": max(more)}


def gain_of(operator: Callable[[Tensor], Tensor], rows: int) -> dict[str, float]:
    """The share of its time that an operator saves in bf16; below zero, it takes longer."""
    full = torch.randn(rows, WIDTH)
    short, times = full.bfloat16(), max(5, 10_000_000 // full.numel())
    a, b = timed(lambda: operator(full), times), timed(lambda: operator(short), times)
    gains = [1 - after / before for before, after in zip(a, b, strict=True)]
    return {"median": statistics.median(gains), "low": min(gains), "high": max(gains)}


def cast_rate(rows: int) -> float:
    """Bytes that a cast to bf16 reads and writes a second."""
    full = torch.randn(rows, WIDTH)
    times = max(5, 10_000_000 // full.numel())
    return 6 * full.numel() / statistics.median(timed(full.bfloat16, times))


def main() -> None:
    torch.set_num_threads(1)
    found: dict[str, Any] = {"cast_s_per_product": casts(), "operators": [], "cast_bytes_per_s": {}}
    print(f"casts: {found['cast_s_per_product']['median'] * 1e6:.1f} µs a product")
    for rows in (64, 512, 4096):
        found["cast_bytes_per_s"][rows * WIDTH * 4] = rate = cast_rate(rows)
        print(f"{rows * WIDTH * 4 >> 10:>6} KiB  cast {rate / 1e9:.1f} GB/s")
        for name, operator in OPERATORS.items():
            gain = gain_of(operator, rows)
            found["operators"].append({"name": name, "bytes": rows * WIDTH * 4, "gain": gain})
            print(f"{rows * WIDTH * 4 >> 10:>6} KiB  {name:<11}{100 * gain['median']:6.0f} %")
    facts = {**conditions(), "n": REPETITIONS, "clock": "CPU time, one thread"}
    command = " ".join(["python", "benchmarks/fit/shorter_type.py", *sys.argv[1:]])
    OUT.write_text(json.dumps({**facts, "command": command, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
