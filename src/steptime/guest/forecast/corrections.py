"""What fake kernels leave out on the CPU: results of another size, and what an operator takes.

Each formula was derived from the events of torch's CPU allocator while single operators ran, over
many sizes (torch 2.13, oneDNN, AVX-512); `benchmarks/fit/fit_memory.py` compares whole steps. In:
an operator, its arguments and its result. Out: bytes; None where it takes nothing. What is taken on
a device is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..count.tensor_facts import tensors_in

LOW, HIGH = 0.5, 2.0
"""What a workspace may be next to its formula: kernels differ by instruction set and release."""

PLAIN_CHANNELS = 16
"""Inputs of fewer channels are read as they lie; oneDNN puts others in blocks first."""

ELEMENTWISE = frozenset(
    f"aten.{name}.Tensor" for name in ("add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_")
)
"""They cast what has another type than their result, whole, before they compute."""

MEAN_LOSSES = ("aten.mse_loss.default", "aten.smooth_l1_loss.default", "aten.huber_loss.default")
"""They make the loss of each element, and then its mean."""


@dataclass(frozen=True)
class Workspace:
    """Bytes that an operator takes for itself and gives back before it returns."""

    low: int
    estimate: int
    high: int


def workspace_of(name: str, args: Any, result: Any) -> Workspace | None:
    """Return what an operator on the CPU takes besides its results; None if that is nothing."""
    find = _FORMULAS.get(name)
    if find is None and name in ELEMENTWISE:
        find = _promoted
    first = next(tensors_in(list(args)), None)
    if find is None or first is None or first.device.type != "cpu":
        return None
    size = find(args, result)
    if not size:
        return None
    most = size
    if find in (_convolution, _convolution_backward) and first.ndim > 4:
        # In three dimensions it is often a product of the image with each patch written out.
        kernel = args[1 if find is _convolution else 2].shape[2:]
        most = max(size, _bytes(first) * math.prod(kernel))
    return Workspace(low=round(LOW * size), estimate=round(size), high=round(HIGH * most))


def corrected(fakes: Any, name: str, args: Any, result: Any) -> Any:
    """Return the result of a fake kernel with the sizes and types that the real one has."""
    if name == "aten.mkldnn_rnn_layer.default" and result[3].numel() == 0:
        steps, rows, width = args[0].shape
        hidden = args[5].shape[-1]
        a, b, c, d = _RNN_KEPT[_is_half(args[0])]
        wide = max(width, hidden)
        size = rows * (steps * (a * hidden + b * wide) + c * hidden + d * wide)
        kept = fakes.empty((round(size),), args[0], fakes.torch.uint8)
        return type(result)((*result[:3], kept)) if type(result) is list else (*result[:3], kept)
    if name == "aten.mkldnn_rnn_layer_backward.default" and fakes.is_fake(result[1]):
        return type(result)(
            None if one is None else fakes.empty(one.shape, one, fakes.torch.float32)
            for one in result
        )
    return result


def _bytes(tensor: Any) -> int:
    return int(tensor.numel()) * int(tensor.element_size())


def _is_half(tensor: Any) -> bool:
    return int(tensor.element_size()) < 4


# -- element by element


def _promoted(args: Any, result: Any) -> float:
    common = result.dtype
    others = [one for one in tensors_in(list(args)) if one.ndim and one.dtype != common]
    if not common.is_floating_point:
        return 0.0
    size = sum(one.numel() * result.element_size() for one in others)
    return float(size)


def _mean_loss(args: Any, result: Any) -> float:
    return 0.0 if result.ndim else float(_bytes(args[0]))


def _safe_softmax(args: Any, result: Any) -> float:
    return float(args[0].numel())  # a mask of rows that are hidden whole


def _first(args: Any, result: Any) -> float:
    return float(_bytes(args[0]))


def _log_beta(args: Any, result: Any) -> float:
    return float(_bytes(args[6]))  # as large as the log alpha that the forward kept


def _if_strided(args: Any, result: Any) -> float:
    return 0.0 if args[0].is_contiguous() else float(_bytes(args[0]))


# -- convolutions: oneDNN puts what it reads in blocks, and its results in order


def _convolution(args: Any, result: Any) -> float:
    image, weight, is_transposed = args[0], args[1], args[6]
    if is_transposed:
        return 2.0 * _bytes(result)
    stride = args[3]
    is_product = all(size == 1 for size in weight.shape[2:]) and all(one == 1 for one in stride)
    if is_product and not _is_half(image):
        return 0.0
    blocked = _bytes(image) if image.shape[1] >= PLAIN_CHANNELS else 0
    return float(max(_bytes(result), _bytes(weight) + blocked))


def _convolution_backward(args: Any, result: Any) -> float:
    gradient, image, weight, stride, is_transposed = args[0], args[1], args[2], args[4], args[7]
    is_product = all(size == 1 for size in weight.shape[2:])
    both = _bytes(gradient) + (_bytes(image) if image.shape[1] >= PLAIN_CHANNELS else 0)
    if is_transposed:
        both += _bytes(gradient)
    if not _is_half(image):
        if is_product and all(one == 1 for one in stride):
            return 0.0
        again = 2 * _bytes(image) - _bytes(weight) if _is_strided(args) else 0
        return float(max(both, again, _bytes(weight)))
    whole = weight.numel() * 4  # the gradient is summed in fp32
    is_depthwise = args[9] > 1 and weight.shape[1] == 1
    return float(both + whole + (0.0 if is_product or is_depthwise else _TRANSPOSED * both))


def _is_strided(args: Any) -> bool:
    """Return whether an image with blocks of channels loses places: its gradient is made apart."""
    image, stride, groups = args[1], args[4], args[9]
    return groups == 1 and image.shape[1] >= PLAIN_CHANNELS and any(one > 1 for one in stride)


_TRANSPOSED = 0.4
"""Of image and gradient, for the products of pairs of half-precision numbers."""


# -- products in half precision: blocks of both matrices, of bounded size


def _product(first: Any, second: Any) -> float:
    if not _is_half(first) or not first.dtype.is_floating_point:
        return 0.0
    rows, inner = first.shape[-2], first.shape[-1]
    packed = 66_560 + 128 * min(inner, 512)
    is_turned = first.stride(-1) != 1
    return float(packed + (2 * min(rows, 256) * min(inner, 512) if is_turned else 0))


def _mm(args: Any, result: Any) -> float:
    return _product(args[0], args[1])


def _addmm(args: Any, result: Any) -> float:
    return _product(args[1], args[2])


# -- attention: a block of scores for each thread


def _scores(args: Any, result: Any) -> float:
    length, keys = args[0].shape[-2], args[1].shape[-2]
    block = 256 if length >= 768 else 64 if length >= 192 else 32
    size = 4 * (block * min(512, keys) + 2 * block + block * args[0].shape[-1])
    return float(size + (2 * block * min(512, keys) if _is_half(args[0]) else 0))


def _scores_backward(args: Any, result: Any) -> float:
    length, keys = args[1].shape[-2], args[2].shape[-2]
    block = 256 if length >= 768 else 64 if length >= 192 else 32
    return float((4.8 if _is_half(args[1]) else 2.0) * 4 * block * min(512, keys))


# -- recurrent layers

_RNN_KEPT = {False: (35.3, 21.3, 61.0, 59.3), True: (21.0, 19.0, 47.9, 47.7)}
"""Bytes that a layer keeps for its backward, for each row: of a step by hidden and by widest size,
and once by the same. Fitted to 14 layers; errors up to 9 %, more for very small ones."""

_RNN_FORWARD = {False: (14.3, 14.6, 1.5, 716.0), True: (5.6, 1.9, 0.0, 709.0)}
_RNN_BACKWARD = {False: (16.6, 22.7, 0.0, 904.0), True: (20.5, 7.8, 0.0, 1102.0)}
"""Bytes by weight, by hidden and by input element of all steps, and by unit."""


def _rnn_size(args: Any, table: Mapping[bool, tuple[float, ...]]) -> float:
    steps, rows, width = args[0].shape
    hidden = args[1].shape[0] // 4
    a, b, c, d = table[_is_half(args[0])]
    by_input = steps * rows * (b * hidden + c * width)
    return float(a * hidden * (width + hidden) + by_input + d * hidden)


def _rnn(args: Any, result: Any) -> float:
    return _rnn_size(args, _RNN_FORWARD)


def _rnn_backward(args: Any, result: Any) -> float:
    return _rnn_size(args, _RNN_BACKWARD)


_FORMULAS: dict[str, Callable[[Any, Any], float]] = {
    "aten.convolution.default": _convolution,
    "aten.convolution_backward.default": _convolution_backward,
    "aten.native_batch_norm_backward.default": _first,
    "aten.embedding_dense_backward.default": _if_strided,
    "aten.mm.default": _mm,
    "aten.addmm.default": _addmm,
    "aten.mkldnn_rnn_layer.default": _rnn,
    "aten.mkldnn_rnn_layer_backward.default": _rnn_backward,
    "aten._safe_softmax.default": _safe_softmax,
    "aten._ctc_loss_backward.Tensor": _log_beta,
    "aten._ctc_loss_backward.default": _log_beta,
    "aten._scaled_dot_product_flash_attention_for_cpu.default": _scores,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": _scores_backward,
    **dict.fromkeys(MEAN_LOSSES, _mean_loss),
}
