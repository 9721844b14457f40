"""The closed forms of fine-tuning, against what the counter counts of a small transformer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from published_flops import (
    Recompute,
    Transformer,
    hardware_flops_per_token,
    model_flops_per_token,
    packed_seq,
)
from steptime.plan.model_work import parameter_flops_per_token

SHAPE = Transformer(layers=3, hidden=16, heads=2, seq=8, vocab=32)
BATCH, RANK = 4, 2
TOKENS = BATCH * 8
PRODUCTS = "megatron24"
"""Weights of products and attention over the whole square: what the counter counts."""


def tuned_flops_per_token(
    shape: Transformer,
    convention: str,
    *,
    adapters: float | None = None,
    frozen_blocks: int = 0,
    recompute: Recompute = Recompute.NONE,
) -> float:
    """Work of a token where weights are frozen, by a published convention [FLOP].

    With `adapters` weights of LoRA all others are frozen; without, the blocks behind the first
    `frozen_blocks` are trained, and the head.
    """
    whole = model_flops_per_token(shape, convention)
    weights = model_flops_per_token(replace(shape, seq=0), convention) / 6
    attention = (whole - 6 * weights) / shape.layers
    unreached = frozen_blocks * (4 * shape.block_params + 2 / 3 * attention)
    again = hardware_flops_per_token(shape, convention, recompute=recompute) - whole
    if adapters is None:
        return whole + again - unreached
    reached = weights - frozen_blocks * shape.block_params
    low = 8 if recompute is Recompute.FULL else 6
    return whole + again - unreached - 2 * reached + low * adapters


def test_by_parameters_alone_it_is_six_four_or_between() -> None:
    assert parameter_flops_per_token(1e9) == 6e9
    assert parameter_flops_per_token(1e9, trained=0) == 4e9
    assert parameter_flops_per_token(1e9, trained=1e7) == pytest.approx(4.02e9)
    # Half of the model is frozen before the rest: its forward alone.
    assert parameter_flops_per_token(1e9, trained=5e8, reached=5e8) == 4e9
    assert parameter_flops_per_token(1e9, trained=0, reached=0) == 2e9


@pytest.mark.parametrize("wrong", [{"trained": 2e9}, {"reached": -1}, {"trained": -1}])
def test_a_part_is_no_larger_than_the_whole(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must hold"):
        parameter_flops_per_token(1e9, **wrong)


def test_what_is_wholly_trained_is_the_convention_itself() -> None:
    for convention in ("palm", "titan", PRODUCTS, "mosaic", "megatron21", "causal"):
        assert tuned_flops_per_token(SHAPE, convention) == pytest.approx(
            model_flops_per_token(SHAPE, convention)
        )


def test_recomputed_blocks_add_a_forward() -> None:
    whole = model_flops_per_token(SHAPE, PRODUCTS)
    adapters = 1000

    again = tuned_flops_per_token(SHAPE, PRODUCTS, recompute=Recompute.FULL)
    low = tuned_flops_per_token(SHAPE, PRODUCTS, adapters=adapters)
    low_again = tuned_flops_per_token(SHAPE, PRODUCTS, adapters=adapters, recompute=Recompute.FULL)

    assert again == pytest.approx(whole * 4 / 3)
    assert low_again - low == pytest.approx(whole / 3 + 2 * adapters)


def test_packed_documents_have_the_attention_of_their_own_squares() -> None:
    assert packed_seq([8, 8, 8]) == 8
    assert packed_seq([1, 7]) == 50 / 8
    assert packed_seq([0, 4]) == 4
    for wrong in ([], [0], [-1, 5]):
        with pytest.raises(ValueError, match="tokens"):
            packed_seq(wrong)


# -- against the counter


def make_model(*, rank: int = 0, is_checkpointed: bool = False) -> Any:
    torch = pytest.importorskip("torch")
    nn, functional = torch.nn, torch.nn.functional
    width, layers, vocab = SHAPE.hidden, SHAPE.layers, SHAPE.vocab

    class Product(nn.Module):
        """A matrix, with an adapter of low rank beside it if one is wanted."""

        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.base = nn.Linear(inputs, outputs, bias=False)
            self.low = None
            if rank:
                self.low = nn.Sequential(
                    nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs, bias=False)
                )

        def forward(self, x: Any) -> Any:
            found = self.base(x)
            return found if self.low is None else found + self.low(x)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.keys, self.out = Product(width, 3 * width), Product(width, width)
            self.up, self.down = Product(width, 4 * width), Product(4 * width, width)

        def forward(self, x: Any) -> Any:
            batch, seq, _ = x.shape
            keys = self.keys(self.first(x)).view(batch, seq, 3, SHAPE.heads, -1)
            mixed = functional.scaled_dot_product_attention(*keys.permute(2, 0, 3, 1, 4))
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, seq, width))
            return x + self.down(functional.gelu(self.up(self.second(x))))

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(vocab, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.head = nn.Linear(width, vocab, bias=False)

        def forward(self, words: Any, lengths: tuple[int, ...] = ()) -> Any:
            x = self.tokens(words)
            for block in self.blocks:
                if is_checkpointed:
                    x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=True)
                elif lengths:
                    x = torch.cat([block(one) for one in x.split(lengths, dim=1)], dim=1)
                else:
                    x = block(x)
            return self.head(x).square().mean()

    torch.manual_seed(0)
    return Decoder()


def count(model: Any, *inputs: Any) -> Any:
    import steptime

    return steptime.count(model, *inputs)


def words(seq: int = 8) -> Any:
    torch = pytest.importorskip("torch")
    return torch.randint(0, SHAPE.vocab, (BATCH, seq))


def test_full_training_is_six_per_weight_of_a_product_and_attention() -> None:
    found = count(make_model(), words())

    assert found.model_flops == TOKENS * model_flops_per_token(SHAPE, PRODUCTS)


def test_blocks_that_run_again_are_hardware_flops_and_not_the_model_s() -> None:
    found = count(make_model(is_checkpointed=True), words())

    of_blocks = model_flops_per_token(replace(SHAPE, vocab=0), PRODUCTS) / 3
    assert found.model_flops == TOKENS * model_flops_per_token(SHAPE, PRODUCTS)
    assert found.recomputed == TOKENS * of_blocks


def test_lora_is_four_per_frozen_weight_and_six_per_weight_of_an_adapter() -> None:
    model = make_model(rank=RANK)
    model.requires_grad_(requires_grad=False)
    adapters = 0
    for name, weight in model.named_parameters():
        if ".low." in name:
            weight.requires_grad_()
            adapters += weight.numel()
    closed = TOKENS * tuned_flops_per_token(SHAPE, PRODUCTS, adapters=adapters)
    # The first block's input needs no gradient, of the frozen matrix and of its adapter.
    width = SHAPE.hidden
    first = TOKENS * 2 * (3 * width * width + width * RANK)

    assert count(model, words()).model_flops == closed - first

    # As PEFT does for checkpointing: the embedding's result needs a gradient.
    model.tokens.register_forward_hook(lambda *call: call[-1].requires_grad_())
    assert count(model, words()).model_flops == closed


@pytest.mark.parametrize("frozen", [1, 2])
def test_first_blocks_that_are_frozen_have_a_forward_alone(frozen: int) -> None:
    model = make_model()
    for part in (model.tokens, *model.blocks[:frozen]):
        part.requires_grad_(requires_grad=False)
    closed = TOKENS * tuned_flops_per_token(SHAPE, PRODUCTS, frozen_blocks=frozen)

    # The first trained block begins with a norm, which needs the gradient of the product behind it.
    assert count(model, words()).model_flops == closed


def test_packed_documents_are_counted_by_real_token_and_attention_within_them() -> None:
    lengths = (3, 8, 1)
    found = count(make_model(), words(sum(lengths)), lengths)

    packed = replace(SHAPE, seq=packed_seq(lengths))
    num_tokens = BATCH * sum(lengths)
    assert found.model_flops == pytest.approx(
        num_tokens * model_flops_per_token(packed, PRODUCTS), rel=1e-12
    )
    padded = replace(SHAPE, seq=max(lengths))
    assert model_flops_per_token(packed, PRODUCTS) < model_flops_per_token(padded, PRODUCTS)
