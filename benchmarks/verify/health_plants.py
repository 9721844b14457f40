"""Who names what of a number that is not finite, and at which slow-down.

    python benchmarks/verify/health_plants.py [--rounds 5] [--only PLANT] [--no-plants] [--no-costs]

Twelve ways for a number to go wrong are planted in tests/specimens/bad_numbers.py, and one of them
again on one rank of two (bad_rank.py). Each is run under `steptime run` (does it name the first bad
update?), under `steptime run --health` (the layer and the samples?), and under torch's anomaly mode
(does it stop, and which operator does it name?). Lightning's detector is not run apart: it puts the
same mode around its loop (`Trainer._run_stage` of 2.6). The truth is what the script prints, and
`TRUTH` below.

The costs are CPU times of one update of a sound training in the bare script and in each of the
three, in turns, each in a process of its own. Results go to benchmarks/results/health_plants.json.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

BENCHMARKS = Path(__file__).resolve().parents[1]
SPECIMENS = BENCHMARKS.parent / "tests" / "specimens"
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "COLUMNS": "200"}

TRUTH: dict[str, tuple[str, str | None]] = {
    "forward": ("input", "norm"),
    "backward": ("gradient", "queries"),
    "optimizer_state": ("weight", "out"),
    "data": ("argument", ""),
    "loss_scale": ("gradient", "queries"),
    "one_rank": ("argument", ""),
    "embedding_row": ("weight", "words"),
    "division": ("loss", None),
    "overflow": ("input", "norm"),
    "log": ("loss", None),
    "mask": ("input", "norm"),
    "learning_rate": ("output", "queries"),
}
"""What is bad first, and of which module: the bad number is made in it, or just before its call
(`input`), or between its gradient and that of the module behind it (`gradient`)."""

FAULTY_ROWS = {"data": [3], "one_rank": [1]}
"""The rows that were spoiled, where it is not the whole batch or a weight."""

ANOMALY = """
import os, runpy, sys, torch
sys.path.insert(0, os.path.dirname(sys.argv[1]))
torch.autograd.set_detect_anomaly(True)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

TRAINING = """
import json, os, sys, time, torch
from torch import nn
torch.manual_seed(0)
if sys.argv[1] == "small":
    model = nn.Sequential(*[m for _ in range(20) for m in (nn.Linear(64, 64), nn.ReLU())])
    x, y = torch.randn(32, 64), torch.randn(32, 64)
else:
    layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 4), nn.Linear(128, 128))
    x, y = torch.randn(12, 64, 128), torch.randn(12, 64, 128)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
times, warmup = [], int(sys.argv[2]) // 4
for number in range(int(sys.argv[2])):
    began = time.process_time_ns()
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    if number >= warmup:
        times.append(time.process_time_ns() - began)
print(json.dumps([sum(times) / len(times), sorted(times)[len(times) // 2]]))
"""
SIZES = {"small": 1_600, "transformer": 120}
ARMS = ("bare", "always on", "--health", "anomaly mode")


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder."""
    environment = os.environ | ENVIRONMENT
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)


def script_of(plant: str, folder: Path) -> list[str]:
    """Return the interpreter's words for the script with one plant."""
    if plant == "one_rank":
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        return [*launcher, str(SPECIMENS / "bad_rank.py")]
    return [str(SPECIMENS / "bad_numbers.py"), "--plant", plant, "--loader"]


def observe(plant: str, folder: Path, *options: str) -> tuple[dict[str, Any], str]:
    """Run a plant under Steptime; return the data of its document, and what the script said."""
    target = folder / "result.json"
    words = [sys.executable, "-m", "steptime", "run", "--json", str(target), *options, "--"]
    done = run([*words, sys.executable, *script_of(plant, folder)], folder)
    return json.loads(target.read_text())["data"], done.stdout


def under_anomaly_mode(plant: str, folder: Path) -> dict[str, Any]:
    """Run a plant under torch's anomaly mode; return whether it stops, and what it names."""
    wrapper = folder / "anomaly.py"
    wrapper.write_text(ANOMALY)
    words = script_of(plant, folder)
    place = next(i for i, word in enumerate(words) if word.endswith(".py"))
    done = run([sys.executable, *words[:place], str(wrapper), *words[place:]], folder)
    operator = re.search(r"Function '(\w+)' returned nan", done.stderr)
    lines = re.findall(r'File ".*?(bad_\w+\.py)", line (\d+)', done.stderr.split("Traceback (")[0])
    return {
        "stops": "returned nan values" in done.stderr,
        "operator": None if operator is None else operator[1],
        "line": f"{lines[-1][0]}:{lines[-1][1]}" if lines else None,
        "update": None,
        "samples": None,
    }


def examine(plant: str) -> dict[str, Any]:
    """Return who names what of one plant."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data, said = observe(plant, folder)
        found = next((f for f in data["diagnosis"]["findings"] if f["cause"] == "non_finite"), None)
        update = None
        if found is not None:
            evidence = {item["name"]: item["value"] for item in found["evidence"]}
            update = int(evidence["first_update"])
        truth = 12 if plant == "one_rank" else int(re.findall(r"first bad update (\d+)", said)[0])
        data, said = observe(plant, folder, "--health")
        bracket = (data["measurement"]["health"]["layers"] or {}).get("bracket")
        return {
            "plant": plant,
            "truth": {"update": truth, "at": TRUTH[plant]},
            "always_on": {"update": update, "is_right": update == truth},
            "health": judge_bracket(plant, bracket, said),
            "anomaly_mode": under_anomaly_mode(plant, folder),
        }


def judge_bracket(plant: str, bracket: dict[str, Any] | None, said: str) -> dict[str, Any]:
    """Return what a probe of the layers named, and whether that is right."""
    if bracket is None:
        return {"layer": None, "is_layer_right": False, "are_samples_right": False}
    side = bracket["forward"] or bracket["backward"]
    module = None if side["module"] is None else side["module"]["name"]
    samples = bracket["bad_samples"]
    if plant == "one_rank":
        truth = [int(re.findall(r"its sample (\d+)", said)[0])]
        are_right = samples == truth and bracket["rank"] == 1
    else:
        batch = json.loads(re.findall(r"its samples (\[.*\])", said)[0])
        rows = FAULTY_ROWS.get(plant)
        if rows is not None:
            are_right = samples == [batch[row] for row in rows]
        elif bracket["samples_are_rows"]:
            are_right = samples == [batch[row] for row in side["rows"]]
        else:
            are_right = samples == batch
    return {
        "layer": (side["at"], module),
        "after": None if side["after"] is None else side["after"]["name"],
        "samples": samples,
        "is_layer_right": (side["at"], module) == TRUTH[plant],
        "are_samples_right": bool(are_right),
    }


def time_arm(arm: str, size: str, folder: Path) -> tuple[float, float]:
    """Return mean and median CPU time of an update [µs]."""
    script = folder / "training.py"
    script.write_text(TRAINING)
    (folder / "anomaly.py").write_text(ANOMALY)
    own = [str(script), size, str(SIZES[size])]
    if arm == "bare":
        words = [sys.executable, *own]
    elif arm == "anomaly mode":
        words = [sys.executable, str(folder / "anomaly.py"), *own]
    else:
        options = ["--health"] if arm == "--health" else []
        words = [sys.executable, "-m", "steptime", "run", *options, "--", sys.executable, *own]
    done = run(words, folder)
    mean, middle = json.loads(done.stdout.splitlines()[-1])
    return mean / 1000, middle / 1000


def measure_costs(num_rounds: int) -> dict[str, Any]:
    """Return, for each size of model, the CPU time of an update in each arm, in turns."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        for size in SIZES:
            times: dict[str, list[tuple[float, float]]] = {arm: [] for arm in ARMS}
            for _ in range(num_rounds):
                for arm in ARMS:
                    times[arm].append(time_arm(arm, size, Path(name)))
            bare = statistics.median(mean for mean, _ in times["bare"])
            found[size] = {
                arm: {
                    "mean_us": statistics.median(mean for mean, _ in pairs),
                    "low_us": min(mean for mean, _ in pairs),
                    "high_us": max(mean for mean, _ in pairs),
                    "median_us": statistics.median(middle for _, middle in pairs),
                    "slow_down": statistics.median(mean for mean, _ in pairs) / bare,
                    "n": len(pairs),
                }
                for arm, pairs in times.items()
            }
    return found


def tell_plants(results: list[dict[str, Any]]) -> None:
    """Print a row for each plant, and the sums."""
    print(f"{'plant':16} {'update':>7} {'layer':24} {'samples':8} anomaly mode")
    for one in results:
        health, anomaly = one["health"], one["anomaly_mode"]
        layer = "-" if health["layer"] is None else " ".join(filter(None, health["layer"]))
        mode = f"{anomaly['operator']} at {anomaly['line']}" if anomaly["stops"] else "says nothing"
        print(
            f"{one['plant']:16} {'right' if one['always_on']['is_right'] else 'wrong':>7} "
            f"{layer + ('' if health['is_layer_right'] else ' (wrong)'):24} "
            f"{'right' if health['are_samples_right'] else 'wrong':8} {mode}"
        )
    num = len(results)
    print(
        f"first update {sum(r['always_on']['is_right'] for r in results)} of {num}, "
        f"layer {sum(r['health']['is_layer_right'] for r in results)} of {num}, "
        f"samples {sum(r['health']['are_samples_right'] for r in results)} of {num}; "
        f"anomaly mode stops in {sum(r['anomaly_mode']['stops'] for r in results)} of {num} and "
        "names an operator, no update, no module and no sample"
    )


def tell_costs(costs: dict[str, Any]) -> None:
    """Print the CPU time of an update in each arm."""
    for size, arms in costs.items():
        for arm, one in arms.items():
            print(
                f"{size:12} {arm:13} {one['mean_us']:9.1f} µs of CPU an update "
                f"({one['low_us']:.1f} to {one['high_us']:.1f}, n={one['n']}), "
                f"{one['slow_down']:.2f}x"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=sorted(TRUTH), help="examine this plant again")
    parser.add_argument("--no-plants", action="store_true")
    parser.add_argument("--no-costs", action="store_true")
    options = parser.parse_args()
    import torch

    target = BENCHMARKS / "results" / "health_plants.json"
    results: dict[str, Any] = json.loads(target.read_text()) if target.exists() else {}
    results |= {
        "torch": torch.__version__,
        "num_cores": os.cpu_count(),
        **stamp(),
    }
    results["lightning"] = "anomaly mode, by `Trainer(detect_anomaly=True)`: not run apart"
    if not options.no_plants:
        known = {one["plant"]: one for one in results.get("plants", ()) if options.only}
        for plant in (options.only,) if options.only else TRUTH:
            known[plant] = examine(plant)
        results["plants"] = [known[plant] for plant in TRUTH if plant in known]
        tell_plants(results["plants"])
        target.write_text(json.dumps(results, indent=1) + "\n")
    if not options.no_costs:
        results["costs"] = measure_costs(options.rounds)
        tell_costs(results["costs"])
    print(f"Lightning's detector: {results['lightning']}")
    target.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
