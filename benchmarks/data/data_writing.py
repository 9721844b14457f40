"""What it costs to write 20,000 small records, beside the formats' own writers: T12.

    python benchmarks/data/data_writing.py [--repeats 3]

Each writer runs in a process of its own, in turn; making the records and imports are not counted.
Ours also computes checksums, forces the files to the disk and reads them back; the others do not.
Results go to benchmarks/results/data_writing.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from _data_arms import conditions, show

HERE = Path(__file__).resolve().parent
BENCHMARKS = HERE.parent
RESULTS = BENCHMARKS / "results" / "data_writing.json"
NAMES = ("npy", "tfrecord", "mds", "litdata", "prepared", "files", "tar")


def write(name: str) -> dict[str, Any]:
    """Write once; return the cost."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "_data_sets.py", name, "a", os.path.join(folder, name)],
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
            capture_output=True,
            text=True,
            check=False,
            cwd=HERE,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    found: dict[str, Any] = json.loads(lines[-1]) if lines else {"failed": done.stderr[-300:]}
    return found


def main() -> None:
    """Write in turn, print the figure, and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-results", action="store_true")
    options = parser.parse_args()
    found: dict[str, Any] = {"conditions": conditions(), "arms": {}}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in NAMES}
    for _ in range(options.repeats):
        for name in NAMES:
            runs[name].append(write(name))
    for name, each in runs.items():
        good = [one for one in each if "failed" not in one]
        if not good:
            found["arms"][name] = each[0]
            continue
        middle = {key: median(one[key] for one in good) for key in good[0]}
        found["arms"][name] = middle | {"n": len(good)}
        print(f"{name:10} {middle['wall_s']:7.3f} s wall {middle['cpu_s']:7.3f} s CPU")
    found["figures"] = [_figure(found["arms"], clock) for clock in ("wall_s", "cpu_s")]
    show(found["figures"])
    found["conditions"]["load_average_after"] = os.getloadavg()
    if not options.no_results:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")


def _figure(arms: dict[str, Any], clock: str) -> dict[str, Any]:
    rivals = [
        arms[name][clock] for name in ("tfrecord", "mds", "litdata", "tar") if clock in arms[name]
    ]
    ratio = None
    if rivals and clock in arms["prepared"]:
        ratio = arms["prepared"][clock] / min(rivals)
    kind = "wall time" if clock == "wall_s" else "CPU time"
    return {
        "figure": "T12",
        "what": f"ours / the quickest foreign writer, {kind}",
        "ratio": ratio,
        "at_most": 1.0,
        "is_met": None if ratio is None else ratio <= 1.0,
    }


if __name__ == "__main__":
    main()
