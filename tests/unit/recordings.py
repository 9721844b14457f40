"""Builders of recordings: what a quality run of a small model leaves, without torch."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from steptime.verify.recordings import (
    End,
    FirstTensor,
    Head,
    RankRecording,
    RecordedUpdate,
    Recording,
    Table,
)


def make_update(n: int, **changes: Any) -> RecordedUpdate:
    """An update of one batch of eight, with a loss that falls."""
    loss = changes.pop("loss", 2.0 * math.exp(-n / 50))
    values: dict[str, Any] = {
        "n": n,
        "opt": 0,
        "losses": (float(loss).hex(),),
        "inputs": (1000 + n,),
        "contents": (1000 + n,),
        "fed": ((0, 2000 + n, 3000 + n, 4000 + n, 5000 + n, 8, 6000 + n),),
        "epochs": (),
        "backwards": 1,
        "samples": 8,
        "lrs": (0.1,),
        "hyper": 1,
        "evals": n // 10,
        "grads": 2,
        "mask": 1,
        "weights": n,
        "moved": 1,
        "stats": 1,
        "modes": 1,
        "kinds": 1,
        "draws": n,
    }
    return RecordedUpdate(**(values | changes))


def make_tensors(*, error: float = 0.0, seed: int = 0, scale: float = 1.0) -> list[FirstTensor]:
    """First gradients and changes of two weights, wrong by a relative error."""
    truth, noise = random.Random(1), random.Random(seed)
    found = []
    for name in ("0.weight", "2.weight"):
        values = [truth.gauss(0, 1) for _ in range(64)]
        wrong = [scale * v * (1 + error * noise.gauss(0, 1)) for v in values]
        found.append(FirstTensor(opt=0, what="gradient", name=name, values=wrong))
        changes = [-0.1 * v for v in wrong]
        found.append(FirstTensor(opt=0, what="change", name=name, values=changes))
    return found


def make_recording(
    *,
    num_updates: int = 40,
    change: Callable[[RecordedUpdate], RecordedUpdate] = lambda update: update,
    first: Sequence[FirstTensor] = (),
    is_double: bool = False,
    failures: tuple[str, ...] = (),
    num_ranks: int = 1,
    is_over: bool = True,
    **table: Any,
) -> Recording:
    """What a run leaves; `change` is made to each update."""
    words: dict[str, Any] = {
        "opt": 0,
        "optimizer": "SGD",
        "groups": ({"momentum": "0.9"},),
        "tensors": (("0.weight", "(8, 8)", "torch.float32", "True"),),
        "modes": (("0.", "Linear", "train", "None"), ("1.", "Dropout", "train", "0.1")),
    }
    rank = RankRecording(
        head=Head(
            schema=1,
            rank=0,
            world_size=num_ranks,
            num_updates=num_updates,
            is_double=is_double,
            perturb=None,
            initial=7,
        ),
        updates=tuple(change(make_update(n)) for n in range(num_updates)),
        tables=(Table(**(words | table)),),
        first=tuple(first),
        norms=(),
        end=End(n=num_updates, evals=0, failures=failures) if is_over else None,
    )
    ranks = [replace(rank, head=replace(rank.head, rank=r)) for r in range(num_ranks)]
    return Recording(ranks=tuple(ranks))


def at(n: int, **changes: Any) -> Callable[[RecordedUpdate], RecordedUpdate]:
    """A change from update `n` on."""
    return lambda update: replace(update, **changes) if update.n >= n else update


def noisy(
    size: float, *, seed: int = 0, bias: float = 0.0
) -> Callable[[RecordedUpdate], RecordedUpdate]:
    """Losses that differ by this much, at random, and by a bias that grows from none."""
    chance = random.Random(seed)

    def change(update: RecordedUpdate) -> RecordedUpdate:
        loss = float.fromhex(update.losses[0])
        other = loss * math.exp(size * chance.gauss(0, 1) + bias * update.n / 40)
        return replace(update, losses=(other.hex(),), weights=update.weights + seed + 1)

    return change
