"""MaxK's kernels and a training epoch beside `torch.sparse.mm`.

    python benchmarks/graph/graph_maxk.py kernels [--rounds 5] [--threads 1 2]
        [--ks 8 16 32 64 96 128]
    python benchmarks/graph/graph_maxk.py epoch [--rounds 5] [--threads 1]
    python benchmarks/graph/graph_maxk.py paths

Rows are 256 wide, float32, on R-MAT graphs. `kernels`: forward product, backward product and
selection, each in turns with `torch.sparse.mm` on the graph, on its transposed graph (made before)
and with `torch.topk`. `epoch`: forward, backward and Adam of three layers, selection included, in
turns with the same network with ReLU and `torch.sparse.mm`; beside it the limit of Amdahl, from the
share of the products in the ReLU run. `paths`: the same kernels in each of their builds. A ratio is
the rival's CPU time over ours in the same round (all threads together, which a busy machine
disturbs least); wall time stands in the file. Results go to
benchmarks/results/graph_maxk_<part>.json.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from _maxk_graphs import Clock, Results, both_ways, rmat
from torch import nn

from steptime.graph import maxk_paths
from steptime.graph.adjacency import Adjacency
from steptime.graph.maxk import aggregate, compress
from steptime.graph.maxk_layers import gcn_weights

BENCHMARKS = Path(__file__).resolve().parents[1]
WIDTH = 256
NUM_CLASSES = 32
GRAPHS = {"scale 16, edge factor 50": (16, 50), "scale 14, edge factor 200": (14, 200)}
# What the kernels are to reach at each k: forward, backward, selection.
BARS = {16: (4.0, 3.5, 4.0), 32: (3.0, 2.5, 4.0)}


def kernel_round(clock: Clock, graph: Adjacency, weight: Any, k: int, path: str | None) -> None:
    """One call each, in turns; the dense rivals read matrices made before."""
    kernels = maxk_paths.kernels_for(torch.device("cpu"), path)
    x, dy = DATA["x"], DATA["dy"]
    clock.time("topk", lambda: torch.topk(x, k, dim=1))
    val, idx, _ = clock.time("select", lambda: kernels.select(x, k))
    clock.time("dense forward", lambda: torch.sparse.mm(DATA["matrix"], x))
    clock.time("forward", lambda: kernels.forward(graph, weight, val, idx, WIDTH))
    clock.time("dense backward", lambda: torch.sparse.mm(DATA["transposed"], dy))
    clock.time("backward", lambda: kernels.backward(graph, weight, dy, idx))


DATA: dict[str, Any] = {}


def csr(indptr: Any, indices: Any, weight: Any, num_nodes: int) -> Any:
    return torch.sparse_csr_tensor(indptr.int(), indices, weight, (num_nodes, num_nodes))


def prepare(scale: int, edge_factor: int) -> tuple[Adjacency, Any]:
    """A graph with random weights, and the matrices of the rival."""
    torch.manual_seed(0)
    num_nodes = 1 << scale
    graph = Adjacency.from_edge_index(rmat(scale, edge_factor), num_nodes, num_nodes)
    weight = torch.rand(len(graph.indices))
    indptr, indices, order = graph.transposed()
    DATA["matrix"] = csr(graph.indptr, graph.indices, weight, num_nodes)
    DATA["transposed"] = csr(indptr, indices, weight[order], num_nodes)
    DATA["x"], DATA["dy"] = torch.randn(2, num_nodes, WIDTH).unbind()
    return graph, weight


def kernel_cell(graph: Adjacency, weight: Any, k: int, rounds: int, path: str | None) -> dict:
    kernel_round(Clock(), graph, weight, k, path)  # builds, splits and caches
    clock = Clock()
    for _ in range(rounds):
        kernel_round(clock, graph, weight, k, path)
    pairs = {"forward": "dense forward", "backward": "dense backward", "select": "topk"}
    found: dict[str, Any] = {name: clock.ratio(rival, name) for name, rival in pairs.items()}
    found |= {f"{name} wall": clock.ratio(r, name, wall=True) for name, r in pairs.items()}
    found["cpu_s"] = {name: statistics.median(times) for name, times in clock.cpu.items()}
    return found


def say_cell(label: str, k: int, cell: dict[str, Any]) -> None:
    words = [f"{label} k={k:3d}"]
    for at, name in enumerate(("forward", "backward", "select")):
        ratio = cell[name]
        bar = f" (bar {BARS[k][at]})" if k in BARS else ""
        words.append(
            f"{name} {ratio['median']:.2f}x [{ratio['least']:.2f}, {ratio['most']:.2f}]{bar}"
        )
    print("; ".join(words), flush=True)


def run_kernels(options: argparse.Namespace, results: Results) -> None:
    for name, size in GRAPHS.items():
        graph, weight = prepare(*size)
        degree = len(graph.indices) / graph.num_rows
        for threads in options.threads:
            torch.set_num_threads(threads)
            for k in options.ks:
                cell = kernel_cell(graph, weight, k, options.rounds, None)
                about = {"graph": name, "degree": degree, "threads": threads, "k": k}
                say_cell(f"{name} (degree {degree:.0f}), {threads} threads,", k, cell)
                results.add(about | cell)


def run_paths(options: argparse.Namespace, results: Results) -> None:
    """Each build of the kernels on a smaller graph: why it is C++."""
    graph, weight = prepare(14, 50)
    torch.set_num_threads(1)
    for path in ("avx512", "avx2", "portable"):
        for k in (16, 32, 64):
            cell = kernel_cell(graph, weight, k, options.rounds, path)
            say_cell(f"{path:9s}", k, cell)
            results.add({"path": path, "k": k} | cell)


# --- an epoch ---------------------------------------------------------------------------------


class TimedProduct(torch.autograd.Function):
    """The rival's product with its transposed graph made before; notes its CPU time."""

    seconds = 0.0

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        begun = time.process_time()
        y = torch.sparse.mm(DATA["matrix"], x)
        TimedProduct.seconds += time.process_time() - begun
        return y

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        begun = time.process_time()
        found = torch.sparse.mm(DATA["transposed"], grad.contiguous())
        TimedProduct.seconds += time.process_time() - begun
        return found


class Network(nn.Module):
    """Three layers of 256, and classes; k is None for ReLU."""

    def __init__(self, graph: Adjacency, weight: Any, k: int | None) -> None:
        super().__init__()
        self.graph, self.weight, self.k = graph, weight, k
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.last = nn.Linear(WIDTH, NUM_CLASSES)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
            if self.k is None:
                x = TimedProduct.apply(torch.relu(x))
            else:
                x = aggregate(self.graph, compress(x, self.k), self.weight)
        return self.last(x)


def epoch_of(network: Network, optimizer: Any) -> None:
    optimizer.zero_grad()
    nn.functional.cross_entropy(network(DATA["x"]), DATA["y"]).backward()
    optimizer.step()


def epoch_cell(graph: Adjacency, weight: Any, rounds: int) -> dict[str, Any]:
    networks = {name: Network(graph, weight, k) for name, k in
                (("relu", None), ("k=32", 32), ("k=16", 16))}  # fmt: skip
    optimizers = {name: torch.optim.Adam(net.parameters()) for name, net in networks.items()}
    for name in networks:
        epoch_of(networks[name], optimizers[name])
    clock, shares = Clock(), []
    for _ in range(rounds):
        for name in networks:
            TimedProduct.seconds = 0.0
            clock.time(name, lambda name=name: epoch_of(networks[name], optimizers[name]))
            if name == "relu":
                shares.append(TimedProduct.seconds / clock.cpu["relu"][-1])
    share = statistics.median(shares)
    found: dict[str, Any] = {"share": share, "limit": 1 / (1 - share)}
    for name in ("k=32", "k=16"):
        found[name] = clock.ratio("relu", name)
        found[f"{name} wall"] = clock.ratio("relu", name, wall=True)
    found["cpu_s"] = {name: statistics.median(times) for name, times in clock.cpu.items()}
    return found


def run_epochs(options: argparse.Namespace, results: Results) -> None:
    for name, scale, factor, both in (
        ("scale 14, edge factor 200, both ways", 14, 200, True),
        ("scale 16, edge factor 50", 16, 50, False),
    ):
        num_nodes = 1 << scale
        edges = rmat(scale, factor)
        edges = both_ways(edges, num_nodes) if both else edges
        graph, weight = gcn_weights(edges, torch.ones(edges.shape[1]), num_nodes, None)
        indptr, indices, order = graph.transposed()
        torch.manual_seed(0)
        DATA["matrix"] = csr(graph.indptr, graph.indices, weight, num_nodes)
        DATA["transposed"] = csr(indptr, indices, weight[order], num_nodes)
        DATA["x"] = torch.randn(num_nodes, WIDTH)
        DATA["y"] = torch.randint(0, NUM_CLASSES, (num_nodes,))
        degree = edges.shape[1] / num_nodes
        for threads in options.threads:
            torch.set_num_threads(threads)
            cell = epoch_cell(graph, weight, options.rounds)
            results.add({"graph": name, "degree": degree, "threads": threads} | cell)
            words = [
                f"{key} {cell[key]['median']:.2f}x "
                f"[{cell[key]['least']:.2f}, {cell[key]['most']:.2f}], "
                f"{100 * cell[key]['median'] / cell['limit']:.0f} % of the limit"
                for key in ("k=32", "k=16")
            ]
            print(
                f"{name} (degree {degree:.0f}), {threads} threads: products are "
                f"{100 * cell['share']:.0f} % of the ReLU epoch, limit {cell['limit']:.2f}x; "
                + "; ".join(words),
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("kernels", "epoch", "paths"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="*", default=[1])
    parser.add_argument("--ks", type=int, nargs="*", default=[8, 16, 32, 64, 96, 128])
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="Sparse")
    run = {"kernels": run_kernels, "epoch": run_epochs, "paths": run_paths}[options.part]
    settings = vars(options) | {"width": WIDTH, "dtype": "float32"}
    run(options, Results(BENCHMARKS / "results" / f"graph_maxk_{options.part}.json", settings))


if __name__ == "__main__":
    main()
