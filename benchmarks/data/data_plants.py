"""How often a planted bottleneck is named: one slow part in a training's loop, 20 times each.

    python benchmarks/data/data_plants.py [--repeats 20] [--output FILE]

Each repeat is `steptime data bench -- python tests/specimens/planted_loader.py --plant PART`: three
contained children. The parts are a sleeping fetch, a spinning decoder of Pillow's, a slow transform
of a chain, a slow collate function, a slow copy (of a batch that copies itself), and a training
that takes long. Of the last it counts how often it was told that no loader helps.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests" / "specimens" / "planted_loader.py"
UNCLEAR = 4
"""The exit code where the interval of the bound has both answers in it; it names nothing."""

PLANTS = ("fetch", "decode", "transform", "collate", "copy", "consumer")


def bench(plant: str, folder: str) -> dict:
    """Return what `data bench` says of one planted training."""
    words = ["--window", "0.1s", "--steps", "20", "--json", "--store", folder]
    argv = [sys.executable, "-m", "steptime", "data", "bench", *words]
    argv += ["--", sys.executable, str(SCRIPT), "--plant", plant]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode not in (0, UNCLEAR):
        raise SystemExit(f"data bench ended with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)["data"]


def summary(plant: str, found: list[dict]) -> dict:
    """Return how often the plant was named, and the bounds."""
    names = Counter(one["bench"]["bottleneck"] for one in found)
    bounds = sorted(one["bench"]["bound"]["estimate"] for one in found)
    return {
        "plant": plant,
        "named": names[plant],
        "repeats": len(found),
        "others": {str(name): num for name, num in names.items() if name != plant},
        "told_no_loader_helps": sum(not one["next_commands"] for one in found),
        "bound": {"least": bounds[0], "middle": bounds[len(bounds) // 2], "most": bounds[-1]},
    }


def main() -> None:
    """Measure, and print one line a plant."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--plants", default=",".join(PLANTS))
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    rows = []
    for plant in args.plants.split(","):
        with tempfile.TemporaryDirectory() as folder:
            rows.append(summary(plant, [bench(plant, folder) for _ in range(args.repeats)]))
        row = rows[-1]
        print(f"{plant:<10} named {row['named']} of {row['repeats']}, bound {row['bound']}")
        if args.output is not None:
            about = {**stamp(), "python": platform.python_version(), "machine": platform.machine()}
            args.output.write_text(json.dumps({**about, "plants": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
