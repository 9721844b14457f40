"""Is bf16 as good as fp32 on MNIST? Judged by `steptime verify training`, five seeds a side.

    python benchmarks/verify/verify_mnist.py --data FOLDER_OF_MNIST

The network of PyTorch's MNIST example, 120 steps of 32 images of the first 4,000, the loss on the
first 500 test images after every 12 steps: small, so that ten trainings end in minutes on a busy
CPU. A margin of 1 % of the training is asked for, then wider ones on the same runs; at last with
pairs, as both arms begin from the same weights and see the same order. That was decided after the
runs had shown their correlation, which a proof must not do. Results go to
benchmarks/results/verify_mnist.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

HERE = Path(__file__).resolve().parent
BENCHMARKS = HERE.parent
RESULTS = BENCHMARKS / "results" / "verify_mnist.json"
SCRIPT = HERE / "verify_scripts" / "mnist_convnet.py"
MARGINS = ("1%-of-training", "5%-of-training", "10%-of-training", "20%-of-training")
PAIRED = ("--paired",)
KEPT = (
    *("outcome", "reason", "margin", "training_fraction", "estimate", "low", "high", "num_runs"),
    *("num_runs_needed", "seed_correlation", "differences", "same", "speed"),
)


def main() -> None:
    """Make the runs once, judge them by each margin, and save the verdicts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", required=True, help="folder of MNIST's four files")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--store", default=tempfile.mkdtemp(), help="to go on where it was ended")
    parser.add_argument("--page", help="also write the page of the first verdict")
    options = parser.parse_args()
    python = shlex.join([sys.executable, str(SCRIPT), "--data", options.data])
    rows = []
    for margin, pairs in (*((one, ()) for one in MARGINS), *((one, PAIRED) for one in MARGINS[:2])):
        out = Path(options.store) / "verdict.json"
        words = [sys.executable, "-m", "steptime", "verify", "training", "--margin", margin,
                 "--seeds", str(options.seeds), "--seed-flag=--seed", "--store", options.store,
                 "--reference", python, "--candidate", f"{python} --bf16",
                 "--metric", r"step (?P<step>\d+) test loss (\S+)", "--json", str(out)]  # fmt: skip
        words += pairs
        if options.page and margin == MARGINS[0] and not pairs:
            words += ["--output", options.page]
        print(f"--margin {margin} {' '.join(pairs)}", flush=True)
        code = subprocess.run(words).returncode
        data = json.loads(out.read_text())["data"]
        rows.append(
            {"margin_asked": margin, "is_paired": bool(pairs), "exit_code": code}
            | {k: data[k] for k in KEPT}
        )
        RESULTS.write_text(
            json.dumps(
                {
                    "rows": rows,
                    "steps": 120,
                    "batch": 32,
                    "num_train": 4000,
                    "num_test": 500,
                    "torch": torch.__version__,
                    **stamp(),
                    "python": platform.python_version(),
                    "num_cores": os.cpu_count(),
                    "load": os.getloadavg()[1],
                },
                indent=1,
                sort_keys=True,
            )
            + "\n"
        )


if __name__ == "__main__":
    main()
