"""What a large mapped graph costs to sample, and scripts of PyG with only the import changed.

    python benchmarks/graph/graph_loader.py mapped FOLDER
    python benchmarks/graph/graph_loader.py scripts
    python benchmarks/graph/graph_loader.py reddit

`mapped` writes a graph of 100 million edges and its features to a folder, opens both mapped, and
makes batches of 1,024 seeds with 15, 10 and 5 neighbors: time and memory. `scripts` trains those in
benchmarks/graph/graph_scripts/ as they stand, which PyG refuses without pyg-lib and torch-sparse,
and with the loader imported from here, with no thread and with one; and unedited, by `steptime
tune` and by `steptime run` with a recipe of the lever `fused_sampling`. Times are medians of the
epochs after the first. `reddit` is the first of them on a graph with as many nodes and edges as
Reddit's (232,965 and 114,615,892; Hamilton et al. 2017), generated. Results go to
benchmarks/results/graph_loader.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import torch
from torch_geometric.data import Data

from steptime.graph.csc import csc_of_edges, open_csc
from steptime.graph.loader import NeighborLoader

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

HERE = Path(__file__).resolve().parent
BENCHMARKS = HERE.parent
OUT = BENCHMARKS / "results" / "graph_loader.json"
NUM_NODES, NUM_EDGES, WIDTH, NUM_BATCHES = 1 << 21, 100_000_000, 64, 20
REDDIT = (("reddit_like.py", (232_965, 114_615_892)),)
SCRIPTS = (
    ("reddit_like.py", (40_000, 4_000_000)),
    ("gat_like.py", (40_000, 4_000_000)),
    ("sage_unsup_like.py", (2_000, 5_000)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("mapped", "scripts", "reddit"))
    parser.add_argument("folder", nargs="?", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    load, rows = os.getloadavg()[0], list[Any]()
    parts = {
        "mapped": lambda: time_mapped(options.folder),
        "scripts": lambda: time_scripts(SCRIPTS),
        "reddit": lambda: time_scripts(REDDIT),
    }
    for row in parts[options.part]():
        rows.append(row)
        save(options.part, load, rows)


def save(part: str, load: float, rows: list[Any]) -> None:
    """Write what there is so far."""
    document = json.loads(OUT.read_text()) if OUT.exists() else {}
    document[part] = {
        **stamp(),
        "command": f"python benchmarks/graph/graph_loader.py {part}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f} before",
        "torch": torch.__version__,
        "rows": rows,
    }
    OUT.write_text(json.dumps(document, indent=1) + "\n")


def time_mapped(folder: Path) -> Iterator[Any]:
    build_s = build(folder) if not (folder / "graph").exists() else None
    began = time.perf_counter()
    graph = open_csc(folder / "graph")
    x = np.load(folder / "x.npy", mmap_mode="c")
    data = Data(x=torch.from_numpy(x))
    open_s = time.perf_counter() - began
    loader = NeighborLoader(data, [15, 10, 5], batch_size=1024, shuffle=True, graph=graph)
    walls, works, process = [], [], psutil.Process()
    batches = iter(loader)
    for _ in range(NUM_BATCHES):
        began, busy = time.perf_counter(), time.process_time()
        batch = next(batches)
        walls.append(time.perf_counter() - began)
        works.append(time.process_time() - busy)
    memory = process.memory_full_info()
    row = {
        "num_nodes": graph.num_targets,
        "num_edges": graph.num_edges,
        "graph_bytes": graph.num_bytes,
        "feature_bytes": x.nbytes,
        "sampler_bytes": loader.sampler_here.fused.num_bytes,
        "build_cpu_s": build_s,
        "open_s": round(open_s, 3),
        "n": NUM_BATCHES,
        "batch_ms": round(median(walls) * 1e3, 1),
        "batch_cpu_ms": round(median(works) * 1e3, 1),
        "nodes_of_a_batch": batch.num_nodes,
        "edges_of_a_batch": batch.num_edges,
        "own_memory_bytes": memory.rss - memory.shared,
    }
    print(row)
    yield row


def build(folder: Path) -> float:
    """Write the graph and its features; return the CPU time of sorting the edges."""
    draw = np.random.default_rng(0)
    sources = (NUM_NODES * draw.random(NUM_EDGES, np.float32) ** 3).astype(np.int32)
    np.minimum(sources, NUM_NODES - 1, out=sources)
    targets = draw.integers(NUM_NODES, size=NUM_EDGES, dtype=np.int32)
    busy = time.process_time()
    graph = csc_of_edges(sources, targets, num_nodes=NUM_NODES)
    took = time.process_time() - busy
    graph.save(folder / "graph")
    np.save(folder / "x.npy", draw.random((NUM_NODES, WIDTH), np.float32))
    return round(took, 1)


def time_scripts(scripts: Sequence[tuple[str, tuple[int, int]]]) -> Iterator[Any]:
    for name, sizes in scripts:
        words = [str(size) for size in sizes]
        text = (HERE / "graph_scripts" / name).read_text()
        changed = text.replace("from torch_geometric.loader", "from steptime.graph.loader")
        row = {"script": name, "num_nodes": sizes[0], "num_edges": sizes[1]}
        row["as_it_stands"] = run(text, [*words, "1", "0"])[-1]
        row["tune"] = outcome_of(run(text, [*words, "1", "0"], "tune"))
        arms = {
            "0_threads": (changed, "0", ""),
            "1_threads": (changed, "1", ""),
            "recipe": (text, "0", "recipe"),
        }
        for arm, (script, threads, way) in arms.items():
            lines = run(script, [*words, "3", threads], way)
            found = [re.search(r"([\d.]+) s ([\d.]+) CPU-s (.*)", line) for line in lines]
            epochs = [match for match in found if match][1:]  # the first compiles
            row[f"epoch_s_{arm}"] = median(float(epoch[1]) for epoch in epochs)
            row[f"epoch_cpu_s_{arm}"] = median(float(epoch[2]) for epoch in epochs)
            row[f"end_{arm}"] = epochs[-1][3]
        print(row, flush=True)
        yield row


def outcome_of(lines: list[str]) -> str:
    """Return what `steptime tune` says of a command, in one line."""
    text = " ".join(" ".join(lines).split())
    found = re.search(r"outcome (.*?) writes", text)
    return found[1] if found else text[-300:]


WAYS = {
    "": [],
    "tune": ["tune", "--levers", "fused_sampling", "--budget", "6m", "--"],
    "recipe": ["run", "--recipe", "fused.toml", "--"],
}
RECIPE = """\
[steptime]
schema = 1
version = "by hand"
date = "2026-11-24T00:00:00Z"
command = ["python", "train.py"]
script_files = []

[machine]

[levers.fused_sampling]

[evidence]
study_id = "by hand"
quality = "INCONCLUSIVE"
"""


def run(text: str, words: list[str], way: str = "") -> list[str]:
    """Return the lines that a script printed, and the last one of its complaint."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text(text)
        (Path(folder) / "fused.toml").write_text(RECIPE)
        variables = {**os.environ, "OMP_NUM_THREADS": "1"}
        before = ["-m", "steptime", *WAYS[way], sys.executable] if way else []
        command = [sys.executable, *before, "train.py", *words]
        done = subprocess.run(
            command, capture_output=True, text=True, env=variables, timeout=900, cwd=folder
        )
    return [*done.stdout.splitlines(), *done.stderr.splitlines()[-1:]]


if __name__ == "__main__":
    main()
