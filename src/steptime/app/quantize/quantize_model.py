"""Turns a network into one of bytes: makes it, judges it, times it, and writes its files."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from steptime.app.quantize.check_in_c import same_in_c
from steptime.app.quantize.curve import size_curve
from steptime.app.quantize.network_sizes import bytes_of, floats_of, num_weights
from steptime.app.verify.verify_model import verify_model
from steptime.core.store import write_text
from steptime.errors import UsageError
from steptime.quantize.c.arena import plan_arena
from steptime.quantize.c.write_c import c_sources
from steptime.quantize.calibrate import as_inputs, calibrate
from steptime.quantize.capture import evaluating
from steptime.quantize.inference import time_in_turns
from steptime.quantize.integer.integer_network import IntegerNetwork
from steptime.quantize.layer_noise import layer_noise
from steptime.quantize.observers import Observer
from steptime.quantize.rounding.round_weights import Rounding
from steptime.quantize.trained_network import Convolution, Network, Operator
from steptime.quantize.values.quantized_model import KeptLayer, QuantizedModel
from steptime.quantize.write_onnx import onnx_model
from steptime.verify.values.model_verdict import ModelVerdict

POINT = 0.01
"""The contract: a point of accuracy may be lost."""

_BYTE_UNITS = ("avx_vnni", "avx512_vnni", "amx_int8", "asimddp", "i8mm")
_SLICE_MARGINS, _MOST_MARGIN = 5, 0.99
_BATCH = 64
_NOISE_INPUTS = 256
_TIMED, _IN_C = 200, 20
Told = Callable[[str], None]
_Choice = TypeVar("_Choice", Observer, Rounding)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizeAsked:
    """What is asked of a network of bytes.

    Attributes:
        metric: `accuracy` or `squared_error`; None for that which suits the labels.
        margin: the loss that does not matter; None for a point of accuracy.
        observer: how ranges are taken.
        rounding: how weights and biases are rounded.
        has_curve: also try more and more layers with weights of four bits.
    """

    metric: str | None = None
    margin: float | None = None
    observer: Observer = Observer.MSE
    rounding: Rounding = Rounding.CORRECTED
    has_curve: bool = False


def quantize_model(
    model: Any,
    *,
    calibrate: Any,
    evaluate: tuple[Any, Any],
    metric: str | None = None,
    margin: float | None = None,
    observer: str = "mse",
    rounding: str = "corrected",
    curve: bool = False,
    output: str | os.PathLike[str] | None = None,
) -> QuantizedModel:
    """Turn a trained network into one of bytes, and judge it, as `steptime quantize` does.

    Args:
        model: a `torch.nn.Module` with its weights; it is given back in the mode that it had.
        calibrate: inputs as in training (num_inputs, ...), from which ranges are taken.
        evaluate: inputs (num_rows, ...), and labels (num_rows,) or targets (num_rows, ...).
        metric: `accuracy` or `squared_error`; None for that which suits the labels.
        margin: the loss that does not matter; None for a point of accuracy.
        observer: how ranges are taken: `mse`, `min_max` or `percentile`.
        rounding: of weights and biases: `nearest`, `corrected` or `adaptive`.
        curve: also try more and more layers with weights of four bits.
        output: the folder that the files are written to; None for none.

    Raises:
        UsageError: an argument makes no sense, or an operator is not in the table.
        DataError: a value is not finite, or 0 for each input.
        MissingExtraError: the extra `quantize` is not installed.
    """
    x, y = evaluate
    asked = QuantizeAsked(
        metric=metric,
        margin=margin,
        observer=_one_of(Observer, "observer", observer),
        rounding=_one_of(Rounding, "rounding", rounding),
        has_curve=curve,
    )
    folder = None if output is None else Path(output)
    with evaluating(model):
        return make_network(model, calibrate, (x, _array(y)), asked, output=folder)


def _one_of(kind: type[_Choice], name: str, given: str) -> _Choice:
    if given not in [one.value for one in kind]:
        names = ", ".join(one.value for one in kind)
        raise UsageError(f"{name} is `{given}`; it must be one of {names}.")
    return kind(given)


def _array(values: Any) -> Any:
    import numpy as np

    return np.asarray(values)


def make_network(
    model: Any,
    inputs: Any,
    evaluate: tuple[Any, Any],
    asked: QuantizeAsked,
    *,
    output: Path | None = None,
    tell: Told = lambda _: None,
) -> QuantizedModel:
    """Return what became of a network.

    Args:
        model: a `torch.nn.Module` in evaluation mode.
        inputs: those of calibration, as in training (num_inputs, ...), from which ranges are taken.
        evaluate: inputs (num_rows, ...), and labels (num_rows,) or targets (num_rows, ...).
        asked: the question.
        output: the folder that the files are written to; None for none.
        tell: called with a line when a part begins.

    Raises:
        UsageError: an operator is not in the table, or `margin` is missing.
        DataError: a value is not finite, or 0 for each input.
        MissingExtraError: the extra `quantize` is not installed.
    """
    x, y = as_inputs(model, evaluate[0]), evaluate[1]
    inputs = as_inputs(model, inputs)
    metric, margin = asked.metric or _metric_of(y), asked.margin
    if margin is None:
        if metric != "accuracy":
            raise UsageError(f"--margin is missing: how much of the {metric} may be lost.")
        margin = POINT
    tell(f"reading the network, and calibrating it with {len(inputs):,} inputs")
    calibrated = calibrate(model, inputs, observer=asked.observer, rounding=asked.rounding)
    network, ranges, few = calibrated.network, calibrated.ranges, inputs[:_NOISE_INPUTS]
    in_bytes, integer = calibrated.to_integers(tell=tell)
    tell(f"evaluating {len(x):,} rows")
    verdict = _judge(model, integer, x, y, metric=metric, margin=margin)
    verdict = replace(verdict, reference_arm="fp32", candidate_arm="int8")
    tell("finding what each layer costs, and its time")
    noise = layer_noise(network, ranges, few)
    models = {"float": onnx_model(network), "bytes": onnx_model(in_bytes, integer)}
    arena = plan_arena(integer)
    sources = c_sources(integer, arena)
    found = QuantizedModel(
        outcome=verdict.outcome,
        verdict=verdict,
        observer=asked.observer.value,
        rounding=asked.rounding.value,
        num_calibrated=len(inputs),
        layers=tuple(_layer(one, network, noise) for one in network.operators),
        float_bytes=sum(4 * floats_of(one) for one in network.operators),
        integer_bytes=sum(bytes_of(one) for one in network.operators),
        file_bytes=models["bytes"].ByteSize(),
        arena_bytes=arena.size,
        arena_bound=arena.bound,
        times=time_in_turns(models, x, rounds=_TIMED),
        units=_units(),
        num_same_in_c=same_in_c(integer, sources, x[:_IN_C], arena_bytes=arena.size),
    )
    if asked.has_curve:
        tell("trying weights of four bits")
        score = partial(_score, x=x, y=y, metric=metric)
        is_down = found.verdict.is_better_down
        curve = size_curve(calibrated, few, score, is_better_down=is_down)
        found = replace(found, curve=curve)
    if output is None:
        return found
    tell(f"writing {output}/")
    binaries = {"network.onnx": models["bytes"].SerializeToString(), **_samples(integer, x[:_IN_C])}
    return replace(found, files=_write(output, sources, binaries, found))


def _metric_of(labels: Any) -> str:
    return "accuracy" if labels.dtype.kind in "iub" and labels.ndim == 1 else "squared_error"


def _judge(
    model: Any, integer: IntegerNetwork, x: Any, y: Any, *, metric: str, margin: float
) -> ModelVerdict:
    """Compare both networks row by row."""
    import numpy as np
    import torch

    parts = range(0, len(x), _BATCH)
    with torch.no_grad():
        floats = np.concatenate([model(torch.from_numpy(x[i : i + _BATCH])).numpy() for i in parts])
    found = _predictions(integer, x)
    ids = np.arange(len(x))
    if metric == "accuracy":
        rows = [
            {"id": ids, "label": y, "prediction": made.argmax(axis=-1), "class": y.astype(str)}
            for made in (floats, found)
        ]
        slices: tuple[str, ...] = ("class",)
        return verify_model(*rows, metric=metric, margin=margin, slices=slices,
                            slice_margin=min(_SLICE_MARGINS * margin, _MOST_MARGIN))  # fmt: skip
    errors = [((made - y.reshape(made.shape)) ** 2).reshape(len(x), -1).mean(axis=1)
              for made in (floats, found)]  # fmt: skip
    rows = [{"id": ids, metric: one} for one in errors]
    return verify_model(*rows, metric=metric, margin=margin, better="down")


def _predictions(integer: IntegerNetwork, x: Any) -> Any:
    """Return the real outputs (num_rows, ...) of all rows, some at a time."""
    import numpy as np

    return np.concatenate([integer.predict(x[i : i + _BATCH]) for i in range(0, len(x), _BATCH)])


def _score(integer: IntegerNetwork, *, x: Any, y: Any, metric: str) -> float:
    """Return the metric of a network on the evaluation rows."""
    found = _predictions(integer, x)
    if metric == "accuracy":
        return float((found.argmax(axis=-1) == y).mean())
    return float(((found - y.reshape(found.shape)) ** 2).mean())


def _layer(one: Operator, network: Network, noise: dict[str, float]) -> KeptLayer:
    places = network.shapes[one.output][: 2 if isinstance(one, Convolution) else -1]
    macs = math.prod(places) * num_weights(one)
    return KeptLayer(
        name=one.name,
        kind=type(one).__name__.lower(),
        num_bytes=bytes_of(one),
        macs=macs,
        noise=noise.get(one.output),
    )


def _units() -> tuple[str, ...]:
    """Return the instructions for bytes of this processor."""
    from steptime.machine.inventory import HERE
    from steptime.machine.processors import read_cpu

    flags = read_cpu(HERE, num_usable=1).flags
    return tuple(flag for flag in flags if flag in _BYTE_UNITS)


def _samples(integer: IntegerNetwork, inputs: Any) -> dict[str, bytes]:
    """Return inputs (num, ...) as a device takes them, and what it has to make of them."""
    given = integer.to_bytes(inputs)
    return {"inputs.bin": given.tobytes(), "outputs.bin": integer.run(given).tobytes()}


def _write(
    folder: Path, sources: dict[str, str], binaries: dict[str, bytes], found: QuantizedModel
) -> tuple[str, ...]:
    import msgspec

    folder.mkdir(parents=True, exist_ok=True)
    for name, text in sources.items():
        write_text(folder / name, text)
    for name, content in binaries.items():
        (folder / name).write_bytes(content)
    names = (*sources, *binaries, "verdict.json")
    found = replace(found, files=names)
    write_text(folder / "verdict.json", msgspec.json.encode(found).decode())
    return names
