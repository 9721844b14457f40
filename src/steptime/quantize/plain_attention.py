"""Puts attention that keeps the batch first in the place of torch's own module.

`torch.nn.MultiheadAttention` turns its input so that the steps are first, by views that mix batch
and heads. What is put in its place has the same weights and computes the same.
"""

from __future__ import annotations

import copy
from typing import Any

from steptime.errors import UsageError


def with_plain_attention(model: Any) -> Any:
    """Return a module in which each attention of torch's is plain; itself where there is none.

    Raises:
        UsageError: an attention has its steps first, or biases of keys and values.
    """
    import torch

    kind = torch.nn.MultiheadAttention
    if not any(isinstance(one, kind) for one in model.modules()):
        return model
    model = copy.deepcopy(model)
    for path, one in list(model.named_modules()):
        if isinstance(one, kind):
            if not one.batch_first or one.bias_k is not None or one.add_zero_attn:
                raise UsageError(
                    f"`{path}` has its steps before its batch, or biases of keys and values.",
                    hint="Make it with batch_first=True, and without add_bias_kv.",
                )
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, _plain(one))
    return model.eval()


def _plain(given: Any) -> Any:
    import torch
    from torch.nn import functional

    class PlainAttention(torch.nn.Module):  # type: ignore[misc]
        """Attention with a matmul for queries, keys and values each."""

        batch_first = True

        def __init__(self) -> None:
            super().__init__()
            width = given.embed_dim
            weights = (
                given.in_proj_weight.split(width)
                if given.in_proj_weight is not None
                else (given.q_proj_weight, given.k_proj_weight, given.v_proj_weight)
            )
            biases = (None,) * 3 if given.in_proj_bias is None else given.in_proj_bias.split(width)
            for name, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True):
                made = torch.nn.Linear(weight.shape[1], width, bias=bias is not None)
                made.weight.data = weight.detach().clone()
                if bias is not None:
                    made.bias.data = bias.detach().clone()
                setattr(self, name, made)
            self.out = given.out_proj
            self.num_heads = given.num_heads

        def forward(self, query: Any, key: Any, value: Any, **how: Any) -> Any:
            is_causal = bool(how.get("is_causal"))
            has_mask = how.get("attn_mask") is not None and not is_causal
            if has_mask or how.get("key_padding_mask") is not None:
                raise RuntimeError("attention with a mask cannot be made integer")
            parts = (self.query(query), self.key(key), self.value(value))
            size = parts[0].shape[2] // self.num_heads
            q, k, v = (
                one.view(one.shape[0], one.shape[1], self.num_heads, size).transpose(1, 2)
                for one in parts
            )
            found = functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
            found = found.transpose(1, 2).contiguous()
            return self.out(found.view(found.shape[0], found.shape[1], -1)), None

    return PlainAttention()
