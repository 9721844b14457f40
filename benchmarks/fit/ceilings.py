"""The ceilings of `steptime machine` against loops written by hand, in one run, in turns.

    python benchmarks/fit/ceilings.py [--searches 5] [--rounds 8] [--clock wall|cpu]

For matrix products in fp32 and bf16, and for copies in memory. First each side looks for its best
setting on its own: Steptime's search as `steptime machine` runs it, and a plain loop over squares
(or array sizes) and numbers of threads. Then the two settings are timed in turns, A B B A, each
time with its own code: Steptime's repetition, and a loop around `torch.mm` or `copy_`. A pair's
ratio is Steptime's rate over the loop's; printed are medians with their 95 % intervals, and how
many cores others took meanwhile. Where the pages of an array lie decides by 10 % and more, so all
of it is done several times and the pairs are pooled; each search's own median is printed beside.
Results go to benchmarks/results/ceilings.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import cpu_name, stamp

BENCHMARKS = Path(__file__).resolve().parents[1]
SIZES = (256, 384, 512, 768, 1024, 1536, 2048, 3072)
REPETITION_S = 0.02
WAIT_POLICY = "passive"
BAR = 0.05
Loop = Callable[[], float]
KINDS = ("fp32", "bf16", "copy", "copy, same arrays")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--searches", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=8, help="pairs after each search")
    parser.add_argument("--search-seconds", type=float, default=2.5)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--out", default=str(BENCHMARKS / "results" / "ceilings.json"))
    options = parser.parse_args()
    threads = 1 if options.clock == "cpu" else len(os.sched_getaffinity(0))
    wanted = {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": WAIT_POLICY}
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        # OpenMP reads them once, when it is loaded.
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})
    import torch

    torch.set_grad_enabled(False)
    print(
        f"{cpu_name()}, {threads} of {os.cpu_count()} cores, wait policy {WAIT_POLICY}, "
        f"torch {torch.__version__}, {options.clock} time"
    )
    read = time.process_time if options.clock == "cpu" else time.perf_counter
    bench = Bench(torch, threads, read)
    rows = [compare(bench, kind, options) for kind in KINDS]
    result = {
        "processor": cpu_name(),
        "threads": threads,
        "wait_policy": WAIT_POLICY,
        "clock": options.clock,
        "torch": str(torch.__version__),
        **stamp(),
        "python": platform.python_version(),
        "command": " ".join(["python", "benchmarks/fit/ceilings.py", *sys.argv[1:]]),
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
    """One kind: both searches, then turns, and all of that again."""
    from steptime.core.stats import median_interval
    from steptime.core.units import format_rate
    from steptime.machine.child.other_load import Others

    others, pairs, searches = Others(), [], []
    for _ in range(options.searches):
        (ours, our_setting), (by_hand, hand_setting) = search_both(bench, kind, options)
        new = []
        for number in range(options.rounds):
            order = (ours, by_hand) if number % 2 == 0 else (by_hand, ours)
            rates = {side: side() for side in order}
            new.append((rates[ours], rates[by_hand]))
        pairs += new
        ratio = statistics.median(a / b for a, b in new)
        searches.append({"steptime": our_setting, "by_hand": hand_setting, "ratio": ratio})
    others_cores = others.sample()
    found = {
        "kind": kind,
        "unit": "bytes_per_s" if "copy" in kind else "flops_per_s",
        "steptime": quantity(median_interval([a for a, _ in pairs])),
        "by_hand": quantity(median_interval([b for _, b in pairs])),
        "ratio": quantity(median_interval([a / b for a, b in pairs])),
        "search_ratios": sorted(one["ratio"] for one in searches),
        "others_cores": others_cores,
    }
    each = ", ".join(f"{one['ratio']:.3f}" for one in searches)
    print(
        f"{kind}: steptime {format_rate(found['steptime']['median'], found['unit'])}, by hand "
        f"{format_rate(found['by_hand']['median'], found['unit'])}, "
        f"ratio {found['ratio']['median']:.3f} "
        f"[{found['ratio']['low']:.3f}, {found['ratio']['high']:.3f}], n={len(pairs)}, "
        f"by search {each}, others took {others_cores} cores",
        flush=True,
    )
    return found


def search_both(bench: Bench, kind: str, options: argparse.Namespace) -> list[tuple[Loop, Any]]:
    """Steptime's loop and the one by hand at their best, with their settings."""
    ours, setting, arrays = steptimes_loop(bench, kind, options.search_seconds)
    if kind == "copy, same arrays":
        threads = setting["num_threads"]
        return [(ours, setting), (copy_loop(bench, *arrays, threads), [threads])]
    return [(ours, setting), hand_loop(bench, kind)]


def quantity(value: Any) -> dict[str, float]:
    return {"median": value.estimate, "low": value.low, "high": value.high, "n": value.n}


# -- Steptime's side


def steptimes_loop(bench: Bench, kind: str, seconds: float) -> tuple[Loop, Any, list[Any]]:
    """A repetition at the setting that the search of `steptime machine` chooses, and its arrays."""
    from steptime.machine.child import matmul, memory_bandwidth
    from steptime.machine.child.repeat import Clock, Search

    torch, threads = bench.torch, bench.threads
    clock = Clock(until_s=bench.read() + seconds, read=bench.read)
    search = Search(clock, errors=(RuntimeError,))
    sweep = memory_bandwidth.Sweep(torch, "cpu", "copy", threads)
    if "copy" in kind:
        _, large = memory_bandwidth.sizes(cache_bytes=cache_bytes(), limit_bytes=1 << 30)
        search.try_all(sweep.in_memory(large))
        search.try_all(sweep.places(search.best().candidate.setting, 2 << 30))
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


def hand_loop(bench: Bench, kind: str) -> tuple[Loop, Any]:
    """The fastest of all plain loops, and what it is."""
    best: tuple[float, Loop, Any] | None = None
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


def mm_loop(bench: Bench, kind: str, size: int, threads: int) -> Loop:
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


def copy_loop(bench: Bench, a: Any, b: Any, threads: int) -> Loop:
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


if __name__ == "__main__":
    main()
