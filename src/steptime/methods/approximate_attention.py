"""Attention that computes a part of the scores, for whoever writes the model.

    from steptime.methods.approximate_attention import SlidingWindowAttention

    attend = SlidingWindowAttention(128)
    out = attend(queries, keys, values)  # in the place of scaled_dot_product_attention

Each takes queries, keys and values (batch, heads, length, width) and gives (batch, heads, length,
width), as torch's `scaled_dot_product_attention` does. The cost grows with the length, not with its
square. It is another model: how far each is from exact attention, and from which length it is
faster, is in docs/libraries/approximate-attention.md.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention


class SlidingWindowAttention(nn.Module):  # type: ignore[misc]
    """Each position sees the nearest `window` ones: itself and those before it.

    Args:
        window: positions that are seen, itself among them.
        is_causal: those before it alone; else also as many after it.
        dropout: probability with which a weight is dropped in training.

    Raises:
        ValueError: `window` is below 1, or `dropout` is no probability.

    Source: Beltagy et al., Longformer (2020, arXiv 2004.05150), section 3.1, in blocks: a block of
    queries with its own keys and those of its neighbors, of which a mask hides what lies outside.
    """

    def __init__(self, window: int, *, is_causal: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        if window < 1 or not 0 <= dropout < 1:
            raise ValueError(
                f"`window >= 1` and `0 <= dropout < 1` must hold, got {window=}, {dropout=}"
            )
        self.window = window
        self.is_causal = is_causal
        self.dropout = dropout

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Return the attended values (batch, heads, length, width).

        Raises:
            ValueError: the three have other shapes than each other, up to the width of the values.
        """
        check_shapes(queries, keys, values)
        length, window = queries.shape[2], self.window
        dropout = self.dropout if self.training else 0.0
        if length <= window:
            return scaled_dot_product_attention(
                queries, keys, values, dropout_p=dropout, is_causal=self.is_causal
            )
        blocks = [in_blocks(one, window) for one in (queries, keys, values)]
        num_blocks = blocks[0].shape[1]
        around = (-1, 0) if self.is_causal else (-1, 0, 1)
        mask = window_mask(length, window, num_blocks, around=around, device=queries.device)
        seen_keys, seen_values = (with_neighbors(one, around) for one in blocks[1:])
        found = scaled_dot_product_attention(
            blocks[0], seen_keys, seen_values, attn_mask=mask, dropout_p=dropout
        )
        joined = found.reshape(*queries.shape[:2], num_blocks * window, values.shape[3])
        return joined[:, :, :length]

    def extra_repr(self) -> str:
        """Return the arguments."""
        return f"{self.window}, is_causal={self.is_causal}, dropout={self.dropout}"


class LinformerAttention(nn.Module):  # type: ignore[misc]
    """Keys and values of all positions are projected to `rank` learned mixtures of them.

    It sees all positions, those after a query too: it is not for causal models, and padding is
    mixed in unless its keys and values are zeros. The projections are of one length; shorter rows
    use their beginning.

    Args:
        length: positions at most.
        rank: mixtures of them.
        shares: keys and values are mixed by one projection.
        dropout: probability with which a weight is dropped in training.

    Raises:
        ValueError: `rank` is not between 1 and `length`, or `dropout` is no probability.

    Source: Wang et al., Linformer: Self-Attention with Linear Complexity (2020, arXiv 2006.04768);
    the projections begin so that mixtures are as large as keys.
    """

    def __init__(
        self, length: int, rank: int, *, shares: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        if not 1 <= rank <= length or not 0 <= dropout < 1:
            raise ValueError(
                "`1 <= rank <= length` and `0 <= dropout < 1` must hold, "
                f"got {rank=}, {length=}, {dropout=}"
            )
        self.dropout = dropout
        self.of_keys = nn.Parameter(torch.randn(rank, length) * length**-0.5)
        self.of_values = (
            self.of_keys if shares else nn.Parameter(torch.randn(rank, length) * length**-0.5)
        )

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Return the attended values (batch, heads, length, width).

        Raises:
            ValueError: rows are longer than the projections, or the shapes differ.
        """
        check_shapes(queries, keys, values)
        length = queries.shape[2]
        if length > self.of_keys.shape[1]:
            raise ValueError(
                f"rows have at most {self.of_keys.shape[1]} positions, got {length}: "
                "make LinformerAttention with the longest length"
            )
        dropout = self.dropout if self.training else 0.0
        mixed_keys = self.of_keys[:, :length] @ keys
        mixed_values = self.of_values[:, :length] @ values
        return scaled_dot_product_attention(queries, mixed_keys, mixed_values, dropout_p=dropout)

    def extra_repr(self) -> str:
        """Return the arguments."""
        rank, length = self.of_keys.shape
        return f"{length}, {rank}, shares={self.of_keys is self.of_values}, dropout={self.dropout}"


def relative_error(found: Tensor, exact: Tensor) -> float:
    """Return the distance of a result from the exact one, of the exact one's size.

    Source: the Frobenius norm of the difference over that of the exact result.
    """
    wide = exact.double()
    return float((found.double() - wide).norm() / wide.norm())


def check_shapes(queries: Tensor, keys: Tensor, values: Tensor) -> None:
    """Check that a query, a key and a value stand at each position.

    Raises:
        ValueError: they do not.
    """
    shapes = [tuple(one.shape) for one in (queries, keys, values)]
    if queries.dim() != 4 or shapes[0] != shapes[1] or shapes[0][:3] != shapes[2][:3]:
        raise ValueError(
            "queries, keys and values must be (batch, heads, length, width) alike, "
            f"got {shapes[0]}, {shapes[1]}, {shapes[2]}"
        )


def in_blocks(tensor: Tensor, window: int) -> Tensor:
    """Return (batch x heads, blocks, window, width), filled with zeros at the end."""
    length, width = tensor.shape[2:]
    filled = pad(tensor, (0, 0, 0, -length % window))
    return filled.reshape(-1, filled.shape[2] // window, window, width)


def with_neighbors(blocks: Tensor, around: tuple[int, ...]) -> Tensor:
    """Return each block behind its neighbors before it, and before those after it."""
    reach = pad(blocks, (0, 0, 0, 0, 1, 1))
    num_blocks = blocks.shape[1]
    return torch.cat([reach[:, 1 + at : 1 + at + num_blocks] for at in around], dim=2)


def window_mask(
    length: int, window: int, num_blocks: int, *, around: tuple[int, ...], device: Any
) -> Tensor:
    """Return which keys of its neighborhood each query sees (blocks, window, keys).

    A query behind the row's end sees what is near it, so that no row of weights is empty.
    """
    at = torch.arange(num_blocks, device=device)[:, None, None] * window
    query = at + torch.arange(window, device=device)[None, :, None]
    first = around[0] * window
    key = at + first + torch.arange(len(around) * window, device=device)[None, None, :]
    distance = query - key
    is_near = (distance < window) & (distance > (-1 if len(around) == 2 else -window))
    # The ends of the row: before it, and (in both directions) what was filled up behind it.
    limit = num_blocks * window if len(around) == 2 else length
    return is_near & (key >= 0) & (key < limit)
