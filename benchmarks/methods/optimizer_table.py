"""Optimizers side by side: bytes of state, CPU time of a step, quality at equal CPU time.

    python benchmarks/methods/optimizer_table.py --mnist FOLDER --text FILE --cora FOLDER
        [--seeds 3]

Three tasks: MNIST at 14 x 14 with a small convolutional network (test accuracy), characters of a
text with a one-block transformer (loss on its last tenth), and Cora with a GCN of two layers on
the whole graph (test accuracy, planetoid's split). Each optimizer trains for the same CPU time of
its process, evaluations left out, at each of three rates; the best rate is chosen by the mean over
seeds. All but SGD, AdamW and Adafactor are the lever `other_optimizer` under AdamW's name, so Lion
gets a tenth of the rate that is named; those whose package is not installed are left out. Results
go to benchmarks/results/optimizer_table.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import torch
from torch import nn

from steptime.levers import load
from steptime.testing.lever_session_double import PlainSession

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp
from _small_tasks import mnist

OUT = Path(__file__).resolve().parents[1] / "results" / "optimizer_table.json"
RATES = {"SGD": (0.03, 0.1, 0.3), "AdamW": (3e-3, 1e-2, 3e-2)}
RATES |= {"Adafactor": (3e-3, 1e-2, 3e-2)}
SWAPPED = {"Muon": "muon", "Lion": "lion", "SOAP": "soap", "schedule-free": "schedule_free"}
RATES |= dict.fromkeys(SWAPPED, (3e-3, 1e-2, 3e-2))
PACKAGES = {"Lion": "pytorch_optimizer", "SOAP": "pytorch_optimizer"}
PACKAGES |= {"schedule-free": "schedulefree"}
LENGTH = 32


class Characters(nn.Module):
    """One block of attention over characters."""

    def __init__(self, num: int, width: int = 64) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(num, width), nn.Embedding(LENGTH, width)
        self.query_key_value, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.head = nn.Linear(width, num)

    def forward(self, x: Any) -> Any:
        x = self.token(x) + self.place.weight
        parts = self.query_key_value(self.norms[0](x)).unflatten(-1, (3, 4, -1))
        q, k, v = (one.transpose(1, 2) for one in parts.unbind(2))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        x = x + self.down(nn.functional.gelu(self.up(self.norms[1](x))))
        return self.head(self.norms[2](x))


Task = tuple[
    Callable[[], nn.Module], Callable[[Any], tuple[Any, Any]], Callable[[nn.Module], float]
]


def digits_task(folder: Path) -> Task:
    """Return model, batches and test accuracy of MNIST."""
    images, labels, held, right = mnist(folder, num_train=10_000, num_test=1_000)

    def make() -> nn.Module:
        return nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(288, 64), nn.ReLU(), nn.Linear(64, 10)),
        )

    def batch(chance: Any) -> tuple[Any, Any]:
        some = torch.randint(0, len(images), (64,), generator=chance)
        return images[some], labels[some]

    def quality(model: nn.Module) -> float:
        with torch.no_grad():
            return (model(held).argmax(1) == right).float().mean().item()

    return make, batch, quality


def text_task(file: Path) -> Task:
    """Return model, batches and the negative loss on the held-out end of a text."""
    text = file.read_text(encoding="utf-8")
    known = {one: number for number, one in enumerate(sorted(set(text)))}
    codes = torch.tensor([known[one] for one in text])
    cut = len(codes) * 9 // 10

    def windows(starts: Any) -> tuple[Any, Any]:
        places = starts.unsqueeze(1) + torch.arange(LENGTH)
        return codes[places], codes[places + 1]

    def batch(chance: Any) -> tuple[Any, Any]:
        return windows(torch.randint(0, cut - LENGTH - 1, (32,), generator=chance))

    def quality(model: nn.Module) -> float:
        x, y = windows(torch.arange(cut, len(codes) - LENGTH - 1, (len(codes) - cut) // 256))
        with torch.no_grad():
            return -nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()).item()

    return lambda: Characters(len(known)), batch, quality


class Convolutions(nn.Module):
    """A GCN of two layers on one graph; in training it gives the scores of the training nodes."""

    def __init__(self, adjacency: Any, train: Any, sizes: tuple[int, int]) -> None:
        super().__init__()
        self.adjacency, self.train_nodes = adjacency, train
        self.first, self.second = nn.Linear(sizes[0], 64), nn.Linear(64, sizes[1])

    def forward(self, x: Any) -> Any:
        """Return scores (nodes, classes)."""
        x = self.adjacency @ (x @ self.first.weight.T) + self.first.bias  # few words: sparse
        x = nn.functional.dropout(x.relu(), training=self.training)
        x = self.adjacency @ self.second(x)
        return x[self.train_nodes] if self.training else x


def cora_task(folder: Path) -> Task:
    """Return model, batches and test accuracy of Cora, on planetoid's split."""
    from torch_geometric.io import read_planetoid_data
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    data = read_planetoid_data(str(folder), "cora")
    edges, weights = gcn_norm(data.edge_index, num_nodes=data.num_nodes)
    shape = (data.num_nodes, data.num_nodes)
    adjacency = torch.sparse_coo_tensor(edges, weights, shape).coalesce().to_sparse_csr()
    x = data.x / data.x.sum(1, keepdim=True).clamp(min=1)
    sizes, x = (x.shape[1], int(data.y.max()) + 1), x.to_sparse_csr()

    def make() -> nn.Module:
        return Convolutions(adjacency, data.train_mask, sizes)

    def quality(model: nn.Module) -> float:
        with torch.no_grad():
            right = model(x).argmax(1) == data.y
        return right[data.test_mask].float().mean().item()

    return make, lambda chance: (x, data.y[data.train_mask]), quality


def bytes_of(state: Any) -> int:
    """Return the bytes of all tensors in a state."""
    if isinstance(state, torch.Tensor):
        return state.nbytes
    parts = state.values() if isinstance(state, dict) else state
    return sum(map(bytes_of, parts)) if isinstance(state, (dict, list, tuple)) else 0


def train(task: Task, name: str, rate: float, *, seed: int, budget_s: float) -> dict[str, float]:
    """Train for a CPU time; return quality, median time of an update, bytes of state."""
    make, batch, quality = task
    torch.manual_seed(seed)
    model, chance = make(), torch.Generator().manual_seed(seed)
    more = {"momentum": 0.9} if name == "SGD" else {}
    with PlainSession(torch) as session:
        lever = load("other_optimizer")
        assert lever.apply is not None
        swapped = SWAPPED.get(name)
        undo = lever.apply({"optimizer": swapped}, session) if swapped else None
        kind = torch.optim.AdamW if swapped else getattr(torch.optim, name)
        optimizer: Any = kind(model.parameters(), lr=rate, **more)
        start, updates_s, steps = time.process_time(), [], 0
        while time.process_time() - start < budget_s:
            x, y = batch(chance)
            made = model(x)
            loss = nn.functional.cross_entropy(made.flatten(0, -2), y.flatten())
            optimizer.zero_grad()
            loss.backward()
            began = time.process_time()
            optimizer.step()
            updates_s.append(time.process_time() - began)
            steps += 1
        model.eval()
        reached = quality(model)
        if undo is not None:
            undo()
    state = sum(bytes_of(own) for own in optimizer.state.values())
    return {
        "quality": reached,
        "update_us": median(updates_s) * 1e6,
        "state_bytes": state,
        "steps": steps,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--mnist", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--cora", type=Path, required=True, help="folder of planetoid's files")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget-s", type=float, default=3.0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name, package in PACKAGES.items():
        if find_spec(package) is None:
            del RATES[name]
    tasks = {"mnist": digits_task(args.mnist), "characters": text_task(args.text)}
    tasks["cora"] = cora_task(args.cora)
    rows = []
    for task_name, task in tasks.items():
        by: dict[tuple[str, float], list[dict[str, float]]] = {}
        for seed in range(args.seeds):  # seeds outside, so that a busy time meets all alike
            for name, rates in RATES.items():
                for rate in rates:
                    one = train(task, name, rate, seed=seed, budget_s=args.budget_s)
                    by.setdefault((name, rate), []).append(one)
        for name, rates in RATES.items():
            best = max(rates, key=lambda r: mean(one["quality"] for one in by[name, r]))
            found = by[name, best]
            row = {
                "task": task_name,
                "optimizer": name,
                "rate": best,
                "state_bytes": found[0]["state_bytes"],
                "update_us": round(median(one["update_us"] for one in found), 1),
                "steps": median(one["steps"] for one in found),
                "quality": round(mean(one["quality"] for one in found), 4),
                "sd": round(stdev(one["quality"] for one in found), 4),
            }
            rows.append(row)
            print(row, flush=True)
    document = {
        **stamp(),
        "command": "python benchmarks/methods/optimizer_table.py --mnist FOLDER --text FILE"
        f" --cora FOLDER --seeds {args.seeds} --budget-s {args.budget_s:g}",
        "packages": {one: version(one) for one in sorted(set(PACKAGES.values())) if find_spec(one)},
        "quality": "mnist, cora: test accuracy; characters: loss on the last tenth, negative",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, 1 thread, process CPU time",
        "load_average": os.getloadavg()[0],
        "torch": torch.__version__,
        "rows": rows,
    }
    OUT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
