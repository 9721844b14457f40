"""How fast the same training is as written, with a recipe, and as somebody else made it.

    python benchmarks/tune/compare_arms.py NAME --folder DIR --seconds 30 --rounds 5 \
        --arm written 'python train.py' --arm tuned@tuned.toml 'python train.py' \
        --arm expert 'OMP_NUM_THREADS=2 python train_by_hand.py'

There may be several experts (`expert-1`, ...); `tuned` is compared with each of them. Each arm is a
shell command, run under `steptime run` (with the recipe behind its name's `@`) and killed after
that many seconds of steps, in a random order anew in each round. Compared are the median step
times of the steady windows, by paired log ratios against the first arm. The work of a step must be
the same in all arms: that is for the caller to see to. Results are added to
benchmarks/results/compare_arms.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import cpu_name, interval, stamp

BENCHMARKS = Path(__file__).resolve().parents[1]
RESULTS = BENCHMARKS / "results" / "compare_arms.json"


def num_updates(store: Path) -> int:
    """Rows of updates on disk so far, all ranks of the only run in the store."""
    return sum(
        line.count("],[") + 1
        for path in (store / ".steptime" / "runs").glob("*/rank-*.jsonl")
        for line in path.read_text(errors="replace").splitlines()
        if line.startswith('{"k":"u"')
    )


def run_arm(command: str, recipe: str | None, folder: Path, options: Any) -> dict[str, Any]:
    """One run of an arm: its step time [s], CPU time a step [s] and the others' load [cores]."""
    with tempfile.TemporaryDirectory() as name:
        store = Path(name)
        ours = [
            sys.executable,
            "-m",
            "steptime",
            "run",
            "--store",
            name,
            "--json",
            f"{name}/r.json",
        ]
        ours += ["--report", os.devnull, *(["--recipe", recipe] if recipe else [])]
        with open(store / "out", "wb") as out:
            process = subprocess.Popen(
                [*ours, "--", "sh", "-c", f"exec env {command}"],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        began = stepping = time.monotonic()
        while process.poll() is None:
            time.sleep(0.2)
            if not num_updates(store):
                stepping = time.monotonic()
            if (
                time.monotonic() - stepping > options.seconds
                or time.monotonic() - began > options.limit
            ):
                kill_command(store)
        try:
            data = json.loads((store / "r.json").read_text())["data"]["measurement"]
            steady = data["steady"]
            return {
                "step_s": steady["step_time_s"]["estimate"],
                "cpu_s": steady["step_cpu_s"]["estimate"],
                "n": steady["num_steps"],
                "others_cores": (data["host"] or {}).get("others_cores"),
            }
        except (OSError, KeyError, TypeError):
            return {"failed": (store / "out").read_bytes()[-400:].decode(errors="replace")}


def kill_command(store: Path) -> None:
    """End the command and what it started; Steptime itself stays to report."""
    import psutil

    for path in (store / ".steptime" / "runs").glob("*/command.json"):
        pid = json.loads(path.read_text())["child_pid"]
        if pid is None:
            continue
        try:
            root = psutil.Process(pid)
            family = [*root.children(recursive=True), root]
        except psutil.Error:
            continue
        for one in family:
            with contextlib.suppress(psutil.Error):
                one.send_signal(signal.SIGKILL)


def ratio(
    rounds: list[dict[str, Any]], name: str, reference: str, key: str
) -> dict[str, float] | None:
    """Reference over arm with its interval; None where no round has both."""
    logs = [
        math.log(r[reference][key] / r[name][key])
        for r in rounds
        if key in r[reference] and key in r[name]
    ]
    if not logs:
        return None
    found = interval(logs)
    return {k: v if k == "n" else math.exp(v) for k, v in found.items()}


def middle(rounds: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """The medians of an arm over the rounds in which it ran, and how many those were."""
    ran = [one[name] for one in rounds if "failed" not in one[name]]
    keys = ("step_s", "cpu_s", "n", "others_cores")
    known = {key: [one[key] for one in ran if one[key] is not None] for key in keys}
    found = {key: statistics.median(values) for key, values in known.items() if values}
    return {"rounds": len(rounds), "ran": len(ran), "medians": found}


def main() -> None:
    """Run the rounds, print the table, save it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("--folder", type=Path, default=Path())
    parser.add_argument("--arm", nargs=2, action="append", metavar=("NAME[@RECIPE]", "COMMAND"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30, help="of steps, an arm and round")
    parser.add_argument("--limit", type=float, default=180, help="with the start")
    options = parser.parse_args()
    arms = {key.split("@")[0]: (key, command) for key, command in options.arm}
    first = next(iter(arms))
    chance, rounds = random.Random(0), []
    for number in range(options.rounds):
        order = chance.sample(list(arms), len(arms))
        found = {}
        for arm in order:
            key, command = arms[arm]
            recipe = str(Path(key.split("@", 1)[1]).absolute()) if "@" in key else None
            found[arm] = run_arm(command, recipe, options.folder, options)
            print(f"round {number + 1} of {options.rounds}  {arm:10} {found[arm]}", flush=True)
        rounds.append(found)
    pairs = [(arm, first) for arm in arms if arm != first]
    pairs += [("tuned", arm) for arm in arms if "tuned" in arms and arm.startswith("expert")]
    table = {
        f"{arm} over {reference}": {
            key: ratio(rounds, arm, reference, key) for key in ("step_s", "cpu_s")
        }
        for arm, reference in pairs
    }
    for title, values in table.items():
        for key, value in values.items():
            if value is not None:
                low, high = value["low"], value["high"]
                span = f"[{low:.3f}, {high:.3f}] n={value['n']}"
                print(f"{title:24} {key:7} {value['median']:.3f} {span}")
    saved = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    machine = {"cpu": cpu_name(), "num_cores": os.cpu_count(), "load": os.getloadavg()} | stamp()
    saved[options.name] = {
        "arms": {arm: command for arm, (_, command) in arms.items()},
        "times": {arm: middle(rounds, arm) for arm in arms},
        "ratios": table,
        "seconds": options.seconds,
        "machine": machine,
        "python": platform.python_version(),
    }
    RESULTS.write_text(json.dumps(saved, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
