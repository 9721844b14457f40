"""What a result says beside its figures, and what several benchmarks ask for: places, intervals.

In: this machine and this checkout. Out: `conditions()`, which a script saves with what it measured.
A script of a room puts this folder on its path first; benchmarks/README.md shows the line.
"""

from __future__ import annotations

import math
import os
import platform
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).resolve().parents[1]
ROOT = BENCHMARKS.parent
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}


def interval(values: list[float]) -> dict[str, float]:
    """Median with its distribution-free 95 % interval (order statistics)."""
    ordered, n = sorted(values), len(values)
    low = max(0, math.floor(n / 2 - 0.98 * math.sqrt(n)))
    return {
        "median": statistics.median(ordered),
        "low": ordered[low],
        "high": ordered[n - 1 - low],
        "n": n,
    }


def cpu_name() -> str:
    """The processor, as Linux names it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), "?")


def commit() -> str | None:
    """The commit that is checked out here; None in an archive of the files, without git."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    try:
        done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() or None


def stamp() -> dict[str, Any]:
    """When and at which commit a figure was taken."""
    return {"date": time.strftime("%Y-%m-%d"), "commit": commit()}


def conditions() -> dict[str, Any]:
    """Hardware, versions, how busy the machine is, and which commit was measured when."""
    import torch

    return {
        "cpu": cpu_name(),
        "num_cores": os.cpu_count(),
        "load_average": os.getloadavg(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "environment": ENVIRONMENT,
        **stamp(),
    }
