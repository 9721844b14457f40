"""The curve of size, latency and accuracy, and whether predicted latencies order mixes rightly.

    nice -n 19 python benchmarks/quantize/curve.py [--only NET]

The digits network is trained on scikit-learn's digits; ResNet-20 and a residual network of 64 to
256 channels have random weights and data: their latencies count, their accuracies do not. Each goes
through `quantize_model(curve=True)`. Latencies are medians of the CPU time of one input on one
thread of ONNX Runtime, of mixes that take turns in a drawn order. Printed are the points that no
other one beats, and Spearman's rank correlation of predicted and measured latencies over all mixes
of bytes and floats that were tried. Results go to benchmarks/results/quantize_curve.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from _trained_nets import Task, digits, digits_net, trained

from steptime.app.quantize.quantize_model import quantize_model

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import conditions
from _small_tasks import resnet

OUT = Path(__file__).resolve().parents[1] / "results" / "quantize_curve.json"
NUM_CALIBRATED, NUM_RANDOM = 200, 20


def trained_digits() -> tuple[torch.nn.Module, Any]:
    """Return the digits network after its training, with its data."""
    data = digits()
    return trained(Task(build=digits_net, data=digits, epochs=30), data, seed=0), data


def random_net(**sizes: int) -> tuple[torch.nn.Module, Any]:
    """Return a residual network with random weights, with made-up data."""
    torch.manual_seed(0)
    x, y = torch.randn(NUM_CALIBRATED, 3, 32, 32), torch.arange(NUM_CALIBRATED) % 10
    model = resnet(**sizes, channels=3)
    with torch.no_grad():
        model.train()(x)  # so that its activations have a scale
    return model.eval(), (x, y, x[:NUM_RANDOM], y[:NUM_RANDOM])


NETS: dict[str, Callable[[], tuple[torch.nn.Module, Any]]] = {
    "digits CNN": trained_digits,
    "ResNet-20, random": lambda: random_net(width=16, blocks=3),
    "wide residual net, random": lambda: random_net(width=64, blocks=1),
}


def main() -> None:
    """Measure, print and save network by network."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", help="a network; the others' results are kept")
    options = parser.parse_args()
    torch.set_num_threads(1)
    known = json.loads(OUT.read_text())["nets"] if OUT.exists() else {}
    for name in options.only or NETS:
        model, data = NETS[name]()
        rows, x, y = (one.numpy() for one in (data[0][:NUM_CALIBRATED], data[2], data[3]))
        found = quantize_model(model, calibrate=rows, evaluate=(x, y), curve=True)
        known[name] = {
            "accuracy_in_floats": found.verdict.reference,
            "rank_correlation": found.rank_correlation,
            "num_points": len(found.curve),
            "points": [asdict(one) for one in found.curve],
            "conditions": conditions()
            | {one: version(one) for one in ("onnx", "onnxruntime", "numpy")},
        }
        print(name, f"rank correlation {found.rank_correlation}, {len(found.curve)} points")
        for one in found.curve:
            forms = [len(each) for each in (one.in_four_bits, one.in_16_bits, one.in_floats)]
            times = f"{one.predicted_ms:.4g} ms predicted, {one.measured_ms} measured"
            print(f"  {one.num_bytes} B, {one.metric:.4f}, {times}, {forms} of int4, int16, fp32")
        OUT.write_text(json.dumps({"nets": known}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
