"""What partitioned features move: edges cut, remote rows, cache hits, rounds and bytes a batch.

    python benchmarks/graph/graph_partition.py [--only partitions|ranks] [--json FILE]

`partitions` counts in one process: METIS and chance on a graph of blocks
and on a recursive matrix graph; batches of seeds that a rank owns, and what of them is its own, in
a static cache, or another rank's.

`ranks` runs four real gloo ranks, three layers: `steptime.graph.PartitionedFeatures` (topology on
every rank) beside ordinary partitioning, where a rank has the edges of its own nodes alone and
asks their owners, layer by layer. Both pick the same neighbors and must come to the same rows. The
rival's message sizes travel free and are not counted as rounds; ours pay for their headers. An
epoch is sampling and fetching, without a model. Times are CPU times of a rank's process, gloo's
threads with it, the arms in turns; what a network would add is computed: rounds times a delay.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from _partition_graphs import make_blocks, make_rmat, pick_neighbors, sample, widen

from steptime.graph import (
    PartitionedFeatures,
    make_partition,
    most_sampled_nodes,
    partition_graph,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import conditions

METHODS = ("metis", "random")
FANOUTS = (10, 5, 3)
CACHED = (0.0, 0.01, 0.05)
SEEDS = 64
NUM_BATCHES = 20
NUM_RANKS = 4
RANKS_GRAPH = (50_000, 16)
WIDTH = 128
DELAYS_MS = (0, 1, 3)

GRAPHS = {
    "blocks": lambda: make_blocks(200_000, 64, degree=15, inside=0.8),
    "rmat": lambda: make_rmat(17, 15 << 17),
}


# -- counted in one process


def seeds_of(partition: Any, rank: int) -> Any:
    """The batches of a rank: nodes that it owns, in a fixed order of chance."""
    order = np.random.default_rng(rank).permutation(partition.nodes_of(rank)).astype(np.int32)
    return [np.sort(order[i * SEEDS : (i + 1) * SEEDS]) for i in range(NUM_BATCHES)]


def count_partition(name: str, method: str, num_parts: int) -> list[dict[str, Any]]:
    indptr, indices = GRAPHS[name]()
    begin = time.process_time()
    partition = partition_graph(indptr, indices, num_parts, method=method)
    cpu_s = time.process_time() - begin
    rows = []
    for cached in CACHED:
        owns = remote = hits = total = 0
        for rank in range(num_parts):
            kept = np.zeros(partition.num_nodes, dtype=bool)
            size = round(cached * partition.num_nodes)
            kept[most_sampled_nodes(indices, partition, rank, size)] = True
            for key, seeds in enumerate(seeds_of(partition, rank)):
                nodes = sample(indptr, indices, seeds, FANOUTS, 1000 * rank + key)
                foreign = nodes[partition.owner[nodes] != rank]
                total, owns = total + len(nodes), owns + len(nodes) - len(foreign)
                hits, remote = hits + int(kept[foreign].sum()), remote + int((~kept[foreign]).sum())
        rows.append(
            {
                "graph": name, "method": method, "num_parts": num_parts, "cached_fraction": cached,
                "cut_fraction": partition.cut_fraction, "imbalance": partition.imbalance,
                "partition_cpu_s": cpu_s, "num_batches": num_parts * NUM_BATCHES,
                "nodes_a_batch": total / num_parts / NUM_BATCHES,
                "foreign_fraction": 1 - owns / total, "remote_fraction": remote / total,
                "cache_hit_fraction": hits / max(1, hits + remote),
                "row_bytes_a_batch": remote * 4 * WIDTH / num_parts / NUM_BATCHES,
            }
        )  # fmt: skip
    return rows


# -- four real ranks


class OwnEdgesAlone:
    """Ordinary partitioning: neighbors and rows are asked of their owners."""

    def __init__(self, graph: tuple[Any, Any], partition: Any, rows: Any, rank: int) -> None:
        self.graph, self.partition, self.rows, self.rank = graph, partition, rows, rank
        self.places = np.empty(partition.num_nodes, dtype=np.int64)
        for part in range(partition.num_parts):
            nodes = partition.nodes_of(part)
            self.places[nodes] = np.arange(len(nodes))
        self.rounds = self.sent_bytes = 0

    def fetch(self, seeds: Any, key: int) -> tuple[Any, Any]:
        nodes = seeds
        for layer, fanout in enumerate(FANOUTS):
            if layer == 0:  # the rank owns its seeds, and their edges
                found = pick_neighbors(*self.graph, nodes, fanout, layer, key)
            else:
                answer = Answer(self.graph, fanout, layer)
                found = self.ask(nodes, answer, fanout, np.int32)
            nodes = widen(nodes, found)
        rows = self.ask(nodes, lambda asked, _: self.rows[self.places[asked]], WIDTH, np.float32, 0)
        return nodes, rows

    def ask(self, nodes: Any, answer: Any, width: int, kind: Any, key: int | None = None) -> Any:
        """Two rounds: nodes to their owners, and `width` entries for each of them back."""
        owners = self.partition.owner[nodes]
        order = np.argsort(owners, kind="stable")
        counts = np.bincount(owners, minlength=NUM_RANKS)
        asked_counts = sizes_of(counts)
        asked = self.round(nodes[order], counts, asked_counts)
        given = np.ascontiguousarray(answer(asked, self.key if key is None else key))
        back = self.round(given.ravel(), asked_counts * width, counts * width)
        out = np.empty((len(nodes), width), dtype=kind)
        out[order] = back.reshape(-1, width)
        return out

    def round(self, sent: Any, out: Any, back: Any) -> Any:
        import torch
        import torch.distributed as dist

        got = np.empty(int(back.sum()), dtype=sent.dtype)
        sent = torch.from_numpy(np.ascontiguousarray(sent))
        dist.all_to_all_single(torch.from_numpy(got), sent, back.tolist(), out.tolist())
        self.rounds += 1
        self.sent_bytes += int(out.sum() - out[self.rank]) * got.itemsize
        return got

    key = 0


class Answer:
    """Picks neighbors for another rank, which also says the key of its batch: here by rank."""

    def __init__(self, graph: tuple[Any, Any], fanout: int, layer: int) -> None:
        self.graph, self.fanout, self.layer = graph, fanout, layer

    def __call__(self, asked: Any, key: int) -> Any:
        return pick_neighbors(*self.graph, asked, self.fanout, self.layer, key)


def sizes_of(counts: Any) -> Any:
    """How many entries come from each rank: not counted as a round."""
    import torch
    import torch.distributed as dist

    got = torch.empty(len(counts), dtype=torch.int64)
    dist.all_to_all_single(got, torch.from_numpy(counts.astype(np.int64)))
    return got.numpy()


def run_rank(rank: int, store: str, repetitions: int, answers: Any) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=NUM_RANKS)
    graph = make_blocks(*RANKS_GRAPH, degree=15, inside=0.8)
    owner = np.load(f"{store}.npy")
    partition = make_partition(owner, *graph, num_parts=NUM_RANKS)
    whole = np.random.default_rng(0).random((partition.num_nodes, WIDTH), dtype=np.float32)
    own = whole[partition.nodes_of(rank)]
    arms: dict[str, Any] = {"ordinary": OwnEdgesAlone(graph, partition, own, rank)}
    for name, fraction in (("replicated topology", 0.0), ("with a cache of 1 %", 0.01)):
        kept = most_sampled_nodes(graph[1], partition, rank, round(fraction * len(whole)))
        arms[name] = PartitionedFeatures(partition, own, cached_nodes=kept)
    seeds = seeds_of(partition, rank)
    times: dict[str, list[float]] = {name: [] for name in arms}
    moved: dict[str, dict[str, float]] = {}
    for repetition in range(repetitions + 1):  # the first one warms up, and is compared
        for name, arm in arms.items():
            before = totals(arm)
            begin = time.process_time()
            for key, batch in enumerate(seeds):
                nodes, rows = one_batch(arm, graph, batch, key)
                if repetition == 0:
                    assert np.array_equal(np.asarray(rows), whole[nodes]), name
            if repetition:
                times[name].append((time.process_time() - begin) / len(seeds))
                rounds, sent = (b - a for a, b in zip(before, totals(arm), strict=True))
                moved[name] = {"rounds": rounds / len(seeds), "bytes": sent / len(seeds)}
            dist.barrier()
    answers.put((rank, times, moved))
    dist.barrier()


def one_batch(arm: Any, graph: tuple[Any, Any], seeds: Any, key: int) -> tuple[Any, Any]:
    """The key is the batch's, the same on all ranks, so that owners pick what the asker would."""
    if isinstance(arm, OwnEdgesAlone):
        arm.key = key
        return arm.fetch(seeds, key)
    nodes = sample(*graph, seeds, FANOUTS, key)
    return nodes, arm.fetch(nodes)


def totals(arm: Any) -> tuple[int, int]:
    if isinstance(arm, OwnEdgesAlone):
        return arm.rounds, arm.sent_bytes
    return arm.counts.rounds, arm.counts.id_bytes + arm.counts.row_bytes


def measure_ranks(method: str, repetitions: int) -> list[dict[str, Any]]:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        graph = make_blocks(*RANKS_GRAPH, degree=15, inside=0.8)
        np.save(f"{folder}/at.npy", partition_graph(*graph, NUM_RANKS, method=method).owner)
        args = (f"{folder}/at", repetitions, answers)
        ranks = [context.Process(target=run_rank, args=(r, *args)) for r in range(NUM_RANKS)]
        for process in ranks:
            process.start()
        found = [answers.get(timeout=200) for _ in ranks]
        for process in ranks:
            process.join(20)
            process.kill()
    rows = []
    for name in found[0][1]:
        row: dict[str, Any] = {"method": method, "arm": name, "num_ranks": NUM_RANKS}
        row["rounds_a_batch"] = statistics.mean(moved[name]["rounds"] for _, _, moved in found)
        row["bytes_a_batch"] = statistics.mean(moved[name]["bytes"] for _, _, moved in found)
        times = [cpu_s for _, times, _ in found for cpu_s in times[name]]
        row["cpu_s_a_batch"] = {
            "median": statistics.median(times), "low": min(times), "high": max(times),
            "n": len(times),
        }  # fmt: skip
        row["computed_s_a_batch"] = {
            delay: statistics.median(times) + row["rounds_a_batch"] * delay / 1000
            for delay in DELAYS_MS
        }
        rows.append(row)
    for row in rows:
        rival = rows[0]["computed_s_a_batch"]
        row["ordinary_over_this"] = {d: rival[d] / t for d, t in row["computed_s_a_batch"].items()}
    return rows


# -- words


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("partitions", "ranks"))
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    result: dict[str, Any] = {"conditions": conditions(), "seeds": SEEDS, "fanouts": FANOUTS}
    if args.only != "ranks":
        result["partitions"] = []
        print(f"{'graph':<8}{'method':<8}{'parts':>5}{'cut':>8}{'imbal.':>8}{'cpu s':>7}"
              f"{'cache':>7}{'foreign':>9}{'hits':>7}{'remote':>8}{'KiB/batch':>11}")  # fmt: skip
        for name in GRAPHS:
            for num_parts in (2, 4, 16):
                for method in METHODS:
                    for row in count_partition(name, method, num_parts):
                        result["partitions"].append(row)
                        show_partition(row)
    if args.only != "partitions":
        result["ranks"] = [r for m in ("metis",) for r in measure_ranks(m, args.repetitions)]
        for row in result["ranks"]:
            show_rank(row)
    result["load_average_after"] = conditions()["load_average"]
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


def show_partition(row: dict[str, Any]) -> None:
    print(f"{row['graph']:<8}{row['method']:<8}{row['num_parts']:>5}{row['cut_fraction']:>8.3f}"
          f"{row['imbalance']:>8.3f}{row['partition_cpu_s']:>7.1f}{row['cached_fraction']:>7.0%}"
          f"{row['foreign_fraction']:>9.3f}{row['cache_hit_fraction']:>7.3f}"
          f"{row['remote_fraction']:>8.3f}{row['row_bytes_a_batch'] / 1024:>11.0f}",
          flush=True)  # fmt: skip


def show_rank(row: dict[str, Any]) -> None:
    said = ", ".join(f"{d} ms {r:.2f}x" for d, r in row["ordinary_over_this"].items())
    cpu = row["cpu_s_a_batch"]
    print(f"{row['method']:<8}{row['arm']:<22}{row['rounds_a_batch']:5.2f} rounds "
          f"{row['bytes_a_batch'] / 1024:8.0f} KiB, {1000 * cpu['median']:.1f} ms of CPU a batch "
          f"({1000 * cpu['low']:.1f}-{1000 * cpu['high']:.1f}, n={cpu['n']}); with a delay a round "
          f"of {said}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
