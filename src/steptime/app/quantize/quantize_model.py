"""Turns a network into one of bytes: makes it, judges it, times it, and writes its files."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from steptime.app.quantize.check_in_c import same_in_c
from steptime.app.quantize.curve import mix_curve
from steptime.app.quantize.evaluation import evaluation_of
from steptime.app.quantize.mixed_network import Mix
from steptime.app.quantize.network_sizes import bytes_of, floats_of, num_macs
from steptime.core.store import write_text
from steptime.errors import UsageError
from steptime.quantize.c.arena import plan_arena
from steptime.quantize.c.targets import estimates
from steptime.quantize.c.write_c import c_sources
from steptime.quantize.calibrate import as_inputs, calibrate
from steptime.quantize.capture import evaluating
from steptime.quantize.inference import time_in_turns
from steptime.quantize.integer.float_layers import FloatLayer
from steptime.quantize.integer.integer_network import IntegerNetwork
from steptime.quantize.integer.integer_operators import IntegerOperator
from steptime.quantize.layer_noise import layer_noise
from steptime.quantize.observers import Observer
from steptime.quantize.rounding.round_weights import Rounding
from steptime.quantize.trained_network import Network, Operator, Requantization
from steptime.quantize.values.quantized_model import KeptLayer, QuantizedModel
from steptime.quantize.wider_values import kept_layers
from steptime.quantize.write_onnx import onnx_model
from steptime.verify.values import Outcome

_BYTE_UNITS = ("avx_vnni", "avx512_vnni", "amx_int8", "asimddp", "i8mm")
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
        has_curve: also try layers in other forms, and find the points that no other one beats.
        keep: names of layers, or patterns, each with the form that it is kept in.
    """

    metric: str | None = None
    margin: float | None = None
    observer: Observer = Observer.MSE
    rounding: Rounding = Rounding.CORRECTED
    has_curve: bool = False
    keep: tuple[tuple[str, str], ...] = ()


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
    keep: Mapping[str, str] | None = None,
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
        curve: also try layers in other forms, and find the points that no other one beats.
        keep: `int16` or `fp32` by the name of a layer, or by a pattern such as `layer1.*`: layers
            that are kept wider. The last pattern that a layer fits counts.
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
        keep=tuple((keep or {}).items()),
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
    rows = evaluation_of(model, x, y, metric=asked.metric, margin=asked.margin)
    tell(f"reading the network, and calibrating it with {len(inputs):,} inputs")
    calibrated = calibrate(model, inputs, observer=asked.observer, rounding=asked.rounding)
    bare, ranges, few = calibrated.network, calibrated.ranges, inputs[:_NOISE_INPUTS]
    kept = kept_layers(bare, asked.keep)
    mix = Mix(calibrated=calibrated, bits=kept)
    network, integer = mix.made(tell)
    tell(f"evaluating {len(x):,} rows")
    verdict = rows.judge(rows.predictions(integer))
    arm = "mixed precision" if kept else "int8"
    verdict = replace(verdict, reference_arm="fp32", candidate_arm=arm)
    tell("finding what each layer costs, and its time")
    models = {"float": onnx_model(bare), "bytes": mix.in_onnx()}
    arena = plan_arena(integer)
    is_c = not any(isinstance(one, FloatLayer) for one in integer.operators)
    sources = c_sources(integer, arena) if is_c else {}
    num_same = same_in_c(integer, sources, x[:_IN_C], arena_bytes=arena.size) if is_c else None
    layers = _layers(network, integer, layer_noise(bare, ranges, few, kept=kept))
    constant_bytes = sum(bytes_of(one) for one in integer.operators)
    found = QuantizedModel(
        outcome=verdict.outcome,
        verdict=verdict,
        observer=asked.observer.value,
        rounding=asked.rounding.value,
        num_calibrated=len(inputs),
        layers=layers,
        float_bytes=sum(4 * floats_of(one) for one in network.operators),
        integer_bytes=constant_bytes,
        file_bytes=models["bytes"].ByteSize(),
        arena_bytes=arena.size,
        arena_bound=arena.bound,
        times=time_in_turns(models, x, rounds=_TIMED),
        units=_units(),
        num_same_in_c=num_same,
        targets=estimates(
            macs=sum(one.macs for one in layers),
            outputs=sum(math.prod(network.shapes[one.output]) for one in network.operators),
            arena_bytes=arena.size,
            constant_bytes=constant_bytes,
        )
        if is_c
        else (),
    )
    if asked.has_curve:
        tell("trying layers in other forms")
        needs_pass = found.outcome is not Outcome.PASS
        points, passing, ranks = mix_curve(mix, few, rows, needs_pass=needs_pass)
        found = replace(found, curve=points, passing=passing, rank_correlation=ranks)
    if output is None:
        return found
    tell(f"writing {output}/")
    samples = _samples(integer, x[:_IN_C]) if is_c else {}
    binaries = {"network.onnx": models["bytes"].SerializeToString(), **samples}
    return replace(found, files=_write(output, sources, binaries, found))


def _layers(
    network: Network, integer: IntegerNetwork, noise: Mapping[str, float]
) -> tuple[KeptLayer, ...]:
    pairs = zip(network.operators, integer.operators, strict=True)
    return tuple(
        _layer(one, made, network, noise)
        for one, made in pairs
        if not isinstance(one, Requantization)
    )


def _layer(
    one: Operator, made: IntegerOperator, network: Network, noise: Mapping[str, float]
) -> KeptLayer:
    return KeptLayer(
        name=one.name,
        kind=type(one).__name__.lower(),
        num_bytes=bytes_of(made),
        macs=num_macs(one, network),
        noise=noise.get(one.output),
        num_bits=network.bits.get(one.output, 8),
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
