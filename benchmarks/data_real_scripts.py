"""What data levers give to unmodified public scripts, beside what is reached by hand.

    python benchmarks/data_real_scripts.py ROOT [--rounds 2] [--only NAME]
    python benchmarks/data_real_scripts.py --show

ROOT holds checkouts, an environment and data as benchmarks/open_scripts.toml describes them. Each
script runs under `steptime run` in three ways that take turns: as written, with levers (`levers`
below, without a search and without a proof: they are switched on by the plan of a recipe), and as
somebody edits it by hand in 15 minutes (`by_hand`: text replaced in a copy). The median step in
wall and CPU time of the training process, and both times of the whole command with its
children, come from these runs. `reached` is the CPU time of a step by hand over that with levers.
Results go to benchmarks/results/data_real_scripts.json; `--show` prints them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptime.levers import file_of

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "data_real_scripts.json"
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "MPLBACKEND": "agg"}
WAYS = ("as_written", "levers", "by_hand")

IN_MEMORY = """
class InMemory(torch.utils.data.Dataset):
    def __init__(self, data, mean=0.0, std=1.0):
        self.x = data.data.unsqueeze(1).float().div_(255).sub_(mean).div_(std)
        self.y = data.targets

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index], self.y[index]

    def __getitems__(self, indices):
        return self.x[indices], self.y[indices]


def whole(batch):
    return batch
"""
"""By hand, for MNIST: pixels to floats once, and a batch is one indexing."""


@dataclass(frozen=True, kw_only=True)
class Script:
    """A public script, the levers that act on it, and the edit by hand with its reason."""

    folder: str
    command: str
    levers: tuple[tuple[str, dict[str, Any]], ...]
    by_hand: tuple[tuple[str, str], ...]
    did: str


CACHE = ("dataset_cache", {"limit_bytes": 1 << 30})
MNIST_BY_HAND = "MNIST kept as floats in memory, a batch read by one indexing; 10 minutes"
SCRIPTS = {
    "yunjey_24": Script(
        folder="yunjey/tutorials/01-basics/feedforward_neural_network",
        command="python main.py",
        levers=(CACHE,),
        by_hand=(
            ("# Data loader\n", IN_MEMORY + "train_dataset = InMemory(train_dataset)\n"),
            ("batch_size=batch_size, \n" + " " * 43 + "shuffle=True)",
             "batch_size=batch_size, shuffle=True, collate_fn=whole)"),
        ),
        did=MNIST_BY_HAND,
    ),
    "ignite_23": Script(
        folder="ignite/examples/mnist",
        command="python mnist.py --epochs 2",
        levers=(CACHE,),
        by_hand=(
            ("from tqdm import tqdm\n", "from tqdm import tqdm\n" + IN_MEMORY),
            ('MNIST(download=True, root=".", transform=data_transform, train=True), '
             "batch_size=train_batch_size, shuffle=True",
             'InMemory(MNIST(download=True, root=".", train=True), 0.1307, 0.3081), '
             "batch_size=train_batch_size, shuffle=True, collate_fn=whole"),
        ),
        did=MNIST_BY_HAND,
    ),
    "examples_mnist": Script(
        folder="examples/mnist",
        command="python main.py --epochs 2 --no-accel",
        levers=(CACHE,),
        by_hand=(
            ("class Net(nn.Module):", IN_MEMORY + "\n\nclass Net(nn.Module):"),
            ("DataLoader(dataset1,**train_kwargs)",
             "DataLoader(InMemory(dataset1, 0.1307, 0.3081), collate_fn=whole, **train_kwargs)"),
        ),
        did=MNIST_BY_HAND,
    ),
    "examples_vae": Script(
        folder="examples/vae",
        command="python main.py --epochs 2 --no-accel",
        levers=(CACHE,),
        by_hand=(
            ("kwargs = {'num_workers'", IN_MEMORY + "\nkwargs = {'num_workers'"),
            ("    datasets.MNIST('../data', train=True, download=True,\n"
             "                   transform=transforms.ToTensor()),\n"
             "    batch_size=args.batch_size, shuffle=True, **kwargs)",
             "    InMemory(datasets.MNIST('../data', train=True, download=True)),\n"
             "    batch_size=args.batch_size, shuffle=True, collate_fn=whole, **kwargs)"),
        ),
        did=MNIST_BY_HAND,
    ),
    "ltsf_20": Script(
        folder="ltsf",
        command="python run_longExp.py --is_training 1 --root_path ./dataset/ --data_path "
        "ETTh1.csv --model_id ETTh1_336_96 --model DLinear --data ETTh1 --features M --seq_len 336 "
        "--pred_len 96 --enc_in 7 --des Exp --itr 1 --train_epochs 1 --num_workers 1",
        levers=(("dataloader", {"num_workers": 0}),),
        by_hand=(("default=10, help='data loader num workers'",) * 2,),
        did="--num_workers 0 on the command line; 2 minutes",
    ),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", choices=SCRIPTS)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if options.root is not None and not options.show:
        for name in SCRIPTS if options.only is None else (options.only,):
            found[name] = compare(SCRIPTS[name], options.root.resolve(), options.rounds)
            RESULTS.write_text(json.dumps(found, indent=1) + "\n")
            show({name: found[name]})
        return
    show(found)


def show(found: dict[str, Any]) -> None:
    for name, one in found.items():
        print(name, f"by hand: {one['did']}; levers: {one['levers']}")
        for way in WAYS:
            row = one[way]
            print(
                f"  {way:10} step {row['step_ms']:.2f} ms, CPU {row['step_cpu_ms']:.2f} ms; "
                f"command {row['wall_s']:.1f} s, CPU {row['cpu_s']:.1f} s  (n={row['n']})"
            )
        print(f"  reached {one['reached']:.2f} of the edit by hand, by CPU time of a step")


def compare(script: Script, root: Path, rounds: int) -> dict[str, Any]:
    rows: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for number in range(rounds):
        for way in WAYS[:: 1 if number % 2 == 0 else -1]:
            rows[way].append(run(script, root, way))
    found: dict[str, Any] = {
        way: {
            "n": len(some),
            **{name: statistics.median(row[name] for row in some) for name in some[0]},
            "all": some,
        }
        for way, some in rows.items()
    }
    found["reached"] = found["by_hand"]["step_cpu_ms"] / found["levers"]["step_cpu_ms"]
    return found | {"did": script.did, "levers": [name for name, _ in script.levers]}


def run(script: Script, root: Path, way: str) -> dict[str, float]:
    folder = root / script.folder
    words = shlex.split(script.command)
    words[0] = str(root / "venv" / "bin" / "python")
    environment = {**os.environ, **ENVIRONMENT}
    edited = None
    with tempfile.TemporaryDirectory() as store:
        if way == "by_hand" and words[-2] == "--num_workers":
            words[-1] = "0"
        elif way == "by_hand":
            edited = folder / f"steptime_by_hand_{os.getpid()}.py"
            edited.write_text(edit((folder / words[1]).read_text(), script.by_hand))
            words[1] = edited.name
        command = [sys.executable, "-m", "steptime", "run", "--store", store]
        if way == "levers":
            plan = Path(store, "plan.json")
            plan.write_text(json.dumps(plan_of(script)))
            environment["STEPTIME_PLAN"] = str(plan)
        out = Path(store, "out.json")
        began, before = time.perf_counter(), cpu_of_children()
        try:
            done = subprocess.run(
                [*command, "--json", str(out), "--", *words],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            if edited is not None:
                edited.unlink()
        if done.returncode:
            raise SystemExit(done.stderr[-2000:])
        wall_s, cpu_s = time.perf_counter() - began, cpu_of_children() - before
        document = json.loads(out.read_text())
        steady = document.get("data", document)["measurement"]["steady"]
    return {
        "step_ms": 1e3 * steady["step_time_s"]["estimate"],
        "step_cpu_ms": 1e3 * steady["step_cpu_s"]["estimate"],
        "wall_s": wall_s,
        "cpu_s": cpu_s,
    }


def plan_of(script: Script) -> dict[str, Any]:
    """Return the plan of a recipe with the levers, as docs/reference/study-folder.md has it."""
    levers = [
        {"name": name, "settings": settings, "file": str(file_of(name))}
        for name, settings in script.levers
    ]
    return {"schema": 1, "mode": "recipe", "levers": levers, "is_live": False, "probe": False}


def edit(text: str, pairs: tuple[tuple[str, str], ...]) -> str:
    text = text.replace("\r\n", "\n")
    for old, new in pairs:
        if old not in text:
            raise SystemExit(f"the script has changed: no {old!r} in it")
        text = text.replace(old, new, 1)
    return text


def cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
