"""The number of loader workers that a trial picks, beside the best of all that could be tried.

    python benchmarks/data/data_workers.py [--rounds 3] [--window 2.0]

Five trainings are planted by what they wait for. In each, the search of
`guest/trial/worker_search.py` picks a setting (limit 30 s with the last window); then every setting
of 0, 1, 2, 4, 8 and 16 workers with a queue of 2 or 4 batches a worker is measured in windows of
its own, in an order that turns round from round to round, each in a process of its own. `reached`
is the median rate of the picked setting over that of the best one, and `reached_within_cores` over
the best of those with as many workers as cores at most: beside other programs, more processes win a
larger part of the cores, which is no property of the training. Results go to
benchmarks/results/data_workers.json.
"""

from __future__ import annotations

import argparse
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
PLANTS = ("in_memory", "sleeping", "decoding", "slow_consumer", "mixed")
NUM_WORKERS, PREFETCH = (0, 1, 2, 4, 8, 16), (2, 4)
CLOSE = 0.95


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--window", type=float, default=2.0)
    parser.add_argument("--only", choices=PLANTS)
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    path = BENCHMARKS / "results" / "data_workers.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    for plant in PLANTS if options.only is None else (options.only,):
        found[plant] = one_plant(plant, options.rounds, options.window) | stamp()
        row = found[plant]
        print(plant, row["picked"], f"{row['took_s']:.1f} s, reached {row['reached']:.3f}")
        path.write_text(json.dumps(found, indent=1) + "\n")


def one_plant(plant: str, rounds: int, window_s: float) -> dict[str, Any]:
    found = ask(plant, "search", "28")
    best = max(row["batches_per_s"] for row in found["rates"])
    close = [row for row in found["rates"] if row["batches_per_s"] >= CLOSE * best]
    picked = min(close, key=lambda row: (row["num_workers"], row["prefetch_factor"] or 0))
    setting = (picked["num_workers"], picked["prefetch_factor"])
    every = {(n, p if n else None) for n in NUM_WORKERS for p in PREFETCH} | {setting}
    order = sorted(every, key=lambda one: (one[0], one[1] or 0))
    rates: dict[tuple[int, int | None], list[float]] = {one: [] for one in order}
    for number in range(rounds):
        for one in order[:: 1 if number % 2 == 0 else -1]:
            told = ask(plant, "rate", str(window_s), str(one[0]), str(one[1] or 0))
            rates[one].append(told["batches_per_s"])
    medians = {one: statistics.median(some) for one, some in rates.items()}
    return {
        "picked": {"num_workers": setting[0], "prefetch_factor": setting[1]},
        "in_flight": setting[0] * (setting[1] or 1),
        "took_s": found["took_s"],
        "reached": medians[setting] / max(medians.values()),
        "reached_within_cores": medians[setting] / max(rate_within_cores(medians, setting)),
        "load_average": os.getloadavg()[0],
        "consumer_per_s": found["consumer_per_s"],
        "searched": found["rates"],
        "every": [{"num_workers": n, "prefetch_factor": p, "rates": rates[n, p]} for n, p in order],
    }


def rate_within_cores(
    medians: dict[tuple[int, int | None], float], setting: tuple[int, int | None]
) -> list[float]:
    """Return the rates of settings with as many workers as cores at most, and of the picked one."""
    cores = len(os.sched_getaffinity(0))
    return [rate for one, rate in medians.items() if one[0] <= cores or one == setting]


def ask(*words: str) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__).resolve()), "--child", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, **ENVIRONMENT}
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


# -- the training


def child(plant: str, what: str, seconds: str, *setting: str) -> None:
    import torch

    torch.set_num_threads(1)
    num_workers, prefetch = map(int, setting) if setting else (0, 0)
    loader = torch.utils.data.DataLoader(
        make_data(plant),
        batch_size=16,
        shuffle=True,
        num_workers=num_workers,
        prefetch_factor=prefetch or None,
        persistent_workers=num_workers > 0,
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "workers.json")
        if what == "search":
            from steptime.guest.trial.worker_search import WorkerSearch

            WorkerSearch(torch, folder, float(seconds)).hook()
            train(plant, loader, is_over=lambda _: file.exists())
            print(file.read_text().strip())
            os._exit(0)  # as a trial ends
    warm = 2 * max(1, num_workers * prefetch) + 2
    marks: list[float] = []

    def is_over(step: int) -> bool:
        if step == warm:
            marks.append(time.perf_counter())
        return step > warm + 5 and time.perf_counter() - marks[0] >= float(seconds)

    steps = train(plant, loader, is_over)
    print(json.dumps({"batches_per_s": (steps - warm) / (time.perf_counter() - marks[0])}))
    sys.stdout.flush()
    os._exit(0)


def train(plant: str, loader: Any, is_over: Any) -> int:
    import torch

    work_s = {"slow_consumer": 0.03, "in_memory": 0.0, "sleeping": 0.004}.get(plant, 0.008)
    model = torch.nn.Linear(64, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    steps = 0
    while True:
        for inputs, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            spin(work_s)
            steps += 1
            if is_over(steps):
                return steps


def make_data(plant: str) -> Any:
    import torch

    wait_s = {"sleeping": 0.005, "mixed": 0.001}.get(plant, 0.0)
    work_s = {"decoding": 0.001, "mixed": 0.0004}.get(plant, 0.0)
    rows = torch.randn(4096, 64)

    class Samples(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return len(rows)

        def __getitem__(self, index: int) -> Any:
            if wait_s:
                time.sleep(wait_s)
            spin(work_s)
            return rows[index], index % 2

    return Samples()


def spin(cpu_s: float) -> None:
    """Compute for so much CPU time."""
    until = time.thread_time() + cpu_s
    while cpu_s and time.thread_time() < until:
        pass


if __name__ == "__main__":
    main()
