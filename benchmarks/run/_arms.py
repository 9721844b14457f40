"""The loop whose cost is compared: an MLP, SGD, a DataLoader, `loss.item()` a step.

Runs in a child of overhead.py, under Steptime's guest or beside TraceML. Writes one JSON list:
the CPU time of a step [µs] in each block, by arm, a round each.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import nn

SETTLE = 5
BLOCK_S = 0.8
"""A guest that rests between bursts does so several times in a block of short steps."""

SIZES = {"0.3": (4, 32, 16), "1": (20, 64, 32), "10": (20, 256, 128), "100": (20, 768, 256)}
"""Linear layers, features and samples of a batch, by about what a step takes [ms]."""


class Loop:
    """The training loop; one optimizer step a call of `step`."""

    def __init__(self, size: str, around: Callable[[Any], Any]) -> None:
        torch.manual_seed(0)
        num_layers, width, batch = SIZES[size]
        self.num_steps = max(SETTLE, round(BLOCK_S / float(size) * 1000))
        torch.set_num_threads(1)
        layers: list[nn.Module] = []
        for _ in range(num_layers):
            layers += [nn.Linear(width, width), nn.ReLU()]
        self.model = nn.Sequential(*layers)
        self.loss = nn.MSELoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        inputs, targets = torch.randn(4096, width), torch.randn(4096, width)
        data = torch.utils.data.TensorDataset(inputs, targets)
        drawn = torch.utils.data.RandomSampler(
            data, replacement=True, num_samples=batch * (self.num_steps + SETTLE)
        )
        self.loader = torch.utils.data.DataLoader(data, batch_size=batch, sampler=drawn)
        self.around = around

    def block(self, *, is_on: bool) -> float:
        """CPU time of a step in a fresh block [µs], after some steps to settle."""
        batches = iter(self.loader)
        around = self.around if is_on else contextlib.nullcontext
        began = 0
        for i in range(SETTLE + self.num_steps):
            if i == SETTLE:
                began = time.process_time_ns()
            with around(self.model):
                x, y = next(batches)
                self.optimizer.zero_grad()
                loss = self.loss(self.model(x), y)
                loss.backward()
                self.optimizer.step()
                loss.item()
        return (time.process_time_ns() - began) / self.num_steps / 1000


def main() -> None:
    kind, size, rounds = os.environ["ARMS"].split()
    switch: Callable[[Literal["on", "off"]], None]
    if kind == "traceml":
        import traceml_ai

        traceml_ai.init(mode="auto")
        loop, switch = Loop(size, traceml_ai.trace_step), lambda state: None
    else:
        from _switch import Switch

        loop, switch = Loop(size, contextlib.nullcontext), Switch().turn
    for on in (True, False) * 3:
        switch("on" if on else "off")
        loop.block(is_on=on)
    blocks: list[dict[str, float]] = []
    for _ in range(int(rounds)):
        # Two equal arms without hooks show what the comparison itself cannot tell apart.
        arms = [("off", False), ("off_again", False), ("on", True)]
        random.shuffle(arms)
        found = {}
        for name, on in arms:
            switch("on" if on else "off")
            found[name] = loop.block(is_on=on)
        blocks.append(found)
    switch("on")
    with open(os.environ["ARMS_OUT"], "w") as file:
        json.dump(blocks, file)


main()
