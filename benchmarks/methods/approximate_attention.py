"""Approximate attention: how far from exact, and from which length it is faster.

    python benchmarks/methods/approximate_attention.py --text FILE

Error: a causal transformer of two layers, and one that sees both directions and fills in hidden
characters, are trained on a text by exact attention; the queries, keys and values of their layers
on unseen rows go through each approximation, and the error is relative (Frobenius). Linformer's
projections are as they begin, and fitted to the layer's exact result on other rows. Time: CPU time
of forward and backward on one thread, 8 heads of 64, beside torch's `scaled_dot_product_attention`
in the same round, in random order; the crossing length is the first from which the lower quartile
of the ratio stays above 1. Results go to benchmarks/results/approximate_attention.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from torch import nn

from steptime.methods.approximate_attention import (
    LinformerAttention,
    SlidingWindowAttention,
    relative_error,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

OUT = Path(__file__).resolve().parents[1] / "results" / "approximate_attention.json"
LENGTH, WIDTH, HEADS, LAYERS = 256, 64, 4, 2
LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
NUM_HEADS, HEAD_WIDTH = 8, 64
WINDOWS, RANKS = (32, 64, 128), (32, 64, 128)
HIDDEN_SHARE = 0.15
exact = nn.functional.scaled_dot_product_attention


class Block(nn.Module):
    """One layer, which keeps what its attention got."""

    def __init__(self, *, is_causal: bool) -> None:
        super().__init__()
        self.is_causal = is_causal
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.parts, self.joined = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.inner = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )
        self.got: tuple[torch.Tensor, ...] = ()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the next (batch, length, width)."""
        rows, length, _ = x.shape
        split = self.parts(self.norms[0](x)).view(rows, length, 3, HEADS, WIDTH // HEADS)
        self.got = tuple(split.permute(2, 0, 3, 1, 4))
        out = exact(*self.got, is_causal=self.is_causal)
        x = x + self.joined(out.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.inner(self.norms[1](x))


class Characters(nn.Module):
    """A transformer on characters."""

    def __init__(self, num_known: int, *, is_causal: bool) -> None:
        super().__init__()
        self.codes = nn.Embedding(num_known + 1, WIDTH)  # the last one hides a character
        self.places = nn.Embedding(LENGTH, WIDTH)
        blocks = (Block(is_causal=is_causal) for _ in range(LAYERS))
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(WIDTH, num_known)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return scores (batch, length, characters)."""
        return self.head(self.blocks(self.codes(x) + self.places.weight[: x.shape[1]]))


def train(codes: torch.Tensor, num_known: int, *, is_causal: bool, steps: int) -> Characters:
    """Train on windows of the first nine tenths."""
    torch.manual_seed(0)
    model = Characters(num_known, is_causal=is_causal)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(steps):
        x, wanted = batch_of(codes[: len(codes) * 9 // 10], num_known, is_causal=is_causal)
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"trained, {'causal' if is_causal else 'both directions'}: loss {loss.item():.3f}")
    return model


def batch_of(codes: torch.Tensor, num_known: int, *, is_causal: bool) -> tuple[Any, Any]:
    """Return inputs and targets: the next characters, or those that are hidden."""
    starts = torch.randint(0, len(codes) - LENGTH - 1, (8, 1))
    rows = codes[starts + torch.arange(LENGTH + 1)]
    if is_causal:
        return rows[:, :-1], rows[:, 1:]
    x = rows[:, :-1]
    is_hidden = torch.rand(x.shape) < HIDDEN_SHARE
    return x.masked_fill(is_hidden, num_known), x.masked_fill(~is_hidden, -100)


def parts_of(model: Characters, codes: torch.Tensor, num_known: int, *, is_causal: bool) -> Any:
    """Return what the attention of each layer got for unseen rows."""
    with torch.no_grad():
        x, _ = batch_of(codes[len(codes) * 9 // 10 :], num_known, is_causal=is_causal)
        model(x)
    return [[one.detach().contiguous() for one in block.got] for block in model.blocks]


def fitted(layer: LinformerAttention, batches: list[Any], *, steps: int) -> LinformerAttention:
    """Fit the projections to the exact result of other rows."""
    optimizer = torch.optim.Adam(layer.parameters(), lr=3e-3)
    for step in range(steps):
        given = batches[step % len(batches)]
        optimizer.zero_grad()
        (layer(*given) - exact(*given)).square().mean().backward()
        optimizer.step()
    return layer


def errors(codes: torch.Tensor, num_known: int, *, steps: int, fit: int) -> list[dict[str, Any]]:
    """Return the relative error of each approximation in each layer."""
    found = []
    for is_causal in (True, False):
        model = train(codes, num_known, is_causal=is_causal, steps=steps)
        unseen = parts_of(model, codes, num_known, is_causal=is_causal)
        more = [parts_of(model, codes, num_known, is_causal=is_causal) for _ in range(8)]
        for layer, given in enumerate(unseen):
            wanted = exact(*given, is_causal=is_causal)
            kinds: dict[str, Callable[..., Any]] = {
                f"window {one}": SlidingWindowAttention(one, is_causal=is_causal) for one in WINDOWS
            }
            if not is_causal:
                for rank in RANKS:
                    torch.manual_seed(rank)
                    plain = LinformerAttention(LENGTH, rank, shares=False)
                    kinds[f"linformer {rank}, as it begins"] = plain
                    own = LinformerAttention(LENGTH, rank, shares=False)
                    rows = [one[layer] for one in more]
                    kinds[f"linformer {rank}, fitted"] = fitted(own, rows, steps=fit)
            for name, attend in kinds.items():
                with torch.no_grad():
                    error = relative_error(attend(*given), wanted)
                words = "causal" if is_causal else "both directions"
                found.append(
                    {"model": words, "layer": layer, "name": name, "error": round(error, 4)}
                )
                print(f"{words:<16} layer {layer}  {name:<28} {error:.3f}", flush=True)
    return found


def cpu_s(attend: Callable[..., Any], given: list[torch.Tensor]) -> float:
    """Return the CPU time of a forward and a backward [s]."""
    start = time.process_time()
    attend(*given).sum().backward()
    return time.process_time() - start


def times(rounds: int) -> list[dict[str, Any]]:
    """Return the time of exact attention over that of each approximation, by length."""
    found = []
    for length in LENGTHS:
        torch.manual_seed(0)
        given = [torch.randn(1, NUM_HEADS, length, HEAD_WIDTH).requires_grad_() for _ in range(3)]
        acts: dict[str, Callable[..., Any]] = {
            "exact, causal": lambda *x: exact(*x, is_causal=True),
            "exact, both directions": exact,
        }
        for one in WINDOWS:
            acts[f"window {one}, causal"] = SlidingWindowAttention(one)
        acts["window 64, both directions"] = SlidingWindowAttention(64, is_causal=False)
        for one in RANKS:
            if one <= length:
                acts[f"linformer {one}, both directions"] = LinformerAttention(length, one)
        seen: dict[str, list[float]] = {name: [] for name in acts}
        for number in range(rounds + 1):
            for name in random.sample(sorted(acts), len(acts)):
                spent = cpu_s(acts[name], given)
                if number:  # the first one makes caches
                    seen[name].append(spent)
        for name, ours in seen.items():
            rival = seen["exact, " + name.split(", ")[1]]
            ratios = [a / b for a, b in zip(rival, ours, strict=True)]
            low, _, high = quantiles(ratios, n=4)
            found.append({"length": length, "name": name, "cpu_ms": round(1e3 * median(ours), 3),
                          "speedup": round(median(ratios), 3),
                          "quartiles": [round(low, 3), round(high, 3)], "n": rounds})  # fmt: skip
            print(f"{length:>5}  {name:<28} {1e3 * median(ours):>9.2f} ms"
                  f"  {median(ratios):6.2f} [{low:.2f}, {high:.2f}]", flush=True)  # fmt: skip
    return found


def crossings(rows: list[dict[str, Any]]) -> dict[str, int | None]:
    """Return the first length from which each is faster than exact attention, at each measured."""
    found: dict[str, int | None] = {}
    for name in {one["name"] for one in rows if not one["name"].startswith("exact")}:
        own = [one for one in rows if one["name"] == name]
        slower = [one["length"] for one in own if one["quartiles"][0] <= 1]
        later = [one["length"] for one in own if one["length"] > max(slower, default=0)]
        found[name] = min(later, default=None)
    return dict(sorted(found.items()))


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--fit", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    torch.set_num_threads(1)
    random.seed(0)
    load = os.getloadavg()[0]
    rows = times(args.rounds)
    crossing = crossings(rows)
    print(crossing)
    text = args.text.read_text(encoding="utf-8")
    known = {one: number for number, one in enumerate(sorted(set(text)))}
    codes = torch.tensor([known[one] for one in text])
    document = {
        **stamp(),
        "command": "python benchmarks/methods/approximate_attention.py --text FILE"
        f" --steps {args.steps} --fit {args.fit} --rounds {args.rounds}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, 1 thread, process CPU time",
        "load_average": load,
        "torch": torch.__version__,
        "text": f"{args.text.name}, {len(text):,} characters",
        "model": f"{LAYERS} layers, {HEADS} heads of {WIDTH // HEADS}, rows of {LENGTH}",
        "crossing_length": crossing,
        "times": rows,
        "errors": errors(codes, len(known), steps=args.steps, fit=args.fit),
    }
    OUT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
