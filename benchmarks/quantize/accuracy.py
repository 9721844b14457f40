"""What int8 costs trained networks, beside ONNX Runtime's own static quantizer.

    python benchmarks/quantize/accuracy.py --mnist FOLDER --cifar FOLDER [--seeds 3] [--only NET]

Each network is trained on real data, once a seed, and quantized after training with 200 of its
training rows: by Steptime, and by ONNX Runtime (unsigned activations, signed weights, a scale a
channel, QDQ, the same rows, its pre-processing) from the same file in floats. Accuracy counts on
the test rows; the drop of Steptime has the interval and the outcome of its verdict, whose margin is
a point. The autoencoder is judged by the area under the curve of what it makes of digits that it
never saw, with the same margin. Latency is CPU time of one input after the other on one thread,
before training: the float file, Steptime's, and one for each of ONNX Runtime's ways to find ranges
take turns in a drawn order, so that neighbors on the machine count little. C and the reference in
NumPy run on 1,000 inputs (100 of the largest network): test rows, then noise within what the
network was calibrated with. `wide residual net`, of 64 to 256 channels, has random weights: its
bytes and its time count, its accuracy does not. With --trained-quantized each network trains on for
a third of its epochs with the lever `quantization_aware`; its drop is from the network in floats
before. A network whose data is absent is left out, and the result says why. Results go to
benchmarks/results/quantize_accuracy.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from _trained_nets import Task, kept_file, tasks, trained, trained_on
from onnxruntime import quantization

from steptime.app.quantize.check_in_c import same_in_c
from steptime.app.quantize.evaluation import POINT
from steptime.app.quantize.network_sizes import bytes_of, floats_of
from steptime.app.verify.verify_model import verify_model
from steptime.quantize.c.arena import plan_arena
from steptime.quantize.c.write_c import c_sources
from steptime.quantize.calibrate import calibrate
from steptime.quantize.inference import session_of, time_in_turns
from steptime.quantize.write_onnx import onnx_model
from steptime.verify.values.model_verdict import ModelVerdict

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import conditions
from _small_tasks import resnet

OUT = Path(__file__).resolve().parents[1] / "results" / "quantize_accuracy.json"
NUM_CALIBRATED, ROUNDS, PART, PART_IN_C = 200, 300, 100, 500
NUM_IN_C, NUM_IN_C_OF_LARGE = 1000, 100
WAYS = {"MinMax": "min_max", "Entropy": "entropy", "Percentile": "percentile"}
ONLY_TIMED = "wide residual net"
PARTS = {"latency": "times", "trained_quantized": "trained_quantized"}


class Rows(quantization.CalibrationDataReader):
    """The calibration rows, one after the other."""

    def __init__(self, rows: Any) -> None:
        self.rows = iter(rows)

    def get_next(self) -> dict[str, Any] | None:
        """Return the next input by name."""
        one = next(self.rows, None)
        return None if one is None else {"input": one[None]}


def by_onnx_runtime(model: Any, rows: Any) -> dict[str, Any]:
    """Return what ONNX Runtime's static quantizer makes of a model, by its way to find ranges."""
    import onnx

    found = {}
    with tempfile.TemporaryDirectory() as name:
        given, ready, made = (str(Path(name) / f"{one}.onnx") for one in ("in", "ready", "out"))
        onnx.save(model, given)
        quantization.shape_inference.quant_pre_process(given, ready)
        for way, told in WAYS.items():
            quantization.quantize_static(
                ready,
                made,
                Rows(rows),
                quant_format=quantization.QuantFormat.QDQ,
                per_channel=True,
                activation_type=quantization.QuantType.QUInt8,
                weight_type=quantization.QuantType.QInt8,
                calibrate_method=getattr(quantization.CalibrationMethod, way),
            )
            found[told] = onnx.load(made)
    return found


def in_parts(run: Callable[[Any], Any], x: Any) -> Any:
    """Return the outputs (num, ...) of inputs (num, ...), some at a time."""
    return np.concatenate([run(x[i : i + PART]) for i in range(0, len(x), PART)])


def outputs_of(model: Any, x: Any) -> Any:
    """Return the outputs of a model in ONNX."""
    session = session_of(model)
    return in_parts(lambda part: session.run(None, {"input": part})[0], x)


def judge(found: Any, other: Any, x: Any, y: Any, *, makes_again: bool) -> ModelVerdict:
    """Compare two networks by their outputs (num, ...): is the second as good within a point?"""
    rows: list[dict[str, Any]] = []
    for outputs in (found, other):
        if makes_again:  # the further off, the likelier is the label 1
            far = ((outputs - x) ** 2).mean(axis=1)
            rows.append({"label": y, "probability": far / (1 + far)})
        else:
            rows.append({"label": y, "prediction": outputs.argmax(axis=1), "class": y.astype(str)})
    metric, slices = ("auc", ()) if makes_again else ("accuracy", ("class",))
    rows = [row | {"id": np.arange(len(y))} for row in rows]
    return verify_model(*rows, metric=metric, margin=POINT, slices=slices, slice_margin=5 * POINT)


def same_bits(integer: Any, x: Any, calibrated: Any, *, num: int) -> int:
    """Return for how many of `num` inputs C gives the bits of the reference."""
    noise = np.random.default_rng(0).uniform(
        calibrated.min(), calibrated.max(), (num, *x.shape[1:])
    )
    given = np.concatenate([x[: num // 2], noise])[:num].astype(np.float32)
    arena = plan_arena(integer)
    sources = c_sources(integer, arena)
    parts = [
        same_in_c(integer, sources, given[i : i + PART_IN_C], arena_bytes=arena.size)
        for i in range(0, num, PART_IN_C)
    ]
    return sum(one or 0 for one in parts)


def timed(models: dict[str, Any], x: Any) -> dict[str, Any]:
    """Return medians and 99th percentiles [ms] of models that take turns, and ratios of medians."""
    found = time_in_turns(models, x, rounds=ROUNDS, clock=time.thread_time)
    times = {one.name: one for one in found}
    best = min((one.median_ms, name) for name, one in times.items() if name not in ("float", "own"))
    own = times["own"].median_ms
    return {
        "median_ms": {name: one.median_ms for name, one in times.items()},
        "p99_ms": {name: one.p99_ms for name, one in times.items()},
        "n": ROUNDS,
        "speedup_over_float": times["float"].median_ms / own,
        "speedup_over_best_of_onnx_runtime": best[0] / own,
        "best_of_onnx_runtime": best[1],
    }


def measured(
    model: torch.nn.Module, data: Any, *, is_judged: bool = True, makes_again: bool = False
) -> dict[str, Any]:
    """Quantize a network both ways, and return what that cost."""
    rows, x, y = (one.numpy() for one in (data[0][:NUM_CALIBRATED], data[2], data[3]))
    calibrated = calibrate(model, rows)
    network, (in_bytes, integer) = calibrated.network, calibrated.to_integers()
    arena = plan_arena(integer)
    models = {"float": onnx_model(network), "own": onnx_model(in_bytes, integer)}
    models |= by_onnx_runtime(models["float"], rows)
    sizes = {name: one.ByteSize() for name, one in models.items()}
    weights = {
        "float": sum(4 * floats_of(one) for one in network.operators),
        "own": sum(bytes_of(one) for one in integer.operators),
    }
    num = NUM_IN_C if is_judged else NUM_IN_C_OF_LARGE
    row = {
        "weight_bytes": weights,
        "weights_smaller": weights["float"] / weights["own"],
        "file_bytes": sizes,
        "file_smaller": {name: sizes["float"] / size for name, size in sizes.items()},
        "arena_bytes": arena.size,
        "arena_over_bound": arena.size / arena.bound,
        f"same_in_c_of_{num}": same_bits(integer, x, rows, num=num),
    }
    if is_judged:
        exact = outputs_of(models["float"], x)
        verdict = judge(exact, in_parts(integer.predict, x), x, y, makes_again=makes_again)
        others = {
            way: judge(exact, outputs_of(models[way], x), x, y, makes_again=makes_again)
            for way in WAYS.values()
        }
        row |= {
            "num_rows": len(x),
            "metric": verdict.metric,
            "accuracy": {"float": verdict.reference, "own": verdict.candidate},
            "drop": -verdict.gain.estimate,
            "drop_interval": [-verdict.gain.high, -verdict.gain.low],
            "outcome": verdict.outcome.value,
            "drop_of_onnx_runtime": {way: -one.gain.estimate for way, one in others.items()},
        }
    return row


def after_training_on(model: torch.nn.Module, task: Task, data: Any, *, seed: int) -> Any:
    """Return accuracies: before, of bytes without more training, and after training as bytes."""
    rows, x, y = data[0][:NUM_CALIBRATED].numpy(), data[2].numpy(), data[3].numpy()

    def of_bytes() -> float:
        return accuracy_of(calibrate(model, rows).to_integers()[1].predict, x, y)

    def in_floats() -> float:
        with torch.no_grad():
            return accuracy_of(lambda part: model(torch.from_numpy(part)).numpy(), x, y)

    found = {"seed": seed, "num_rows": len(x), "float": in_floats(), "own": of_bytes()}
    model = trained_on(model, task, data, seed=seed)
    found |= {"trained_on_float": in_floats(), "trained_on_own": of_bytes()}
    return found | {
        "drop": found["float"] - found["own"],
        "drop_after_training": found["float"] - found["trained_on_own"],
        "drop_of_bytes_after_training": found["trained_on_float"] - found["trained_on_own"],
    }


def accuracy_of(predict: Callable[[Any], Any], x: Any, y: Any) -> float:
    """Return how often a function that is given some rows at a time is right."""
    made = np.concatenate([predict(x[i : i + PART]) for i in range(0, len(x), PART)])
    return float((made.argmax(axis=1) == y).mean())


def latency(model: torch.nn.Module, data: Any) -> dict[str, Any]:
    """Return times of a network that was not trained: its operators and sizes decide them."""
    rows = data[0][:NUM_CALIBRATED]
    with torch.no_grad():
        model.train()(rows)  # so that its activations have a scale
    calibrated = calibrate(model.eval(), rows)
    floats, own = onnx_model(calibrated.network), onnx_model(*calibrated.to_integers())
    models = {"float": floats, "own": own}
    return timed(models | by_onnx_runtime(models["float"], rows.numpy()), data[2].numpy())


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean over seeds of what a reader asks first."""
    found = {
        "weights_smaller": rows[0]["weights_smaller"],
        "file_smaller": rows[0]["file_smaller"]["own"],
        "arena_over_bound": max(row["arena_over_bound"] for row in rows),
    }
    for key in (f"same_in_c_of_{num}" for num in (NUM_IN_C, NUM_IN_C_OF_LARGE)):
        found |= {key: min(row[key] for row in rows)} if key in rows[0] else {}
    if "drop" in rows[0]:
        found["accuracy_in_floats"] = mean(row["accuracy"]["float"] for row in rows)
        found["drop"] = mean(row["drop"] for row in rows)
        found["outcomes"] = [row["outcome"] for row in rows]
        found["drop_of_onnx_runtime"] = {
            way: mean(row["drop_of_onnx_runtime"][way] for row in rows) for way in WAYS.values()
        }
    return found


def random_net(seed: int) -> tuple[torch.nn.Module, Any]:
    """Return the residual network that only its bytes and its time count of, with made-up data."""
    torch.manual_seed(seed)
    x, y = torch.randn(NUM_CALIBRATED, 3, 32, 32), torch.arange(NUM_CALIBRATED) % 10
    return resnet(width=64, blocks=1, channels=3).eval(), (x, y, x, y)


def each(options: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """Yield the network's name with its rows, or with why there are none."""
    for name, task in tasks(options.mnist, options.cifar).items():
        if options.only and name not in options.only:
            continue
        try:
            data = task.data()
        except OSError as error:
            yield name, {"left_out": f"its data is absent: {error.strerror}"}
            continue
        if options.trained_quantized:
            if "LSTM" in name or task.makes_again:
                continue  # the lever leaves recurrent layers as they are
            nets = (
                (seed, trained(task, data, seed=seed, kept=kept_file(options.weights, name, seed)))
                for seed in range(options.seeds)
            )
            rows = [after_training_on(one, task, data, seed=seed) for seed, one in nets]
            found = {key: mean(row[key] for row in rows) for key in rows[0]}
            yield name, {"trained_quantized": {"mean": found, "rows": rows}}
            continue
        if not options.no_times:
            yield name, {"latency": latency(task.build(), data)}
        if options.times:
            continue
        rows = [
            measured(
                trained(task, data, seed=seed, kept=kept_file(options.weights, name, seed)),
                data,
                makes_again=task.makes_again,
            )
            | {"seed": seed}
            for seed in range(options.seeds)
        ]
        yield name, {"mean": summary(rows), "rows": rows, "num_train": len(data[0])}
    if not options.trained_quantized and (not options.only or ONLY_TIMED in options.only):
        model, data = random_net(0)
        yield ONLY_TIMED, {"latency": latency(model, data)}
        if options.times:
            return
        rows = [measured(model, data, is_judged=False)]
        yield ONLY_TIMED, {"mean": summary(rows), "rows": rows}


def main() -> None:
    """Measure, print and save network by network."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mnist", type=Path, required=True, help="folder of MNIST's four files")
    parser.add_argument("--cifar", type=Path, required=True, help="folder with train/ and test/")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--weights", type=Path, help="folder where trained weights are kept")
    parser.add_argument("--only", action="append", help="a network; the others' results are kept")
    parser.add_argument("--times", action="store_true", help="times alone; the rest is kept")
    parser.add_argument("--no-times", action="store_true", help="no times; those known are kept")
    parser.add_argument("--trained-quantized", action="store_true", help="train on as bytes")
    options = parser.parse_args()
    torch.set_num_threads(1)
    known = (
        json.loads(OUT.read_text())["nets"]
        if (options.only or options.times or options.no_times or options.trained_quantized)
        and OUT.exists()
        else {}
    )
    for name, found in each(options):
        print(name, json.dumps(found.get("mean", found), indent=1), flush=True)
        packages = {one: version(one) for one in ("onnx", "onnxruntime", "numpy")}
        part = next((one for one in PARTS if one in found), "accuracy")
        found |= {f"conditions_of_{PARTS.get(part, part)}": conditions() | packages}
        known[name] = known.get(name, {}) | found
        OUT.write_text(json.dumps({"nets": known}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
