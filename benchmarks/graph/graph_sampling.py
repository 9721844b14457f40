"""How long neighbor sampling takes beside DGL's two-step and fused samplers, and what it gives.

    python benchmarks/graph/graph_sampling.py kernel --dgl FOLDER
    python benchmarks/graph/graph_sampling.py chart --dgl FOLDER
    python benchmarks/graph/graph_sampling.py epoch --dgl FOLDER
    python benchmarks/graph/graph_sampling.py gat --dgl FOLDER

`FOLDER` holds dgl 2.1.0 (`pip install --no-deps --target FOLDER dgl==2.1.0 pandas`), the last one
on the index; DGL's fused sampler is the kernel of the FastSample paper, by its authors. Blocks are
made of the same seeds in turns, A B C A B C. `kernel` takes RMAT graphs of 2**19 and 2**20 nodes,
16 edges a node, on one and on two threads: DGL splits a batch over its threads, ours makes one
batch a thread. `chart` goes through batches of 1,024 to 10,240 seeds on one thread. `epoch` trains
GraphSAGE with either sampler in one loop, and `gat` a graph attention network. The figure is the
median over rounds of the ratio of times (above 1 is a gain), with quartiles; one thread by CPU
time, two by wall time. On a machine that others use, wall times of two threads tell little; `best`
is the ratio of the shortest wall times, each arm's quietest moment. On one thread DGL's fused
sampler falls back to two steps. Results go to benchmarks/results/graph_sampling.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import _graphs
import numba
import numpy as np
import torch
from torch_geometric.nn import GATConv, SAGEConv

from steptime.graph.csc import csc_of_edges
from steptime.graph.sample import FusedSampler

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

OUT = Path(__file__).resolve().parents[1] / "results" / "graph_sampling.json"
KERNEL_FANOUTS = ([15, 10, 5], [10, 25])
CHART_FANOUTS = ([5, 5, 5], [15, 10, 5], [20, 15, 10])
CHART_BATCHES = (1024, 2560, 5120, 10_240)
LINE = "{graph:<10} {fanouts:<14} batch {batch:>6}  {threads} thread(s)  ours {ours_ms:8.2f} ms  "
RATIOS = (
    "two-step {two_step:5.2f}x {two_step_quartiles}, best {two_step_best:5.2f}x  "
    "fused {fused:5.2f}x {fused_quartiles}, best {fused_best:5.2f}x"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("kernel", "chart", "epoch", "gat"))
    parser.add_argument("--dgl", help="folder with dgl 2.1.0, if it is not installed")
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dgl = _graphs.load_dgl(options.dgl)
    load, rows = os.getloadavg()[0], list[Any]()
    parts = {"kernel": time_kernels, "chart": time_chart, "epoch": time_epochs, "gat": time_gat}
    for row in parts[options.part](dgl, options.rounds):
        rows.append(row)
        save(options, dgl, load, rows)


def save(options: argparse.Namespace, dgl: Any, load: float, rows: list[Any]) -> None:
    """Write what there is so far: a machine that others use may take it away."""
    document = json.loads(OUT.read_text()) if OUT.exists() else {}
    document[options.part] = {
        **stamp(),
        "command": f"python benchmarks/graph/graph_sampling.py {options.part} --dgl FOLDER "
        f"--rounds {options.rounds}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f} before, "
        f"{os.getloadavg()[0]:.1f} after",
        "versions": {
            "dgl": dgl.__version__,
            "numba": numba.__version__,
            "torch": torch.__version__,
        },
        "rows": rows,
    }
    OUT.write_text(json.dumps(document, indent=1) + "\n")


class Contest:
    """One graph, and the samplers over it."""

    def __init__(self, dgl: Any, scale: int) -> None:
        self.dgl, self.name, self.num_nodes = dgl, f"RMAT {scale}", 1 << scale
        sources, targets = _graphs.rmat(scale, 16 << scale)
        self.csc = csc_of_edges(sources, targets, num_nodes=self.num_nodes)
        ends = [torch.from_numpy(part.astype(np.int64)) for part in (sources, targets)]
        self.graph = dgl.graph(tuple(ends), num_nodes=self.num_nodes).formats("csc")

    def arms(self, fanouts: list[int], num_threads: int) -> dict[str, Callable[[list[Any]], None]]:
        """Return what makes the blocks of some batches, by name."""
        ours = [FusedSampler(self.csc, fanouts) for _ in range(num_threads)]
        pool = ThreadPoolExecutor(num_threads)

        def sample(sampler: FusedSampler, batches: list[Any]) -> None:
            for seeds in batches:
                sampler.sample_blocks(seeds)

        def run_ours(batches: list[Any]) -> None:
            if num_threads == 1:
                return sample(ours[0], batches)
            parts = [batches[i::num_threads] for i in range(num_threads)]
            list(pool.map(sample, ours, parts))
            return None

        def run_theirs(*, is_fused: bool) -> Callable[[list[Any]], None]:
            sampler = self.dgl.dataloading.NeighborSampler(fanouts[::-1], fused=is_fused)

            def run(batches: list[Any]) -> None:
                for seeds in batches:
                    sampler.sample(self.graph, torch.from_numpy(seeds))

            return run

        theirs = {"two_step": run_theirs(is_fused=False), "fused": run_theirs(is_fused=True)}
        return {"ours": run_ours, **theirs}

    def compare(self, fanouts: list[int], batch: int, num_threads: int, rounds: int) -> Any:
        """Return the times of all arms, round by round on the same seeds, as a row."""
        self.dgl.utils.set_num_threads(num_threads)
        arms, draw = self.arms(fanouts, num_threads), np.random.default_rng(1)
        num = max(2, 4096 // batch) * num_threads
        times: dict[str, list[float]] = {name: [] for name in arms}
        work: dict[str, list[float]] = {name: [] for name in arms}
        for number in range(rounds + 1):
            batches = [draw.permutation(self.num_nodes)[:batch] for _ in range(num)]
            for name, run in arms.items():
                began, busy = time.perf_counter(), time.process_time()
                run(batches)
                if number:  # the first compiles, and touches the graph
                    times[name].append((time.perf_counter() - began) / num)
                    work[name].append((time.process_time() - busy) / num)
        row = {
            "graph": self.name,
            "num_edges": self.csc.num_edges,
            "fanouts": "-".join(map(str, fanouts)),
            "batch": batch,
            "threads": num_threads,
            "n": rounds,
        }
        for name in arms:
            row[f"{name}_ms"] = round(
                median(work[name] if num_threads == 1 else times[name]) * 1e3, 3
            )
            row[f"{name}_best_wall_ms"] = round(min(times[name]) * 1e3, 3)
            row[f"{name}_cpu_ms"] = round(median(work[name]) * 1e3, 3)
        for name in ("two_step", "fused"):
            judged = work if num_threads == 1 else times
            row |= ratio_of(name, judged[name], judged["ours"])
            row[f"{name}_best"] = round(min(times[name]) / min(times["ours"]), 3)
        print((LINE + RATIOS).format(**row), flush=True)
        return row


def ratio_of(name: str, theirs: list[float], ours: list[float]) -> dict[str, Any]:
    ratios = [one / other for one, other in zip(theirs, ours, strict=True)]
    ends = quantiles(ratios, n=4)
    return {
        name: round(median(ratios), 3),
        f"{name}_quartiles": [round(ends[0], 3), round(ends[2], 3)],
    }


def time_kernels(dgl: Any, rounds: int) -> Iterator[Any]:
    for scale in (19, 20):
        contest = Contest(dgl, scale)
        assert_same_blocks(contest)
        for num_threads in (1, 2):
            for fanouts in KERNEL_FANOUTS:
                for batch in (256, 1024):
                    yield contest.compare(fanouts, batch, num_threads, rounds)


def time_chart(dgl: Any, rounds: int) -> Iterator[Any]:
    contest = Contest(dgl, 19)
    for fanouts in CHART_FANOUTS:
        for batch in CHART_BATCHES:
            yield contest.compare(fanouts, batch, 1, rounds)


def assert_same_blocks(contest: Contest) -> None:
    """With all neighbors, blocks have the same edges between the same nodes as DGL's."""
    seeds = np.random.default_rng(2).permutation(contest.num_nodes)[:64]
    ours = FusedSampler(contest.csc, [-1, -1]).sample_blocks(seeds)
    sampler = contest.dgl.dataloading.NeighborSampler([-1, -1], fused=False)
    theirs = sampler.sample(contest.graph, torch.from_numpy(seeds))[2]
    for mine, other in zip(ours, theirs, strict=True):
        targets = np.repeat(np.arange(mine.num_targets), np.diff(mine.indptr))
        mine_edges = np.stack([mine.sources[mine.indices], mine.sources[targets], mine.edges])
        nodes = other.srcdata[contest.dgl.NID].numpy()
        start, end = (part.numpy() for part in other.edges())
        ids = other.edata[contest.dgl.EID].numpy()
        other_edges = np.stack([nodes[start], nodes[end], ids])
        assert (np.unique(mine_edges, axis=1) == np.unique(other_edges, axis=1)).all()


# --- a whole epoch ----------------------------------------------------------------------


def attention(width: int, out: int) -> Any:
    """Four heads; bipartite, as the targets of a block are the first of its sources."""
    return GATConv((width, width), out, heads=4, concat=False, add_self_loops=False)


class Stack(torch.nn.Module):
    def __init__(self, layer: Callable[[int, int], Any], widths: list[int]) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(layer(*pair) for pair in pairwise(widths))

    def forward(self, x: Any, layers: list[tuple[Any, int]]) -> Any:
        for number, (layer, (edges, num)) in enumerate(zip(self.layers, layers, strict=True)):
            x = layer((x, x[:num]), edges)
            x = x if number == len(self.layers) - 1 else x.relu()
        return x


def time_epochs(dgl: Any, rounds: int) -> Iterator[Any]:
    contest = Contest(dgl, 19)
    for fanouts, width in (([10, 25], 64), ([15, 10, 5], 64), ([15, 10, 5], 128)):
        yield time_epoch(contest, fanouts, width, rounds)


def time_gat(dgl: Any, rounds: int) -> Iterator[Any]:
    contest = Contest(dgl, 19)
    for fanouts in ([10, 25], [15, 10, 5]):
        yield time_epoch(contest, fanouts, 64, rounds, attention)


def time_epoch(
    contest: Contest, fanouts: list[int], width: int, rounds: int, layer: Any = SAGEConv
) -> Any:
    """Train in turns with each sampler; return CPU times and the share of sampling."""
    contest.dgl.utils.set_num_threads(1)
    x, y = torch.randn(contest.num_nodes, width), torch.randint(10, (contest.num_nodes,))
    model = Stack(layer, [width] * len(fanouts) + [10])
    optimizer = torch.optim.Adam(model.parameters())
    samplers = {"ours": ours_layers(contest, fanouts), "two_step": dgl_layers(contest, fanouts)}
    draw = np.random.default_rng(3)
    whole: dict[str, list[float]] = {name: [] for name in samplers}
    shares: dict[str, list[float]] = {name: [] for name in samplers}
    for number in range(rounds + 1):
        batches = [draw.permutation(contest.num_nodes)[:1024] for _ in range(4)]
        for name, sample in samplers.items():
            began, sampling = time.process_time(), 0.0
            for seeds in batches:
                before = time.process_time()
                nodes, layers = sample(seeds)
                sampling += time.process_time() - before
                out = model(x[nodes], layers)
                loss = torch.nn.functional.cross_entropy(out, y[seeds])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            if number:
                whole[name].append(time.process_time() - began)
                shares[name].append(sampling / whole[name][-1])
    share = median(shares["two_step"])
    row = {
        "graph": contest.name,
        "model": f"{'SAGE' if layer is SAGEConv else 'GAT'}, {len(fanouts)} layers",
        "width": width,
        "fanouts": "-".join(map(str, fanouts)),
        "n": rounds,
        "batch_ms": round(median(whole["ours"]) / 4 * 1e3, 1),
        "two_step_batch_ms": round(median(whole["two_step"]) / 4 * 1e3, 1),
        "sampling_share": round(median(shares["ours"]), 3),
        "two_step_sampling_share": round(share, 3),
        "amdahl_limit": round(1 / (1 - share), 3),
    }
    row |= ratio_of("two_step", whole["two_step"], whole["ours"])
    print(row, flush=True)
    return row


def ours_layers(contest: Contest, fanouts: list[int]) -> Callable[[Any], Any]:
    sampler = FusedSampler(contest.csc, fanouts)

    def sample(seeds: Any) -> Any:
        blocks = sampler.sample_blocks(seeds)
        layers = []
        for block in blocks:
            targets = np.repeat(np.arange(block.num_targets), np.diff(block.indptr))
            edges = torch.from_numpy(np.stack([block.indices, targets]))
            layers.append((edges, block.num_targets))
        return torch.from_numpy(blocks[0].sources), layers

    return sample


def dgl_layers(contest: Contest, fanouts: list[int]) -> Callable[[Any], Any]:
    sampler = contest.dgl.dataloading.NeighborSampler(fanouts[::-1], fused=False)

    def sample(seeds: Any) -> Any:
        nodes, _, blocks = sampler.sample(contest.graph, torch.from_numpy(seeds))
        return nodes, [(torch.stack(b.edges()), b.num_dst_nodes()) for b in blocks]

    return sample


if __name__ == "__main__":
    main()
