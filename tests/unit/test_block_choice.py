"""The solver of `selective_checkpointing` finds what trying every choice finds."""

from __future__ import annotations

import random
from itertools import product

import pytest

from steptime.levers.base import BlockFacts, BlockOperator
from steptime.levers.memory.block_choice import (
    KEPT,
    PARTLY,
    WHOLE,
    choose,
    fold,
    freed_bytes,
    keep_sets,
    price,
    unfold,
)


def make_block(name, kept=100, inputs=10, forward_s=1.0, operators=()):
    return BlockFacts(
        name=name, kept_bytes=kept, input_bytes=inputs, forward_s=forward_s, operators=operators
    )


def make_blocks(seed, number=5):
    draw = random.Random(seed)
    return [
        make_block(
            f"Net.{place}",
            kept=draw.randint(50, 300),
            inputs=draw.randint(5, 40),
            forward_s=draw.uniform(0.5, 3.0),
            operators=(
                BlockOperator(
                    name="aten.mm.default", seconds=0.4, result_bytes=draw.randint(5, 60)
                ),
                BlockOperator(name="aten.gelu.default", seconds=0.1, result_bytes=40),
                BlockOperator(
                    name="aten.dropout.default", seconds=0.2, result_bytes=40, can_keep=False
                ),
            ),
        )
        for place in range(number)
    ]


def try_all(blocks, wanted):
    """The least time of all choices that free so much; None if none does."""
    best = None
    for keep in keep_sets(blocks):
        for ways in product((KEPT, WHOLE, PARTLY) if keep else (KEPT, WHOLE), repeat=len(blocks)):
            whole, partly = (
                [one.name for one, way in zip(blocks, ways, strict=True) if way == kind]
                for kind in (WHOLE, PARTLY)
            )
            if freed_bytes(blocks, whole=whole, partly=partly, keep=keep) >= wanted:
                seconds = sum(
                    price(one, way, keep)[1] for one, way in zip(blocks, ways, strict=True)
                )
                best = seconds if best is None else min(best, seconds)
    return best


@pytest.mark.parametrize("seed", range(12))
def test_no_other_choice_takes_less_time(seed):
    blocks = make_blocks(seed)
    total = sum(one.kept_bytes for one in blocks)
    for part in (0.1, 0.4, 0.7, 0.95):
        found = choose(blocks, round(part * total))
        expected = try_all(blocks, round(part * total))
        if expected is None:
            assert found is None
            continue
        assert found.takes_s == pytest.approx(expected)
        assert found.frees_bytes >= round(part * total)


def test_the_last_block_frees_nothing_by_itself():
    blocks = [make_block(f"Net.{place}") for place in range(4)]

    assert freed_bytes(blocks, whole=["Net.3"]) == 0
    assert freed_bytes(blocks, whole=["Net.0"]) == 90
    assert "Net.3" not in choose(blocks, 200).whole


def test_nothing_is_chosen_where_nothing_is_to_be_freed_or_too_much():
    blocks = [make_block(f"Net.{place}") for place in range(4)]

    assert choose(blocks, 0).whole == ()
    assert choose(blocks, 271) is None
    assert choose(blocks, 270).frees_bytes == 270


def test_cheap_operators_are_computed_again_rather_than_expensive_ones():
    operators = (
        BlockOperator(name="aten.addmm.default", seconds=0.9, result_bytes=20),
        BlockOperator(name="aten.gelu.default", seconds=0.1, result_bytes=60),
    )
    blocks = [make_block(f"Net.{place}", operators=operators) for place in range(6)]
    choice = choose(blocks, 250)

    assert choice.keep == ("aten.addmm.default",)
    assert choice.whole == ()
    assert choice.takes_s < 1.0


def test_many_unlike_blocks_are_decided_at_once():
    blocks = make_blocks(0, number=120)
    total = sum(one.kept_bytes for one in blocks)

    assert choose(blocks, total // 2).frees_bytes >= total // 2


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["GPT.h.0", "GPT.h.1", "GPT.h.2", "GPT.h.5"], "GPT.h.[0-2] GPT.h.5"),
        (["GPT.h.9", "GPT.h.10", "Net.block"], "GPT.h.[9-10] Net.block"),
        ([], ""),
    ],
)
def test_names_are_one_line_and_come_back(names, text):
    assert fold(names) == text
    assert list(unfold(text)) == names
