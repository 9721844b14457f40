"""What a gradient transform costs, beside a step of ResNet-20 and beside torch's clip_grad_norm_.

    python benchmarks/methods/gradient_transforms.py [--rounds 21] [--batch 128]

CPU time of this process, one thread. In each round every contestant runs once in random order on
its own copy of one set of gradients (ResNet-20 on 32 x 32 images); a step is forward, backward and
SGD with momentum. Medians with quartiles over rounds; the ratios are medians of ratios within a
round. Results go to benchmarks/results/gradient_transforms.json.
"""

from __future__ import annotations

import argparse
import copy
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

from steptime.methods import gradients as g

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp
from _small_tasks import resnet

OUT = Path(__file__).resolve().parents[1] / "results" / "gradient_transforms.json"
CALLS = 20
"""Calls of a transform in one timing: one takes less than a millisecond."""

TRANSFORMS = (
    *(g.ZNorm(), g.DampedZNorm(), g.Centralize(), g.UnitNorm(), g.UnitRms()),
    *(g.ClipNorm(1.0), g.ClipValue(1.0), g.ClipAdaptive()),
)
RIVAL = "clip_grad_norm_"


def cpu_s(act: Callable[[], Any], *, calls: int) -> float:
    """Return the CPU time of one call [s]."""
    start = time.process_time()
    for _ in range(calls):
        act()
    return (time.process_time() - start) / calls


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--batch", type=int, default=128)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random.seed(0)
    model = resnet(width=16, blocks=3, channels=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    images, labels = torch.randn(args.batch, 3, 32, 32), torch.randint(0, 10, (args.batch,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    step()
    acts: dict[str, tuple[Callable[[], Any], int]] = {"step": (step, 1)}
    for transform in TRANSFORMS:
        own = copied(model)
        acts[type(transform).__name__] = (
            lambda own=own, transform=transform: g.transform_gradients(own, transform),
            CALLS,
        )
    rival = copied(model)
    acts[RIVAL] = (lambda: nn.utils.clip_grad_norm_(rival, 1.0), CALLS)
    for act, calls in acts.values():
        cpu_s(act, calls=calls)
    found: dict[str, list[float]] = {name: [] for name in acts}
    for _ in range(args.rounds):
        for name, (act, calls) in random.sample(sorted(acts.items()), len(acts)):
            found[name].append(cpu_s(act, calls=calls))
    rows = []
    for name, times in found.items():
        of_step = [a / b for a, b in zip(times, found["step"], strict=True)]
        of_clip = [a / b for a, b in zip(times, found[RIVAL], strict=True)]
        low, _, high = quantiles(times, n=4)
        rows.append(
            {
                "name": name,
                "cpu_us": round(median(times) * 1e6, 1),
                "quartiles_us": [round(low * 1e6, 1), round(high * 1e6, 1)],
                "of_a_step": round(median(of_step), 5),
                "of_clip_grad_norm": round(median(of_clip), 3),
                "n": args.rounds,
            }
        )
        print(f"{name:<16} {median(times) * 1e6:>10.1f} µs [{low * 1e6:.1f}, {high * 1e6:.1f}]"
              f"  {median(of_step):8.3%} of a step  {median(of_clip):6.2f} x clip_grad_norm_")  # fmt: skip  # noqa: E501
    number = sum(p.numel() for p in model.parameters())
    document = {
        **stamp(),
        "command": f"python benchmarks/methods/gradient_transforms.py --rounds {args.rounds}"
        f" --batch {args.batch}",
        "model": f"ResNet-20, {number:,} parameters in {len(rival)} tensors, batch {args.batch}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, 1 thread, process CPU time",
        "load_average": os.getloadavg()[0],
        "torch": torch.__version__,
        "rows": rows,
    }
    OUT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def copied(model: nn.Module) -> list[nn.Parameter]:
    """Return parameters with copies of the gradients."""
    made = []
    for one in model.parameters():
        own = nn.Parameter(one.detach().clone())
        assert one.grad is not None
        own.grad = copy.deepcopy(one.grad)
        made.append(own)
    return made


if __name__ == "__main__":
    main()
