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
        noise: the mean squared error of the output where this layer alone is as it is kept, over
            the variance of the output; None for a layer without weights.
        num_bits: of its output: 8, 16 where it is kept in 16 bits, 32 where it is in floats.
    """

    name: str
    kind: str
    num_bytes: int
    macs: int
    noise: float | None = None
    num_bits: int = 8


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
    """What a network costs of which some layers have another form than bytes.

    Attributes:
        num_bytes: the constants of the network [bytes].
        metric: on the evaluation rows.
        in_four_bits: the layers with weights of four bits.
        predicted_ms: the time of an input by ONNX Runtime, added up from that of each layer [ms].
        in_16_bits: the layers that are kept in 16 bits.
        in_floats: the layers that are kept in floats.
        measured_ms: the median CPU time of an input, of layers in bytes and floats alone [ms].
    """

    num_bytes: int
    metric: float
    in_four_bits: tuple[str, ...] = ()
    in_16_bits: tuple[str, ...] = ()
    in_floats: tuple[str, ...] = ()
    predicted_ms: float = 0.0
    measured_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetEstimate:
    """What one input would take on a small processor, by its C sources; nothing was run on it.

    Attributes:
        name: the processor with its clock, and a chip that has it.
        estimated_ms: of one input [ms].
        fits: whether the chip has the memory for its values and constants.
    """

    name: str
    estimated_ms: float
    fits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedModel:
    """A network of bytes beside the one of floats.

    Attributes:
        outcome: whether it is as good, by `verdict`.
        verdict: the comparison of both on the evaluation rows.
        observer: how ranges were taken: `min_max`, `percentile` or `mse`.
        rounding: how weights and biases were rounded: `nearest`, `corrected` or `adaptive`.
        num_calibrated: inputs that the ranges were taken from.
        layers: the operators, in order; all but those of 32 bits compute on whole numbers.
        float_bytes: the weights as 32-bit floats [bytes].
        integer_bytes: all constants of the network of bytes [bytes].
        file_bytes: the ONNX file of the network of bytes [bytes].
        arena_bytes: what the values of one input take at once in C [bytes].
        arena_bound: what no placement of them could go below [bytes].
        times: of one input; empty where ONNX Runtime is not installed.
        units: instructions for bytes that this processor has, such as `avx512_vnni`.
        num_same_in_c: inputs for which the C sources gave the same bits; None without a compiler.
        curve: points that no other one beats in size, latency and metric, where asked for.
        passing: of all points that were tried, the smallest one that passes where this network
            does not.
        rank_correlation: of predicted and measured latencies of the points that were tried.
        targets: what an input would take on small processors, the smallest first.
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
    targets: tuple[TargetEstimate, ...] = ()
    passing: SizePoint | None = None
    rank_correlation: float | None = None
    files: tuple[str, ...] = ()
