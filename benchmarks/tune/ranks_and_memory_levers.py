"""What the levers on ranks, on memory and on the precision of modules give and cost.

    python benchmarks/tune/ranks_and_memory_levers.py [--rounds 12] [--only NAME ...]

Each lever is compared with the same training without it, in turns: A B B A, one thread. A round is
a block of steps of each. Of one process, CPU time of a step counts; of two gloo ranks, which wait
for each other, the wall time of rank 0 and the CPU time of both ranks. `kept` is what autograd
keeps of a step for its backward pass, with the lever over without. The speedups are medians of the
rounds with the range of their middle half. Cases *on 2 Gbit/s* need root and `tc`: their ranks have
a network of their own, whose loopback carries no more, and their wall time counts, for ranks wait
without computing. Results go to benchmarks/results/ranks_and_memory_levers.json, each with its
machine; of `module_precision` and the levers on DDP, `scripts/gen_lever_evidence.py` then takes
them into the reference of the levers.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import BENCHMARKS, conditions

OUT = BENCHMARKS / "results" / "ranks_and_memory_levers.json"
VIEW = {"gradient_as_bucket_view": True}
BF16 = {"dtype": "bf16"}
SLOW = {"depth": 16, "rows": 256, "mbit": 2000}
"""64 MiB of gradients, whose exchange takes about as long as the backward pass."""

Wanted = tuple[str, dict[str, Any]]

ALONE: dict[str, tuple[str, Wanted]] = {
    "checkpoint all blocks": ("gpt", ("activation_checkpointing", {"every": 1})),
    "checkpoint half": ("gpt", ("activation_checkpointing", {"every": 2})),
    "4 parts, wide": ("wide", ("micro_batches", {"parts": 4})),
    "2 parts, tall": ("tall", ("micro_batches", {"parts": 2})),
    "8 parts, tall": ("tall", ("micro_batches", {"parts": 8})),
    "8 parts again, tall": ("tall", ("micro_batches", {"parts": 8, "recompute": True})),
    "4 parts, small": ("small", ("micro_batches", {"parts": 4})),
    "4 parts, gpt": ("gpt", ("micro_batches", {"parts": 4})),
    "autocast": ("gpt", ("autocast", BF16)),
    "bf16 except ends": ("gpt", ("module_precision", {"float32": "ends"})),
    "bf16 except ends and norms": ("gpt", ("module_precision", {"float32": "ends_and_norms"})),
    "bf16 with low embeddings": ("gpt", ("module_precision", {"float32": "none", "low": True})),
    "bf16 except ends, large vocabulary": ("words", ("module_precision", {"float32": "ends"})),
    "bf16 except ends, small": ("small", ("module_precision", {"float32": "ends"})),
}
TOGETHER: dict[str, tuple[dict[str, Any], Wanted]] = {
    "bucket views": ({}, ("ddp_options", VIEW)),
    "bucket views, small": ({"width": 64}, ("ddp_options", VIEW)),
    "bucket views, large batch": ({"width": 64, "rows": 8192}, ("ddp_options", VIEW)),
    "buckets of 4 MiB, deep": (
        {"width": 256, "depth": 60},
        ("ddp_options", VIEW | {"bucket_cap_mb": 4}),
    ),
    "buckets of 4 MiB": ({}, ("ddp_options", VIEW | {"bucket_cap_mb": 4})),
    "buckets of 100 MiB": ({}, ("ddp_options", VIEW | {"bucket_cap_mb": 100})),
    "static graph": ({"unused": True}, ("ddp_options", VIEW | {"static_graph": True})),
    "static graph, small": (
        {"unused": True, "width": 64},
        ("ddp_options", VIEW | {"static_graph": True}),
    ),
    "one exchange of four": ({"passes": 4}, ("ddp_no_sync", {"passes": 4})),
    "bf16 exchange": ({}, ("ddp_bf16", {})),
    "buckets of 4 MiB, on 2 Gbit/s": (SLOW, ("ddp_options", VIEW | {"bucket_cap_mb": 4})),
    "buckets of 100 MiB, on 2 Gbit/s": (SLOW, ("ddp_options", VIEW | {"bucket_cap_mb": 100})),
    "bf16 exchange, on 2 Gbit/s": (SLOW, ("ddp_bf16", {})),
}
CASES = (*ALONE, *TOGETHER)


def summary(ratios: list[float]) -> dict[str, float]:
    """Median with the middle half."""
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {
        "median": round(middle, 3),
        "low": round(low, 3),
        "high": round(high, 3),
        "n": len(ratios),
    }


def in_turns(rounds: int, block: Callable[[bool], Any]) -> Iterator[tuple[Any, Any]]:
    """Yield what blocks without and with the lever took: A B, B A, A B."""
    for number in range(rounds):
        order = (False, True) if number % 2 == 0 else (True, False)
        found = {is_on: block(is_on) for is_on in order}
        yield found[False], found[True]


# -- one process


def make_gpt(torch: Any, width: int = 256, depth: int = 6, words: int = 2000) -> tuple[Any, Any]:
    nn = torch.nn

    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(words, width)
            self.blocks = nn.ModuleList(
                nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
                for _ in range(depth)
            )
            self.head = nn.Linear(width, words)

        def forward(self, tokens: Any) -> Any:
            x = self.embedding(tokens)
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    return Tokens(), torch.randint(words, (8, 64))


def make_mlp(torch: Any, width: int, rows: int, depth: int = 4) -> tuple[Any, Any]:
    nn = torch.nn
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.GELU())]
    return nn.Sequential(*layers, nn.Linear(width, 8)), torch.randn(rows, width)


def run_alone(name: str, rounds: int) -> dict[str, Any]:
    """One lever in one process."""
    import torch

    from steptime.levers import load
    from steptime.testing.lever_session_double import PlainSession

    torch.set_num_threads(1)
    torch.manual_seed(0)
    kind, (lever, settings) = ALONE[name]
    makes: dict[str, tuple[Any, tuple[int, ...]]] = {
        "gpt": (make_gpt, ()),
        "words": (make_gpt, (64, 2, 20_000)),
        "wide": (make_mlp, (1024, 4096)),
        "tall": (make_mlp, (64, 262144)),
        "small": (make_mlp, (64, 32)),
    }
    make, sizes = makes[kind]
    model, inputs = make(torch, *sizes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    def kept() -> int:
        sizes: dict[int, int] = {}

        def pack(tensor: Any) -> Any:
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = model(inputs).square().mean()
        loss.backward()
        return sum(sizes.values())

    num_steps = 200 if kind == "small" else 2
    with PlainSession(torch) as session:

        def block(is_on: bool) -> tuple[float, int]:  # noqa: FBT001
            undo = load(lever).apply(settings, session) if is_on else lambda: None  # type: ignore[misc]
            step()
            size = kept()
            began = time.process_time()
            for _ in range(num_steps):
                step()
            took = time.process_time() - began
            undo()  # type: ignore[misc]
            return took, size

        block(True)
        pairs = list(in_turns(rounds, block))
    return {
        "cpu_speedup": summary([off[0] / on[0] for off, on in pairs]),
        "step_s": statistics.median(off[0] for off, _ in pairs) / num_steps,
        "kept": round(pairs[-1][1][1] / pairs[-1][0][1], 3),
    }


# -- two ranks


def rank_blocks(rank: int, folder: Path, name: str, rounds: int) -> list[Any]:
    """What the blocks of a rank took: wall and CPU time of a step, without and with the lever."""
    import torch
    from torch import distributed as dist
    from torch import nn

    from steptime.levers import load
    from steptime.testing.lever_session_double import PlainSession

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    options, (lever, settings) = TOGETHER[name]
    width, passes = options.get("width", 1024), options.get("passes", 1)
    rows, depth = options.get("rows", 16), options.get("depth", 4)
    num_steps = 8 if width > 64 or rows > 16 else 60

    def block(is_on: bool) -> tuple[float, float]:  # noqa: FBT001
        with PlainSession(torch) as session:
            undo = load(lever).apply(settings, session) if is_on else None  # type: ignore[misc]
            net, inputs = make_mlp(torch, width, rows, depth)
            spare = nn.Linear(4, 4) if options.get("unused") else nn.Identity()
            model = nn.parallel.DistributedDataParallel(
                beside(nn, net, spare),
                find_unused_parameters=bool(options.get("unused")),
            )
            KEPT.append(model)  # torch may wait for ever when it frees a model with a hook
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

            def step() -> None:
                optimizer.zero_grad()
                for _ in range(passes):
                    model(inputs).square().mean().backward()
                optimizer.step()

            for _ in range(3):
                step()
            dist.barrier()
            began, cpu = time.perf_counter(), time.process_time()
            for _ in range(num_steps):
                step()
            dist.barrier()
            took = time.perf_counter() - began, time.process_time() - cpu
            if undo is not None:
                undo()
        return took

    return list(in_turns(rounds, block))


KEPT: list[Any] = []


def beside(nn: Any, net: Any, spare: Any) -> Any:
    """Return a module that calls the first and leaves the parameters of the second unused."""

    class Both(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net, self.spare = net, spare

        def forward(self, x: Any) -> Any:
            return self.net(x)

    return Both()


def run_together(name: str, rounds: int) -> dict[str, Any]:
    """One lever on two ranks, which are forks of this process."""
    import torch  # noqa: F401  both ranks use this import

    mbit = TOGETHER[name][0].get("mbit")
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        fork_all([lambda: run_ranks(folder, name, rounds, mbit)])
        one, other = (json.loads((folder / f"{rank}.json").read_text()) for rank in range(2))
    cpu = [
        (a_off[1] + b_off[1]) / (a_on[1] + b_on[1])
        for (a_off, a_on), (b_off, b_on) in zip(one, other, strict=True)
    ]
    return {
        "wall_speedup": summary([off[0] / on[0] for off, on in one]),
        "cpu_speedup": summary(cpu),
        "judged_by": "cpu" if mbit is None else "wall",
        "block_s": statistics.median(off[0] for off, _ in one),
    }


def run_ranks(folder: Path, name: str, rounds: int, mbit: int | None) -> None:
    """Both ranks, in a network of their own where it is to be slow."""
    if mbit is not None:
        enter_slow_network(mbit)

    def run_rank(rank: int) -> None:
        found = rank_blocks(rank, folder, name, rounds)
        (folder / f"{rank}.json").write_text(json.dumps(found))

    fork_all([lambda: run_rank(0), lambda: run_rank(1)])


def enter_slow_network(mbit: int) -> None:
    """Leave the network of this process for a loopback that carries so much, of both ranks."""
    from steptime.isolate.overlay.namespaces import enter_namespaces

    enter_namespaces(has_own_mounts=False, has_own_network=True, has_own_processes=False)
    limit = f"tc qdisc add dev lo root tbf rate {mbit}mbit burst 256k latency 400ms"
    subprocess.run(limit.split(), check=True)


def fork_all(parts: list[Callable[[], None]]) -> None:
    """Run each in a fork of this process, and wait for all."""
    children = []
    for part in parts:
        pid = os.fork()
        if pid == 0:
            try:
                part()
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
            os._exit(0)
        children.append(pid)
    if any(os.waitpid(pid, 0)[1] for pid in children):
        raise RuntimeError("a rank failed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--only", nargs="+", choices=CASES, metavar="NAME", default=CASES)
    options = parser.parse_args()
    results = json.loads(OUT.read_text()) if OUT.exists() else {"cases": {}}
    here = conditions()
    for name in options.only:
        run = run_alone if name in ALONE else run_together
        found = run(name, options.rounds)
        results["cases"][name] = found | {"conditions": here}
        OUT.write_text(json.dumps(results, indent=1) + "\n")
        print(name, json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
