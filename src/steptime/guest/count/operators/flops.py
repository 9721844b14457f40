"""How much work one operator of torch is, from the shapes of its arguments and its result.

In: an operator as a dispatch mode sees it, with its arguments and result. Out: its class, its
FLOPs, and the bytes it moves. No value of a tensor is read. The conventions are in
docs/explanation/counting.md; `tally.py` adds up. No torch is imported here.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..tensor_facts import is_sparse, is_view, largest, num_stored
from .operator_names import (
    ATTENTION,
    COMMUNICATION,
    CONVOLUTION,
    ELEMENTWISE,
    EMBEDDING,
    EXCHANGES,
    IDLE,
    LOOKUPS,
    MATMUL,
    MOVES,
    NORMALIZATION,
    NORMS,
    OTHER,
    RECURRENT,
    REDUCTIONS,
    SPARSE,
    VIEW,
    VIEWS,
    WINDOWS,
)

Bound = Mapping[str, Any]
"""Arguments by their names in the operator's schema."""


class OperatorWork(NamedTuple):
    """The work of one call of an operator.

    Attributes:
        kind: one of `CLASSES`.
        flops: two for each multiply-accumulate, one for each term of a sum over an index; None
            without a formula.
        macs: multiply-accumulates alone.
        pointwise: one for each element of whatever else it computes; not part of `flops`.
        masked: FLOPs that a causal mask makes needless; part of `flops`.
        again: FLOPs of scores that a fused attention computes a second time; not part of `flops`.
    """

    kind: str
    flops: int | None = 0
    macs: int = 0
    pointwise: int = 0
    masked: int = 0
    again: int = 0


def find_work(
    func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any
) -> OperatorWork:
    """Return the work of one call; the caller must catch the failure of a formula."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        return OperatorWork(OTHER, None)  # a higher-order operator: what it runs counts by itself
    name = schema.name
    formula = formula_of(name)
    if formula is not None:
        bound = dict(zip([one.name for one in schema.arguments], args)) | dict(kwargs)
        return formula(bound, result)
    if is_exchange(func):
        return OperatorWork(COMMUNICATION)
    if is_view(func) or name in VIEWS:
        return OperatorWork(VIEW)
    if name in MOVES:
        return OperatorWork(ELEMENTWISE)
    if name.partition("::")[0] in IDLE:
        return OperatorWork(OTHER)
    if name in LOOKUPS:
        return OperatorWork(LOOKUPS[name])
    short = name.partition("::")[2]
    if name.startswith("aten::") and short.strip("_").startswith(NORMS):
        return OperatorWork(NORMALIZATION, pointwise=largest(args, result))
    if short.startswith(("_foreach_", "_amp_")) or _is_pointwise(func, short):
        return OperatorWork(ELEMENTWISE, pointwise=largest(args, result))
    if name in REDUCTIONS:
        return OperatorWork(ELEMENTWISE, pointwise=largest(args, result))
    if name.startswith("aten::") and short.lstrip("_").startswith(WINDOWS):
        return OperatorWork(OTHER, pointwise=largest(args, result))
    return OperatorWork(OTHER, None)


def is_exchange(func: Any) -> bool:
    """Return whether an operator moves elements between ranks."""
    return getattr(func, "namespace", None) in EXCHANGES


def formula_of(name: str) -> Callable[[Bound, Any], OperatorWork] | None:
    """Return the formula of an operator that makes products or sums by index, by its name."""
    return FORMULAS.get(name) or FORMULAS.get(name.rstrip("_"))


def makes_products(name: str) -> bool:
    """Return whether an operator of that name multiplies matrices, and has a formula."""
    return formula_of(name) is not None and name not in _SUMS


def _is_pointwise(func: Any, name: str) -> bool:
    """Return whether torch tags it, its forward or an operator of the same name as pointwise."""
    if any(str(tag).endswith(".pointwise") for tag in func.tags):
        return True
    known = sys.modules["torch"].ops.aten
    for like in (name, name.rstrip("_"), name.removesuffix("_backward")):
        packet = getattr(known, like, None) if func.namespace == "aten" else None
        of_packet = [getattr(packet, one) for one in packet.overloads()] if packet else []
        if any(str(tag).endswith(".pointwise") for one in of_packet for tag in one.tags):
            return True
    return False


# -- formulas


def _product(lhs: Any, rhs: Any, *, kind: str = MATMUL) -> OperatorWork:
    """Multiply `lhs` (..., m, k) and `rhs` (..., k, n), with equally many matrices in both."""
    if lhs.is_nested:
        return _contraction(kind, _nested_macs(lhs, rhs), lhs)
    if is_sparse(lhs) and is_sparse(rhs):
        return OperatorWork(SPARSE, None)  # depends on where the elements are, not on their number
    if is_sparse(rhs):
        macs = num_stored(rhs) * int(lhs.shape[0])
    elif is_sparse(lhs):
        macs = num_stored(lhs) * int(rhs.shape[-1] if rhs.dim() > 1 else 1)
    else:
        return _contraction(kind, lhs.numel() * (rhs.shape[-1] if rhs.dim() > 1 else 1), lhs)
    return _contraction(SPARSE, macs, lhs)


def _contraction(kind: str, macs: Any, tensor: Any) -> OperatorWork:
    """Return the work of these multiply-accumulates; a complex one counts as four."""
    macs = int(macs) * (4 if tensor.dtype.is_complex else 1)
    return OperatorWork(kind, 2 * macs, macs)


def _of(lhs: str, rhs: str) -> Callable[[Bound, Any], OperatorWork]:
    return lambda bound, result: _product(bound[lhs], bound[rhs])


def _grouped(bound: Bound, result: Any) -> OperatorWork:
    """Multiply groups of rows or columns, each with its own matrix.

    Where only the second factor is cut into groups, each matrix of the first meets its own columns.
    """
    lhs, rhs = bound["self"], bound["mat2"]
    groups = int(lhs.shape[0]) if (lhs.dim(), rhs.dim()) == (_STACKED, 2) else 1
    return _contraction(MATMUL, lhs.numel() // max(1, groups) * rhs.shape[-1], lhs)


def _linear(bound: Bound, result: Any) -> OperatorWork:
    return _contraction(MATMUL, bound["input"].numel() * bound["weight"].shape[0], bound["input"])


def _linear_backward(bound: Bound, result: Any) -> OperatorWork:
    """The gradients of input and of weight, as one operator: torch has it for nested tensors."""
    wanted = sum(map(bool, list(bound["output_mask"])[:2]))
    macs = wanted * bound["self"].numel() * bound["weight"].shape[0]
    return _contraction(MATMUL, macs, bound["self"])


def _matmul_backward(bound: Bound, result: Any) -> OperatorWork:
    lhs, rhs = bound["self"], bound["other"]
    wanted = sum(map(bool, bound["mask"]))
    macs = _nested_macs(lhs, rhs) if lhs.is_nested else lhs.numel() * rhs.shape[-1]
    return _contraction(MATMUL, wanted * macs, lhs)


def _nested_macs(lhs: Any, rhs: Any) -> int:
    """Return the multiply-accumulates of nested matrices, each with its own size."""
    shapes = lhs._nested_tensor_size().tolist()
    widths = [one[-1] for one in rhs._nested_tensor_size().tolist()] if rhs.is_nested else None
    return sum(
        math.prod(shape) * int(rhs.shape[-1] if widths is None else widths[place])
        for place, shape in enumerate(shapes)
    )


def _matmul(bound: Bound, result: Any) -> OperatorWork:
    if bound["self"].is_nested:
        return _contraction(MATMUL, _nested_macs(bound["self"], bound["other"]), bound["self"])
    lhs, inner = bound["self"], int(bound["self"].shape[-1])
    return _contraction(MATMUL, result.numel() * inner, lhs)


def _dot(bound: Bound, result: Any) -> OperatorWork:
    return _contraction(MATMUL, bound["self"].numel(), bound["self"])


def _sampled(bound: Bound, result: Any) -> OperatorWork:
    """A product that is computed only where a sparse matrix has elements."""
    return _contraction(SPARSE, num_stored(bound["self"]) * bound["mat1"].shape[-1], bound["mat1"])


def _sparse_reduce(bound: Bound, result: Any) -> OperatorWork:
    return _product(bound["self"], bound["other"])


def _convolution(bound: Bound, result: Any) -> OperatorWork:
    """Each element of the output (of the input, if transposed) meets the kernel once."""
    weight = bound["weight"]
    places = bound["input" if "input" in bound else "self"] if _transposed(bound) else result
    return _contraction(CONVOLUTION, _convolution_macs(places, weight), weight)


def _transposed(bound: Bound) -> bool:
    return bool(bound.get("transposed", False))


def _convolution_macs(places: Any, weight: Any) -> int:
    """Return the multiply-accumulates; `weight` is (out, in / groups, ...).

    Transposed, it is (in, out / groups, ...). In both cases its first dimension counts the channels
    of `places`.
    """
    positions = places.numel() // max(1, places.shape[1])
    return int(positions) * int(weight.numel())


def _convolution_backward(bound: Bound, result: Any) -> OperatorWork:
    """The gradients of input and of weight each cost as much as the forward, with groups too."""
    places = bound["input"] if _transposed(bound) else bound["grad_output"]
    wanted = sum(map(bool, list(bound["output_mask"])[:2]))
    macs = wanted * _convolution_macs(places, bound["weight"])
    return _contraction(CONVOLUTION, macs, bound["weight"])


def _attention(bound: Bound, result: Any) -> OperatorWork:
    """The scores and the weighted sum of the values, over the whole square of scores."""
    scores, values = _attention_macs(bound)
    return _attended(scores + values, bound)


def _attention_backward(bound: Bound, result: Any) -> OperatorWork:
    """The gradients of scores, query, key and value: twice the forward.

    A fused kernel does not keep the scores and computes them a second time; that is counted in
    `again`.
    """
    scores, values = _attention_macs(bound)
    found = _attended(2 * (scores + values), bound)
    return found._replace(again=2 * scores)


def _attention_macs(bound: Bound) -> tuple[int, int]:
    """Return the MACs of scores and values; the query's heads count, as they may share keys."""
    if bound.get("cum_seq_q") is not None or bound.get("cu_seqlens_q") is not None:
        raise ValueError("the lengths of packed sequences are in a tensor")
    if "q" in bound:  # from the flash-attn package: (batch, length, heads, width)
        scores = bound["q"].numel() * int(bound["k"].shape[1])
        return int(scores), int(scores * bound["v"].shape[-1] // max(1, bound["q"].shape[-1]))
    query, key, value = bound["query"], bound["key"], bound["value"]
    if "max_q" in bound or "cu_seqlens_q" in bound:  # (batch, length, heads, width)
        length = int(key.shape[1])
    else:  # (batch, heads, length, width)
        length = int(key.shape[-2])
    rows = query.numel() // max(1, int(query.shape[-1]))
    scores = rows * length * int(query.shape[-1])
    return int(scores), int(rows * length * int(value.shape[-1]))


def _attended(macs: int, bound: Bound) -> OperatorWork:
    is_causal = any(bound.get(name) for name in ("is_causal", "causal", "custom_mask_type"))
    found = _contraction(ATTENTION, macs, bound["q" if "q" in bound else "query"])
    return found._replace(masked=(found.flops or 0) // 2 if is_causal else 0)


def _rnn(bound: Bound, result: Any) -> OperatorWork:
    """Each step of each sequence meets each weight matrix once."""
    return _contraction(RECURRENT, _rnn_macs(bound), bound["input"])


def _rnn_backward(bound: Bound, result: Any) -> OperatorWork:
    return _contraction(RECURRENT, 2 * _rnn_macs(bound), bound["input"])


def _rnn_macs(bound: Bound) -> int:
    """Return the multiply-accumulates; without biases, oneDNN's layer has zeros of a matrix's size.

    Its matrices are the first two of four tensors, numbered from 0, in the backward from 1.
    """
    if "weight" in bound:
        matrices = [one for one in bound["weight"] if one.dim() == 2]
    else:
        first = 0 if "weight0" in bound else 1
        matrices = [bound[f"weight{first + place}"] for place in range(2)]
    taken = bound["input"]
    steps = int(taken.numel()) // max(1, int(taken.shape[-1]))
    return steps * sum(int(one.numel()) for one in matrices)


def _sum_by_index(name: str) -> Callable[[Bound, Any], OperatorWork]:
    return lambda bound, result: OperatorWork(SPARSE, int(bound[name].numel()))


def _bag(bound: Bound, result: Any) -> OperatorWork:
    """Sums of rows; with weights, a product with a sparse matrix."""
    rows, width = int(bound["indices"].numel()), int(bound["weight"].shape[-1])
    return _bag_work(bound, rows * width)


def _bag_backward(bound: Bound, result: Any) -> OperatorWork:
    rows = int(bound["indices"].numel())
    return _bag_work(bound, rows * int(bound["grad"].shape[-1]))


def _bag_work(bound: Bound, elements: int) -> OperatorWork:
    if int(bound.get("mode", 0)) == _MAX_BAG:
        return OperatorWork(EMBEDDING, pointwise=elements)
    if bound.get("per_sample_weights") is not None:
        return OperatorWork(EMBEDDING, 2 * elements, elements)
    return OperatorWork(EMBEDDING, elements)


def _bag_weights_backward(bound: Bound, result: Any) -> OperatorWork:
    elements = int(bound["indices"].numel()) * int(bound["grad"].shape[-1])
    return OperatorWork(EMBEDDING, 2 * elements, elements)


_MAX_BAG = 2
"""The mode of `EmbeddingBag` that adds nothing."""

_STACKED = 3
"""Dimensions of a factor that holds one matrix a group."""


def _encoder_layer(bound: Bound, result: Any) -> OperatorWork:
    """A layer of a transformer's encoder as one operator; torch has it where nothing is trained."""
    tokens = bound["src"].numel() // max(1, int(bound["src"].shape[-1]))
    names = ("qkv_weight", "proj_weight", "ffn_weight_1", "ffn_weight_2")
    return _whole_attention(bound["src"], tokens * sum(bound[name].numel() for name in names))


def _whole_attention(taken: Any, macs: Any) -> OperatorWork:
    """Attention of sequences (batch, length, width) to themselves, with these projections."""
    if taken.is_nested:
        raise ValueError("each sequence has its own length")
    batch, length, width = taken.shape
    return _contraction(MATMUL, macs + 2 * batch * length * length * width, taken)


_PRODUCTS = {
    **dict.fromkeys(("mm", "bmm", "_int_mm", "_scaled_mm", "_scaled_mm_v2"), ("self", "mat2")),
    "addmm": ("mat1", "mat2"),
    "_addmm_activation": ("mat1", "mat2"),
    "_sparse_addmm": ("mat1", "mat2"),
    "_sparse_mm": ("sparse", "dense"),
    "baddbmm": ("batch1", "batch2"),
    "addbmm": ("batch1", "batch2"),
    "mv": ("self", "vec"),
    "addmv": ("mat", "vec"),
    "hspmm": ("mat1", "mat2"),
}
_CONVOLUTIONS = (
    *("convolution", "_convolution", "convolution_overrideable", "mkldnn_convolution"),
    *("cudnn_convolution", "cudnn_convolution_relu", "miopen_convolution", "conv1d", "conv2d"),
    *("conv3d", "_slow_conv2d_forward", "slow_conv3d_forward", "_conv_depthwise2d"),
    *("conv_depthwise3d", "thnn_conv2d", "slow_conv_dilated2d", "slow_conv_dilated3d"),
)
_ATTENTIONS = (
    *("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention"),
    *("_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention"),
    "_scaled_dot_product_fused_attention_overrideable",
    *("_flash_attention", "_efficient_attention", "_cudnn_attention"),
)
_SUMS_BY_INDEX = {
    **dict.fromkeys(("scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_"), "src"),
    **dict.fromkeys(("index_add", "index_add_", "index_reduce", "index_reduce_"), "source"),
    "segment_reduce": "data",
}

FORMULAS: dict[str, Callable[[Bound, Any], OperatorWork]] = {
    **{f"aten::{name}": _of(*names) for name, names in _PRODUCTS.items()},
    **{
        f"aten::{name}": _grouped
        for name in ("_grouped_mm", "_scaled_grouped_mm", "_scaled_grouped_mm_v2")
    },
    "aten::_transformer_encoder_layer_fwd": _encoder_layer,
    **dict.fromkeys(("aten::linear", "aten::mkldnn_linear"), _linear),
    "aten::matmul": _matmul,
    "aten::linear_backward": _linear_backward,
    "aten::matmul_backward": _matmul_backward,
    **dict.fromkeys(("aten::dot", "aten::vdot"), _dot),
    "aten::sparse_sampled_addmm": _sampled,
    "aten::_sparse_mm_reduce_impl": _sparse_reduce,
    **{f"aten::{name}": _convolution for name in _CONVOLUTIONS},
    **dict.fromkeys(
        ("aten::convolution_backward", "aten::convolution_backward_overrideable"),
        _convolution_backward,
    ),
    **{f"aten::{name}{end}": _attention for name in _ATTENTIONS for end in ("", "_forward")},
    **{f"aten::{name}_backward": _attention_backward for name in _ATTENTIONS},
    "flash_attn::_flash_attn_forward": _attention,
    "flash_attn::_flash_attn_backward": _attention_backward,
    **dict.fromkeys(("aten::mkldnn_rnn_layer", "aten::_cudnn_rnn", "aten::miopen_rnn"), _rnn),
    **dict.fromkeys(
        [f"aten::{name}_backward" for name in ("mkldnn_rnn_layer", "_cudnn_rnn", "miopen_rnn")],
        _rnn_backward,
    ),
    **{f"aten::{name}": _sum_by_index(source) for name, source in _SUMS_BY_INDEX.items()},
    **dict.fromkeys(("aten::_embedding_bag", "aten::_embedding_bag_forward_only"), _bag),
    **dict.fromkeys(
        [f"aten::_embedding_bag{kind}_backward" for kind in ("", "_dense", "_sparse")],
        _bag_backward,
    ),
    "aten::_embedding_bag_per_sample_weights_backward": _bag_weights_backward,
}  # fmt: skip

_SUMS = frozenset(
    name for name in FORMULAS if "embedding_bag" in name or name[6:] in _SUMS_BY_INDEX
)
"""Operators with a formula that add up, and multiply no matrices."""
