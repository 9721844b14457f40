"""The forecast of one rank's peak memory against all events of torch's allocator on that rank.

    python benchmarks/fit/fit_ranks.py [--only NAME ...] [--json FILE] [--save]

Models of `_forecast_models.py`, each trained by AdamW on two and on four real gloo ranks of one
thread, with DDP (with and without gradients as views of buckets), with states by
ZeroRedundancyOptimizer, and with FSDP2 (`fully_shard` of each block and of the model, with and
without `reshard_after_forward`). The truth is the sum of all events of torch's CPU allocator in the
rank's process (torch.profiler, from before the model is made), at its highest in the fourth step.
A profiler does not see what gloo's own thread frees, if that thread is the last to let go; it then
counts too much, never too little, so the least of five repetitions counts.
`steptime.plan.rank_memory` says what it expects of each rank, in one process, without running
anything; beside it stands the forecast of the same training on one rank. No time is measured.
`--save` puts the summary of all rows into benchmarks/results/fit_ranks.json.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from _forecast_models import MODELS, Chain, Training
from torch import nn

from steptime.plan import RankPlan, memory, rank_memory

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import BENCHMARKS, conditions

OUT = BENCHMARKS / "results" / "fit_ranks.json"

CHOSEN = ("gpt", "resnet")
STEPS = 4
REPETITIONS = 5
LET_GO_S = 0.005
TIMEOUT_S = 600


@dataclass(frozen=True)
class Case:
    """One training on several ranks."""

    model: str
    world_size: int
    sharding: str


def with_views(model: nn.Module) -> nn.Module:
    return nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)


def sharded(model: nn.Module, **options: Any) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    chain = next(one for one in model.modules() if isinstance(one, Chain))
    for block in chain.blocks:
        fully_shard(block, **options)
    return fully_shard(model, **options)


WRAPS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "ddp": nn.parallel.DistributedDataParallel,
    "ddp, views": with_views,
    "zero1": nn.parallel.DistributedDataParallel,
    "zero2": lambda model: sharded(model, reshard_after_forward=False),
    "fsdp2": sharded,
}
"""As a script writes it."""

ASKED: dict[str, Any] = {name: name for name in WRAPS} | {
    "ddp, views": with_views,
    "zero2": WRAPS["zero2"],
    "fsdp2": sharded,
}
"""What the forecast is told."""


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3)


def make_optimizer(model: nn.Module, sharding: str) -> Any:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    trained = [p for p in model.parameters() if p.requires_grad]
    if sharding == "zero1":
        return ZeroRedundancyOptimizer(trained, torch.optim.AdamW, lr=1e-3)
    return adamw(trained)


def plant(name: str) -> Training:
    torch.manual_seed(0)
    return MODELS[name](checkpoints=False)


# -- one rank


def train_rank(case: Case, rank: int, store: str) -> list[int]:
    """What each repetition of the training says."""
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=case.world_size
    )
    wait_for_threads(dist.Work)
    peaks = []
    for _ in range(REPETITIONS):
        gc.collect()
        peaks.append(train_once(case))
        dist.barrier()
    return peaks


def train_once(case: Case) -> int:
    """The most that torch's CPU allocator had given out in the last step."""
    from torch.profiler import ProfilerActivity, record_function
    from torch.profiler import profile as profiled

    with profiled(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        training = plant(case.model)
        model = WRAPS[case.sharding](training.model)
        optimizer = make_optimizer(model, case.sharding)
        for number in range(STEPS):
            with record_function("looked_at" if number == STEPS - 1 else "other"):
                optimizer.zero_grad()
                output = model(*training.batch)
                loss = training.loss(output)
                loss.backward()
                optimizer.step()
    return peak_of(prof)


def wait_for_threads(work: Any) -> None:
    """Give gloo's own thread time to let go of what it has exchanged."""
    original = work.wait

    def wait(self: Any, *args: Any) -> Any:
        result = original(self, *args)
        time.sleep(LET_GO_S)
        return result

    work.wait = wait


def peak_of(prof: Any) -> int:
    events = prof.profiler.kineto_results.events()
    step = next(e for e in events if e.name() == "looked_at")
    held = peak = 0
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        held += event.nbytes()
        if step.start_ns() <= event.start_ns() <= step.end_ns():
            peak = max(peak, held)
    return peak


def true_peaks(case: Case) -> list[list[int]]:
    """Start the ranks; return what each of them says of each repetition."""
    with tempfile.TemporaryDirectory() as folder:
        told = json.dumps({**asdict(case), "store": f"{folder}/store"})
        ranks = [
            subprocess.Popen(
                [sys.executable, __file__, "--rank", str(rank), "--told", told],
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(case.world_size)
        ]
        try:
            said = [rank.communicate(timeout=TIMEOUT_S)[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    return [json.loads(one.splitlines()[-1]) for one in said]


# -- comparing


def forecast(case: Case, rank: int, *, alone: bool = False) -> dict[str, Any]:
    training = plant(case.model)
    batch, how = training.batch, {"loss": training.loss}
    if alone:
        found = memory(training.model, batch, adamw, **how)
    else:
        ranks = RankPlan(world_size=case.world_size, rank=rank, sharding=ASKED[case.sharding])
        found = rank_memory(training.model, batch, adamw, ranks, **how)
    if found.peak is None:
        return {"unknown": list(found.unknown)}
    return {
        "estimate": found.peak.estimate,
        "low": found.peak.low,
        "high": found.peak.high,
        "by_category": dict(found.by_category),
        "phase": found.phase,
        "unknown": list(found.unknown),
    }


def measure(case: Case) -> Iterator[dict[str, Any]]:
    alone = forecast(case, 0, alone=True)["estimate"]
    for rank, peaks in enumerate(true_peaks(case)):
        peak = min(peaks)
        row = {**asdict(case), "rank": rank, "true": peak, "runs": peaks, "one_rank": alone}
        row |= forecast(case, rank)
        if "estimate" in row:
            row["error"] = row["estimate"] / peak - 1
        row["one_rank_error"] = alone / peak - 1
        yield row


def save(rows: list[dict[str, Any]]) -> None:
    """Save the summary of all rows, and that of each sharding."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["sharding"], []).append(row)
    parts = {name: summarize(of) for name, of in groups.items()}
    document = {"conditions": conditions(), "summary": summarize(rows), "by_sharding": parts}
    OUT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    def of(key: str) -> dict[str, Any]:
        errors = [abs(row[key]) for row in rows if key in row]
        return {
            "num": len(errors),
            "median": statistics.median(errors) if errors else None,
            "largest": max(errors, default=None),
            "within_10_percent": sum(error <= 0.1 for error in errors),
        }

    inside = [row for row in rows if "low" in row and row["low"] <= row["true"] <= row["high"]]
    return {
        "num_ranks": len(rows),
        "steptime": of("error"),
        "as_one_rank": of("one_rank_error"),
        "inside_interval": len(inside),
    }


def show(row: dict[str, Any]) -> str:
    error = format(row["error"], "+.2%") if "error" in row else "-"
    return (
        f"{row['model']:10}{row['sharding']:12}{row['rank']} of {row['world_size']}"
        f"{row['true']:>12}{error:>9}   as one rank {row['one_rank_error']:+.1%}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=list(CHOSEN), help="names of models")
    parser.add_argument("--json", type=Path, help="write the rows there, and continue them")
    parser.add_argument("--save", action="store_true", help="save the summary of all rows")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--told", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.told is not None:
        store = options.told.pop("store")
        print(json.dumps(train_rank(Case(**options.told), options.rank, store)))
        return 0
    print(f"Python {platform.python_version()}, torch {torch.__version__}, CPU, gloo")
    rows: list[dict[str, Any]] = []
    if options.json is not None and options.json.exists():
        rows = json.loads(options.json.read_text())["rows"]
    done = {tuple(row[field.name] for field in fields(Case)) for row in rows}
    for case in (Case(m, n, how) for m in options.only for n in (2, 4) for how in WRAPS):
        if astuple(case) in done:
            continue
        for row in measure(case):
            rows.append(row)
            print(show(row), flush=True)
        if options.json is not None:
            document = {"conditions": conditions(), "summary": summarize(rows), "rows": rows}
            options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if options.save:
        save(rows)
    print(json.dumps(summarize(rows), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
