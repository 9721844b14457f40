"""The forecast of a step's peak memory against all events of torch's allocator, beside others.

    python benchmarks/fit/fit_memory.py [--only NAME ...] [--others] [--json FILE] [--save]

Twelve models (`_forecast_models.py`), each trained by four optimizers, with and without bf16
autocast and activation checkpointing: 192 trainings. The truth is the sum of all events of torch's
CPU allocator (torch.profiler, from before the model is made), at its highest in the third step.
`steptime.plan.memory` says what it expects, without running anything. Beside it stands torch's own
MemTracker in fake mode, over three steps. With `--others`, rows without autocast also have what
accelerate, torchinfo and torch-kitsune say, where they are installed. No time is measured, so the
machine need not be quiet; a JSON file that is there already is continued. `--save` puts the summary
of all rows into benchmarks/results/fit_memory.json.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from _forecast_models import MODELS, Training
from _forecast_others import OTHERS, ask_others

from steptime.forecasting.forecast_model import memory

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import BENCHMARKS, conditions

OUT = BENCHMARKS / "results" / "fit_memory.json"

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda ps: torch.optim.SGD(ps, lr=1e-3),
    "momentum": lambda ps: torch.optim.SGD(ps, lr=1e-3, momentum=0.9),
    "adamw": lambda ps: torch.optim.AdamW(ps, lr=1e-3),
    "adafactor": lambda ps: torch.optim.Adafactor(ps, lr=1e-3),
}
LOOKED_AT = 2


@dataclass(frozen=True)
class Case:
    """One training."""

    model: str
    trained_by: str
    autocast: bool
    checkpoints: bool

    def plant(self) -> tuple[Training, torch.optim.Optimizer]:
        torch.manual_seed(0)
        training = MODELS[self.model](checkpoints=self.checkpoints)
        trained = [p for p in training.model.parameters() if p.requires_grad]
        return training, OPTIMIZERS[self.trained_by](trained)


def cases() -> Iterator[Case]:
    for name in MODELS:
        for autocast in (False, True):
            for checkpoints in (False, True):
                for how in OPTIMIZERS:
                    yield Case(name, how, autocast, checkpoints)


def update(training: Training, optimizer: torch.optim.Optimizer, *, autocast: bool) -> None:
    """One step up to its end, gradients dropped at its beginning."""
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16) if autocast else contextlib.nullcontext():
        output = training.model(*training.batch)
        loss = training.loss(output)
    loss.backward()
    optimizer.step()


def true_peak(case: Case) -> int:
    """The most that torch's CPU allocator had given out in the step that is looked at."""
    from torch.profiler import ProfilerActivity, record_function
    from torch.profiler import profile as profiled

    gc.collect()
    with profiled(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        training, optimizer = case.plant()
        for number in range(LOOKED_AT + 1):
            with record_function("looked_at" if number == LOOKED_AT else "other"):
                update(training, optimizer, autocast=case.autocast)
    events = prof.profiler.kineto_results.events()
    step = next(e for e in events if e.name() == "looked_at")
    held = peak = 0
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        held += event.nbytes()
        if step.start_ns() <= event.start_ns() <= step.end_ns():
            peak = max(peak, held)
    return peak


def forecast(case: Case) -> dict[str, Any]:
    training, _ = case.plant()
    began = time.process_time()
    found = memory(
        training.model,
        training.batch,
        OPTIMIZERS[case.trained_by],
        loss=training.loss,
        autocast="bf16" if case.autocast else None,
    )
    row: dict[str, Any] = {"cpu_s": round(time.process_time() - began, 2)}
    row["unknown"] = list(found.unknown)
    if found.peak is not None:
        row |= {"low": found.peak.low, "high": found.peak.high, "estimate": found.peak.estimate}
        row |= {"by_category": dict(found.by_category), "phase": found.phase}
        row["operator"] = found.operator
    return row


def mem_tracker(case: Case) -> int | str:
    """The peak that torch's own tracker gives in fake mode, over the same steps."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            training, optimizer = case.plant()
            tracker = MemTracker()
            tracker.track_external(training.model, optimizer, *training.batch)
            with tracker:
                for _ in range(LOOKED_AT + 1):
                    tracker.reset_mod_stats()  # else it refuses a second step
                    update(training, optimizer, autocast=case.autocast)
            peaks = tracker.get_tracker_snapshot("peak")
        return int(sum(device["Total"] for device in peaks.values()))
    except Exception as error:  # whatever it cannot do is its result
        return f"{type(error).__name__}: {str(error).strip().splitlines()[-1][:120]}"


def measure(case: Case) -> dict[str, Any]:
    row: dict[str, Any] = asdict(case) | {"true": true_peak(case)} | forecast(case)
    if "estimate" in row:
        row["error"] = row["estimate"] / row["true"] - 1
    tracked = mem_tracker(case)
    row["mem_tracker"] = tracked
    if isinstance(tracked, int):
        row["mem_tracker_error"] = tracked / row["true"] - 1
    return row


def show(row: dict[str, Any]) -> str:
    flags = ("bf16 " if row["autocast"] else "") + ("ckpt" if row["checkpoints"] else "")
    theirs = row.get("mem_tracker_error")
    ours = row.get("error")
    return (
        f"{row['model']:20}{row['trained_by']:10}{flags:10}{row['true']:>10}"
        f"{'-' if ours is None else format(ours, '+.2%'):>9}"
        f"{row['mem_tracker'][:40] if theirs is None else format(theirs, '+.2%'):>9} "
        f"{row.get('phase', '')} {row.get('operator', '')}"
    )


def add_others(rows: list[dict[str, Any]]) -> None:
    """Add what other estimators say to the rows without autocast, which none of them knows."""
    for row in rows:
        if not row["autocast"] and "others" not in row:
            case = Case(**{field.name: row[field.name] for field in fields(Case)})
            row["others"] = ask_others(case.plant()[0], case.trained_by)


def error_of(row: dict[str, Any], name: str) -> float | None:
    said = row.get("others", {}).get(name)
    return said / row["true"] - 1 if isinstance(said, int) else None


def save(rows: list[dict[str, Any]]) -> None:
    """Save the summary of all rows, and that of each model."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["model"], []).append(row)
    parts = {name: summarize(of) for name, of in groups.items()}
    document = {"conditions": conditions(), "summary": summarize(rows), "by_model": parts}
    OUT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    def of(key: str) -> dict[str, Any]:
        return table([abs(row[key]) for row in rows if key in row])

    def table(errors: list[float]) -> dict[str, Any]:
        return {
            "num": len(errors),
            "median": statistics.median(errors) if errors else None,
            "largest": max(errors, default=None),
            "within_5_percent": sum(error <= 0.05 for error in errors),
            "within_15_percent": sum(error <= 0.15 for error in errors),
        }

    inside = [row for row in rows if "low" in row and row["low"] <= row["true"] <= row["high"]]
    return {
        "num_rows": len(rows),
        "steptime": of("error"),
        "mem_tracker": of("mem_tracker_error"),
        "inside_interval": len(inside),
        "others": {
            name: table([abs(e) for row in rows if (e := error_of(row, name)) is not None])
            for name in OTHERS
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=list(MODELS), help="names of models")
    parser.add_argument("--json", type=Path, help="write the rows there, and continue them")
    parser.add_argument("--save", action="store_true", help="save the summary of all rows")
    parser.add_argument("--others", action="store_true", help="ask other estimators, too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"Python {platform.python_version()}, torch {torch.__version__}, CPU")
    rows = []
    if options.json is not None and options.json.exists():
        rows = json.loads(options.json.read_text())["rows"]
    done = {tuple(row[field.name] for field in fields(Case)) for row in rows}
    for case in cases():
        if astuple(case) in done or case.model not in options.only:
            continue
        rows.append(measure(case))
        print(show(rows[-1]), flush=True)
        if options.json is not None:
            document = {"conditions": conditions(), "summary": summarize(rows), "rows": rows}
            options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if options.others:
        add_others(rows)
        if options.json is not None:
            document = {"conditions": conditions(), "summary": summarize(rows), "rows": rows}
            options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if options.save:
        save(rows)
    print(json.dumps(summarize(rows), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
