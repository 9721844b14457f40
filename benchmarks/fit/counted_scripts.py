"""Counted work of two public scripts against closed forms, and its rate by two conventions.

    python benchmarks/fit/counted_scripts.py --root DIR [--peak NAME=TFLOPS]

nanoGPT's character model and pytorch/examples' ImageNet script (ResNet-18), both with one thread,
run unmodified under `steptime run --json`; benchmarks/open_scripts.toml says where they come from
and what DIR holds. For each: FLOP of a step as counted, the same by closed form, TFLOPS over the
median step, and the share of a peak by two conventions: attention over the whole square, and
without its masked half (nanoGPT); with and without what is not a convolution (ResNet). No datasheet
peak is known for a CPU, so the denominator is the rate of a matrix product in fp32, n = 1024, one
thread, best of 20, measured right before and after; that is no MFU. `--peak` adds the share of a
peak that you name, in TFLOPS. Results go to benchmarks/results/counted_scripts.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomllib

from steptime.core.units import format_flops

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from published_flops import Transformer, model_flops_per_token

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import BENCHMARKS, ENVIRONMENT, conditions
from _public_scripts import PINS, run_script

OUT = BENCHMARKS / "results" / "counted_scripts.json"

MATMUL = """
import time, torch
torch.set_num_threads(1)
a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
best = float("inf")
for _ in range(20):
    began = time.thread_time()
    a @ b
    best = min(best, time.thread_time() - began)
print(2 * 1024**3 / best)
"""


@dataclass(frozen=True)
class Form:
    """The work of one step by closed form [FLOP]: all of it, and by a second convention."""

    forward: int
    backward: int
    second: int
    second_name: str


def nano_gpt() -> Form:
    """4 blocks of width 128, 12 sequences of 64 characters; the head shares the embedding."""
    shape = Transformer(layers=4, hidden=128, heads=4, seq=64, vocab=65)
    tokens = 12 * 64
    whole = round(tokens * model_flops_per_token(shape, "megatron24"))
    masked = round(tokens * model_flops_per_token(shape, "megatron-causal"))
    return Form(whole // 3, whole - whole // 3, masked, "half of attention masked")


def resnet18() -> Form:
    """8 images of 224 x 224; its classifier has 1000 classes. The image has no gradient."""
    batch, side, width = 8, 112, 64
    stem = 2 * batch * side**2 * 64 * 3 * 49
    convolutions, side = stem, 56
    for given, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        side //= stride
        taps = 9 * (width * given + 3 * given * given)
        shortcut = width * given if stride == 2 else 0
        convolutions += 2 * batch * side**2 * (taps + shortcut)
        width = given
    forward = convolutions + 2 * batch * 512 * 1000
    backward = 2 * forward - stem
    return Form(forward, backward, 3 * convolutions - stem, "convolutions alone")


SCRIPTS = {"02": ("nanoGPT", nano_gpt()), "13": ("ImageNet example, ResNet-18", resnet18())}


def measure_matmul(python: Path) -> float:
    """FLOP/s of one thread on a core of its own, so far as there is one."""
    done = subprocess.run(
        [str(python), "-c", MATMUL],
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def row_of(name: str, form: Form, data: dict[str, Any], denominators: dict[str, float]) -> Any:
    """Counted beside the closed form, and rates over both of a step's times."""
    seen = data["measurement"]
    count, step = seen["count"], seen["steady"]["step_time_s"]
    cpu = seen["steady"].get("step_cpu_s")
    row: dict[str, Any] = {
        "script": name,
        "counted": {key: count[key] for key in ("forward", "backward", "recomputed")},
        "closed_form": {"forward": form.forward, "backward": form.backward},
        "covered_fraction": count["covered_fraction"],
        "mfu": data["mfu"],
        "step_time_s": step,
        "step_cpu_s": cpu,
        "host": seen["host"],
        "shares": [],
    }
    conventions = {"operators": data["work"]["model_flops"], form.second_name: form.second}
    for convention, flops in conventions.items():
        for denominator, peak in denominators.items():
            for clock, time in (("wall", step), ("CPU", cpu)):
                if time is not None:
                    rate = flops / time["estimate"]
                    share = {"convention": convention, "of": denominator, "clock": clock}
                    row["shares"].append(
                        share | {"flops_per_s": rate, "fraction": rate / peak, "n": time["n"]}
                    )
    return row


def show(row: dict[str, Any]) -> str:
    counted, form = row["counted"], row["closed_form"]
    error = (counted["forward"] + counted["backward"]) / (form["forward"] + form["backward"]) - 1
    step = row["step_time_s"]
    lines = [
        row["script"],
        f"  counted      forward {format_flops(counted['forward'])}, backward "
        f"{format_flops(counted['backward'])}; closed form "
        f"{'the same' if counted['forward'] == form['forward'] and not error else f'{error:+.3%}'}",
        f"  covered      {row['covered_fraction']:.1%} of operator time",
        f"  step         {step['estimate'] * 1e3:.1f} ms wall, n {step['n']}, "
        f"{step['low'] * 1e3:.1f} to {step['high'] * 1e3:.1f}; others took "
        f"{(row['host'] or {}).get('others_cores') or 0:.2f} cores",
        f"  MFU          not measured: {row['mfu']['missing']}",
    ]
    lines += [
        f"  {one['convention']:25} {format_flops(one['flops_per_s'])}S of {one['clock']} time, "
        f"{one['fraction']:.1%} of {one['of']}"
        for one in row["shares"]
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--limit", type=float, default=170.0, help="seconds a script")
    parser.add_argument("--peak", help="NAME=TFLOPS of a device whose datasheet you have read")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    pins = tomllib.loads(PINS.read_text())["scripts"]
    root = options.root.resolve()
    rows = []
    for name, (title, form) in SCRIPTS.items():
        python = root / pins[name]["venv"] / "bin" / "python"
        before = measure_matmul(python)
        result = run_script(pins[name], root, options.limit)
        denominators = {"a measured matmul (no MFU)": max(before, measure_matmul(python))}
        if options.peak:
            peak, _, value = options.peak.partition("=")
            denominators[f"{peak} (given)"] = float(value) * 1e12
        rows.append(row_of(title, form, result["data"], denominators))
        print(show(rows[-1]), flush=True)
    figures = {"conditions": conditions(), "rows": rows}
    options.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
