"""What became of a network that was turned into one of bytes."""

from __future__ import annotations

from dataclasses import dataclass

from steptime.verify.values import Outcome
from steptime.verify.values.model_verdict import ModelVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLayer:
    """A layer, and how much of the output's error it alone makes.

    Attributes:
        name: the path of its module.
        kind: what it does, such as `convolution`.
        num_bytes: its weights, biases and fractions [bytes].
        macs: multiplications for one input.
        noise: the mean squared error of the output where this layer alone is in bytes, over the
            variance of the output; None for a layer without weights.
    """

    name: str
    kind: str
    num_bytes: int
    macs: int
    noise: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceTime:
    """The time of one input, one after the other, on one thread of this machine.

    Attributes:
        name: what ran: `float` or `bytes`, each by ONNX Runtime.
        median_ms, p99_ms: of the inputs [ms].
        n: inputs that were timed.
    """

    name: str
    median_ms: float
    p99_ms: float
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SizePoint:
    """What some layers with weights of four bits cost; no other point is as small and as good.

    Attributes:
        num_bytes: the constants of the network [bytes].
        metric: on the evaluation rows.
        in_four_bits: the layers.
    """

    num_bytes: int
    metric: float
    in_four_bits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedModel:
    """A network of bytes beside the one of floats.

    Attributes:
        outcome: whether it is as good, by `verdict`.
        verdict: the comparison of both on the evaluation rows.
        observer: how ranges were taken: `min_max`, `percentile` or `mse`.
        rounding: how weights and biases were rounded: `nearest`, `corrected` or `adaptive`.
        num_calibrated: inputs that the ranges were taken from.
        layers: the operators, in order; all of them compute on bytes.
        float_bytes: the weights as 32-bit floats [bytes].
        integer_bytes: all constants of the network of bytes [bytes].
        file_bytes: the ONNX file of the network of bytes [bytes].
        arena_bytes: what the values of one input take at once in C [bytes].
        arena_bound: what no placement of them could go below [bytes].
        times: of one input; empty where ONNX Runtime is not installed.
        units: instructions for bytes that this processor has, such as `avx512_vnni`.
        num_same_in_c: inputs for which the C sources gave the same bits; None without a compiler.
        curve: size and metric with more and more layers of four bits, where that was asked for.
        files: what was written.
    """

    outcome: Outcome
    verdict: ModelVerdict
    observer: str
    rounding: str
    num_calibrated: int
    layers: tuple[KeptLayer, ...]
    float_bytes: int
    integer_bytes: int
    file_bytes: int
    arena_bytes: int
    arena_bound: int
    times: tuple[InferenceTime, ...] = ()
    units: tuple[str, ...] = ()
    num_same_in_c: int | None = None
    curve: tuple[SizePoint, ...] = ()
    files: tuple[str, ...] = ()
