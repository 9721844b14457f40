"""The predicted gain of trimming and length grouping beside what both give when they are applied.

    python benchmarks/data/padding_headroom.py [--text FILE ...]

A small transformer (tests/specimens/padded.py) trains on the paragraphs or lines of each text, all
padded to one width; `steptime run` predicts from that run what batches cut to their longest row,
and batches of rows of similar length, would save. Then the same rows are trained on in one process
in the three ways, in alternating blocks in random order, and the CPU time of a step is compared.
Results go to benchmarks/results/padding_headroom.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

BENCHMARKS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCHMARKS.parent / "tests" / "specimens"))
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
SHAKESPEARE = BENCHMARKS.parent / "examples" / "gpt" / "tinyshakespeare.txt"
ROWS, WIDTH, DIM, LAYERS, UPDATES = 8, 128, 128, 2, 240
BLOCK = 6
GROUP = 50
WAYS = ("plain", "trimmed", "grouped")


def predict(text: str, folder: Path) -> dict[str, Any]:
    """Run the padded training under steptime; return its padding and the saving of a step."""
    script = BENCHMARKS.parent / "tests" / "specimens" / "padded.py"
    sizes = ("--rows", ROWS, "--longest", WIDTH, "--width", WIDTH, "--dim", DIM)
    more = ("--layers", LAYERS, "--updates", UPDATES, "--text", text)
    told = folder / "run.json"
    command = [sys.executable, "-m", "steptime", "run", "--json", str(told)]
    command += ["--", sys.executable, str(script)]
    subprocess.run(
        [*command, *map(str, (*sizes, *more))],
        cwd=folder,
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    data = json.loads(told.read_text())["data"]
    findings = [one for one in data["diagnosis"]["findings"] if one["cause"] == "padding"]
    evidence = {e["name"]: e["value"] for one in findings for e in one["evidence"]}
    return {"padding": data["measurement"]["padding"], "evidence": evidence}


def train_in_turns(text: str) -> dict[str, list[float]]:
    """Return the CPU time of each step [s] in each way: all rows once, in alternating blocks.

    A step is the making of the batch, forward, backward and update. Before each block its first
    batch is trained on once more, untimed.
    """
    import torch
    from padded import Model, collate, loss_of, read_rows

    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = read_rows(text, num=UPDATES * ROWS, longest=WIDTH, seed=0)
    rng = random.Random(1)
    model = Model(DIM, LAYERS, WIDTH, "mask")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(way: str, batch: list[Any]) -> float:
        began = time.process_time()
        named = collate(batch, "mask", WIDTH if way == "plain" else 0)
        optimizer.zero_grad()
        loss, _ = loss_of(model, named, "mask")
        loss.backward()
        optimizer.step()
        return time.process_time() - began

    batches = {way: make_batches(rows, way, rng) for way in WAYS}
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for begin in range(0, len(batches["plain"]), BLOCK):
        for way in rng.sample(WAYS, len(WAYS)):
            block = batches[way][begin : begin + BLOCK]
            step(way, block[0])
            times[way] += [step(way, batch) for batch in block]
    return times


def make_batches(rows: list[Any], way: str, rng: random.Random) -> list[list[Any]]:
    """Return the rows of an epoch in batches."""
    order = rng.sample(rows, len(rows))
    if way == "grouped":
        size = GROUP * ROWS
        groups = [order[n : n + size] for n in range(0, len(order), size)]
        order = [row for group in groups for row in sorted(group, key=len, reverse=True)]
    batches = [order[n : n + ROWS] for n in range(0, len(order) - ROWS + 1, ROWS)]
    rng.shuffle(batches)
    return batches


def compare(text: str) -> dict[str, Any]:
    """Return predicted and measured speedups of one text."""
    with tempfile.TemporaryDirectory() as folder:
        predicted = predict(text, Path(folder))
    times = train_in_turns(text)
    means = {way: statistics.fmean(values) for way, values in times.items()}
    evidence = predicted["evidence"]
    found: dict[str, Any] = {
        "text": Path(text).name,
        "useful": predicted["padding"]["useful_fraction"],
        "num_batches": predicted["padding"]["num_batches"],
        "attention_fraction": predicted["padding"]["attention_fraction"],
        "step_ms": {way: round(1000 * mean, 3) for way, mean in means.items()},
        "spread_ms": {way: round(1000 * statistics.stdev(v), 3) for way, v in times.items()},
        "num_steps": {way: len(values) for way, values in times.items()},
    }
    for way, name in (("trimmed", "trimmed_gain"), ("grouped", "grouped_gain")):
        speedup = 1 / (1 - evidence[name])
        measured = means["plain"] / means[way]
        found[way] = {
            "predicted": round(speedup, 3),
            "measured": round(measured, 3),
            "error": round(speedup / measured - 1, 4),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", nargs="*", default=[str(SHAKESPEARE)])
    args = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    found = []
    for text in args.text:
        found.append(compare(str(Path(text).resolve())))
        print(json.dumps(found[-1]))
    import torch

    result = {
        **stamp(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "rows": ROWS,
        "width": WIDTH,
        "texts": found,
    }
    path = BENCHMARKS / "results" / "padding_headroom.json"
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
