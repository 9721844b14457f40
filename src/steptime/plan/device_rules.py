"""Predicts which of two sizes of a product suits a device better.

In: the sizes of an operator, and a device. Out: its cost in multiply-accumulates at the device's
full rate, so that only ratios mean something. A processor computes whole vectors of an output row;
a GPU whole tiles, in whole waves, at a rate that falls where rows are not aligned. What is not
known of a device has no cost: `find_rule` returns None.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from steptime.core.devices.hardware import find_accelerator
from steptime.plan.quantization import TILE, tile_blocks, waves
from steptime.plan.values.shape_values import DeviceSeen

DTYPE_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
"""Types whose products are predicted."""

VECTOR_BYTES = {"AVX512": 64, "AVX512_BF16": 64, "AMX": 64, "AVX2": 32, "DEFAULT": 16}
"""Bytes of a processor's vectors, by what torch calls its instructions."""

TAIL_SHARE, TAIL_GROWTH = 0.85, 0.08
"""On AMD, what is left of a row after whole fp32 vectors is computed in parts of 8, 4, 2 and 1.
Each costs this share of a whole vector; where the result is larger than a core's L2 cache, more for
each whole vector of the row, because rows then begin at odd places: MKL 2024 on Zen 4, one thread,
widths 8 to 513 (`benchmarks/fit/fit_shapes.py --sweep`). Elsewhere the rest counts as a vector."""

ELEMENT_MACS = 6.0
"""Reading or writing one element takes as long as so many multiply-accumulates: the same sweep."""

CALL_MACS = 1e5
"""A call of an operator takes as long as so many, some 2 microseconds: the same sweep."""

MIN_BLOCKED_CHANNELS = 16
"""oneDNN computes convolutions in blocks of 16 channels; an input of fewer is taken as it is."""

AMX_ROWS, AMX_INNER_BYTES = 16, 64
"""An AMX tile has 16 rows of 64 bytes (Intel's instruction set reference)."""

ALIGNED_BYTES = 16
"""Rows that begin at multiples of these have the full rate on tensor cores, or nearly; on an A100
that takes 128 bytes by NVIDIA's guide, without a figure for what less costs."""

UNALIGNED_RATE = 0.69
"""The rate below: an H100's SwiGLU of width 10922 (rows of 4-byte alignment) has 272.73 TFLOPS, of
10912 to 11008 395 and more (ml-engineering, "SwiGLU-based MLP"). Less alignment is not better."""

FLASH_HEADS = (32, 64, 96, 128, 192, 256)
"""Head sizes that FlashAttention 2 has kernels for; others are padded to the next one."""

Sizes = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRule:
    """How a device computes products.

    Attributes:
        name: what the rule is called: `vectors`, `amx` or `tiles`.
        vector_bytes: bytes of a vector, or of an aligned row.
        has_tails: whether the rest of a row is computed in powers of two.
        multiprocessors: of a GPU; None where they are unknown.
        cache_bytes: a core's own L2 cache; None where it is unknown.
    """

    name: str
    vector_bytes: int
    has_tails: bool = False
    multiprocessors: int | None = None
    cache_bytes: int | None = None

    def unit(self, dtype: str) -> int:
        """Return how many elements a width should be a multiple of."""
        return max(1, self.vector_bytes // DTYPE_BYTES.get(dtype, 4)) if self.is_gpu else 16

    @property
    def is_gpu(self) -> bool:
        """Whether it computes tiles in waves."""
        return self.name == "tiles"


def find_rule(
    device: DeviceSeen,
    *,
    model: str | None = None,
    flags: Collection[str] = (),
    cache_bytes: int | None = None,
) -> DeviceRule | None:
    """Return the rule of a device, or None if nothing is known of it.

    Args:
        device: what torch says of it.
        model: name of the processor, as the kernel has it.
        flags: its instruction sets.
        cache_bytes: the L2 cache of one of its cores.
    """
    if device.kind == "cuda":
        row = find_accelerator(
            device.name,
            memory_bytes=device.memory_bytes,
            num_multiprocessors=device.num_multiprocessors,
        )
        known = device.num_multiprocessors or (None if row is None else row.num_multiprocessors)
        return DeviceRule(name="tiles", vector_bytes=ALIGNED_BYTES, multiprocessors=known)
    if device.kind != "cpu":
        return None
    vector = VECTOR_BYTES.get(device.capability or "")
    if vector is None:
        return None
    is_amd = (model or "").startswith("AMD")
    name = "amx" if "amx_bf16" in flags else "vectors"
    return DeviceRule(name=name, vector_bytes=vector, has_tails=is_amd, cache_bytes=cache_bytes)


def cost_of(kind: str, sizes: Sizes, dtype: str, rule: DeviceRule) -> float | None:
    """Return the cost of one operator [multiply-accumulates at full rate], None if not known."""
    if dtype not in DTYPE_BYTES:
        return None
    if kind == "matmul":
        return _product_cost(sizes, dtype, rule)
    if kind == "convolution":
        return _convolution_cost(sizes, dtype, rule)
    if kind == "attention":
        return _attention_cost(sizes, dtype, rule)
    if kind == "recurrent":
        inner = sizes["channels_in"] + sizes["hidden"]
        if rule.is_gpu:
            return work_of("recurrent", sizes) / _rate_of(
                (sizes["channels_in"], sizes["hidden"]), dtype
            )
        return float(sizes["steps"] * inner * vectors_of(sizes["gates"], dtype, rule))
    return None


def with_call(cost: float | None, rule: DeviceRule) -> float:
    """Return the cost with that of the call, which a GPU hides behind other work; 0 without one."""
    return 0.0 if cost is None else cost + (0.0 if rule.is_gpu else CALL_MACS)


def work_of(kind: str, sizes: Sizes) -> float:
    """Return the multiply-accumulates of one operator."""
    s = sizes
    if kind == "matmul":
        return float(s["batch"] * s["m"] * s["n"] * s["inner"])
    if kind == "convolution":
        return float(_positions(s) * s["channels_in"] * s["channels_out"] / s["groups"])
    if kind == "attention":
        square = s["batch"] * s["heads"] * s["length"] * s["key_length"]
        return float(square * (s["head_size"] + s["value_size"]))
    return float(s["steps"] * s["gates"] * (s["channels_in"] + s["hidden"]))


# -- processors


def vectors_of(n: int, dtype: str, rule: DeviceRule, *, rows: int = 1) -> float:
    """Return the columns of an output that cost as much as n, which may fill no whole vectors.

    Args:
        n: columns.
        dtype: of the numbers.
        rule: of the processor.
        rows: of the output, which may be larger than a cache.
    """
    lanes = rule.vector_bytes // DTYPE_BYTES[dtype]
    if DTYPE_BYTES[dtype] == 2:
        lanes //= 2  # sums are fp32
    whole, rest = divmod(n, lanes)
    if not rest:
        return float(n)
    if rule.has_tails and dtype == "float32":
        is_large = rule.cache_bytes is not None and rows * n * 4 > rule.cache_bytes
        tail = TAIL_SHARE + (TAIL_GROWTH * whole if is_large else 0.0)
        return (whole + tail * rest.bit_count()) * lanes
    return float((whole + 1) * lanes)


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _product_cost(s: Sizes, dtype: str, rule: DeviceRule) -> float:
    m, n, k, batch = s["m"], s["n"], s["inner"], s["batch"]
    if rule.is_gpu:
        return float(batch * _tiled(m, n, k, dtype, rule, leading=_leading(s)))
    moved = ELEMENT_MACS * (m * k + k * n + m * n)
    if rule.name == "amx" and dtype == "bfloat16":
        inner = AMX_INNER_BYTES // DTYPE_BYTES[dtype]
        return float(batch * (_up(m, AMX_ROWS) * _up(n, AMX_ROWS) * _up(k, inner) + moved))
    return float(batch * (m * k * vectors_of(n, dtype, rule, rows=m) + moved))


def _positions(s: Sizes) -> float:
    """Return how often each pair of channels meets: places of the output, or of a turned input."""
    space = list(s["space"])
    if not s["transposed"]:
        space = [
            (size + 2 * pad - step * (kernel - 1) - 1) // stride + 1
            for size, pad, step, kernel, stride in zip(
                space, s["padding"], s["dilation"], s["kernel"], s["stride"], strict=True
            )
        ]
    passes = sum(s["wanted"]) if s["wanted"] else 1
    return float(s["batch"] * prod(space) * prod(s["kernel"]) * passes)


def _convolution_cost(s: Sizes, dtype: str, rule: DeviceRule) -> float:
    channels = (s["channels_in"] // s["groups"], s["channels_out"] // s["groups"])
    if rule.is_gpu:
        rate = _rate_of(channels, dtype) if s["groups"] == 1 else 1.0
        return work_of("convolution", s) / rate
    taken, made = channels
    if s["groups"] == s["channels_in"] > 1:  # each channel on its own
        return float(_positions(s) * _up(s["channels_in"], MIN_BLOCKED_CHANNELS))
    if taken >= MIN_BLOCKED_CHANNELS:
        taken = _up(taken, MIN_BLOCKED_CHANNELS)
    return float(_positions(s) * s["groups"] * taken * _up(made, MIN_BLOCKED_CHANNELS))


def _attention_cost(s: Sizes, dtype: str, rule: DeviceRule) -> float:
    size = s["head_size"]
    square = s["batch"] * s["heads"] * s["length"] * s["key_length"]
    if rule.is_gpu:
        padded = next((one for one in FLASH_HEADS if one >= size), size)
        return float(2 * square * padded / _rate_of((size,), dtype))
    keys = vectors_of(s["key_length"], dtype, rule) / max(1, s["key_length"])
    values = vectors_of(s["value_size"], dtype, rule)
    return float(square * (size * keys + values + ELEMENT_MACS))


# -- GPUs


def _leading(s: Sizes) -> tuple[int, int, int]:
    """Return the lengths of the rows in memory of both factors and of the product."""
    turned = s.get("turned") or (False, False)
    return (s["m"] if turned[0] else s["inner"], s["inner"] if turned[1] else s["n"], s["n"])


def _rate_of(leading: tuple[int, ...], dtype: str) -> float:
    """Return the fraction of the full rate that rows of these lengths allow."""
    bytes_ = DTYPE_BYTES[dtype]
    is_aligned = all(size * bytes_ % ALIGNED_BYTES == 0 for size in leading)
    return 1.0 if is_aligned else UNALIGNED_RATE


def _tiled(
    m: int, n: int, k: int, dtype: str, rule: DeviceRule, *, leading: tuple[int, ...]
) -> float:
    """Return the cost of whole waves of whole tiles; without multiprocessors of whole tiles."""
    rate = _rate_of(leading, dtype)
    rows, columns = TILE
    tile = TILE if m * columns >= n * rows else (columns, rows)
    blocks = min(tile_blocks(m, n, tile=one) for one in (tile, tile[::-1]))
    if rule.multiprocessors is not None:
        blocks = waves(blocks, rule.multiprocessors) * rule.multiprocessors
    return blocks * rows * columns * k / rate
