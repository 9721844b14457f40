"""Attention that computes a part of the scores, for whoever writes the model.

    from steptime.methods.approximate_attention import SlidingWindowAttention

    attend = SlidingWindowAttention(128)
    out = attend(queries, keys, values)  # in the place of scaled_dot_product_attention

Each takes queries, keys and values (batch, heads, length, width) and gives (batch, heads, length,
width), as torch's `scaled_dot_product_attention` does; `LSHAttention` makes the keys of the
queries. The cost grows with the length, not with its square. It is another model: how far each is
from exact attention, and from which length it is faster, is in
docs/libraries/approximate-attention.md.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, normalize, pad, scaled_dot_product_attention

ITSELF = -1e5
"""The score of a position with itself where queries are keys: it counts where nothing else does."""


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


class LSHAttention(nn.Module):  # type: ignore[misc]
    """Each position sees those that fall into its bucket by random rotations; queries are keys.

    Positions are sorted by bucket and cut into chunks: a query sees what is of its bucket in its
    own chunk and in the one before, without `is_causal` in the one after too. The softmax is over
    all that it sees in any round, each once, and over itself only where it sees nothing else.
    Keys have the length 1. Rotations are drawn at each call from torch's random state, in
    evaluation too. Rows of up to `chunk` positions are not hashed: there it is `shared_attention`.

    Args:
        chunk: positions in a chunk, twice as many as a bucket holds on average.
        rounds: of hashing; more are nearer to exact, and each costs as much again.
        is_causal: those before it alone.
        dropout: probability with which a weight is dropped in training.

    Raises:
        ValueError: `chunk` or `rounds` is below 1, or `dropout` is no probability.

    Source: Kitaev et al., Reformer: The Efficient Transformer (2020, arXiv 2001.04451), section 2.
    """

    def __init__(
        self, chunk: int = 64, rounds: int = 4, *, is_causal: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        if chunk < 1 or rounds < 1 or not 0 <= dropout < 1:
            raise ValueError(
                "`chunk >= 1`, `rounds >= 1` and `0 <= dropout < 1` must hold, "
                f"got {chunk=}, {rounds=}, {dropout=}"
            )
        self.chunk = chunk
        self.rounds = rounds
        self.is_causal = is_causal
        self.dropout = dropout

    def forward(self, queries: Tensor, values: Tensor) -> Tensor:
        """Return the attended values (batch, heads, length, width).

        Raises:
            ValueError: the two have other shapes than each other, up to the width of the values.
        """
        check_shapes(queries, queries, values)
        length = queries.shape[2]
        is_short = length <= self.chunk
        num_buckets = 1 if is_short else 2 * max(1, round(length / self.chunk))
        rows, given = queries.flatten(0, 1), values.flatten(0, 1)
        buckets = hash_buckets(rows, num_buckets, 1 if is_short else self.rounds)
        at = torch.arange(length, device=queries.device).expand_as(buckets)
        order = (buckets * length + at).argsort(-1)
        place = order.argsort(-1)
        # Of each position: its number from 1 on (0 is a place that was filled up), its buckets,
        # and its chunks.
        tags = torch.cat([at[:, :1] + 1, buckets, place // self.chunk], 1).transpose(1, 2)
        logs, found = [], []
        for number in range(order.shape[1]):
            log, attended = self.attend_once(rows, given, tags, order[:, number], number)
            logs.append(taken(log, place[:, number]))
            found.append(taken(attended, place[:, number]))
        shares = torch.stack(logs).softmax(0)
        joined = (torch.stack(found) * shares.to(values.dtype)).sum(0)
        return joined.view(*queries.shape[:3], values.shape[3])

    def attend_once(
        self, rows: Tensor, values: Tensor, tags: Tensor, order: Tensor, number: int
    ) -> tuple[Tensor, Tensor]:
        """Return the log of the weights' sum and the attended values of one round, in its order."""
        around = (-1, 0) if self.is_causal else (-1, 0, 1)
        parts = (in_blocks(taken(one, order)[:, None], self.chunk) for one in (rows, values, tags))
        queries, own_values, own = parts
        other = with_neighbors(own, around)
        sees, times = self.seen_by(own, other, number)
        scores = queries @ with_neighbors(normalize(queries, dim=-1), around).transpose(-1, -2)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        scores = scores * rows.shape[-1] ** -0.5 - times.clamp(min=1).to(scores.dtype).log()
        scores = scores.masked_fill(own[..., :1] == other[..., 0].unsqueeze(-2), ITSELF)
        scores = scores.masked_fill(~sees, torch.finfo(scores.dtype).min)
        log = scores.logsumexp(-1, keepdim=True)
        weights = dropout((scores - log).exp(), self.dropout, self.training).to(values.dtype)
        return log.flatten(1, 2), (weights @ with_neighbors(own_values, around)).flatten(1, 2)

    def seen_by(self, own: Tensor, other: Tensor, number: int) -> tuple[Tensor, Tensor]:
        """Return what each query sees in this round, and in how many rounds it does."""
        rounds = own.shape[-1] // 2
        own, other = own.unsqueeze(-2).unbind(-1), other.unsqueeze(-3).unbind(-1)
        times, sees = None, None
        for one in range(1, rounds + 1):
            back = own[rounds + one] - other[rounds + one]
            is_near = (back <= 1) & (back >= (0 if self.is_causal else -1))
            is_seen = (own[one] == other[one]) & is_near
            times = is_seen.to(torch.uint8) if times is None else times + is_seen
            sees = is_seen if one == number + 1 else sees
        assert times is not None
        assert sees is not None
        sees = sees & (other[0] > 0)
        return (sees & (own[0] >= other[0]) if self.is_causal else sees), times

    def extra_repr(self) -> str:
        """Return the arguments."""
        return (
            f"{self.chunk}, rounds={self.rounds}, is_causal={self.is_causal}, "
            f"dropout={self.dropout}"
        )


def shared_attention(queries: Tensor, values: Tensor, *, is_causal: bool = True) -> Tensor:
    """Return exact attention whose keys are the queries: what `LSHAttention` comes near to.

    Keys have the length 1, and a position sees itself only where it sees nothing else; queries,
    values and the result are (batch, heads, length, width).

    Source: Kitaev et al., Reformer (2020, arXiv 2001.04451), section 2.
    """
    length = queries.shape[2]
    mask = torch.full((length,), ITSELF, dtype=queries.dtype, device=queries.device).diag()
    if is_causal:
        later = torch.ones(length, length, dtype=torch.bool, device=queries.device).triu(1)
        mask = mask.masked_fill(later, -torch.inf)
    keys = normalize(queries, dim=-1)
    return scaled_dot_product_attention(queries, keys, values, attn_mask=mask)


def hash_buckets(rows: Tensor, num_buckets: int, rounds: int) -> Tensor:
    """Return the bucket of each position in each round (rows, rounds, length).

    Source: Andoni et al., Practical and Optimal LSH for Angular Distance (2015, arXiv 1509.02897):
    the nearest of the axes of a random rotation, and of their opposites.
    """
    if num_buckets == 1:
        return rows.new_zeros((len(rows), rounds, rows.shape[1]), dtype=torch.int64)
    shape = (rounds, rows.shape[2], num_buckets // 2)
    rotations = torch.randn(shape, device=rows.device, dtype=rows.dtype)
    along = rows.detach().unsqueeze(1) @ rotations
    return torch.cat([along, -along], -1).argmax(-1)


def taken(tensor: Tensor, places: Tensor) -> Tensor:
    """Return the positions of a tensor (rows, length, width) in another order (rows, length)."""
    return tensor.gather(1, places.unsqueeze(-1).expand(-1, -1, tensor.shape[-1]))


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
