"""Whether a run names the Python objects that loader workers copy, and stays silent without them.

    python benchmarks/data/data_worker_memory.py [--rounds 20]

Planted: a data set whose samples are Python objects (a list of dicts, of strings, of tuples, a dict
of lists), read by two forked workers in random order. Healthy: the same samples in NumPy arrays.
Sizes, attribute names and containers vary by round. A planted run counts as named if the finding
`worker_copies` gives class and attribute, and the line that sets it. A healthy run counts as silent
without that finding. `estimate` is the size that the run states over the size that a full walk of
all objects gives. Results go to benchmarks/results/data_worker_memory.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

BENCHMARKS = Path(__file__).resolve().parents[1]
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
STEPS = 60

SCRIPT = '''
import sys

import numpy
import torch
from torch.utils.data import DataLoader, Dataset

num = int(sys.argv[1])


def size(thing, seen):
    """The bytes of all objects, each once."""
    if id(thing) in seen or thing is None:
        return 0
    seen.add(id(thing))
    parts = thing.values() if isinstance(thing, dict) else ()
    parts = thing if isinstance(thing, (list, tuple)) else parts
    return sys.getsizeof(thing) + sum(size(part, seen) for part in parts)


class Samples(Dataset):
    def __init__(self):
        self.{name} = {value}  # planted

    def __len__(self):
        return num

    def __getitem__(self, index):
        sample = self.{name}[index]
        return torch.full((4,), float({read})), index % 2


torch.manual_seed(0)
data = Samples()
print("BYTES", {truth})
loader = DataLoader(data, batch_size=num // {steps}, shuffle=True, num_workers=2)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for inputs, labels in loader:
    loss = torch.nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
'''

PLANTS = {
    "list of dicts": ('[{"path": f"img/{i:09d}.jpg", "label": i + 999} for i in range(num)]', 0.6),
    "list of strings": ('[f"data/train/images/{i:09d}.jpg" for i in range(num)]', 1.5),
    "list of tuples": ("[(f'img/{i:09d}.jpg', i + 999) for i in range(num)]", 0.7),
    "dict of lists": ("{i: [f'a word {i}', i + 999, i * 0.5] for i in range(num)}", 0.6),
}
"""How the samples are made, and their number over the base."""

HEALTHY = "numpy.array([f'data/train/images/{i:09d}.jpg'.encode() for i in range(num)])"
NAMES = ("samples", "rows", "items", "entries", "index")
BASE = 150_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    kinds = list(PLANTS)
    planted = [planted_run(kinds[i % len(kinds)], i) for i in range(rounds)]
    healthy = [healthy_run(i) for i in range(rounds)]
    found = {
        **stamp(),
        "num_rounds": rounds,
        "named": sum(row["is_named"] for row in planted),
        "line_named": sum(row["is_line_named"] for row in planted),
        "silent": sum(row["is_silent"] for row in healthy),
        "estimate_median": statistics.median(row["estimate"] or 0.0 for row in planted),
    }
    path = BENCHMARKS / "results" / "data_worker_memory.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    print(found)


def planted_run(kind: str, number: int) -> dict[str, Any]:
    value, part = PLANTS[kind]
    name = NAMES[number % len(NAMES)]
    num = round(BASE * part * (1 + number % 3))
    text = SCRIPT.format(
        name=name, value=value, read="len(sample)", truth=f"size(data.{name}, set())", steps=STEPS
    )
    line = next(n for n, row in enumerate(text.splitlines(), 1) if row.endswith("# planted"))
    document, truth = run(text, num)
    finding = copies_in(document)
    names = {} if finding is None else finding["names"]
    bytes_named = None if finding is None else evidence(finding, "object_bytes")
    return {
        "kind": kind,
        "num": num,
        "is_named": names.get("attribute") == f"Samples.{name}",
        "is_line_named": finding is not None and finding["where"] == f"train.py:{line}",
        "object_mib": round(truth / 2**20, 1),
        "estimate": None if bytes_named is None else round(bytes_named / truth, 3),
        "copied_mib": None if finding is None else round(evidence(finding, "copied") / 2**20, 1),
    }


def healthy_run(number: int) -> dict[str, Any]:
    num = round(BASE * (1 + number % 3))
    text = SCRIPT.format(
        name="samples", value=HEALTHY, read="len(sample)", truth="data.samples.nbytes", steps=STEPS
    )
    document, _ = run(text, num)
    workers = document["measurement"]["workers"]
    copied = workers["copied_bytes"]
    return {
        "num": num,
        "is_silent": copies_in(document) is None,
        "copied_mib": None if copied is None else round(copied / 2**20, 1),
    }


def copies_in(document: dict[str, Any]) -> dict[str, Any] | None:
    findings = document["diagnosis"]["findings"]
    return next((one for one in findings if one["cause"] == "worker_copies"), None)


def evidence(finding: dict[str, Any], name: str) -> float:
    return next(float(one["value"]) for one in finding["evidence"] if one["name"] == name)


def run(text: str, num: int) -> tuple[dict[str, Any], int]:
    """Return the document of a run of the script, and what it says of its own size."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(text)
        command = [sys.executable, "-m", "steptime", "run", "--json", "run.json", "--"]
        command += [sys.executable, "train.py", str(num)]
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **ENVIRONMENT},
            capture_output=True,
            text=True,
            check=True,
        )
        document = json.loads(Path(folder, "run.json").read_text())
    line = next(row for row in done.stdout.splitlines() if row.startswith("BYTES"))
    return document.get("data", document), int(line.split()[1])


if __name__ == "__main__":
    main()
