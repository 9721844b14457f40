"""What it costs to read the loss and the norm, timed in place between the kernels of a training.

    python benchmarks/run/loss_cost.py [--updates 3000]

The loop is that of overhead.py, with clipping. Two arms of such a loop scatter by more than the
whole cost, so each call is timed by itself, by the clock of the wall; `nothing` is an empty pair
of clock readings. Results go to benchmarks/results/loss_cost.json.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

BENCHMARKS = Path(__file__).resolve().parents[1]
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
OUT = "LOSS_COST_OUT"


class Timed:
    """Takes the place of the guest's watch, and times what it passes on to it."""

    def __init__(self, watch: Any) -> None:
        self.watch = watch
        self.times: dict[str, list[int]] = {}

    def time(self, name: str, act: Any, *args: Any) -> None:
        """Time one call."""
        began = time.perf_counter_ns()
        empty = time.perf_counter_ns()
        act(*args)
        ended = time.perf_counter_ns()
        self.times.setdefault("nothing", []).append(empty - began)
        self.times.setdefault(name, []).append(ended - empty)

    def see_loss(self, args: Any) -> None:
        self.time("see_loss", self.watch.see_loss, args)

    def see_norm(self, norm: Any) -> None:
        self.time("see_norm", self.watch.see_norm, norm)

    def end_update(self, optimizer: int, skipped: int | None) -> None:
        self.time("end_update", self.watch.end_update, optimizer, skipped)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.watch, name)


def train(num_updates: int, out: str) -> None:
    """Train under the guest, and write the times of its calls [µs]."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = [layer for _ in range(20) for layer in (nn.Linear(64, 64), nn.ReLU())]
    model, loss_of = nn.Sequential(*layers), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.utils.data.TensorDataset(torch.randn(32_000, 64), torch.randn(32_000, 64))
    loader = torch.utils.data.DataLoader(data, batch_size=32)
    timed: Timed | None = None
    num = 0
    while num < num_updates:
        for x, y in loader:
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            loss.item()
            num += 1
            if timed is None and num == 100:
                journals = [o for o in gc.get_objects() if type(o).__name__ == "Journal"]
                journal = next(one for one in journals if one.num_updates)
                timed = journal.losses = Timed(journal.losses)
    assert timed is not None
    found = {
        name: {
            "median_us": statistics.median(times) / 1000,
            "low_us": sorted(times)[len(times) // 4] / 1000,
            "high_us": sorted(times)[3 * len(times) // 4] / 1000,
            "n": len(times),
        }
        for name, times in timed.times.items()
    }
    Path(out).write_text(json.dumps(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=3000)
    options = parser.parse_args()
    if out := os.environ.get(OUT):
        train(options.updates, out)
        return
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "found.json")
        words = [sys.executable, "-m", "steptime", "run", "--", sys.executable, __file__]
        environment = os.environ | ENVIRONMENT | {OUT: out}
        subprocess.run(
            [*words, "--updates", str(options.updates)],
            cwd=folder,
            env=environment,
            capture_output=True,
            check=True,
        )
        found = json.loads(Path(out).read_text())
    import torch

    results = {**stamp(), "calls": found, "torch": torch.__version__, "num_cores": os.cpu_count()}
    for name, one in found.items():
        print(
            f"{name:<12}{one['median_us']:6.2f} µs  ({one['low_us']:.2f} to {one['high_us']:.2f})"
        )
    (BENCHMARKS / "results" / "loss_cost.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
