"""What `steptime run` costs when its command has ended, and at its start, in CPU time and memory.

    python benchmarks/run/run_end.py [--src DIR ...] [--steps 400 20000 200000] [--ranks 1 4]

Synthetic run folders (`_run_folders.py`) are linked into the run's own folder by the command that
`steptime run` starts, so that the real command folds, judges, saves and reports them, each time in
a fresh process. `start` is a run of a command that does nothing (`true`) and of a Python script of
one line. `run` is a run, `page` is `steptime report` of it; `show` prints the saved run
again, and `folded` does so where nothing was saved. CPU time and peak resident memory are those
of the `steptime` process alone. With several `--src` the checkouts take turns. Results go to
benchmarks/results/run_end.json.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import cpu_name, stamp
from _run_folders import write_folder

BENCHMARKS = Path(__file__).resolve().parents[1]
OURS = BENCHMARKS.parent / "src"

# Runs `python -m steptime` and leaves what the process took. The memory is read from the kernel,
# for getrusage knows that of the parent.
DRIVER = """
import json, os, resource, runpy, sys, time
out = sys.argv[1]
sys.argv[:] = ["steptime", *sys.argv[2:]]
try:
    runpy.run_module("steptime", run_name="__main__", alter_sys=True)
finally:
    used = resource.getrusage(resource.RUSAGE_SELF)
    status = open("/proc/self/status").read()
    peak = int(status.split("VmHWM:")[1].split()[0]) << 10
    with open(out, "w") as file:
        json.dump({"cpu_s": used.ru_utime + used.ru_stime, "peak_bytes": peak}, file)
"""
LINK = 'ln "$0"/rank-*.jsonl "$0"/processes.jsonl "$STEPTIME_RUN"'

Figures = dict[str, float]


class Bench:
    """One checkout, and a folder in which its runs are stored."""

    def __init__(self, src: Path, folder: Path) -> None:
        self.src, self.folder = src, folder
        self.store = folder / "store"
        self.store.mkdir(parents=True)
        compileall.compile_dir(src, quiet=1)  # or the first run would pay for it

    def steptime(self, *words: str) -> Figures:
        """What one command takes."""
        out = self.folder / "figures.json"
        environment = os.environ | {
            "PYTHONPATH": str(self.src),
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "100",
        }
        subprocess.run(
            [sys.executable, "-c", DRIVER, str(out), *words],
            cwd=self.store,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
        found: Figures = json.loads(out.read_text())
        out.unlink()
        return found

    def newest(self) -> Path:
        """The folder of the newest run."""
        return max((self.store / ".steptime" / "runs").iterdir())

    def start(self) -> dict[str, Figures]:
        """Commands that do nothing."""
        return {
            "true": self.steptime("run", "--", "true"),
            "python": self.steptime("run", "--", sys.executable, "-c", "pass"),
        }

    def end(self, made: Path) -> dict[str, Figures]:
        """The whole of two runs, and of two commands that show the last again."""
        link = ("run", "--", "sh", "-c", LINK, str(made))
        found = {"plain": self.steptime(*link)}
        if not (self.newest() / "measurement.json").is_file():
            raise SystemExit(f"{self.src}: the run was not folded; see {self.newest()}")
        found["page"] = self.steptime("report", "last", "--no-open")
        found["show"] = self.steptime("show", "last")
        for name in ("measurement.json", "diagnosis.json"):
            (self.newest() / name).unlink()
        found["show_folded"] = self.steptime("show", "last")
        shutil.rmtree(self.store / ".steptime")
        return found


def middle(found: list[dict[str, Figures]]) -> dict[str, Figures]:
    """The median of each figure over the rounds."""
    return {
        name: {key: statistics.median(one[name][key] for one in found) for key in found[0][name]}
        for name in found[0]
    }


def measure(benches: dict[str, Bench], made: Path | None, rounds: int) -> dict[str, Any]:
    """Each checkout in turn, as often as there are rounds."""
    found: dict[str, list[dict[str, Figures]]] = {name: [] for name in benches}
    for number in range(rounds):
        names = list(benches) if number % 2 == 0 else list(reversed(benches))
        for name in names:
            found[name].append(benches[name].start() if made is None else benches[name].end(made))
    return {name: middle(values) for name, values in found.items()}


def conditions() -> dict[str, Any]:
    """Hardware, versions and how busy the machine is."""
    return {
        "processor": cpu_name(),
        "num_cores": os.cpu_count(),
        "python": sys.version.split()[0],
        "load_average": os.getloadavg(),
        **stamp(),
    }


def summarize(cell: dict[str, Figures]) -> dict[str, float]:
    """CPU time of the run, of the page and of later commands [s], and the most memory held."""
    return {
        "run_cpu_s": cell["plain"]["cpu_s"],
        "page_cpu_s": cell["page"]["cpu_s"],
        "show_cpu_s": cell["show"]["cpu_s"],
        "show_folded_cpu_s": cell["show_folded"]["cpu_s"],
        "run_peak_bytes": cell["plain"]["peak_bytes"],
        "page_peak_bytes": cell["page"]["peak_bytes"],
    }


def show(name: str, steps: int, ranks: int, found: dict[str, float]) -> None:
    cpu = "".join(f"{found[key]:9.2f}" for key in found if key.endswith("_s"))
    memory = "".join(f"{found[key] / 2**20:9.0f}" for key in found if key.endswith("_bytes"))
    print(f"{name:<10}{steps:>8}{ranks:>3}{cpu}{memory}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--src", nargs="*", default=[f"ours={OURS}"], help="NAME=FOLDER")
    parser.add_argument("--steps", type=int, nargs="*", default=[400, 20_000, 200_000])
    parser.add_argument("--ranks", type=int, nargs="*", default=[1, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--starts", type=int, default=9)
    parser.add_argument("--out", default=str(BENCHMARKS / "results" / "run_end.json"))
    options = parser.parse_args()
    results: dict[str, Any] = {
        "conditions": conditions(),
        "rounds": {"ends": options.rounds, "starts": options.starts},
        "cells": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        sources = dict(word.split("=", 1) for word in options.src)
        benches = {
            name: Bench(Path(src).resolve(), Path(folder) / name) for name, src in sources.items()
        }
        results["start"] = measure(benches, None, options.starts)
        for name, found in results["start"].items():
            times = ", ".join(f"{k} {v['cpu_s'] * 1000:.0f} ms" for k, v in found.items())
            print(f"start of {name}: {times}")
        print("             steps  n      run     page     show   folded  run MiB page MiB")
        for steps in options.steps:
            for ranks in options.ranks:
                made = Path(folder) / f"made-{steps}-{ranks}"
                write_folder(made, num_steps=steps, num_ranks=ranks)
                cells = measure(benches, made, options.rounds)
                for name, cell in cells.items():
                    summary = summarize(cell)
                    show(name, steps, ranks, summary)
                    results["cells"].append(
                        {"src": name, "steps": steps, "ranks": ranks, **summary, "raw": cell}
                    )
                shutil.rmtree(made)
    results["conditions"]["load_average_after"] = os.getloadavg()
    Path(options.out).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
