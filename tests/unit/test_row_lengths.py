"""Positions are counted exactly from the bytes of masks, bounds, labels and tokens."""

from __future__ import annotations

import random
import struct

import pytest

from steptime.guest.padding.row_lengths import (
    NO_TOKEN,
    ONES,
    UsedPart,
    find_padding,
    num_ignored,
    pads_with_one_token,
    read_bounds,
    read_mask,
    restarts,
    run_at_begin,
    run_at_end,
)


def row(values: list[int], code: str = "q") -> bytes:
    return struct.pack(f"={len(values)}{code}", *values)


def mask_row(bits: list[int], dtype: str) -> bytes:
    one = ONES[dtype]
    return b"".join(one if bit else bytes(len(one)) for bit in bits)


@pytest.mark.parametrize("dtype", ONES)
@pytest.mark.parametrize("is_inverted", [False, True])
def test_a_mask_is_counted_as_it_is(dtype: str, *, is_inverted: bool) -> None:
    rng = random.Random(f"{dtype}{is_inverted}")
    for _ in range(50):
        length = rng.randint(1, 40)
        num = rng.randint(0, length)
        is_left = rng.random() < 0.5
        bits = [0] * (length - num) + [1] * num if is_left else [1] * num + [0] * (length - num)
        shown = [1 - bit for bit in bits] if is_inverted else bits
        (used,) = read_mask([mask_row(shown, dtype)], dtype, is_inverted=is_inverted) or [None]
        begin = length - num if is_left else 0
        assert used == (UsedPart(num, begin, begin + num) if num else UsedPart(0, 0, 0))


def test_a_mask_with_holes_is_counted_with_them() -> None:
    (used,) = read_mask([mask_row([0, 1, 0, 1, 1, 0], "int64")], "int64") or [None]
    assert used == UsedPart(3, 1, 5)


@pytest.mark.parametrize("values", [[0, 1, 2], [1, 1, 256], [256, 0, 0], [-1, 1, 1]])
def test_what_holds_something_else_is_no_mask(values: list[int]) -> None:
    assert read_mask([row(values)], "int64") is None


@pytest.mark.parametrize("token", [0, 1, 3, 256, 50_256, 65_536, -1])
@pytest.mark.parametrize("code", ["q", "i"])
def test_the_run_of_a_token_is_counted_by_element(token: int, code: str) -> None:
    one = row([token], code)
    for num in (*range(6), 31):
        text = [1280, 458_752, 7]
        assert run_at_end(row([*text, *[token] * num], code), one) == num
        assert run_at_begin(row([*[token] * num, *text], code), one) == num
    assert run_at_end(row([token] * 9, code), one) == 9


def padded(lengths: list[int], width: int, *, token: int = 0, is_left: bool = False) -> list[bytes]:
    rows = []
    for number, length in enumerate(lengths):
        text = [11 + (number * 7 + place * 3) % 900 for place in range(length)]
        rest = [token] * (width - length)
        rows.append(row(rest + text if is_left else text + rest))
    return rows


@pytest.mark.parametrize("token", [0, 2, 50_256])
@pytest.mark.parametrize("is_left", [False, True])
def test_the_padding_token_is_found_by_its_run(token: int, *, is_left: bool) -> None:
    lengths = [5, 12, 1, 11, 8]
    found = find_padding(padded(lengths, 12, token=token, is_left=is_left), 8, None)
    assert found is not None
    assert found[0] == token
    assert [used.num for used in found[1]] == lengths


def test_rows_of_text_without_padding_are_full() -> None:
    found = find_padding(padded([12, 12, 12], 12), 8, None)
    assert found == (NO_TOKEN, [UsedPart(12, 0, 12)] * 3)


def test_two_equal_tokens_at_the_end_of_one_row_of_many_are_chance() -> None:
    text = [row([9 * n + k for k in range(1, 9)]) for n in range(7)]
    assert find_padding([*text, row([80, 81, 82, 83, 84, 85, 90, 90])], 8, None) == (
        -1,
        [UsedPart(8, 0, 8)] * 8,
    )


def test_a_token_that_is_also_in_the_text_is_no_padding() -> None:
    line, end = [9, 10, 10, 7, 10], [10, 10]
    assert find_padding([row([*line, *end]), row([*line, 5, 6])], 8, None) is None


def test_labels_say_which_of_the_last_tokens_are_padding() -> None:
    ids = [row([5, 6, 7, 2, 2]), row([5, 6, 7, 8, 2]), row([4, 5, 6, 7, 8])]
    labels = [row([5, 6, 7, 2, -100]), row([5, 6, 7, 8, 2]), row([-100, -100, 6, 7, 8])]
    found = find_padding(ids, 8, labels, "int64")
    assert found is not None
    assert [used.num for used in found[1]] == [4, 5, 5]
    assert num_ignored(labels, "int64") == 3


def test_labels_of_masked_language_modelling_are_no_padding() -> None:
    ids = [row([1, 6, 7, 8, 3]), row([1, 9, 7, 5, 3])]
    labels = [row([-100, 6, -100, -100, -100]), row([-100] * 5)]
    found = find_padding(ids, 8, labels, "int64")
    assert found is not None
    assert [used.num for used in found[1]] == [5, 5]


def test_bounds_rise_from_zero() -> None:
    assert read_bounds(row([0, 4, 9], "i"), "int32") == [0, 4, 9]
    assert read_bounds(row([1, 4, 9], "i"), "int32") is None
    assert read_bounds(row([0, 4, 3], "i"), "int32") is None
    assert restarts(row([0, 1, 2, 0, 0, 1]), "int64") == [0, 3, 4]
    assert restarts(row([0, 1, 3]), "int64") is None


def test_other_things_than_one_token_outside_are_no_padding() -> None:
    ids = [row([5, 6, 0, 0]), row([5, 0, 0, 0])]
    assert pads_with_one_token(ids, [UsedPart(2, 0, 2), UsedPart(1, 0, 1)], 8)
    assert not pads_with_one_token(ids, [UsedPart(1, 0, 1), UsedPart(1, 0, 1)], 8)
