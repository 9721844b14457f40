"""Trains plainly, or in turns with and without one cause of its time, measured by itself.

    python SCRIPT --steps N
    python SCRIPT --without PART --pairs N

With `--without`, blocks of steps alternate, A B A B, in one process and with one model: A is the
script as it is, B has the cause removed. The first step of a block settles and does not count. The
last line of output is JSON: wall and CPU time of a step, the medians of each block, in pairs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

Step = Callable[[str], None]
"""Makes a step without the part of that name; with the empty name, as it is."""

BLOCK = 5


def train(step: Step, parts: tuple[str, ...]) -> None:
    """Make the steps that the command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--without", choices=parts)
    parser.add_argument("--pairs", type=int, default=12)
    options = parser.parse_args()
    if options.without is None:
        for _ in range(options.steps):
            step("")
        return
    for _ in range(3):
        step("")
        step(options.without)
    pairs = [[block(step, name) for name in ("", options.without)] for _ in range(options.pairs)]
    print(json.dumps({"without": options.without, "pairs": pairs}))


def block(step: Step, without: str) -> dict[str, float]:
    """Median wall and CPU time of a step of one block [s]."""
    step(without)
    wall, cpu = [], []
    for _ in range(BLOCK):
        began_s, used_s = time.perf_counter(), time.process_time()
        step(without)
        cpu.append(time.process_time() - used_s)
        wall.append(time.perf_counter() - began_s)
    return {"wall_s": statistics.median(wall), "cpu_s": statistics.median(cpu)}
