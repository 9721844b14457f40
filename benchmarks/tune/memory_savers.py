"""What the levers that free memory free, by counted bytes, beside their estimates and their price.

    python benchmarks/tune/memory_savers.py [--rounds 6] [--only NAME ...]

Each case is a training of one process on one thread. `peak` is the most that torch's CPU allocator
had given out in a step, by all of its events, above what weights, states and the batch take at the
step's beginning. `frees` is the peak without the lever less that with it; `estimate` is what
`Lever.frees` said by the measured facts of the training without it. `cpu_speedup` is the CPU time
of a step without / with, in turns A B B A. `same_bits` compares all gradients and weights of three
steps. Results go to benchmarks/results/memory_savers.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from ranks_and_memory_levers import in_turns, summary
from torch import nn
from torch.profiler import ProfilerActivity, profile

from steptime.guest.trial.looks.block_look import PASSES, BlockLook
from steptime.levers import load
from steptime.levers.base import BlockFacts, BlockOperator, Facts
from steptime.levers.memory.selective_checkpointing import settings_for
from steptime.testing.lever_session_double import PlainSession

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import BENCHMARKS, conditions

OUT = BENCHMARKS / "results" / "memory_savers.json"
WARM = 3
"""Steps before one is counted: states are made, and blocks are known."""


class Tokens(nn.Module):
    """A language model of six blocks whose MLPs differ: as wide as usual, and twice that."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(512, 256)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(256, 4, 1024 * (1 + number % 2), dropout, batch_first=True)
            for number in range(6)
        )
        self.head = nn.Linear(256, 512)

    def forward(self, tokens: Any) -> Any:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def make(kind: str) -> tuple[Any, Any, Any]:
    """A model, its inputs and its optimizer."""
    torch.manual_seed(0)
    if kind.startswith("gpt"):
        model, inputs = Tokens(0.1), torch.randint(512, (8, 128))
        return model, inputs, torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    width, depth, rows = {"wide": (1024, 8, 8), "narrow": (32, 24, 8)}[kind.partition(" ")[0]]
    layers = [part for _ in range(depth) for part in (nn.Linear(width, width), nn.GELU())]
    model = nn.Sequential(*layers, nn.Linear(width, 8))
    is_foreach = kind.endswith("foreach")
    return (
        model,
        torch.randn(rows, width),
        torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=is_foreach),
    )


def step_of(model: Any, inputs: Any, optimizer: Any) -> Callable[[], None]:
    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    return step


def peak_of(step: Callable[[], None], optimizer: Any) -> int:
    """The most that a step takes above what is there before it."""
    optimizer.zero_grad()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step()
    held = peak = 0
    events = [e for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def facts_of(kind: str) -> Facts:
    """The blocks as a trial measures them, and the gradients and temporary results at the peak."""
    model, inputs, optimizer = make(kind)
    look, failures = None, []
    look = BlockLook(torch, failures.append)
    for _ in PASSES:
        optimizer.zero_grad()
        look.run(model, lambda: model(inputs)).square().mean().backward()
        optimizer.step()
    assert not failures, failures
    rows = look.describe().get("blocks", [])
    blocks = tuple(
        BlockFacts(**{**row, "operators": tuple(BlockOperator(**one) for one in row["operators"])})
        for row in rows
    )
    return Facts(torch_version=str(torch.__version__), blocks=blocks or None)


def wanted(part: float) -> Callable[[Facts], Any]:
    """Settings that free a part of what the blocks keep."""

    def choose(facts: Facts) -> Any:
        blocks = facts.blocks or ()
        return settings_for(blocks, round(part * sum(one.kept_bytes for one in blocks)))

    return choose


CASES: dict[str, tuple[str, str, Callable[[Facts], Any]]] = {
    "all blocks": ("gpt", "activation_checkpointing", lambda facts: {"every": 1}),
    "every second block": ("gpt", "activation_checkpointing", lambda facts: {"every": 2}),
    "selective, a quarter": ("gpt", "selective_checkpointing", wanted(0.25)),
    "selective, a half": ("gpt", "selective_checkpointing", wanted(0.5)),
    "selective, three quarters": ("gpt", "selective_checkpointing", wanted(0.75)),
    "updated in backward, wide": ("wide", "optimizer_in_backward", lambda facts: {}),
    "updated in backward, narrow": ("narrow", "optimizer_in_backward", lambda facts: {}),
    "no foreach, wide": ("wide foreach", "no_foreach", lambda facts: {}),
    "no foreach, narrow": ("narrow foreach", "no_foreach", lambda facts: {}),
}


def bits(kind: str, lever: str, settings: Any) -> list[Any]:
    """All weights after some steps; without a lever if it has no name."""
    with PlainSession(torch) as session:
        if lever:
            load(lever).apply(settings, session)  # type: ignore[misc]
        model, inputs, optimizer = make(kind)
        step = step_of(model, inputs, optimizer)
        for _ in range(WARM):
            step()
        return [p.detach().clone() for p in model.parameters()]


def run_case(name: str, rounds: int) -> dict[str, Any]:
    kind, lever_name, choose = CASES[name]
    lever, facts = load(lever_name), facts_of(kind)
    settings = choose(facts)
    same = all(map(torch.equal, bits(kind, "", {}), bits(kind, lever_name, settings)))
    peaks: dict[bool, int] = {}
    with PlainSession(torch) as session:
        model, inputs, optimizer = make(kind)
        step = step_of(model, inputs, optimizer)
        num_steps = 40 if kind.startswith("narrow") else 3

        def block(is_on: bool) -> float:  # noqa: FBT001
            undo = lever.apply(settings, session) if is_on else None  # type: ignore[misc]
            for _ in range(WARM if is_on not in peaks else 1):
                step()
            if is_on not in peaks:
                peaks[is_on] = peak_of(step, optimizer)
            began = time.process_time()
            for _ in range(num_steps):
                step()
            took = time.process_time() - began
            if undo is not None:
                undo()
            return took

        pairs = list(in_turns(rounds, block))
    size = sum(p.nbytes for p in model.parameters())
    at_peak = {"gradients": size, "temporaries": peaks[False] - size}
    known = dataclasses.replace(facts, peak_bytes=at_peak, peak_phase="optimizer")
    return {
        "settings": dict(settings),
        "weights_bytes": size,
        "peak_bytes": peaks[False],
        "peak_with_bytes": peaks[True],
        "frees_bytes": peaks[False] - peaks[True],
        "estimate_bytes": lever.frees(known, settings) if lever.frees else None,
        "same_bits": same,
        "cpu_speedup": summary([off / on for off, on in pairs]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--only", nargs="+", choices=CASES, metavar="NAME", default=tuple(CASES))
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = json.loads(OUT.read_text()) if OUT.exists() else {"cases": {}}
    results["conditions"] = conditions()
    for name in options.only:
        found = run_case(name, options.rounds)
        results["cases"][name] = found
        OUT.write_text(json.dumps(results, indent=1) + "\n")
        print(name, json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
