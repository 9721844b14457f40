"""What sampling a run from outside costs, as a share of one core.

    python benchmarks/run/sampler.py [--seconds 60] [--strangers 0 500 2000] [--children 1 16]

For each number of other processes on the machine and of the command's own: `steptime run` watches
a command of so many idle processes, each of which has touched 64 MiB and which share most of it
as DataLoader workers do. Its own CPU time is read from the kernel over the seconds after a settling
time, and divided by them. Strangers are idle children of this process. Results go to
benchmarks/results/sampler.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import cpu_name, stamp

BENCHMARKS = Path(__file__).resolve().parents[1]
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
SETTLING_S = 5.0

# Forked like loader workers, so that they share the pages of their parent.
COMMAND = """
import os, sys, time
block = bytearray(os.urandom(1 << 20) * 64)
for _ in range(int(sys.argv[1]) - 1):
    if os.fork() == 0:
        break
time.sleep(float(sys.argv[2]))
"""


def cpu_s(pid: int) -> float:
    """CPU time of a process so far, without its children; finer than its ticks where possible."""
    try:
        total_ns = sum(
            int((task / "schedstat").read_text().split()[0])
            for task in Path(f"/proc/{pid}/task").iterdir()
        )
        return total_ns / 1e9
    except (OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * TICK_S


def start_strangers(num: int) -> list[int]:
    """Idle processes, forked from this small one."""
    found = []
    for _ in range(num):
        pid = os.fork()
        if pid == 0:
            signal.pause()
            os._exit(0)
        found.append(pid)
    return found


def measure(num_children: int, seconds: float, folder: str) -> dict[str, Any]:
    """The share of one core that watching a command of so many processes takes."""
    script = Path(folder) / "idle.py"
    script.write_text(COMMAND)
    whole_s = seconds + SETTLING_S + 3
    words = ["-m", "steptime", "run", "--store", folder, "--", sys.executable, str(script)]
    ours = subprocess.Popen(
        [sys.executable, *words, str(num_children), str(whole_s)],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(SETTLING_S)
    before_s, began_s = cpu_s(ours.pid), time.monotonic()
    time.sleep(seconds)
    spent_s, took_s = cpu_s(ours.pid) - before_s, time.monotonic() - began_s
    ours.wait()
    return {"core_fraction": spent_s / took_s, "seconds": took_s, "lines": count_lines(folder)}


def count_lines(folder: str) -> int:
    """Lines about the machine in the newest run."""
    newest = max((Path(folder) / ".steptime" / "runs").iterdir())
    return (newest / "host.jsonl").read_text().count('"k": "h"')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--strangers", type=int, nargs="*", default=[0, 500, 2000])
    parser.add_argument("--children", type=int, nargs="*", default=[1, 16])
    parser.add_argument("--out", default=str(BENCHMARKS / "results" / "sampler.json"))
    options = parser.parse_args()
    cells = []
    with tempfile.TemporaryDirectory() as folder:
        for num_strangers in options.strangers:
            strangers = start_strangers(num_strangers)
            for num_children in options.children:
                found = measure(num_children, options.seconds, folder)
                cells.append({"strangers": num_strangers, "processes": num_children, **found})
                print(
                    f"{num_strangers:5d} other processes, {num_children:3d} of the command: "
                    f"{100 * found['core_fraction']:.2f} % of one core, "
                    f"{found['lines']} lines in {options.seconds + SETTLING_S + 3:.0f} s",
                    flush=True,
                )
            for pid in strangers:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    results = {
        "settings": {key: value for key, value in vars(options).items() if key != "out"},
        "machine": {"processor": cpu_name(), "num_cores": os.cpu_count()},
        **stamp(),
        "python": platform.python_version(),
        "cells": cells,
    }
    Path(options.out).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
