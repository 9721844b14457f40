"""Counted work of planted models against closed forms: ours, torch's counter, and three others.

    python benchmarks/fit/flops.py [--peers FOLDER] [--out FILE]

The models and their closed forms are those of the tests (`tests/counted_models.py`,
`counted_layers.py`, `counted_weights.py`, and `partly_seen.py` for those of which operators show
only a part: for these the share of the work that ours counts, and whether its proof of completeness
fails, as it must). For each
counter the error of the forward, and of all passes where it counts them: fvcore, calflops and
DeepSpeed's profiler count a forward alone. fvcore's count is of multiply-accumulates and is
doubled; torch's does not tell recomputed work apart, so all its passes are compared as a sum.
calflops and DeepSpeed also count activations and norms, an element as one or more, which explains
what they are above by where nothing else is amiss; ours leaves these out of the sum.
`--peers` is a folder to import the others from; those that are not installed are left out. The
table and the figures go to benchmarks/results/flops.json.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import io
import json
import platform
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import steptime
from counted_layers import LAYERS
from counted_models import PLANTED as FIRST
from counted_models import Planted
from counted_weights import WHOLE
from partly_seen import PARTLY_SEEN

PLANTED = FIRST | LAYERS | WHOLE
OUT = Path(__file__).resolve().parents[1] / "results" / "flops.json"


class Whole(nn.Module):
    """A function as a module, for counters that take nothing else."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def as_module(planted: Planted) -> nn.Module:
    model = planted.model
    return model if isinstance(model, nn.Module) else Whole(model)


def by_steptime(planted: Planted) -> dict[str, float]:
    found = steptime.count(planted.model, *planted.inputs)
    return {
        "forward": found.forward,
        "total": found.total,
        "recomputed": found.recomputed,
        "is_complete": float(found.is_complete is True),
    }


def by_torch(planted: Planted) -> dict[str, float]:
    model = planted.model
    with FlopCounterMode(display=False) as forward:
        result = model(*planted.inputs)
    with FlopCounterMode(display=False) as backward:
        result.sum().backward()
    counted = forward.get_total_flops()
    return {"forward": counted, "total": counted + backward.get_total_flops()}


def by_fvcore(planted: Planted) -> dict[str, float]:
    from fvcore.nn import FlopCountAnalysis

    analysis = FlopCountAnalysis(as_module(planted), planted.inputs)
    analysis.unsupported_ops_warnings(False)
    analysis.uncalled_modules_warnings(False)
    return {"forward": 2 * analysis.total()}


def by_calflops(planted: Planted) -> dict[str, float]:
    from calflops import calculate_flops

    flops, _, _ = calculate_flops(
        as_module(planted),
        args=list(planted.inputs),
        print_results=False,
        print_detailed=False,
        output_as_string=False,
    )
    return {"forward": flops}


def by_deepspeed(planted: Planted) -> dict[str, float]:
    from deepspeed.profiling.flops_profiler import get_model_profile

    flops, _, _ = get_model_profile(
        as_module(planted),
        args=list(planted.inputs),
        print_profile=False,
        detailed=False,
        as_string=False,
        warm_up=0,
    )
    return {"forward": flops}


COUNTERS: dict[str, Callable[[Planted], dict[str, float]]] = {
    "steptime": by_steptime,
    "torch": by_torch,
    "fvcore": by_fvcore,
    "calflops": by_calflops,
    "deepspeed": by_deepspeed,
}


def measure(name: str, counter: str) -> dict[str, Any]:
    """Errors of one counter on one model, or why it has none."""
    torch.manual_seed(0)
    planted = PLANTED[name]()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            found = COUNTERS[counter](planted)
    except Exception as error:  # a counter that cannot is a row of the table
        return {"model": name, "counter": counter, "failed": f"{type(error).__name__}: {error}"}
    truth = {
        "forward": planted.forward,
        "total": planted.total,
        "recomputed": planted.recomputed,
        "is_complete": 1.0,
    }
    errors = {
        key: value / truth[key] - 1 if truth[key] else float(value != 0)
        for key, value in found.items()
    }
    return {"model": name, "counter": counter, **errors}


def show(rows: list[dict[str, Any]], counters: list[str]) -> str:
    """A table, a line a model: forward, and all passes where they are counted."""
    head = [f"{one} {key}" for one in counters for key in columns(one)]
    lines = ["  ".join([f"{'model':27}", *(f"{one:>16}" for one in head)])]
    for name in PLANTED:
        cells = []
        for counter in counters:
            row = next(r for r in rows if (r["model"], r["counter"]) == (name, counter))
            cells += [cell(row, key) for key in columns(counter)]
        lines.append("  ".join([f"{name:27}", *(f"{one:>16}" for one in cells)]))
    return "\n".join(lines)


def save(path: Path, rows: list[dict[str, Any]], counters: list[str]) -> None:
    """Errors as fractions, with the versions they are of; others' earlier rows stay."""
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"rows": []}
    rows = [*rows, *(row for row in kept["rows"] if row["counter"] not in counters)]
    versions = {one: importlib.metadata.version(one) for one in counters if one != "steptime"}
    figures = {
        **stamp(),
        "python": platform.python_version(),
        "versions": kept.get("versions", {}) | versions | {"torch": str(torch.__version__)},
        "device": "cpu",
        "rows": rows,
    }
    path.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def measure_partial(name: str) -> dict[str, Any]:
    """What ours says of a model of which it sees a part."""
    torch.manual_seed(0)
    planted = PARTLY_SEEN[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = steptime.count(planted.model, *planted.inputs)
    proof = found.completeness
    named = [] if proof is None else [*(one.name for one in proof.unmet), *proof.unseen]
    return {
        "model": name,
        "counter": "steptime",
        "seen_fraction": found.total / planted.total,
        "is_complete": found.is_complete,
        "named": [*named, *found.uncovered],
    }


def show_partial(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'model of which a part is seen':30}{'counted':>10}  called whole  named"]
    for row in rows:
        said = {True: "yes", False: "no", None: "nothing said"}[row["is_complete"]]
        named = ", ".join(row["named"])
        lines.append(f"{row['model']:30}{row['seen_fraction']:>10.1%}  {said:12}  {named}")
    return "\n".join(lines)


def columns(counter: str) -> tuple[str, ...]:
    return ("forward", "total") if counter in ("steptime", "torch") else ("forward",)


def cell(row: dict[str, Any], key: str) -> str:
    if "failed" in row:
        return row["failed"].partition(":")[0][:16]
    return "exact" if row[key] == 0 else f"{row[key]:+.2%}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=Path, help="folder to import other counters from")
    parser.add_argument("--out", type=Path, default=OUT, help="where the figures go")
    options = parser.parse_args()
    if options.peers is not None:
        sys.path.insert(0, str(options.peers))
        importlib.invalidate_caches()
    counters = [one for one in COUNTERS if one == "steptime" or importlib.util.find_spec(one)]
    left_out = sorted(set(COUNTERS) - set(counters))
    print(f"Python {platform.python_version()}, torch {torch.__version__}, CPU")
    if left_out:
        print(f"not installed: {', '.join(left_out)}")
    # One counter after the other: some put their own functions into torch's places.
    rows = [measure(name, counter) for counter in counters for name in PLANTED]
    print(show(rows, counters))
    for row in rows:
        if "failed" in row:
            print(f"  {row['counter']} on {row['model']}: {row['failed'][:160]}")
    ours = [row for row in rows if row["counter"] == "steptime"]
    passes = ("forward", "recomputed", "total", "is_complete")
    exact = [row for row in ours if all(row.get(name) == 0 for name in passes)]
    print(f"steptime: {len(exact)} of {len(ours)} models exact in all passes, and proven whole")
    partial = [measure_partial(name) for name in PARTLY_SEEN]
    caught = [row for row in partial if row["is_complete"] is False]
    print(show_partial(partial))
    print(f"steptime: {len(caught)} of {len(partial)} counts known to be lower bounds")
    save(options.out, [*rows, *partial], counters)
    return 0 if (len(exact), len(caught)) == (len(ours), len(partial)) else 1


if __name__ == "__main__":
    sys.exit(main())
