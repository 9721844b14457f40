"""The ceilings of `steptime machine` against loops written by hand, in one run, in turns.

    python benchmarks/ceilings.py [--rounds 24] [--search-seconds 2.5] [--clock wall|cpu]

For matrix products in fp32 and bf16, and for copies in memory. First each side looks for its best
setting on its own: Steptime's search as `steptime machine` runs it, and a plain loop over squares
(or array sizes) and numbers of threads. Then the two settings are timed in turns, A B B A, each
time with its own code: Steptime's repetition, and a loop around `torch.mm` or `copy_`. A pair's
ratio is Steptime's rate over the loop's; printed are medians with their 95 % intervals, and how
many cores others took meanwhile. Results go to benchmarks/results/ceilings.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SIZES = (256, 384, 512, 768, 1024, 1536, 2048, 3072)
REPETITION_S = 0.02
WAIT_POLICY = "passive"
BAR = 0.05
KINDS = ("fp32", "bf16", "copy", "copy, same arrays")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--search-seconds", type=float, default=2.5)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--out", default=str(HERE / "results" / "ceilings.json"))
    options = parser.parse_args()
    threads = 1 if options.clock == "cpu" else len(os.sched_getaffinity(0))
    wanted = {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": WAIT_POLICY}
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        # OpenMP reads them once, when it is loaded.
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})
    import torch

    torch.set_grad_enabled(False)
    print(
        f"{processor()}, {threads} of {os.cpu_count()} cores, wait policy {WAIT_POLICY}, "
        f"torch {torch.__version__}, {options.clock} time"
    )
    read = time.process_time if options.clock == "cpu" else time.perf_counter
    bench = Bench(torch, threads, read)
    rows = [compare(bench, kind, options) for kind in KINDS]
    result = {
        "processor": processor(),
        "threads": threads,
        "wait_policy": WAIT_POLICY,
        "clock": options.clock,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "command": " ".join(["python", "benchmarks/ceilings.py", *sys.argv[1:]]),
        "rows": rows,
    }
    Path(options.out).write_text(json.dumps(result, indent=2) + "\n")
    for row in rows:
        far = abs(row["ratio"]["median"] - 1)
        word = "within" if far <= BAR else "NOT within"
        print(f"{row['kind']}: {100 * far:.1f} % from the loop by hand, {word} {100 * BAR:.0f} %")


@dataclass(frozen=True)
class Bench:
    """What both sides share: torch, the number of threads, and the clock."""

    torch: Any
    threads: int
    read: Callable[[], float]


def compare(bench: Bench, kind: str, options: argparse.Namespace) -> dict[str, Any]:
    """One kind: both searches, then turns."""
    from steptime.core.stats import median_interval
    from steptime.core.units import format_rate
    from steptime.machine.child.load import Others

    ours, our_setting, arrays = steptimes_loop(bench, kind, options.search_seconds)
    if kind == "copy, same arrays":
        threads = our_setting["num_threads"]
        by_hand, hand_setting = copy_loop(bench, *arrays, threads), [threads]
    else:
        by_hand, hand_setting = hand_loop(bench, kind)
    others, pairs = Others(), []
    for number in range(options.rounds):
        order = (ours, by_hand) if number % 2 == 0 else (by_hand, ours)
        rates = {side: side() for side in order}
        pairs.append((rates[ours], rates[by_hand]))
    others_cores = others.look()
    found = {
        "kind": kind,
        "unit": "bytes_per_s" if "copy" in kind else "flops_per_s",
        "steptime": quantity(median_interval([a for a, _ in pairs])),
        "by_hand": quantity(median_interval([b for _, b in pairs])),
        "ratio": quantity(median_interval([a / b for a, b in pairs])),
        "steptime_setting": our_setting,
        "hand_setting": hand_setting,
        "others_cores": others_cores,
    }
    print(
        f"{kind}: steptime {format_rate(found['steptime']['median'], found['unit'])} at "
        f"{our_setting}, by hand {format_rate(found['by_hand']['median'], found['unit'])} at "
        f"{hand_setting}, ratio {found['ratio']['median']:.3f} "
        f"[{found['ratio']['low']:.3f}, {found['ratio']['high']:.3f}], n={options.rounds}, "
        f"others took {others_cores} cores",
        flush=True,
    )
    return found


def quantity(value: Any) -> dict[str, float]:
    return {"median": value.median, "low": value.low, "high": value.high, "n": value.n}


# -- Steptime's side


def steptimes_loop(
    bench: Bench, kind: str, seconds: float
) -> tuple[Callable[[], float], Any, list[Any]]:
    """A repetition at the setting that the search of `steptime machine` chooses, and its arrays."""
    from steptime.machine.child import matmul, memory
    from steptime.machine.child.repeat import Clock, Search

    torch, threads = bench.torch, bench.threads
    clock = Clock(until_s=bench.read() + seconds, read=bench.read)
    search = Search(clock, errors=(RuntimeError,))
    sweep = memory.Sweep(torch, "cpu", "copy", threads)
    if "copy" in kind:
        _, large = memory.sizes(cache_bytes=cache_bytes(), limit_bytes=1 << 30)
        search.try_all(sweep.in_memory(large))
    else:
        products = matmul.Products(torch, "cpu", kind, num_threads=threads, limit_bytes=1 << 30)
        search.try_all(products.first())
        for further in (products.squares, products.near):
            search.try_all(further(search.best().candidate.setting))
    winner = search.finish()
    work = winner.candidate.make()

    def repeat() -> float:
        return search._rate(winner.candidate, work, winner.calls)

    arrays = sweep.arrays(winner.candidate.make.args[2]) if "copy" in kind else []
    return repeat, winner.candidate.setting, arrays


# -- written by hand


def hand_loop(bench: Bench, kind: str) -> tuple[Callable[[], float], Any]:
    """The fastest of all plain loops, and what it is."""
    best: tuple[float, Callable[[], float], Any] | None = None
    torch = bench.torch
    kept = []  # so that no memory is given twice
    for setting in hand_settings(kind, bench.threads):
        if kind == "copy":
            size, threads = setting
            loop = copy_loop(bench, torch.ones(size // 8), torch.ones(size // 8), threads)
        else:
            loop = mm_loop(bench, kind, *setting)
        kept.append(loop)
        rate = max(loop() for _ in range(3))
        if best is None or rate > best[0]:
            best = (rate, loop, setting)
    assert best is not None
    return best[1], list(best[2])


def hand_settings(kind: str, threads: int) -> list[tuple[int, int]]:
    counts = sorted({1, threads})
    if kind == "copy":
        sizes = [*[128 << 20] * 4, *[256 << 20] * 2]  # several places, as memory is not all alike
        return [(size, count) for size in sizes for count in counts]
    return [(size, count) for size in SIZES for count in counts]


def mm_loop(bench: Bench, kind: str, size: int, threads: int) -> Callable[[], float]:
    """Rate of `torch.mm` of squares, over about 20 ms."""
    torch, read = bench.torch, bench.read
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[kind]
    a, b = torch.randn(size, size).to(dtype), torch.randn(size, size).to(dtype)
    c = torch.empty(size, size, dtype=dtype)
    torch.set_num_threads(threads)
    torch.mm(a, b, out=c)
    began_s = read()
    torch.mm(a, b, out=c)
    calls = max(1, round(REPETITION_S / max(1e-6, read() - began_s)))

    def loop() -> float:
        torch.set_num_threads(threads)
        began_s = read()
        for _ in range(calls):
            torch.mm(a, b, out=c)
        return 2 * size**3 * calls / (read() - began_s)

    return loop


def copy_loop(bench: Bench, a: Any, b: Any, threads: int) -> Callable[[], float]:
    """Bytes read and written a second by `copy_`."""
    torch, read = bench.torch, bench.read
    size = a.numel() * 4 + b.numel() * 4

    def loop() -> float:
        torch.set_num_threads(threads)
        began_s = read()
        b.copy_(a)
        return size / (read() - began_s)

    loop()
    return loop


# -- the machine


def cache_bytes() -> int:
    """Of the last caches, as the inventory counts them."""
    from steptime.machine.inventory import HERE as KERNEL
    from steptime.machine.processors import read_cpu

    caches = read_cpu(KERNEL, num_usable=1).caches
    last = max((cache.level for cache in caches), default=0)
    return sum(c.size_bytes * c.num for c in caches if c.level == last) or 32 << 20


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    main()
