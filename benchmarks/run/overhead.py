"""What Steptime costs inside a training process, beside TraceML where that is installed.

    python benchmarks/run/overhead.py [--rounds 25] [--steps 0.3 1] [--peer-python PYTHON]

Hooks are switched on and off inside one process in blocks of a second, in random order, and the
paired differences of process CPU time are taken: between processes two equal arms differ by as
much as what is to be measured. PYTHON is an interpreter that has traceml-ai. TraceML cannot be
taken out of a process, so its arm is `trace_step` around each step, switched likewise, with its
patches in place in both arms; what they cost outside `trace_step` is left out, in its favor.
Start-up is compared between interleaved processes. Results go to benchmarks/results/overhead.json.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import BENCHMARKS, ENVIRONMENT, conditions, interval

LOOP = Path(__file__).resolve().parent / "_arms.py"


def compare_blocks(
    kind: str, command: list[str], size: str, rounds: int, folder: str
) -> dict[str, Any]:
    """Paired differences of the loop with and without hooks [µs of CPU a step]."""
    out = os.path.join(folder, f"{kind}-{size}.json")
    environment = os.environ | ENVIRONMENT | {"ARMS_OUT": out, "ARMS": f"{kind} {size} {rounds}"}
    done = subprocess.run(
        [*command, str(LOOP)],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if not os.path.exists(out):
        return {"failed": (done.stderr or done.stdout)[-500:]}
    blocks = json.loads(Path(out).read_text())
    return {
        "base_us": interval([b["off"] for b in blocks]),
        "equal_arms_us": interval([b["off_again"] - b["off"] for b in blocks]),
        "difference_us": interval([b["on"] - (b["off"] + b["off_again"]) / 2 for b in blocks]),
    }


def start_up(rounds: int, folder: str) -> dict[str, Any]:
    """What `steptime run` adds to a script that only imports torch [s], and `--help` [s]."""
    script = os.path.join(folder, "imports.py")
    Path(script).write_text("import torch\n")
    bare = [sys.executable, script]
    ours = [sys.executable, "-m", "steptime", "run", "--", *bare]
    helping = [sys.executable, "-m", "steptime", "--help"]
    found: dict[str, list[tuple[float, float]]] = {"bare": [], "steptime": [], "help": []}
    for _ in range(rounds):
        for name, command in (("bare", bare), ("steptime", ours), ("help", helping)):
            found[name].append(timed(command, folder))
    pairs = list(zip(found["bare"], found["steptime"], strict=True))
    return {
        "added_wall_s": interval([b[0] - a[0] for a, b in pairs]),
        "added_cpu_s": interval([b[1] - a[1] for a, b in pairs]),
        "help_wall_s": interval([wall for wall, _ in found["help"]]),
        "help_cpu_s": interval([cpu for _, cpu in found["help"]]),
    }


def timed(command: list[str], folder: str) -> tuple[float, float]:
    """Wall and CPU time of a command with its children [s]."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        command, cwd=folder, capture_output=True, env=os.environ | ENVIRONMENT, check=True
    )
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def show(name: str, value: dict[str, float], scale: float = 1.0, unit: str = "µs") -> None:
    median, low, high = (value[k] * scale for k in ("median", "low", "high"))
    print(f"{name:<44}{median:9.1f} {unit:<3}  95 % [{low:.1f}, {high:.1f}]  n={value['n']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--steps", nargs="+", default=["0.3", "1", "10", "100"], help="in ms")
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--peer-python", help="an interpreter that has traceml-ai")
    options = parser.parse_args()
    results: dict[str, Any] = {"conditions": conditions()}
    with tempfile.TemporaryDirectory() as folder:
        ours = [sys.executable, "-m", "steptime", "run", "--", sys.executable]
        commands = {"steptime": ours}
        if options.peer_python:
            peer = str(Path(options.peer_python).with_name("traceml"))
            commands["traceml"] = [peer, "run", "--mode", "summary"]
        for size in options.steps:
            for kind, command in commands.items():
                found = compare_blocks(kind, command, size, options.rounds, folder)
                results.setdefault(kind, {})[size] = found
        results["start_up"] = start_up(options.starts, folder)
    results["conditions"]["load_average_after"] = os.getloadavg()
    report(results)
    (BENCHMARKS / "results").mkdir(exist_ok=True)
    (BENCHMARKS / "results" / "overhead.json").write_text(json.dumps(results, indent=1) + "\n")


def report(results: dict[str, Any]) -> None:
    """Print the table."""
    print(json.dumps(results["conditions"]))
    for tool in ("steptime", "traceml"):
        for size, found in results.get(tool, {}).items():
            name = f"{tool}, {size} ms"
            if "failed" in found:
                print(f"{name}: failed: {found['failed']}")
                continue
            show(f"{name}: a step without hooks", found["base_us"])
            show(f"{name}: two equal arms", found["equal_arms_us"])
            show(f"{name}: added a step", found["difference_us"])
            share = found["difference_us"]["median"] / found["base_us"]["median"]
            print(f"{name + ': added, of a step':<44}{100 * share:9.2f} %")
    for name in ("added_wall_s", "added_cpu_s", "help_wall_s", "help_cpu_s"):
        show(f"start-up, {name.replace('_s', '')}", results["start_up"][name], 1000, "ms")


if __name__ == "__main__":
    main()
