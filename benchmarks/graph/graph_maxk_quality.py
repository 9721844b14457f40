"""What MaxK costs in accuracy: beside ReLU on Cora and Citeseer, and over k on a block model.

    python benchmarks/graph/graph_maxk_quality.py planetoid --data FOLDER
        [--networks gcn sage gin gat]
    python benchmarks/graph/graph_maxk_quality.py blocks [--seeds 5]

FOLDER holds the files `ind.cora.*` and `ind.citeseer.*` of kimiyoung/planetoid (MIT). The network
is GCN, SAGE (mean) or GIN with two sums over neighbors and 256 hidden entries between them, where
MaxK is in the product; or two layers of GAT with eight heads of 32, where it is the activation
alone, as attention gives each edge and head a weight of its own. k is 32. Both arms choose dropout
from the same grid, by the mean accuracy on the validation nodes over two seeds of their own. Then
come the seeds that are compared: accuracy on the test nodes in the epoch that is best on the
validation nodes. `blocks` is a stochastic block model of 5,000 nodes with noisy features, with the
settings chosen for ReLU, which favors ReLU. Results go to
benchmarks/results/graph_maxk_quality_<part>.json.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import warnings
from pathlib import Path
from typing import Any

import torch
from _maxk_graphs import Results
from torch import nn
from torch.nn import functional
from torch_geometric.io import read_planetoid_data
from torch_geometric.nn import GATConv

from steptime.graph.adjacency import Adjacency
from steptime.graph.maxk import CBSR, aggregate, compress, maxk
from steptime.graph.maxk_layers import gcn_weights

BENCHMARKS = Path(__file__).resolve().parents[1]
HIDDEN = 256
K = 32
BLOCK_KS = (4, 16, 32, 64, 128, 256)
WEIGHT_DECAY = 5e-4
GRID = {"lr": (0.01,), "dropout": (0.5, 0.8, 0.9)}
TUNING_SEEDS = (1001, 1002)
EPOCHS = {"gcn": 60, "sage": 60, "gin": 60, "gat": 40}


class SparseProduct(torch.autograd.Function):
    """Bags of words times a weight; most words are zero."""

    @staticmethod
    def forward(ctx: Any, words: tuple[Adjacency, Any], weight: Any) -> Any:
        ctx.words = words
        return words[0].product(words[1], weight)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> tuple[None, Any]:
        return None, ctx.words[0].transposed_product(ctx.words[1], grad.contiguous())


class Spread(torch.autograd.Function):
    """A network's sum over neighbors of dense rows, with its transposed graph made once."""

    @staticmethod
    def forward(ctx: Any, x: Any, graph: Adjacency, weight: Any) -> Any:
        ctx.how = graph, weight
        return graph.product(weight, x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> tuple[Any, None, None]:
        graph, weight = ctx.how
        return graph.transposed_product(weight, grad.contiguous()), None, None


class Network(nn.Module):
    """GCN, SAGE, GIN or GAT; k is None for ReLU."""

    def __init__(self, kind: str, data: dict[str, Any], k: int | None, dropout: float) -> None:
        super().__init__()
        self.kind, self.k, self.dropout, self.data = kind, k, dropout, data
        self.first, num_classes = word_weight(data), data["num_classes"]
        self.bias = nn.Parameter(torch.zeros(HIDDEN))
        self.last: Any = nn.Linear(HIDDEN, num_classes)
        if kind == "gat":
            self.middle = GATConv(HIDDEN, HIDDEN // 8, heads=8)
            self.last = GATConv(HIDDEN, num_classes, heads=1)
        elif kind == "sage":
            self.first_root = word_weight(data)
            self.last_root = nn.Linear(HIDDEN, num_classes, bias=False)
        elif kind == "gin":
            self.middle = nn.Sequential(nn.ReLU(), nn.Linear(HIDDEN, HIDDEN))
            self.last = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), self.last)

    def forward(self) -> Any:
        x = of_words(self.data["words"], self.first)
        if self.kind == "gat":
            x = self.drop(self.activate(x + self.bias))
            x = self.drop(self.activate(self.middle(x, self.data["edges"])))
            return self.last(x, self.data["edges"])
        x = Spread.apply(x, *self.data[self.kind]) + self.bias
        if self.kind == "sage":
            x = x + of_words(self.data["words"], self.first_root)
        elif self.kind == "gin":
            x = self.middle(x)
        own, summed = self.spread(x)
        out = self.last(summed)
        return out + self.last_root(own) if self.kind == "sage" else out

    def activate(self, x: Any) -> Any:
        return torch.relu(x) if self.k is None else maxk(x, self.k)

    def drop(self, x: Any) -> Any:
        return functional.dropout(x, self.dropout, self.training)

    def spread(self, x: Any) -> tuple[Any, Any]:
        """The activation with dropout, where SAGE needs it, and its sum over neighbors."""
        graph, weight = self.data[self.kind]
        if self.k is None:
            own = self.drop(torch.relu(x))
            return own, Spread.apply(own, graph, weight)
        rows = compress(x, self.k)
        rows = CBSR(val=self.drop(rows.val), idx=rows.idx, width=rows.width)
        own = rows.dense() if self.kind == "sage" else None
        return own, aggregate(graph, rows, weight)


def of_words(words: Any, weight: Any) -> Any:
    """The first product: of a sparse matrix for bags of words, of a dense one for the blocks."""
    return SparseProduct.apply(words, weight) if isinstance(words, tuple) else words @ weight


def word_weight(data: dict[str, Any]) -> nn.Parameter:
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(data["num_features"], HIDDEN)))


def train(kind: str, data: dict[str, Any], k: int | None, seed: int, how: dict) -> dict[str, float]:
    """Accuracy on validation and test nodes, in the epoch that is best on the former."""
    torch.manual_seed(seed)
    network = Network(kind, data, k, how["dropout"])
    optimizer = torch.optim.Adam(network.parameters(), lr=how["lr"], weight_decay=WEIGHT_DECAY)
    best = {"validation": -1.0, "test": -1.0}
    for _ in range(EPOCHS[kind]):
        network.train()
        optimizer.zero_grad()
        chosen = data["train"]
        functional.cross_entropy(network()[chosen], data["y"][chosen]).backward()
        optimizer.step()
        network.eval()
        with torch.no_grad():
            hit = (network().argmax(dim=1) == data["y"]).float()
        now = {
            "validation": hit[data["val"]].mean().item(),
            "test": hit[data["test"]].mean().item(),
        }
        if now["validation"] > best["validation"]:
            best = now
    return best


def tuned(kind: str, data: dict[str, Any], k: int | None) -> dict[str, float]:
    """The settings of the grid with the best mean on the validation nodes."""
    grid = [dict(zip(GRID, each, strict=True)) for each in itertools.product(*GRID.values())]

    def score(how: dict[str, float]) -> float:
        each = [train(kind, data, k, seed, how)["validation"] for seed in TUNING_SEEDS]
        return statistics.mean(each)

    return max(grid, key=score)


def spread_of(accuracies: list[float]) -> dict[str, Any]:
    """Mean and standard error in points, with each."""
    points = [100 * each for each in accuracies]
    error = statistics.stdev(points) / math.sqrt(len(points)) if len(points) > 1 else None
    return {
        "mean": statistics.mean(points),
        "standard_error": error,
        "n": len(points),
        "each": points,
    }


def compare(kind: str, name: str, data: dict[str, Any], seeds: int) -> dict[str, Any]:
    found: dict[str, Any] = {"data": name, "network": kind, "k": K}
    for arm, k in (("relu", None), ("maxk", K)):
        how = tuned(kind, data, k)
        tests = [train(kind, data, k, seed, how)["test"] for seed in range(seeds)]
        found[arm] = spread_of(tests) | {"settings": how}
    found["points_below_relu"] = found["relu"]["mean"] - found["maxk"]["mean"]
    print(
        f"{name} {kind}: ReLU {found['relu']['mean']:.2f} ± {found['relu']['standard_error']:.2f}, "
        f"MaxK (k={K}) {found['maxk']['mean']:.2f} ± {found['maxk']['standard_error']:.2f}, "
        f"{found['points_below_relu']:+.2f} points below (n={seeds} seeds each)",
        flush=True,
    )
    return found


def about_graph(edges: Any, num_nodes: int) -> dict[str, Any]:
    """The graph as each network weighs it: GIN counts a node as its own neighbor, SAGE averages."""
    mean = Adjacency.from_edge_index(edges, num_nodes, num_nodes)
    inverse = (mean.indptr[1:] - mean.indptr[:-1]).clamp(min=1).float().reciprocal()
    nodes = torch.arange(num_nodes)
    loops = torch.cat([edges, torch.stack([nodes, nodes])], dim=1)
    return {
        "edges": edges,
        "gcn": gcn_weights(edges, torch.ones(edges.shape[1]), num_nodes, 1.0),
        "sage": (mean, inverse[mean.rows()]),
        "gin": (Adjacency.from_edge_index(loops, num_nodes, num_nodes), None),
    }


def about_words(x: Any) -> dict[str, Any]:
    at = x.nonzero().T
    words = Adjacency.from_edge_index(at.flip(0), *x.shape)
    return {"words": (words, x[at[0], at[1]][words.order]), "num_features": x.shape[1]}


def planetoid(folder: str, name: str) -> dict[str, Any]:
    """A citation graph with its public split; each bag of words sums to one."""
    read = read_planetoid_data(folder, name)
    x = read.x / read.x.sum(dim=1, keepdim=True).clamp(min=1)
    split = {part: read[f"{part}_mask"].nonzero()[:, 0] for part in ("train", "val", "test")}
    classes = {"y": read.y, "num_classes": int(read.y.max()) + 1}
    return about_graph(read.edge_index, len(x)) | about_words(x) | split | classes


def blocks(seed: int, *, num_nodes: int = 5000, num_classes: int = 8) -> dict[str, Any]:
    """A stochastic block model of mean degree 16 with features that hardly tell the classes."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(0, num_classes, (num_nodes,), generator=draw)
    num = num_nodes * 30
    pairs = torch.randint(0, num_nodes, (2, num), generator=draw)
    same = y[pairs[0]] == y[pairs[1]]
    kept = torch.rand(num, generator=draw) < torch.where(same, 0.8, 0.2)
    pairs = pairs[:, kept & (pairs[0] < pairs[1])]
    edges = torch.unique(torch.cat([pairs, pairs.flip(0)], dim=1), dim=1)
    centers = torch.randn(num_classes, 64, generator=draw) * 0.5
    x = centers[y] + torch.randn(num_nodes, 64, generator=draw)
    order = torch.randperm(num_nodes, generator=draw)
    split = {"train": order[:250], "val": order[250:1000], "test": order[1000:]}
    classes = {"y": y, "num_classes": num_classes}
    return (
        about_graph(edges, num_nodes) | {"words": x, "num_features": x.shape[1]} | split | classes
    )


def run_planetoid(options: argparse.Namespace, results: Results) -> None:
    for kind in options.networks:
        for name in options.graphs:
            data = planetoid(options.data, name)
            results.add(compare(kind, name, data, options.seeds))


def run_blocks(options: argparse.Namespace, results: Results) -> None:
    graphs = [blocks(seed) for seed in range(options.seeds)]
    how = tuned("gcn", blocks(999), None)
    for k in (None, *BLOCK_KS):
        tests = [train("gcn", data, k, seed, how)["test"] for seed, data in enumerate(graphs)]
        cell = {"k": k, "settings": how} | spread_of(tests)
        results.add(cell)
        name = "ReLU " if k is None else f"k={k:3d}"
        print(f"{name} {cell['mean']:.2f} ± {cell['standard_error']:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("planetoid", "blocks"))
    parser.add_argument("--data")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--networks", nargs="*", default=["gcn", "gat"])
    parser.add_argument("--graphs", nargs="*", default=["cora", "citeseer"])
    options = parser.parse_args()
    if options.part == "planetoid" and not options.data:
        parser.error("planetoid needs --data FOLDER with the files ind.cora.* and ind.citeseer.*")
    warnings.filterwarnings("ignore", message="Sparse")
    run = {"planetoid": run_planetoid, "blocks": run_blocks}[options.part]
    parts = [options.part, *options.networks, *(options.graphs if len(options.graphs) == 1 else ())]
    label = "_".join(parts) if options.part == "planetoid" else options.part
    settings = {"seeds": options.seeds, "hidden": HIDDEN, "grid": GRID, "epochs": EPOCHS}
    run(options, Results(BENCHMARKS / "results" / f"graph_maxk_quality_{label}.json", settings))


if __name__ == "__main__":
    main()
