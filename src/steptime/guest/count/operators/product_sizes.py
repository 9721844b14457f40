"""The sizes of one product, convolution, attention or recurrent layer, from its arguments.

In: an operator's arguments by name, and its result. Out: plain numbers; None where they are not
known. No value of a tensor is read.
"""

from __future__ import annotations

from typing import Any

Sizes = dict[str, Any]


def matmul_of(bound: Any, result: Any) -> Sizes | None:
    """Return rows m, columns n and the inner size; `batch` products of that size."""
    for left, right in (("mat1", "mat2"), ("self", "mat2"), ("batch1", "batch2")):
        if left in bound and right in bound:
            one, other = bound[left], bound[right]
            break
    else:
        return None
    if one.is_nested or other.is_nested or not is_strided(one) or not is_strided(other):
        return None
    if one.dim() != other.dim() or one.dim() not in (2, 3):
        return None
    m, k = (int(size) for size in one.shape[-2:])
    n = int(other.shape[-1])
    batch = int(one.shape[0]) if one.dim() == 3 else 1
    turned = [is_turned(one), is_turned(other)]
    return {"m": m, "n": n, "inner": k, "batch": batch, "turned": turned}


def is_strided(tensor: Any) -> bool:
    """Return whether a tensor's elements lie in one block of memory."""
    return str(tensor.layout) == "torch.strided"


def is_turned(tensor: Any) -> bool:
    """Return whether a matrix's columns lie together in memory instead of its rows."""
    row, column = tensor.stride()[-2:]
    return bool(row == 1 and column != 1)


def convolution_of(bound: Any, result: Any) -> Sizes | None:
    """Return channels in and out of the whole, kernel, input's sizes and how it moves."""
    weight = bound["weight"]
    taken = bound.get("input", bound.get("self"))
    if taken is None or weight.is_nested or "stride" not in bound:
        return None
    turned, groups = bool(bound.get("transposed", False)), int(bound.get("groups", 1))
    first, second = int(weight.shape[0]), int(weight.shape[1])
    return {
        "channels_in": first if turned else second * groups,
        "channels_out": second * groups if turned else first,
        "kernel": [int(size) for size in weight.shape[2:]],
        "batch": int(taken.shape[0]),
        "space": [int(size) for size in taken.shape[2:]],
        "stride": [int(one) for one in bound["stride"]],
        "padding": [int(one) for one in bound.get("padding", ())],
        "dilation": [int(one) for one in bound.get("dilation", ())],
        "groups": groups,
        "transposed": turned,
        "wanted": [bool(one) for one in bound.get("output_mask", ())][:2],
    }


def attention_of(bound: Any, result: Any) -> Sizes | None:
    """Return batch, heads, lengths and head size; keys may have fewer heads than queries."""
    names = ("query", "key", "value")
    if any(name not in bound for name in names) or "max_q" in bound:
        return None  # packed sequences
    query, key, value = (bound[name] for name in names)
    if query.dim() != 4:
        return None
    return {
        "batch": int(query.shape[0]),
        "heads": int(query.shape[1]),
        "kv_heads": int(key.shape[1]),
        "length": int(query.shape[2]),
        "key_length": int(key.shape[2]),
        "head_size": int(query.shape[3]),
        "value_size": int(value.shape[3]),
        "is_causal": bool(bound.get("is_causal", False)),
    }


def recurrent_of(bound: Any, result: Any) -> Sizes | None:
    """Return the sizes of the first two matrices that a layer's steps meet."""
    if "weight" in bound:
        matrices = [one for one in bound["weight"] if one.dim() == 2]
    else:
        first = 0 if "weight0" in bound else 1
        matrices = [bound[f"weight{first + place}"] for place in range(2)]
    taken = bound["input"]
    if len(matrices) < 2 or taken.dim() != 3:
        return None
    return {
        "steps": int(taken.shape[0]) * int(taken.shape[1]),
        "batch": int(taken.shape[1]),
        "channels_in": int(matrices[0].shape[1]),
        "gates": int(matrices[0].shape[0]),
        "hidden": int(matrices[1].shape[1]),
    }
