"""How many instructions a Cortex-M takes for each multiplication of int8 networks in C.

    python benchmarks/quantize/instructions.py [--only NET]

Each network has random weights, for its shapes alone decide. Its C sources are compiled by
`arm-none-eabi-gcc` for a Cortex-M3 with -O2 and with -Os, and for a Cortex-M0, whose instructions a
Cortex-M3 has, too. `qemu-system-arm -M mps2-an385 -icount shift=0` runs them and counts
instructions exactly, in steps of 40; it has no cache and no wait, so these are no cycles. The
board's output must have the bits of the reference. Results go to
benchmarks/results/quantize_instructions.json.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from _trained_nets import tasks

from steptime.app.quantize.network_sizes import num_macs
from steptime.quantize.c.write_c import c_sources
from steptime.quantize.capture import capture
from steptime.quantize.integer.integer_network import build
from steptime.quantize.observers import observe

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import conditions

HERE = Path(__file__).resolve()
OUT = HERE.parents[1] / "results" / "quantize_instructions.json"
BOARD = HERE.parents[2] / "examples" / "quantize"
VARIANTS = (("cortex-m3", "-O2"), ("cortex-m3", "-Os"), ("cortex-m0", "-O2"))
FLAGS = ["-mthumb", "-std=c99", "-Wall", "-Werror", "-ffreestanding"]
EMULATED = ["qemu-system-arm", "-M", "mps2-an385", "-nographic", "-semihosting"]
EMULATED += ["-icount", "shift=0", "-kernel", "network.elf"]
PER_TICK = 40
SHAPES = {
    "digits CNN": (1, 8, 8),
    "MNIST CNN": (1, 28, 28),
    "MNIST rows LSTM": (28, 28),
    "CIFAR ResNet-20": (3, 32, 32),
    "MLPerf Tiny ResNet-8": (3, 32, 32),
    "MLPerf Tiny DS-CNN": (1, 49, 10),
    "MLPerf Tiny MobileNetV1": (3, 96, 96),
    "MLPerf Tiny autoencoder": (640,),
    "MNIST rows transformer": (28, 28),
}


def counted(sources: dict[str, str], given: Any, wanted: Any, *, how: tuple[str, str]) -> int:
    """Return the instructions for the last input (num, ...)."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in sources.items():
            (folder / file).write_text(text)
        (folder / "inputs.bin").write_bytes(given.tobytes())
        files = [str(BOARD / "main.c"), "network.c", "kernels.c", "-lgcc", "-o", "network.elf"]
        linked = ["-nostdlib", "-I.", "-T", str(BOARD / "board.ld"), *files]
        command = ["arm-none-eabi-gcc", f"-mcpu={how[0]}", how[1], *FLAGS, *linked]
        subprocess.run(command, cwd=folder, check=True)
        told = subprocess.run(EMULATED, cwd=folder, check=True, capture_output=True, text=True)
        if (folder / "board.bin").read_bytes() != wanted.tobytes():
            raise SystemExit("the board's bits are not those of the reference")
    ticks = re.search(r"(\d+) ticks", told.stdout + told.stderr)
    assert ticks
    return PER_TICK * int(ticks[1])


def measured(model: torch.nn.Module, shape: tuple[int, ...]) -> dict[str, Any]:
    """Return the multiplications of a network and the instructions for them."""
    inputs = torch.randn(32, *shape)
    with torch.no_grad():
        model.train()(inputs)  # so that its activations have a scale
    network, program = capture(model.eval(), inputs[:2])
    integer = build(network, observe(program, [inputs]))
    given = integer.to_bytes(inputs[:2].numpy())
    macs, wanted = sum(num_macs(one, network) for one in network.operators), integer.run(given)
    row: dict[str, Any] = {"multiplications": macs}
    for how in VARIANTS:
        num = counted(c_sources(integer), given, wanted, how=how)
        row[" ".join(how)] = {"instructions": num, "for_each": round(num / macs, 2)}
    return row


def main() -> None:
    """Count, print and save network by network."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", help="a network; the others are left out")
    options = parser.parse_args()
    torch.manual_seed(0)
    rows = {}
    for name, task in tasks(Path(), Path()).items():
        if options.only and name not in options.only:
            continue
        rows[name] = measured(task.build(), SHAPES[name])
        print(name, json.dumps(rows[name]), flush=True)
    if not options.only:
        compiler = subprocess.run(
            ["arm-none-eabi-gcc", "--version"], check=True, capture_output=True, text=True
        ).stdout.splitlines()[0]
        found = {"conditions": conditions() | {"compiler": compiler}, "nets": rows}
        OUT.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
