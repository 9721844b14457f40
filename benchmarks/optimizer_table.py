"""Optimizers side by side: bytes of state, CPU time of a step, quality at equal CPU time.

    python benchmarks/optimizer_table.py --mnist FOLDER --text FILE [--seeds 3] [--budget-s 3]

Two tasks: MNIST at 14 x 14 with a small convolutional network (test accuracy), and characters of a
text with a one-block transformer (loss on its last tenth). Each optimizer trains for the same CPU
time of its process, evaluations left out, at each of three rates; the best rate is chosen by the
mean over seeds. Muon is the lever `other_optimizer`: hidden matrices by Muon, the rest by AdamW.
Results go to benchmarks/results/optimizer_table.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import torch
from _small_tasks import mnist
from torch import nn

from steptime.levers import load
from steptime.testing.lever_session_double import PlainSession

OUT = Path(__file__).resolve().parent / "results" / "optimizer_table.json"
RATES = {"SGD": (0.03, 0.1, 0.3), "AdamW": (1e-3, 3e-3, 1e-2)}
RATES |= {"Adafactor": (1e-3, 3e-3, 1e-2), "Muon": (1e-3, 3e-3, 1e-2)}
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


def train(task: Task, name: str, rate: float, *, seed: int, budget_s: float) -> dict[str, float]:
    """Train for a CPU time; return quality, median time of an update, bytes of state."""
    make, batch, quality = task
    torch.manual_seed(seed)
    model, chance = make(), torch.Generator().manual_seed(seed)
    kind = torch.optim.AdamW if name == "Muon" else getattr(torch.optim, name)
    more = {"momentum": 0.9} if name == "SGD" else {}
    with PlainSession(torch) as session:
        lever = load("other_optimizer")
        assert lever.apply is not None
        undo = lever.apply({"optimizer": "muon"}, session) if name == "Muon" else None
        kind = torch.optim.AdamW if name == "Muon" else kind
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
        if undo is not None:
            undo()
    state = sum(
        one.nbytes for own in optimizer.state.values() for one in own.values()
        if isinstance(one, torch.Tensor)
    )  # fmt: skip
    return {
        "quality": quality(model),
        "update_us": median(updates_s) * 1e6,
        "state_bytes": state,
        "steps": steps,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--mnist", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget-s", type=float, default=3.0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    tasks = {"mnist": digits_task(args.mnist), "characters": text_task(args.text)}
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
        "date": time.strftime("%Y-%m-%d"),
        "command": "python benchmarks/optimizer_table.py --mnist FOLDER --text FILE"
        f" --seeds {args.seeds} --budget-s {args.budget_s:g}",
        "quality": "mnist: test accuracy; characters: loss on the last tenth, negative",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, 1 thread, process CPU time",
        "load_average": os.getloadavg()[0],
        "torch": torch.__version__,
        "rows": rows,
    }
    OUT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
