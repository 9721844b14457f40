"""What the lever `compile` costs once and gives each step: a model whole, by its blocks, tuned.

    python benchmarks/tune/compile_by_region.py [--layers 6 --width 256] [--rounds 15]
        [--only NAME ...]

Trains a transformer of torch's own layers (AdamW, batch 8 of 128 tokens, float32, one thread). The
price is the CPU time of the first two steps, children included, each in a process of its own with
an empty cache, less two later ones. Steps are compared in one process, in turns, in random order:
CPU time of a step with an arm on, over that of an eager step of the same round. Results go to
benchmarks/results/compile_by_region.json, one row for each model.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median, quantiles
from time import process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import BENCHMARKS, conditions

OUT = BENCHMARKS / "results" / "compile_by_region.json"
ARMS: dict[str, dict[str, str] | None] = {
    "eager": None,
    "blocks": {"mode": "default", "scope": "blocks"},
    "whole": {"mode": "default"},
    "max-autotune": {"mode": "max-autotune"},
}
VOCABULARY, BATCH, LENGTH = 512, 8, 128


def main() -> None:
    """Measure each arm's price, then all arms in turns, and save."""
    options = read_options()
    if options.cold:
        print(json.dumps(pay_once(options)))
        return
    names = ["eager", *(name for name in options.only if name != "eager")]
    prices = {name: cold(name, options) for name in names}
    row = {
        "layers": options.layers,
        "width": options.width,
        "dropout": options.dropout,
        "price_cpu_s": prices,
        "speedup": in_turns(names, options),
    }
    print(json.dumps(row, indent=1))
    rows = json.loads(OUT.read_text())["rows"] if OUT.exists() else []
    size = (options.layers, options.width, options.dropout)
    rows = [one for one in rows if (one["layers"], one["width"], one["dropout"]) != size]
    OUT.write_text(json.dumps({"conditions": conditions(), "rows": [*rows, row]}, indent=1) + "\n")


def read_options() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", nargs="+", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--cold", choices=list(ARMS))
    return parser.parse_args()


def cold(name: str, options: argparse.Namespace) -> float:
    """CPU time of compiling in a process with an empty cache [s]."""
    size = [f"--{word}={getattr(options, word)}" for word in ("layers", "width", "dropout")]
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": folder,
            "TORCHINDUCTOR_COMPILE_THREADS": "1",  # else a pool would, which outlives the count
        }
        command = [sys.executable, str(Path(__file__)), "--cold", name, *size]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout))


def pay_once(options: argparse.Namespace) -> float:
    """CPU time that the first two steps take beyond two later ones [s]."""
    training = Training(options)
    with training.arm(options.cold):
        times = []
        for _ in range(3):
            before = cpu_s()
            training.step()
            training.step()
            times.append(cpu_s() - before)
    return round(times[0] - min(times[1:]), 2)


def in_turns(names: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """Speedup of each arm over the eager step of its round, with quartiles; the A/A is `eager`."""
    training = Training(options)
    for name in names:
        with training.arm(name):
            training.step()
            training.step()
    ratios: dict[str, list[float]] = {name: [] for name in names}
    shuffle = random.Random(0).shuffle
    for _ in range(options.rounds):
        order = ["reference", *names]
        shuffle(order)
        took = {}
        for name in order:
            with training.arm("eager" if name == "reference" else name):
                training.step()  # settles
                before = cpu_s()
                training.step()
                took[name] = cpu_s() - before
        for name in names:
            ratios[name].append(took["reference"] / took[name])
    return {name: spread(found) for name, found in ratios.items()}


def spread(values: list[float]) -> dict[str, float]:
    """Median and quartiles."""
    low, _, high = quantiles(values, n=4)
    middle = {"median": median(values), "q1": low, "q3": high}
    return {name: round(value, 3) for name, value in middle.items()} | {"n": len(values)}


def cpu_s() -> float:
    """CPU time of this process and of its children that have ended [s]."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return process_time() + children.ru_utime + children.ru_stime


class Training:
    """The model, and the lever on it."""

    def __init__(self, options: argparse.Namespace) -> None:
        import torch
        from torch import nn

        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.torch, width = torch, options.width
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=options.dropout, batch_first=True
        )
        self.model = nn.Sequential(
            nn.Embedding(VOCABULARY, width),
            nn.TransformerEncoder(layer, options.layers, enable_nested_tensor=False),
            nn.Linear(width, VOCABULARY),
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4)
        self.tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH + 1))

    def step(self) -> None:
        """Train on the batch once more."""
        logits = self.model(self.tokens[:, :-1]).flatten(0, 1)
        loss = self.torch.nn.functional.cross_entropy(logits, self.tokens[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def arm(self, name: str) -> Any:
        """A `with` in which the lever is on with the settings of an arm."""
        from contextlib import ExitStack

        from steptime.levers import load
        from steptime.testing.lever_session_double import PlainSession

        stack, settings, apply = ExitStack(), ARMS[name], load("compile").apply
        if settings is not None:
            assert apply is not None
            stack.callback(apply(settings, stack.enter_context(PlainSession(self.torch))))
        return stack


if __name__ == "__main__":
    main()
