"""What equalized channels and each way of rounding give trained networks, in 8 and in 4 bits.

    python benchmarks/quantize/rounding.py --mnist FOLDER --cifar FOLDER [--seeds 3] [--kept FOLDER]

Each network is trained on real data, once a seed (or read from the folder of those kept), and
calibrated with 200 of its training rows. "Uneven" is the depthwise network with channels that
differ up to a hundredfold, which the layer after undoes: what it computes is the same. The error is
the mean square of what the outputs differ from the float network's over their variance, and
accuracy is counted, on the first 2,000 test rows. Four bits are those of all weights of layers.
Results go to benchmarks/results/quantize_rounding.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from _trained_nets import kept_file, tasks, trained, with_uneven_channels

from steptime.quantize.calibrate import Calibrated, calibrate
from steptime.quantize.capture import capture
from steptime.quantize.observers import Observer, observe
from steptime.quantize.rounding.round_weights import Rounding
from steptime.quantize.trained_network import Convolution, Matmul

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import conditions

OUT = Path(__file__).resolve().parents[1] / "results" / "quantize_rounding.json"
NETS = ("digits CNN", "MNIST CNN", "MNIST depthwise CNN", "CIFAR ResNet-20")
UNEVEN = "MNIST depthwise CNN"
NUM_CALIBRATED, MOST_ROWS, PART = 200, 2000, 100


def not_equalized(model: torch.nn.Module, rows: Any) -> Calibrated:
    """Return a network with the channels that it has."""
    network, program = capture(model, rows[:2])
    ranges = observe(program, rows.split(64), observer=Observer.MSE)
    return Calibrated(
        network=network, ranges=ranges, inputs=rows.numpy(), rounding=Rounding.NEAREST
    )


def measured(model: torch.nn.Module, data: Any) -> dict[str, Any]:
    """Return accuracy and error of each way."""
    rows, x, y = data[0][:NUM_CALIBRATED], data[2][:MOST_ROWS], data[3][:MOST_ROWS].numpy()
    with torch.no_grad():
        wanted = torch.cat([model(part) for part in x.split(PART)]).numpy()
    found: dict[str, Any] = {"floats": {"accuracy": float((wanted.argmax(axis=1) == y).mean())}}
    for name, given in (
        ("as trained", not_equalized(model, rows)),
        ("equalized", calibrate(model, rows.numpy())),
    ):
        layers = [one for one in given.network.operators if isinstance(one, Convolution | Matmul)]
        for bits, four in ((8, dict[str, int]()), (4, {one.output: 4 for one in layers})):
            for way in Rounding:
                begin = time.process_time()
                _, integer = replace(given, rounding=way).to_integers(four)
                taken = time.process_time() - begin
                parts = [integer.predict(part.numpy()) for part in x.split(PART)]
                made = np.concatenate(parts)
                found[f"{bits} bits, {name}, {way.value}"] = {
                    "accuracy": float((made.argmax(axis=1) == y).mean()),
                    "error": float(((made - wanted) ** 2).mean() / wanted.var()),
                    "cpu_s": taken,
                }
    return found


def main() -> None:
    """Measure, print and save network by network."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mnist", type=Path, required=True, help="folder of MNIST's four files")
    parser.add_argument("--cifar", type=Path, required=True, help="folder with train/ and test/")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kept", type=Path, help="folder of trained networks, or to keep them in")
    parser.add_argument("--only", action="append", help="a network; the others' results are kept")
    options = parser.parse_args()
    torch.set_num_threads(1)
    known = json.loads(OUT.read_text())["nets"] if options.only and OUT.exists() else {}
    for name in options.only or NETS:
        task = tasks(options.mnist, options.cifar)[name]
        data = task.data()
        models = [
            trained(task, data, seed=seed, kept=kept_file(options.kept, name, seed))
            for seed in range(options.seeds)
        ]
        told = {name: [measured(model, data) for model in models]}
        if name == UNEVEN:
            uneven = [measured(with_uneven_channels(model), data) for model in models]
            told[f"{name}, uneven"] = uneven
        for net, seeds in told.items():
            rows = {
                way: {key: mean(one[way][key] for one in seeds) for key in seeds[0][way]}
                for way in seeds[0]
            }
            print(net, json.dumps(rows, indent=1), flush=True)
            known[net] = {"mean": rows, "seeds": seeds, "conditions": conditions()}
        OUT.write_text(json.dumps({"nets": known}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
