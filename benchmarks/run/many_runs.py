"""What `list`, `show` and `compare` cost where a store holds many runs, in CPU time and memory.

    python benchmarks/run/many_runs.py [--src NAME=DIR ...] [--runs 100 600 3000 10000]

One run of 400 steps is folded by the real command; its folder is copied under other ids, with
step times that differ by chance, so that every file is as a run leaves it. `index` lists the store
while it has no index, `list` lists it again, `json` as a document. `show` prints the newest run,
and `compare` compares every other run with the rest, all named by their ids: `first` where no run
was compared before, then again. Each command is a fresh process; CPU time and peak resident memory
are its own. A command that takes longer than the limit is ended, and so noted. With several
`--src` the checkouts take turns. Results go to benchmarks/results/many_runs.json.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from run_end import LINK, OURS, conditions

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _run_folders import write_folder

BENCHMARKS = Path(__file__).resolve().parents[1]
FILES = ("command.json", "measurement.json", "diagnosis.json")
START_UNIX_S = 1_700_000_000
EVERY_S = 613
LIMITED = 'ulimit -t "$0"; exec "$@"'

Figures = dict[str, Any]


def make_original(folder: Path, src: Path) -> Path:
    """Let the real command fold a run; return its folder."""
    write_folder(folder / "made", num_steps=400, num_ranks=1)
    subprocess.run(
        [sys.executable, "-m", "steptime", "run", "--", "sh", "-c", LINK, str(folder / "made")],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(src)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    (found,) = (folder / ".steptime" / "runs").iterdir()
    return found


def run_id(number: int) -> str:
    """Return the id of a run that started so long after the first."""
    started = time.localtime(START_UNIX_S + number * EVERY_S)
    return f"{time.strftime('%Y%m%d-%H%M%S', started)}-{number % 65536:04x}"


def fill_store(store: Path, original: Path, num_runs: int) -> list[str]:
    """Make a store with so many runs; return their ids, the oldest first."""
    chance = random.Random(num_runs)
    texts = {name: json.loads((original / name).read_text()) for name in FILES}
    ids = [run_id(number) for number in range(num_runs)]
    for number, name in enumerate(ids):
        factor = chance.lognormvariate(0.0, 0.01)
        command, measurement = dict(texts["command.json"]), dict(texts["measurement.json"])
        started_unix_s = START_UNIX_S + number * EVERY_S
        command |= {"run_id": name, "started_unix_s": started_unix_s, "argv": ["python", "a.py"]}
        command |= {"ended_unix_s": started_unix_s + 60}
        measurement |= {"run_id": name, "started_unix_s": started_unix_s, "duration_s": 60.0}
        measurement |= {"command": ["python", "a.py"]}
        steady = dict(measurement["steady"])
        steady["mean_s"] *= factor
        steady["step_time_s"] = {
            key: value if key == "n" else value * factor
            for key, value in steady["step_time_s"].items()
        }
        measurement["steady"] = steady
        folder = store / "runs" / name
        folder.mkdir(parents=True)
        (folder / "command.json").write_text(json.dumps(command))
        (folder / "measurement.json").write_text(json.dumps(measurement))
        (folder / "diagnosis.json").write_text(json.dumps(texts["diagnosis.json"]))
    return ids


def cost(src: Path, store: Path, *words: str, limit_s: float) -> Figures:
    """What one command takes."""
    before = time.monotonic()
    with tempfile.TemporaryFile() as errors:
        limited = ("/bin/sh", "-c", LIMITED, str(int(limit_s)))
        child = subprocess.Popen(
            [*limited, sys.executable, "-m", "steptime", *words, "--store", str(store)],
            env=os.environ | {"PYTHONPATH": str(src), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        text = errors.read().decode(errors="replace")
    if child.returncode > 4:
        raise SystemExit(f"{words[0]} ended with {child.returncode}: {text[-2000:]}")
    return {
        "cpu_s": used.ru_utime + used.ru_stime,
        "wall_s": time.monotonic() - before,
        "peak_bytes": used.ru_maxrss << 10,
        "is_over": child.returncode < 0,
    }


def measure(src: Path, store: Path, ids: list[str], limit_s: float) -> dict[str, Figures]:
    """What each command takes in this store."""
    for left in store.glob("index.sqlite*"):
        left.unlink()
    sides = ["--", *ids[1::2]]
    found = {"index": cost(src, store, "runs", limit_s=limit_s)}
    found["runs"] = cost(src, store, "runs", limit_s=limit_s)
    found["json"] = cost(src, store, "runs", "--json", limit_s=limit_s)
    found["show"] = cost(src, store, "show", "last", limit_s=limit_s)
    words = ("compare", *ids[::2])
    # Options stand in front: behind the runs of B they would be one of them.
    found["compare_first"] = cost(src, store, *words, *sides, limit_s=limit_s)
    found["compare"] = cost(src, store, *words, *sides, limit_s=limit_s)
    return found


def show(name: str, num_runs: int, found: dict[str, Figures]) -> None:
    """Print a row: CPU seconds, then the most memory of any command."""
    cells = "".join(
        f"{'>' if one['is_over'] else ''}{one['cpu_s']:.2f}".rjust(14) for one in found.values()
    )
    peak = max(one["peak_bytes"] for one in found.values()) / 2**20
    print(f"{name:<8}{num_runs:>7}{cells}{peak:10.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--src", nargs="*", default=[f"ours={OURS}"], help="NAME=FOLDER")
    parser.add_argument("--runs", type=int, nargs="*", default=[100, 600, 3000, 10_000])
    parser.add_argument("--limit", type=float, default=60.0, help="CPU seconds for a command")
    parser.add_argument("--out", default=str(BENCHMARKS / "results" / "many_runs.json"))
    options = parser.parse_args()
    sources = {
        name: Path(folder).resolve() for name, folder in (w.split("=", 1) for w in options.src)
    }
    results: dict[str, Any] = {"conditions": conditions(), "limit_s": options.limit, "cells": []}
    with tempfile.TemporaryDirectory() as temporary:
        for src in sources.values():
            compileall.compile_dir(src, quiet=1)  # or the first command would pay for it
        original = make_original(Path(temporary), next(iter(sources.values())))
        names = ("index", "runs", "json", "show", "compare_first", "compare")
        print(f"{'':<8}{'runs':>7}{''.join(name.rjust(14) for name in names)}  peak MiB")
        for num_runs in options.runs:
            store = Path(temporary) / f"store-{num_runs}" / ".steptime"
            ids = fill_store(store, original, num_runs)
            for name, src in sources.items():
                found = measure(src, store, ids, options.limit)
                show(name, num_runs, found)
                results["cells"].append({"src": name, "runs": num_runs, **found})
            shutil.rmtree(store)
    results["conditions"]["load_average_after"] = os.getloadavg()
    Path(options.out).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
