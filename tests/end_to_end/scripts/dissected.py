"""Trains a small model in many ways past the update whose memory is followed, a child each.

Writes a digest of each way's every bit, the pid, and the bytes that closed forms give.
"""

from __future__ import annotations

import json
import multiprocessing
import os

import torch
from states import digest, everything, seed
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)

NUM_UPDATES = 16
WIDTH, WORDS = 16, 40


class Net(nn.Module):
    def __init__(self, *, is_checkpointed: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH)
            )
            for _ in range(3)
        )
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.is_checkpointed = is_checkpointed

    def forward(self, words):
        x = self.embed(words)
        for block in self.blocks:
            if self.is_checkpointed:
                x = x + checkpoint(block, x, use_reentrant=False)
            else:
                x = x + block(x)
        return self.head(self.drop(x))


class Signed(torch.optim.Optimizer):
    """An optimizer of the script's own, with bytes for states."""

    def __init__(self, params) -> None:
        super().__init__(params, {"lr": 0.001})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["signs"] = torch.zeros(p.shape, dtype=torch.int8)
                state["signs"].copy_((state["signs"] + p.grad.sign()).sign())
                p.sub_(state["signs"].to(p.dtype), alpha=group["lr"])


def train(model, optimizer, *, num_micro_batches=1, loss=functional.cross_entropy):
    losses = []
    for _ in range(NUM_UPDATES):
        optimizer.zero_grad()
        for _ in range(num_micro_batches):
            words = torch.randint(0, WORDS, (4, 12))
            found = loss(model(words).flatten(0, 1), words.flatten())
            (found / num_micro_batches).backward()
        optimizer.step()
        losses.append(found.item())
    parameters = list(model.parameters())
    size = sum(p.numel() * p.element_size() for p in parameters)
    num_elements = sum(p.numel() for p in parameters)
    sizes = {"weights": size, "elements": num_elements, "tensors": len(parameters)}
    return everything(model, optimizer, losses), sizes


def adamw(**settings):
    seed()
    model = Net()
    return train(model, torch.optim.AdamW(model.parameters(), **settings))


def adamw_foreach():
    return adamw(foreach=True)


def adamw_fused():
    return adamw(fused=True)


def adafactor():
    seed()
    model = Net()
    return train(model, torch.optim.Adafactor(model.parameters()))


def rmsprop_nadam_adamax():
    seed()
    results, sizes = [], {}
    for made in (torch.optim.RMSprop, torch.optim.NAdam, torch.optim.Adamax, torch.optim.Rprop):
        model = Net()
        result, sizes = train(model, made(model.parameters()))
        results.append(result)
    return results, sizes


def momentum():
    seed()
    model = Net()
    return train(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))


def signed():
    seed()
    model = Net()
    return train(model, Signed(model.parameters()))


def bf16():
    seed()
    model = Net().to(torch.bfloat16)
    return train(model, torch.optim.AdamW(model.parameters()))


def checkpointed():
    seed()
    model = Net(is_checkpointed=True)
    return train(model, torch.optim.AdamW(model.parameters()))


def accumulated():
    seed()
    model = Net()
    return train(model, torch.optim.AdamW(model.parameters()), num_micro_batches=3)


def loss_module():
    seed()
    model = Net()
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    return train(model, torch.optim.AdamW(model.parameters()), loss=criterion)


def scheduled():
    seed()
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    step = optimizer.step

    def stepping():
        step()
        schedule.step()

    optimizer.step = stepping
    return train(model, optimizer)


WAYS = (
    adamw,
    adamw_foreach,
    adamw_fused,
    adafactor,
    rmsprop_nadam_adamax,
    momentum,
    signed,
    bf16,
    checkpointed,
    accumulated,
    loss_module,
    scheduled,
)


def run(way) -> None:
    result, sizes = way()
    found = {"pid": os.getpid(), "result": digest(result), "sizes": sizes}
    with open(f"{way.__name__}.json", "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    for way in WAYS:
        child = multiprocessing.get_context("fork").Process(target=run, args=(way,))
        child.start()
        child.join()
        assert child.exitcode == 0, way
