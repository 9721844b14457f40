"""Whether the parts of a run's time, of its start and of its checkpoints sum to what clocks say.

    python benchmarks/run/beside_steps.py [--only NAME]

Each script runs under `steptime run` inside a shell that reads a clock before and after it. Printed
are that time, the sum of the parts and their difference, and how much of the start has a name
(`setup` and `unseen` are what has none). Scripts with a stopwatch of their own also say what each
part took: the largest difference is printed. Results go to benchmarks/results/beside_steps.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

BENCHMARKS = Path(__file__).resolve().parents[1]
ROOT = BENCHMARKS.parent
SCRIPTS = ROOT / "tests" / "end_to_end" / "scripts"
SPECIMENS = ROOT / "tests" / "specimens"

CASES: dict[str, list[str]] = {
    "started": [str(SCRIPTS / "started.py")],
    "saving": [str(SCRIPTS / "saving.py")],
    "checkpointing": [str(SPECIMENS / "checkpointing.py")],
    "evaluation": [str(SPECIMENS / "evaluation.py")],
    "compiled_model": [str(SPECIMENS / "compiled_model.py")],
    "worker_startup": [str(SPECIMENS / "worker_startup.py")],
    "gpt": [str(ROOT / "examples" / "gpt" / "train.py"), "--steps", "120"],
}
START = ("imports", "data_set", "model", "loading", "first_batch", "compile", "warmup")
UNNAMED = ("setup", "unseen")


def run(words: list[str], folder: Path) -> dict[str, Any]:
    """Run a script between two clocks; return the document, the time, and what it printed."""
    python = f"{sys.executable} {' '.join(words)}"
    shell = f"date +%s.%N > begin; {python} > out; date +%s.%N > end"
    command = [sys.executable, "-m", "steptime", "run", "--json", "r.json", "--", "sh", "-c", shell]
    subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=600)
    begin, end = (float((folder / name).read_text()) for name in ("begin", "end"))
    return {
        "data": json.loads((folder / "r.json").read_text())["data"],
        "clock_s": end - begin,
        "out": (folder / "out").read_text(),
    }


def compare(found: dict[str, Any]) -> dict[str, Any]:
    """Compare the parts with the clocks; differences are fractions of what the clock says."""
    wall = found["data"]["measurement"]["wall_time"]
    parts = {part["name"]: part["total_s"] for part in wall["parts"]}
    total_s, clock_s = sum(parts.values()), found["clock_s"]
    start_s = sum(parts.get(name, 0.0) for name in (*START, *UNNAMED))
    unnamed_s = sum(parts.get(name, 0.0) for name in UNNAMED)
    saved = wall["checkpoints"]
    result = {
        "clock_s": clock_s,
        "sum_s": total_s,
        "difference": total_s / clock_s - 1,
        "start_named": 1 - unnamed_s / start_s if start_s else None,
        "goodput": found["data"]["run"]["goodput_fraction"],
        "parts_s": parts,
    }
    if saved is not None:
        span_s = parts.get("checkpoint", 0.0)
        result["checkpoint_difference"] = saved["total_s"] / span_s - 1 if span_s else None
        result["checkpoint_named"] = 1 - saved["other_s"] / saved["total_s"]
    return result | stopwatch(found["out"], parts)


def stopwatch(out: str, parts: dict[str, float]) -> dict[str, Any]:
    """Return the differences to the script's own stopwatch, where it has one."""
    line = out.strip().splitlines()[-1] if out.strip() else ""
    own = json.loads(line).get("spent", {}) if line.startswith('{"spent"') else {}
    return {
        f"{name}_to_its_own_clock": parts.get(name, 0.0) / own_s - 1
        for name, own_s in own.items()
        if name != "checkpoint"  # the script's stopwatch has those after its first step alone
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=CASES)
    options = parser.parse_args()
    results = {}
    for name, words in CASES.items():
        if options.only not in (None, name):
            continue
        with tempfile.TemporaryDirectory() as folder:
            results[name] = found = compare(run(words, Path(folder)))
        told = [f"{key} {value:+.2%}" for key, value in found.items() if "_to_its_own" in key]
        saved = found.get("checkpoint_difference")
        told += [] if saved is None else [f"checkpoint rows {saved:+.2%} of the span"]
        print(
            f"{name:<16} clock {found['clock_s']:7.2f} s  sum {found['sum_s']:7.2f} s "
            f"({found['difference']:+.2%})  start named {found['start_named'] or 0:.1%}  "
            f"{'; '.join(told)}"
        )
    if options.only is None:
        text = json.dumps(stamp() | results, indent=1) + "\n"
        (BENCHMARKS / "results" / "beside_steps.json").write_text(text)


if __name__ == "__main__":
    main()
