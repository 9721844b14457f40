"""What the waterfall foretells for each part, against what comes when its cause is removed.

    python benchmarks/run/waterfall_interventions.py [--pairs 12] [--budget 40s] [--only layers]

First `steptime machine` measures this machine, unless `--store` has its ceilings. Then for each
script of benchmarks/run/intervened: a run under `steptime run`, whose waterfall foretells between
which times the step becomes shorter if a cause is removed; and for each cause, processes without
Steptime in which the script itself alternates blocks of steps with and without it (A B A B, one
process and one model), on its own clocks. Compared are foretold interval and the 95 % interval of
the median difference, on the clock of the waterfall: they agree if they overlap, and the
foretelling holds the truth if it contains the median. Threads are always compared by wall time,
since they take no CPU time away. What others did to the machine meanwhile is saved. Results go to
benchmarks/results/waterfall_interventions.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import BENCHMARKS, ENVIRONMENT, conditions, interval

FOLDER = Path(__file__).resolve().parent / "intervened"
OUT = BENCHMARKS / "results" / "waterfall_interventions.json"
SCRIPTS: dict[str, dict[str, tuple[str, ...]]] = {
    "layers": {
        "precision": ("precision",),
        "threads": ("threads",),
        "optimizer": ("optimizer",),
    },
    "tokens": {"launch": ("launch",), "optimizer": ("optimizer",)},
    "pictures": {"input": ("input",), "precision": ("precision",), "threads": ("threads",)},
}
"""Script, what its intervention removes, and the parts that this is."""


def steptime(*words: str, folder: str) -> None:
    """Run a command of ours; its report is not needed."""
    subprocess.run(
        [sys.executable, "-m", "steptime", *words],
        env={**os.environ, **ENVIRONMENT},
        cwd=folder,
        check=True,
        capture_output=True,
    )


def waterfall_of(script: str, *, steps: int, folder: str) -> dict[str, Any]:
    """The waterfall of a run of the script as it is."""
    target = Path(folder) / f"{script}.json"
    command = [sys.executable, str(FOLDER / f"{script}.py"), "--steps", str(steps)]
    steptime("run", "--json", str(target), "--", *command, folder=folder)
    found: dict[str, Any] = json.loads(target.read_text())["data"]
    if found["waterfall"]["missing"] is not None:
        raise SystemExit(f"{script}: no waterfall, {found['waterfall']['missing']}")
    return found


def intervene(script: str, part: str, *, pairs: int) -> dict[str, Any]:
    """How much shorter steps are without a part, in pairs of blocks, on both clocks [s]."""
    before = psutil.cpu_times()
    used = os.times()
    done = subprocess.run(
        [
            *(sys.executable, str(FOLDER / f"{script}.py")),
            *("--without", part, "--pairs", str(pairs)),
        ],
        env={**os.environ, **ENVIRONMENT},
        check=True,
        capture_output=True,
        text=True,
    )
    ended, after = os.times(), psutil.cpu_times()
    busy_s = sum(after[:3]) + sum(after[5:8]) - sum(before[:3]) - sum(before[5:8])
    own_s = sum(ended[:4]) - sum(used[:4])
    blocks = json.loads(done.stdout.splitlines()[-1])["pairs"]
    found: dict[str, Any] = {
        "others_cores": max(0.0, busy_s - own_s) / (ended.elapsed - used.elapsed)
    }
    for clock in ("wall_s", "cpu_s"):
        found[clock] = interval([a[clock] - b[clock] for a, b in blocks])
        found[f"step_{clock}"] = interval([a[clock] for a, _ in blocks])
    return found


def foretold(waterfall: dict[str, Any], parts: tuple[str, ...]) -> dict[str, float] | None:
    """The sum of the gains of these parts [s]; None where none is claimed."""
    held = [one for one in waterfall["parts"] if one["name"] in parts]
    gains = [one["gain"] for one in held if one["gain"] is not None]
    if not gains:
        return None
    return {
        "part_s": sum(one["time_s"] for one in held),
        "low_s": sum(one["low_s"] for one in gains),
        "high_s": sum(one["high_s"] for one in gains),
    }


def compare(script: str, *, pairs: int, steps: int, folder: str) -> dict[str, Any]:
    """Every intervention of a script against what its waterfall foretells."""
    found = waterfall_of(script, steps=steps, folder=folder)
    waterfall, rows = found["waterfall"], {}
    for name, parts in SCRIPTS[script].items():
        clock = "wall_s" if name == "threads" or waterfall["clock"] == "wall" else "cpu_s"
        gone, told = intervene(script, name, pairs=pairs), foretold(waterfall, parts)
        rows[name] = {"clock": clock, "foretold": told, "gone": gone, **judged(told, gone[clock])}
        print(row(script, name, rows[name]), flush=True)
    roofs = {name: value for name, value in found["roofline"]["roofs"].items() if name != "sizes"}
    return {"waterfall": waterfall, "roofs": roofs, "parts": rows}


def judged(told: dict[str, float] | None, gone: dict[str, float]) -> dict[str, bool | None]:
    if told is None:
        return {"holds": None, "overlaps": None}
    return {
        "holds": told["low_s"] <= gone["median"] <= told["high_s"],
        "overlaps": told["low_s"] <= gone["high"] and gone["low"] <= told["high_s"],
    }


def row(script: str, name: str, one: dict[str, Any]) -> str:
    gone, told = one["gone"][one["clock"]], one["foretold"]
    came = f"{gone['median'] * 1e3:6.1f} [{gone['low'] * 1e3:.1f}, {gone['high'] * 1e3:.1f}]"
    said = "nothing"
    if told is not None:
        said = (
            f"{told['part_s'] * 1e3:6.1f} [{told['low_s'] * 1e3:.1f}, {told['high_s'] * 1e3:.1f}]"
        )
    word = {True: "holds", False: "NOT held", None: ""}[one["holds"]]
    others = one["gone"]["others_cores"]
    return (
        f"{script:<9}{name:<11}{one['clock'][:-2]:<5}foretold {said:<24} gone {came:<24} ms  "
        f"n={gone['n']}  {word:<9}others {others:.2f} cores"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--budget", default="40s")
    parser.add_argument("--only", choices=tuple(SCRIPTS), help="one script alone")
    parser.add_argument("--store", help="a folder whose .steptime has this machine's ceilings")
    parser.add_argument("--out", default=str(OUT))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.store or temporary
        # With two threads: the ceilings are those of the machine, whatever the scripts use.
        steptime("machine", "--python", sys.executable, "--budget", options.budget, folder=folder)
        names = [options.only] if options.only else list(SCRIPTS)
        found = {
            name: compare(name, pairs=options.pairs, steps=options.steps, folder=folder)
            for name in names
        }
    rows = [one for script in found.values() for one in script["parts"].values()]
    told = [one for one in rows if one["holds"] is not None]
    summary = {
        "num": len(rows),
        "num_foretold": len(told),
        "num_held": sum(one["holds"] for one in told),
        "num_overlapping": sum(one["overlaps"] for one in told),
    }
    command = " ".join(["python", "benchmarks/run/waterfall_interventions.py", *sys.argv[1:]])
    text = json.dumps({**conditions(), "command": command, **summary, "scripts": found}, indent=1)
    Path(options.out).write_text(text + "\n")
    print(f"{summary['num_held']} of {len(told)} foretold intervals hold the median that came")


if __name__ == "__main__":
    main()
