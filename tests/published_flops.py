"""Computes the FLOP of a transformer in closed form, in each published convention.

In: a transformer's sizes. Out: FLOP per token, forward and backward, for MFU; and with what
checkpointing runs again, for HFU. The conventions differ by a fifth on one model (causal or full
attention, which embeddings count), so two utilizations compare only if they name the same one.
`steptime.count` counts a model operator by operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum


class Recompute(str, Enum):
    """What activation checkpointing runs again."""

    NONE = "none"
    SELECTIVE = "selective"  # the scores and what follows them, up to the weighted values
    FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """The sizes of a decoder.

    Attributes:
        layers: number of blocks.
        hidden: width of the model.
        heads: number of query heads.
        seq: number of tokens in a sequence; `packed_seq` of packed documents.
        vocab: rows of the embedding, including padding.
        kv_heads: number of key and value heads; None means as many as query heads.
        ffn: inner width of the MLP; None means four times the hidden width.
        is_gated: whether the MLP has three matrices (SwiGLU) instead of two.
        active_experts: number of experts that a token meets in each MLP.
        params: number of all parameters; None means summed from the sizes, without biases.
        query_ratio: width of the query projection over the hidden width.
    """

    layers: int
    hidden: int
    heads: int
    seq: float
    vocab: int
    kv_heads: int | None = None
    ffn: int | None = None
    is_gated: bool = False
    active_experts: int = 1
    params: int | None = None
    query_ratio: float = 1.0

    @property
    def kv_ratio(self) -> float:
        """The number of key heads over the number of query heads."""
        return (self.kv_heads or self.heads) / self.heads

    @property
    def inner(self) -> int:
        """The inner width of the MLP."""
        return self.ffn or 4 * self.hidden

    @property
    def block_params(self) -> float:
        """The weights of the products in one block that a token meets."""
        attention = 2 * self.hidden**2 * self.query_ratio * (1 + self.kv_ratio)
        return attention + (3 if self.is_gated else 2) * self.hidden * self.inner * (
            self.active_experts
        )

    @property
    def product_params(self) -> float:
        """The weights of all products: the blocks and the output embedding."""
        return self.layers * self.block_params + self.vocab * self.hidden

    @property
    def all_params(self) -> float:
        """All parameters as given, or else the products, the input embedding and the norms."""
        if self.params is not None:
            return self.params
        norms = (2 * self.layers + 1) * self.hidden
        return self.product_params + self.vocab * self.hidden + norms

    @property
    def square(self) -> float:
        """Layers times hidden width times sequence: the size of attention's products."""
        return self.layers * self.hidden * self.query_ratio * self.seq


def model_flops_per_token(shape: Transformer, convention: str) -> float:
    """Return the forward and backward work of one token [FLOP], without anything run again.

    Raises:
        ValueError: no published formula has that name.
    """
    return _formula(convention)(shape, Recompute.NONE)


def hardware_flops_per_token(shape: Transformer, convention: str, *, recompute: Recompute) -> float:
    """Return the same with what checkpointing runs again, as that convention counts it.

    Raises:
        ValueError: no published formula has that name.
    """
    return _formula(convention)(shape, recompute)


def utilization(
    flops_per_token: float, tokens_per_s: float, peak_flops_per_s: float | None
) -> float | None:
    """Return the share of a device's dense peak, or None if the peak is unknown.

    Args:
        flops_per_token: work of one token in some convention [FLOP].
        tokens_per_s: rate on one device.
        peak_flops_per_s: peak of the type that did the work [FLOP/s].

    Raises:
        ValueError: the rate is not positive.
    """
    if not tokens_per_s > 0:
        raise ValueError(f"`tokens_per_s > 0` must hold, got {tokens_per_s=}")
    return None if peak_flops_per_s is None else flops_per_token * tokens_per_s / peak_flops_per_s


# -- the formulas, each in FLOP per token


def _passes(recompute: Recompute) -> int:
    """Return the work in forwards: the backward counts as two, full checkpointing adds one."""
    return 4 if recompute is Recompute.FULL else 3


def _megatron21(shape: Transformer, recompute: Recompute) -> float:
    """Count full attention and an MLP of four times the width, recomputing one head less.

    Narayanan et al. 2021 (arXiv:2104.04473), equation 3: 96 B s L h² (1 + s/6h + V/16Lh).
    """
    h, layers = shape.hidden, shape.layers
    full = recompute is Recompute.FULL
    factor, head = (96, 16) if full else (72, 12)
    ratio = 1 + shape.seq / (6 * h) + shape.vocab / (head * layers * h)
    return factor * layers * h**2 * ratio


def _seqsel(shape: Transformer, recompute: Recompute) -> float:
    """Count as megatron21, and selective checkpointing too: it runs attention's products again.

    Korthikanti et al. 2022 (arXiv:2205.05198), appendix A: s/3h in place of s/6h.
    """
    if recompute is Recompute.FULL:
        return _megatron21(shape, recompute)
    h = shape.hidden
    square = shape.seq / ((3 if recompute is Recompute.SELECTIVE else 6) * h)
    return 72 * shape.layers * h**2 * (1 + square + shape.vocab / (12 * h * shape.layers))


def _megatron24(shape: Transformer, recompute: Recompute) -> float:
    """Count grouped heads, experts, gated MLPs, full attention: Megatron-LM training log, 2024."""
    return _by_products(shape, recompute, square=12.0)


def _megatron_causal(shape: Transformer, recompute: Recompute) -> float:
    """Count the same with half the square, as masked: Megatron-LM, Megatron Bridge since 2025."""
    return _by_products(shape, recompute, square=6.0)


def _by_products(shape: Transformer, recompute: Recompute, *, square: float) -> float:
    """Return six times the products' weights, and `square` times layers, width and sequence."""
    flops = 6 * shape.product_params + square * shape.square
    return flops * _passes(recompute) / 3


def _mosaic(shape: Transformer, recompute: Recompute) -> float:
    """Count all parameters and full attention: MosaicML LLM Foundry, benchmarking readme."""
    square = 4 * shape.layers * shape.hidden * shape.seq
    return _passes(recompute) * (2 * shape.all_params + square)


def _palm(shape: Transformer, recompute: Recompute) -> float:
    """Count all parameters, including both embeddings, and full attention.

    Chowdhery et al. 2022 (arXiv:2204.02311), appendix B: 6N + 12 L H Q T.
    """
    return (6 * shape.all_params + 12 * shape.square) * _passes(recompute) / 3


def _titan(shape: Transformer, recompute: Recompute) -> float:
    """Leave out the input embedding; full attention: torchtitan since 2025, NeMo by inference."""
    without = shape.all_params - shape.vocab * shape.hidden
    return (6 * without + 12 * shape.square) * _passes(recompute) / 3


def _causal(shape: Transformer, recompute: Recompute) -> float:
    """Count all parameters, and half the square, as masked."""
    return (6 * shape.all_params + 6 * shape.square) * _passes(recompute) / 3


def _eight_n(shape: Transformer, recompute: Recompute) -> float:
    """Count parameters only, the forward twice: 6N without what full checkpointing runs again."""
    return 2 * shape.all_params * _passes(recompute)


_FORMULAS: dict[str, Callable[[Transformer, Recompute], float]] = {
    "megatron21": _megatron21,
    "megatron21 (with or without recompute factor)": _megatron21,
    "seqsel": _seqsel,
    "megatron24": _megatron24,
    "megatron-causal": _megatron_causal,
    "mosaic": _mosaic,
    "palm": _palm,
    "titan": _titan,
    "titan-early": _palm,
    "nanotron": _megatron24,
    "bloom-8N": _eight_n,
    "8N": _eight_n,
    "causal": _causal,
    "maxtext-pre-2025": _megatron24,
    "nemo-inferred": _titan,
}
CONVENTIONS = tuple(_FORMULAS)


def _formula(convention: str) -> Callable[[Transformer, Recompute], float]:
    if convention not in _FORMULAS:
        raise ValueError(f"`convention` must be one of {CONVENTIONS}, got {convention!r}")
    return _FORMULAS[convention]


def packed_seq(lengths: Sequence[int]) -> float:
    """Return the length of sequence that has the attention of packed documents.

    Attention within documents meets s² positions in a document of s tokens, so a token meets the
    squares over the sum. As `Transformer.seq` it gives the work of one real token.

    Raises:
        ValueError: there is no token.
    """
    if not sum(lengths) > 0 or min(lengths) < 0:
        raise ValueError(f"`lengths` must hold tokens, got {lengths!r}")
    return sum(length * length for length in lengths) / sum(lengths)
