"""ogbn-papers100M on 1, 4 and 16 machines: memory by part, rounds and bytes a batch.

    python benchmarks/graph/graph_scale.py [--scales 15 17 19 21] [--from FILE] [--json FILE]

On paper: memory from the sizes that OGB states. By simulation:
what a batch touches, on recursive matrix graphs (RMAT .57, .19, .19) of the same mean degree that
grow toward that size. Nodes of a batch are fitted over the scale (their logarithm, a straight line)
and read off at the size of the real graph; the fit is tested by predicting the largest graph from
the smaller ones. It bends down, so what is read off is too many rather than too few. The fraction
that a cache holds grows with the scale; that of the largest graph is taken, which is too small
rather than too large. Nothing is timed.

Assumptions: papers100M itself was not at hand, and RMAT stands for its law of degrees; nodes are
owned at random (METIS needs more memory than this machine has, and moves less: see
`graph_partition.py`); a rank a machine; seeds are drawn from nodes with neighbors; every layer
samples for all nodes so far. Rounds are those that `graph_partition.py` counts on real ranks.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from _partition_graphs import make_rmat, sample

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import conditions

NUM_NODES, NUM_EDGES, ROW_BYTES, ID_BYTES, LABEL_BYTES = 111_059_956, 1_615_685_872, 512, 4, 8
NUM_TRAINED = 1_207_179
"""Nodes of the training split."""
FANOUTS = (15, 10, 5)
SEEDS = 1024
NUM_BATCHES = 8
MACHINES = (1, 4, 16)
CACHED = (0.0, 0.001, 0.01, 0.05)
ROUNDS = {"replicated topology": 2, "ordinary": 2 * len(FANOUTS)}
LINKS_BYTES_PER_S = {"10 Gbit/s": 1.25e9, "100 Gbit/s": 12.5e9}
ID_ROOM, HEADER = 1.25, 3
"""What a block of ids may have free, and its header: as in `feature_exchange.py`."""


def simulate(scale: int) -> dict[str, Any]:
    """What batches touch on one graph: nodes, and the fraction of them in caches by degree."""
    num_nodes = 1 << scale
    indptr, indices = make_rmat(scale, round(num_nodes * NUM_EDGES / NUM_NODES))
    gc.collect()
    degrees = np.bincount(indices, minlength=num_nodes)
    ranks = np.empty(num_nodes, dtype=np.int32)  # 0 for the node that is a neighbor most often
    ranks[np.argsort(-degrees, kind="stable")] = np.arange(num_nodes)
    chance = np.random.default_rng(scale)
    candidates = np.flatnonzero(np.diff(indptr)).astype(np.int32)
    found = []
    for key in range(NUM_BATCHES):
        seeds = np.sort(chance.choice(candidates, SEEDS, replace=False))
        found.append(sample(indptr, indices, seeds, FANOUTS, key))
    counts = [len(nodes) for nodes in found]
    return {
        "scale": scale, "num_edges": len(indices), "num_batches": NUM_BATCHES,
        "with_neighbors_fraction": len(candidates) / num_nodes,
        "nodes_a_batch": float(np.mean(counts)),
        "nodes_low": min(counts), "nodes_high": max(counts),
        "hits": {
            str(cached): float(np.mean([(ranks[n] < cached * num_nodes).mean() for n in found]))
            for cached in CACHED
        },
    }  # fmt: skip


def read_off(rows: list[dict[str, Any]], scale: float) -> dict[str, Any]:
    """Nodes by a straight line of their logarithm over the scale; hits of the largest graph."""
    logs = [math.log(row["nodes_a_batch"]) for row in rows]
    line = np.polyfit([row["scale"] for row in rows], logs, 1)
    return {"nodes_a_batch": math.exp(np.polyval(line, scale)), "hits": rows[-1]["hits"]}


def at_most() -> int:
    """Nodes of a batch if no node were met twice."""
    return SEEDS * math.prod(1 + fanout for fanout in FANOUTS)


def plan(read: dict[str, Any], machines: int, cached: float) -> dict[str, Any]:
    foreign = read["nodes_a_batch"] * (machines - 1) / machines
    remote = round(foreign * (1 - read["hits"][str(cached)]))
    others = machines - 1
    id_bytes = others * 4 * (HEADER + ID_ROOM * remote / others) if others else 0.0
    kept = round(cached * NUM_NODES * others / machines)
    own = -(-NUM_NODES // machines)
    memory = {
        "topology_bytes": (NUM_EDGES + NUM_NODES + 1) * ID_BYTES,
        "features_bytes": own * ROW_BYTES,
        "labels_bytes": own * LABEL_BYTES,
        "places_bytes": NUM_NODES * ID_BYTES,
        "cache_bytes": kept * ROW_BYTES,
        "sampler_bytes": NUM_NODES * ID_BYTES,
        "exchange_bytes": 2 * remote * (ROW_BYTES + ID_BYTES),
    }
    row_bytes = remote * ROW_BYTES
    return {
        "machines": machines, "cached_fraction": cached,
        "memory": memory | {"total_bytes": sum(memory.values())},
        "batches_an_epoch": math.ceil(NUM_TRAINED / SEEDS / machines),
        "rounds_a_batch": ROUNDS if others else dict.fromkeys(ROUNDS, 0),
        "remote_rows_a_batch": remote, "id_bytes_a_batch": id_bytes, "row_bytes_a_batch": row_bytes,
        "most_row_bytes_a_batch": round(at_most() * others / machines) * ROW_BYTES,
        "link_s_a_batch": {n: (id_bytes + row_bytes) / s for n, s in LINKS_BYTES_PER_S.items()},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scales", type=int, nargs="+", default=[15, 17, 19, 21])
    parser.add_argument("--from", dest="earlier", type=Path, help="graphs simulated before")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = json.loads(args.earlier.read_text())["simulated"] if args.earlier else []
    for scale in () if args.earlier else args.scales:
        row = simulate(scale)
        rows.append(row)
        hits = ", ".join(f"{float(c):.1%}: {h:.3f}" for c, h in row["hits"].items())
        print(f"scale {scale}: {row['nodes_a_batch']:,.0f} nodes a batch; in a cache of {hits}",
              flush=True)  # fmt: skip
    target = math.log2(NUM_NODES)
    tested = read_off(rows[:-1], rows[-1]["scale"])
    test = {
        "scale": rows[-1]["scale"],
        "nodes_predicted_over_true": tested["nodes_a_batch"] / rows[-1]["nodes_a_batch"],
    }
    read = read_off(rows, target)
    plans = [plan(read, machines, cached) for machines in MACHINES for cached in CACHED]
    print(f"read off at scale {target:.2f}: {read['nodes_a_batch']:,.0f} nodes a batch "
          f"(at most {at_most():,}); test of the fit: {test}")  # fmt: skip
    for one in plans:
        show(one)
    if args.json:
        sizes = {"num_nodes": NUM_NODES, "num_edges": NUM_EDGES, "row_bytes": ROW_BYTES}
        result = {"conditions": conditions(), "sizes": sizes, "fanouts": FANOUTS,
                  "seeds": SEEDS, "simulated": rows, "test_of_the_fit": test, "read_off": read,
                  "most_nodes_a_batch": at_most(), "plans": plans}  # fmt: skip
        args.json.write_text(json.dumps(result, indent=1) + "\n")


def show(one: dict[str, Any]) -> None:
    memory = "  ".join(
        f"{name.removesuffix('_bytes')} {value / 2**30:.2f}"
        for name, value in one["memory"].items()
    )
    print(f"{one['machines']:>2} machines, cache {one['cached_fraction']:.1%}: GiB {memory}; "
          f"rounds {one['rounds_a_batch']}, rows {one['row_bytes_a_batch'] / 2**20:.1f} MiB "
          f"(at most {one['most_row_bytes_a_batch'] / 2**20:.0f}), "
          f"ids {one['id_bytes_a_batch'] / 2**20:.2f} MiB a batch, "
          f"{one['link_s_a_batch']}")  # fmt: skip


if __name__ == "__main__":
    main()
