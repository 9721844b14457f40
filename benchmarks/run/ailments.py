"""Whether each planted ailment is diagnosed as itself, with its cause and line, again and again.

    python benchmarks/run/ailments.py [--repeat 20] [--only NAME ...] [--seed N]

Runs every specimen under `steptime run --json`, one at a time; a round is all of them in random
order. When a diagnosis is right is written in tests/end_to_end/ailments.py: of the ailment's kind
and cause, with no other finding at `warning` or above than that the machine was busy. Results go
to benchmarks/results/ailments.json after each round; `--only` runs are not saved.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import BENCHMARKS, ENVIRONMENT, ROOT, conditions

sys.path.insert(0, str(ROOT / "tests"))

from end_to_end.ailments import AILMENTS, Ailment, judge

OUT = BENCHMARKS / "results" / "ailments.json"
LIMIT_S = 120


def has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def run_once(ailment: Ailment) -> dict[str, Any]:
    """One run of a specimen and what its diagnosis was worth; a failed run is a result too."""
    busy, began = os.getloadavg()[0], time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                command(ailment),
                cwd=folder,
                env=environment(),
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
            )
            document = json.loads((Path(folder) / "out.json").read_text())
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            return {"right": False, "failed": f"{type(error).__name__}: {error}"}
    if done.returncode != ailment.exit_code or document["data"] is None:
        return {"right": False, "failed": f"exit code {done.returncode}: {done.stderr[-300:]}"}
    found = judge(ailment, document["data"]["diagnosis"])
    evidence = found.found["evidence"] if found.found else []
    return {
        "right": found.is_right,
        "line_right": found.is_line_right,
        "kind": found.kind,
        "severity": found.found["severity"] if found.found else None,
        "where": Path((found.found or {}).get("where") or "").name or None,
        "beside": list(found.beside),
        "evidence": {item["name"]: [item["value"], item["unit"]] for item in evidence},
        "wall_s": round(time.monotonic() - began, 2),
        "load_average": busy,
    }


def command(ailment: Ailment) -> list[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ailment.nproc}"]
    script = [*(launcher if ailment.nproc else ()), str(ailment.path), *ailment.args]
    ours = [sys.executable, "-m", "steptime", "run", "--json", "out.json", "--"]
    return [*ours, sys.executable, *script]


def environment() -> dict[str, str]:
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "STEPTIME"))}
    return own | ENVIRONMENT


def run_rounds(names: list[str], *, repeat: int, seed: int, save: bool) -> dict[str, Any]:
    """All specimens in random order, again and again; saved after each round."""
    chance, began, num_runs = random.Random(seed), time.monotonic(), 0
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    results: dict[str, Any] = {"conditions": conditions() | {"seed": seed, "rounds": 0}}
    for number in range(1, repeat + 1):
        for name in chance.sample(names, len(names)):
            runs[name].append(run_once(AILMENTS[name]))
            num_runs += 1
            each_s = (time.monotonic() - began) / num_runs
            left_s = each_s * (repeat * len(names) - num_runs)
            report_progress(name, runs[name][-1], f"round {number}/{repeat}", left_s)
        results["conditions"] |= {"rounds": number, "load_average_after": os.getloadavg()}
        results["ailments"] = {name: sum_up(AILMENTS[name], runs[name]) for name in names}
        if save:
            OUT.write_text(json.dumps(results, indent=1) + "\n")
    return results


def report_progress(name: str, run: dict[str, Any], where: str, left_s: float) -> None:
    """One line a run on stderr; what went wrong is said at once."""
    words = "right" if run["right"] else f"WRONG: {run.get('failed') or explain(run)}"
    if run.get("line_right") is False:
        words += f", line WRONG: {run['where']}"
    print(f"{where}  {left_s / 60:.0f} min left  {name}: {words}", file=sys.stderr, flush=True)


def explain(run: dict[str, Any]) -> str:
    missed = "" if run["severity"] else ", not found"
    return f"{run['kind']}{missed}, beside {', '.join(run['beside']) or 'nothing'}"


def sum_up(ailment: Ailment, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """What a row of the table says."""
    values: dict[str, list[float]] = {}
    units: dict[str, str] = {}
    for run in runs:
        for name, (value, unit) in run.get("evidence", {}).items():
            values.setdefault(name, []).append(value)
            units[name] = unit
    lines = [run.get("line_right", False) for run in runs]
    return {
        "expected": f"{ailment.kind}/{ailment.cause}",
        "n": len(runs),
        "right": sum(run["right"] for run in runs),
        "line_right": None if ailment.line is None else sum(map(bool, lines)),
        "kinds": Counter(run.get("kind", "failed") for run in runs),
        "beside": Counter(name for run in runs for name in run.get("beside", ())),
        "median_evidence": {
            name: [statistics.median(found), units[name]] for name, found in values.items()
        },
    }


def print_table(results: dict[str, Any]) -> None:
    print(json.dumps(results["conditions"]))
    print(f"{'ailment':<24}{'right':>8}{'line':>8}  {'beside':<30}  median evidence")
    for name, row in results["ailments"].items():
        n, line = row["n"], row["line_right"]
        beside = ", ".join(f"{count}x {what}" for what, count in row["beside"].items()) or "-"
        evidence = ", ".join(
            f"{what} {value:.3g} {unit}"
            for what, (value, unit) in list(row["median_evidence"].items())[:3]
        )
        line_text = "-" if line is None else f"{line}/{n}"
        print(f"{name:<24}{row['right']:>5}/{n:<2}{line_text:>8}  {beside:<30}  {evidence}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--only", nargs="+", choices=AILMENTS, metavar="NAME", help="some of them")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    names = list(options.only or AILMENTS)
    left_out = [] if has_gpu() else [name for name in names if AILMENTS[name].needs_gpu]
    if left_out:
        print(f"left out, for there is no GPU: {', '.join(left_out)}", file=sys.stderr)
    names = [name for name in names if name not in left_out]
    print(f"seed {options.seed}", file=sys.stderr)
    OUT.parent.mkdir(exist_ok=True)
    results = run_rounds(names, repeat=options.repeat, seed=options.seed, save=not options.only)
    print_table(results)


if __name__ == "__main__":
    main()
