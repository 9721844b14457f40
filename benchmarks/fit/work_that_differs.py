"""Work that differs from step to step: the reported mean against closed forms, a script of a kind.

    python benchmarks/fit/work_that_differs.py [--before FOLDER] [--only NAME ...] [--out FILE]

The scripts are those of the tests (`tests/specimens/work`); each writes the work of each of its
updates by closed form. They run under `steptime run`, those that a run must not count with
`--count`. The true mean is that of the steps of the window, by the rows of the run's folder. For
each: the reported work of a step over the true mean, how it came about, and what the report said
without `--count`. Where sizes cannot show the work, the report must say a range that holds the true
mean, and no rate. `--before` is the `src` folder of an earlier version, whose reports are put
beside ours. The table goes to benchmarks/results/work_that_differs.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

BENCHMARKS = Path(__file__).resolve().parents[1]
SCRIPTS = BENCHMARKS.parent / "tests" / "specimens" / "work"
OUT = BENCHMARKS / "results" / "work_that_differs.json"
LIMIT_S = 300
DISTURBED = 2

CASES: dict[str, tuple[str, ...]] = {
    "varying_batch": (),
    "varying_sequences": (),
    "growing_sequences": (),
    "random_lengths": (),
    "token_budget": (),
    "irregular_accumulation": (),
    "uneven_accumulation": (),
    "batch_jumps": (),
    "batch_jumps_late": ("2100",),
    "unfreezing": (),
    "gradual_unfreezing": (),
    "lbfgs_closures": (),
    "fixed_point": (),
    "own_threads": (),
    "gan_in_turns": (),
    "gradient_penalty": (),
    "contrastive": (),
    "distillation": (),
    "rollout": (),
    "clip": (),
    "wasserstein": (),
    "functional_head": (),
    "function_threads": (),
    "nested_tensors": ("strided",),
}
"""The words behind each script; a name may have another word behind that of its script."""

APART = frozenset(
    (
        *("gradient_penalty", "contrastive", "distillation", "rollout", "clip"),
        *("wasserstein", "functional_head", "function_threads", "nested_tensors"),
    )
)
"""Only an extra run may count them."""

HIDDEN = frozenset(("fixed_point",))
"""Their work goes by no size."""


def run(name: str, source: Path | None, *, options: Sequence[str]) -> dict[str, Any]:
    """What one version reports of a script, over the true mean of its window."""
    words = CASES[name]
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "STEPTIME"))}
    own |= {"OMP_NUM_THREADS": "1"} | ({} if source is None else {"PYTHONPATH": str(source)})
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "steptime", "run", "--json", "result.json", *options]
        command += ["--", sys.executable, str(script_of(name)), *words]
        subprocess.run(
            command, cwd=folder, env=own, capture_output=True, timeout=LIMIT_S, check=True
        )
        data = json.loads(Path(folder, "result.json").read_bytes())["data"]
        truth = true_mean(Path(folder), data["measurement"])
    count, basis = data["measurement"]["count"], None
    if count is None:
        return {"missing": data["measurement"]["count_missing"], "true_flops": truth}
    basis = count.get("basis") or {}
    return {
        "flops": data["work"]["total"],
        "true_flops": truth,
        "ratio": data["work"]["total"] / truth,
        "how": basis.get("how"),
        "num_counted": basis.get("num_counted"),
        "low_flops": basis.get("low_flops"),
        "high_flops": basis.get("high_flops"),
        "error_fraction": basis.get("error_fraction"),
        "flops_per_s": data["mfu"]["flops_per_s"],
    }


def true_mean(folder: Path, measured: Mapping[str, Any]) -> float:
    """The mean work of the steps of the window, by closed form."""
    work = json.loads((folder / "work.json").read_text())
    (run_folder,) = (folder / ".steptime" / "runs").iterdir()
    rows = [
        row
        for line in map(json.loads, (run_folder / "rank-0.jsonl").read_text().splitlines())
        if line["k"] == "u"
        for row in line["rows"]
        if row[2] >= 0
    ]
    steps: list[list[int]] = []
    stepped: set[int] = set()
    for at, row in enumerate(rows):
        if not steps or row[2] in stepped:
            steps.append([])
            stepped = set()
        steps[-1].append(at)
        stepped.add(row[2])
    usual = [
        (number, sum(work[at] for at in step))
        for number, step in enumerate(steps)
        if all(rows[at][6] != DISTURBED for at in step)
    ]
    first = (measured["steady"] or {}).get("first_step", 0)
    kept = [one for number, one in usual if number >= first] or work
    return float(sum(kept) / len(kept))


def script_of(name: str) -> Path:
    return SCRIPTS / f"{name.removesuffix('_late')}.py"


def cell(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    if "missing" in found:
        return f"none: {found['missing']}"
    off = found["ratio"] - 1
    if found["how"] == "range":
        said = "without" if found["flops_per_s"] is None else "with"
        return f"a range, {said} a rate, {off:+.1%}"
    return "exact" if abs(found["flops"] - found["true_flops"]) <= 1.5 else f"{off:+.1%}"


def is_right(name: str, found: Mapping[str, Any]) -> bool:
    """Whether it is exact; for work that goes by no size, whether its range holds the mean."""
    if name not in HIDDEN:
        return cell(found) == "exact"
    is_inside = found["low_flops"] <= found["true_flops"] <= found["high_flops"]
    return found["how"] == "range" and found["flops_per_s"] is None and is_inside


def measure(name: str, before: Path | None) -> dict[str, Any]:
    """One row of the table."""
    row: dict[str, Any] = {"script": name, "now": run(name, None, options=())}
    if name in APART:
        row["with_count"] = run(name, None, options=("--count",))
    if before is not None:
        row["before"] = run(name, before, options=())
        if name in APART:
            row["before_with_count"] = run(name, before, options=("--count",))
    print(describe(row), flush=True)
    return row


def describe(row: Mapping[str, Any]) -> str:
    best = row.get("with_count") or row["now"]
    cells = (cell(row.get(one)) for one in ("before", "before_with_count", "now", "with_count"))
    counted = f"{best.get('how')}, {best.get('num_counted')}"
    return "  ".join([f"{row['script']:22}", *(f"{one:24}" for one in cells), counted])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, help="`src` folder of an earlier version")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--out", type=Path, default=OUT, help="where the figures go")
    options = parser.parse_args()
    import torch

    print(f"Python {platform.python_version()}, torch {torch.__version__}, CPU, one thread")
    head = ("script", "before", "before, --count", "now", "now, --count")
    print("  ".join([f"{head[0]:22}", *(f"{one:24}" for one in head[1:]), "how, updates counted"]))
    rows = [measure(name, options.before) for name in options.only]
    right = [row for row in rows if is_right(row["script"], row.get("with_count") or row["now"])]
    print(f"{len(right)} of {len(rows)} scripts have the exact mean, or a range that holds it")
    figures = {
        **stamp(),
        "python": platform.python_version(),
        "versions": {"torch": str(torch.__version__)},
        "device": "cpu, 1 thread",
        "n": 1,
        "rows": rows,
    }
    options.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0 if len(right) == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
