"""What the levers that fuse operators give on small models, by the length of rows.

    python benchmarks/tune/fused_levers.py [--rounds 15] [--only gru]

The levers are `fused_attention`, `fused_gelu` and `fused_rnn`; the models
tests/specimens/written_attention.py, written_gelu.py and stepped_lstm.py in several sizes and
kinds. The lever is switched between steps of one training, on and off in random order, in a session
as the contract tests have it; a settling step follows each switch. The gain is the median over
rounds of the ratio of CPU times of a step (one thread), with quartiles. Results go to
benchmarks/results/fused_levers.json; with --only, the rows of other kinds stay as they are there.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import random
import runpy
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch

from steptime.levers import load
from steptime.testing.lever_session_double import PlainSession

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

ROOT = Path(__file__).resolve().parents[2]
SPECIMENS = ROOT / "tests" / "specimens"
OUT = ROOT / "benchmarks" / "results" / "fused_levers.json"
POSITIONS = 2048
"""Of a batch, whatever the length of its rows."""

CASES = [
    ("fused_attention", "plain", POSITIONS // length, length)
    for length in (16, 32, 64, 128, 256, 512)
]
CASES += [("fused_attention", "plain", 4, 16), ("fused_attention", "plain", 4, 64)]
CASES += [("fused_attention", kind, 8, 256) for kind in ("dropout", "used", "linear")]
WAYS = ("einsum", "added")
CASES += [("fused_attention", kind, 8, 256) for kind in WAYS]
SIZES = ((4, 64), (32, 64), (256, 8))
CASES += [("fused_rnn", "plain", rows, length) for rows, length in SIZES]
CASES += [("fused_rnn", "fed_back", 32, 64)]
CASES += [("fused_rnn", "gru", rows, length) for rows, length in SIZES]
GELUS = ("new", "fast", "erf", "thin", "scaled")
CASES += [("fused_gelu", kind, 8, 256) for kind in GELUS]
CASES += [("fused_gelu", "new", 64, 32), ("fused_gelu", "new", 4, 16), ("fused_gelu", "erf", 4, 16)]
"""The lever, the kind of specimen or its cell, the rows of a batch and their length."""

SCRIPTS = {
    "fused_attention": "written_attention.py",
    "fused_gelu": "written_gelu.py",
    "fused_rnn": "stepped_lstm.py",
}

LINE = "{lever:<15} {kind:<8} {rows:>4} x {length:<4} {written_s:.4f} s  {gain:.2f}x  {quartiles}"


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--only", choices=["gru", *WAYS, *GELUS], nargs="*", help="only these kinds"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    if options.only:
        rows = [
            one for one in json.loads(OUT.read_text())["rows"] if one["kind"] not in options.only
        ]
    for case in (one for one in CASES if not options.only or one[1] in options.only):
        rows.append(compare(*case, rounds=options.rounds))
        print(LINE.format(**rows[-1]), flush=True)
    document = {
        **stamp(),
        "command": f"python benchmarks/tune/fused_levers.py --rounds {options.rounds}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, 1 thread",
        "torch": torch.__version__,
        "rows": rows,
    }
    OUT.write_text(json.dumps(document, indent=1) + "\n")


def compare(lever: str, kind: str, num_rows: int, length: int, *, rounds: int) -> dict[str, Any]:
    """Switch the lever on and off between the steps of one training."""
    step = make_step(SPECIMENS / SCRIPTS[lever], kind, num_rows, length)
    ratios, written = [], []
    with PlainSession(torch) as session:
        for _ in range(rounds + 1):
            times = {}
            for is_on in random.sample((True, False), 2):
                undo = load(lever).apply({}, session) if is_on else None
                step()
                times[is_on] = step()
                if undo is not None:
                    undo()
            ratios.append(times[False] / times[True])
            written.append(times[False])
    low, _, high = quantiles(ratios[1:], n=4)
    found = {"lever": lever, "kind": kind, "rows": num_rows, "length": length, "n": rounds}
    figures = {"gain": round(median(ratios[1:]), 3), "quartiles": [round(low, 3), round(high, 3)]}
    return {**found, "written_s": median(written[1:]), **figures}


def make_step(script: Path, kind: str, num_rows: int, length: int) -> Any:
    """Return a function that makes one step and returns its CPU time [s]."""
    words = ["--steps", "1", "--rows", str(num_rows), "--length", str(length)]
    option = "--cell" if kind == "gru" else "--kind"
    sys.argv = [str(script), *words, "--width", "128", option, kind]
    with redirect_stdout(io.StringIO()):
        made = runpy.run_path(str(script))
    model, optimizer, batch = made["model"], made["optimizer"], made["words"]

    def step() -> float:
        began = time.process_time()
        logits = model(batch[:, :-1])
        loss = made["cross_entropy"](logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return time.process_time() - began

    return step


if __name__ == "__main__":
    main()
