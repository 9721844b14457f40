"""The forecast of a command that starts ranks itself, against all events of torch's allocator.

    python benchmarks/fit/fit_rank_commands.py [--json FILE]

`tests/end_to_end/scripts/train_on_ranks.py`, an MLP of 0.8 million parameters trained by AdamW,
is started by torchrun on two and on four gloo ranks of one thread: with DDP (with and without
gradients as views of buckets, with accumulation under `no_sync`), with ZeroRedundancyOptimizer, and
with FSDP2. The truth of each rank is the highest instant of its fourth step, the least of three
trainings, since a profiler does not see what gloo's own thread frees last. Beside it is what the
contained child of `steptime fit` forecasts of the same unmodified command, and how long that took.
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

from steptime.tune.trials.children.forecast_child import ForecastWish, forecast_in_child

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import conditions

SCRIPT = Path(__file__).resolve().parents[2] / "tests/end_to_end/scripts/train_on_ranks.py"
WAYS = ("ddp", "views", "no_sync", "zero1", "fsdp2")
NUM_RANKS = (2, 4)
LIMIT_S = 300.0


def compare(how: str, num_ranks: int) -> list[dict[str, Any]]:
    """Rows of the ranks of one command."""
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = (*start, "--nproc_per_node", str(num_ranks), str(SCRIPT), how)
    here = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        real = {**here, "TRUTH": name}
        subprocess.run(command, env=real, check=True, capture_output=True, timeout=LIMIT_S)
        began_s = time.monotonic()
        wish = ForecastWish(limit_s=LIMIT_S)
        found = forecast_in_child(command, here, folder=folder / "child", cwd=folder, wish=wish)
        took_s = time.monotonic() - began_s
        return [
            row(how, one, json.loads((folder / f"{how}-{one.rank}.json").read_text()), took_s)
            for one in found.ranks
        ]


def row(how: str, one: Any, truth: int, took_s: float) -> dict[str, Any]:
    peak = one.memory.peak
    return {
        "how": how,
        "rank": one.rank,
        "world_size": one.world_size,
        "truth_bytes": truth,
        "forecast_bytes": None if peak is None else peak.estimate,
        "error": None if peak is None else peak.estimate / truth - 1,
        "is_inside": None if peak is None else peak.low <= truth <= peak.high,
        "unknown": list(one.memory.unknown),
        "forecast_took_s": round(took_s, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, help="write the rows here")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for num_ranks in NUM_RANKS:
        for how in WAYS:
            found = compare(how, num_ranks)
            rows += found
            errors = [one["error"] for one in found if one["error"] is not None]
            worst = f"{max(map(abs, errors)):.2%}" if errors else "no forecast"
            took = f"{found[0]['forecast_took_s']} s" if found else "-"
            print(f"{how:<8} {num_ranks} ranks: largest error {worst}, forecast in {took}")
    errors = [abs(one["error"]) for one in rows if one["error"] is not None]
    inside = sum(bool(one["is_inside"]) for one in rows)
    print(
        f"{len(rows)} ranks: median error {statistics.median(errors):.2%}, largest "
        f"{max(errors):.2%}, {inside} inside the interval"
    )
    if options.json is not None:
        told = {"conditions": conditions(), "rows": rows}
        options.json.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
