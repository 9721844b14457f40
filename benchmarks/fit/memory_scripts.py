"""Who holds the memory of two public scripts, and over one step.

    python benchmarks/fit/memory_scripts.py --root DIR

nanoGPT's character model and pytorch/examples' ImageNet script (ResNet-18), both with one thread,
run unmodified under `steptime run --json`; benchmarks/open_scripts.toml says where they come from
and what DIR holds. For each: the parts beside closed forms of the states (AdamW keeps two moments
of a parameter and a step of each tensor, SGD with momentum one), and the followed step as a line a
stretch. Results go to benchmarks/results/memory_scripts.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomllib

from steptime.core.units import format_bytes

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import BENCHMARKS, conditions
from _public_scripts import PINS, run_script

OUT = BENCHMARKS / "results" / "memory_scripts.json"
NUM_ROWS = 24
BAR = 50


@dataclass(frozen=True)
class Form:
    """Elements and tensors that are trained, and states: bytes an element and a tensor."""

    elements: int
    tensors: int
    per_element: int
    per_tensor: int

    def sizes(self) -> dict[str, int]:
        states = self.per_element * self.elements + self.per_tensor * self.tensors
        return {"weights": 4 * self.elements, "gradients": 4 * self.elements, "optimizer": states}


def nano_gpt() -> Form:
    """4 blocks of width 128, 64 positions, 65 characters; the head shares the embedding."""
    width = 128
    block = 12 * width**2 + 2 * width  # no bias; two norms
    return Form(65 * width + 64 * width + 4 * block + width, 2 + 4 * 6 + 1, 8, 4)


def resnet18() -> Form:
    """Its convolutions, norms with weight and bias, and a classifier of 1000 classes."""
    elements, tensors, width = 64 * 3 * 49 + 2 * 64, 3, 64
    for given, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        elements += 9 * (width * given + 3 * given * given) + 4 * 2 * given
        tensors += 4 * 3
        if stride == 2:
            elements += width * given + 2 * given
            tensors += 3
        width = given
    return Form(elements + 512 * 1000 + 1000, tensors + 2, 4, 0)


SCRIPTS = {"02": ("nanoGPT", nano_gpt()), "13": ("ImageNet example, ResNet-18", resnet18())}


def row_of(name: str, form: Form, memory: dict[str, Any]) -> dict[str, Any]:
    """What of a script's memory is saved and shown: its parts, and the peak of a step."""
    step, kept = memory["timeline"], ("name", "bytes", "missing")
    return {
        "script": name,
        "closed_form": form.sizes(),
        "bytes_per_parameter": memory["bytes_per_parameter"],
        "resident_bytes": memory["resident_bytes"],
        "worker_bytes": memory["worker_bytes"],
        "parts": [{key: one[key] for key in kept} for one in memory["parts"]],
        "peak": None if step is None else peak_of(step),
    }


def peak_of(step: dict[str, Any]) -> dict[str, Any]:
    where = {name: step[name] for name in ("module", "operator", "num_storages")}
    return {**step["peak"], **where, "bytes": total(step["peak"])}


def show(row: dict[str, Any], memory: dict[str, Any]) -> str:
    lines = [row["script"]]
    for part in row["parts"]:
        name = part["name"]
        if part["bytes"] is None:
            lines.append(f"  {name:14} not measured: {part['missing']}")
            continue
        form = row["closed_form"].get(name)
        note = "" if form is None else f"  closed form {form - part['bytes']:+d} B"
        lines.append(f"  {name:14} {format_bytes(part['bytes']):>9}{note}")
    lines += [
        f"  {name:14} {format_bytes(row[name]):>9}"
        for name in ("resident_bytes", "worker_bytes")
        if row[name] is not None
    ]
    step = memory["timeline"]
    if step is None:
        return "\n".join([*lines, f"  the step was not followed: {memory['timeline_missing']}"])
    top = total(step["peak"])
    lines.append(
        f"  peak of a step {format_bytes(top)}, in {step['peak']['phase']} of {step['module']}, "
        f"by {step['operator']}; {step['num_storages']} storages"
    )
    stride = max(1, len(step["instants"]) // NUM_ROWS)
    for one in step["instants"][::stride]:
        bar = "#" * round(BAR * total(one) / top)
        lines.append(
            f"  {one['at_fraction']:5.0%} {one['phase']:9} {format_bytes(total(one)):>9} {bar}"
        )
    return "\n".join(lines)


def total(instant: dict[str, Any]) -> int:
    return sum(instant["by_part"].values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--limit", type=float, default=170.0, help="seconds a script")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    pins = tomllib.loads(PINS.read_text())["scripts"]
    rows = []
    for name, (title, form) in SCRIPTS.items():
        result = run_script(pins[name], options.root.resolve(), options.limit)
        memory = result["data"]["measurement"]["memory"]
        rows.append(row_of(title, form, memory))
        print(show(rows[-1], memory), flush=True)
    figures = {"conditions": conditions(), "rows": rows}
    options.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
