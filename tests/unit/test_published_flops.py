"""Closed forms of a transformer's work, and the peaks they are held against."""

from __future__ import annotations

import pytest

from published_flops import (
    CONVENTIONS,
    Recompute,
    Transformer,
    hardware_flops_per_token,
    model_flops_per_token,
    utilization,
)
from steptime.core.devices.accelerators import ACCELERATORS, DTYPES

LLAMA_8B = Transformer(
    layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, is_gated=True, seq=8192, vocab=128256
)
GPT_22B = Transformer(layers=48, hidden=6144, heads=64, seq=2048, vocab=51200)


def test_one_model_has_a_fifth_more_work_by_one_convention_than_by_another() -> None:
    def giga(convention: str) -> float:
        return model_flops_per_token(LLAMA_8B, convention) / 1e9

    # Causal, full, and full with the input embedding.
    assert giga("megatron-causal") == pytest.approx(51.5, abs=0.05)
    assert giga("titan") == pytest.approx(57.9, abs=0.05)
    assert giga("palm") == pytest.approx(61.1, abs=0.05)


def test_selective_recomputation_doubles_the_square_of_attention() -> None:
    mfu = model_flops_per_token(GPT_22B, "seqsel")
    hfu = hardware_flops_per_token(GPT_22B, "seqsel", recompute=Recompute.SELECTIVE)

    # 1.10 s a step of 4 sequences on 8 parts of 312 TFLOPS: Korthikanti et al., table 5.
    rate = 4 * 2048 / 1.10 / 8
    assert utilization(mfu, rate, 312e12) == pytest.approx(0.415, rel=0.01)
    assert utilization(hfu, rate, 312e12) == pytest.approx(0.437, rel=0.01)


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_full_recomputation_runs_the_blocks_once_more(convention: str) -> None:
    model = model_flops_per_token(GPT_22B, convention)
    hardware = hardware_flops_per_token(GPT_22B, convention, recompute=Recompute.FULL)

    assert 1.3 < hardware / model <= 4 / 3 + 1e-12


def test_a_52b_model_reaches_what_the_quick_estimate_says() -> None:
    shape = Transformer(layers=64, hidden=8192, heads=64, seq=2048, vocab=51200, params=52 * 10**9)
    flops = hardware_flops_per_token(shape, "8N", recompute=Recompute.FULL)

    # 52B, 1024 sequences of 2048 tokens in 127 s on 64 parts: 107.3 TFLOPS.
    assert flops * 1024 * 2048 / 127 / 64 / 1e12 == pytest.approx(107.3, abs=0.1)


def test_experts_that_a_token_does_not_meet_do_no_work() -> None:
    one = Transformer(layers=2, hidden=64, heads=4, seq=32, vocab=100, active_experts=1)
    two = Transformer(layers=2, hidden=64, heads=4, seq=32, vocab=100, active_experts=2)

    more = model_flops_per_token(two, "megatron24") - model_flops_per_token(one, "megatron24")

    assert more == 6 * 2 * (2 * 64 * 256)


def test_an_unknown_convention_lists_those_that_are_known() -> None:
    with pytest.raises(ValueError, match="palm"):
        model_flops_per_token(LLAMA_8B, "plam")


def test_an_unknown_peak_gives_no_utilization() -> None:
    assert utilization(1e9, 1e3, None) is None
    with pytest.raises(ValueError, match="tokens_per_s"):
        utilization(1e9, 0.0, 1e12)


def test_every_row_has_a_source_and_a_dense_peak() -> None:
    names = [one.name for one in ACCELERATORS]

    assert len(names) == len(set(names))
    for one in ACCELERATORS:
        assert one.source
        assert one.peak_flops_per_s
        assert set(one.peak_flops_per_s) <= set(DTYPES)
