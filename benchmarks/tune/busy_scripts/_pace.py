"""What the scripts of busy_studies.py share: their options, and how long a step of theirs takes."""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Iterator

ENDLESS = 1_000_000


def read_options(description: str) -> argparse.Namespace:
    """Return the options; `remedy` makes by hand what a lever would do, for the oracle."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=ENDLESS)
    parser.add_argument("--remedy", action="store_true")
    return parser.parse_args()


def steps(num_steps: int) -> Iterator[int]:
    """Count steps; at the end, print the mean and the median time of those of the second half."""
    ends = [time.perf_counter()]
    for number in range(num_steps):
        yield number
        ends.append(time.perf_counter())
    half = ends[len(ends) // 2 :]
    times = [after - before for before, after in itertools.pairwise(half)]
    if times:
        print(f"mean_s {statistics.fmean(times):.6f} median_s {statistics.median(times):.6f}")
