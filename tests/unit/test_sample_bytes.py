"""Samples as bytes: they come back as they were, or are refused."""

from __future__ import annotations

from collections import namedtuple

import pytest

from steptime.levers.input.datasets import content_of
from steptime.levers.input.sample_bytes import Placeholder, pack, unpack

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

Pair = namedtuple("Pair", "x y")


@pytest.mark.parametrize(
    "sample",
    [
        (torch.arange(6.0).view(2, 3), 3),
        {"x": torch.rand(3, 4, 5).permute(2, 0, 1), "name": "a"},
        [torch.tensor(2), torch.empty(0, 3), torch.rand(2).to(torch.bfloat16), None],
        (np.arange(6.0).reshape(2, 3), np.int64(4), np.float32(0.5)),
        {"f": np.asfortranarray(np.arange(6).reshape(2, 3)), "flag": np.bool_(True)},
    ],
    ids=["tensor", "permuted", "odd_tensors", "arrays", "fortran"],
)
def test_a_sample_comes_back_with_its_bits_and_layout(sample):
    first, again = unpack(pack(sample)), unpack(memoryview(pack(sample)))

    assert content_of(first) == content_of(again) == content_of(sample)
    assert pack(sample) == pack(first)


def test_what_comes_back_belongs_to_nobody_else():
    data = pack(torch.zeros(3))
    unpack(data).add_(1)

    assert torch.equal(unpack(data), torch.zeros(3))


def test_an_image_comes_back_with_its_pixels():
    images = pytest.importorskip("PIL.Image")
    image = images.fromarray(np.arange(48, dtype="uint8").reshape(4, 4, 3))
    found = unpack(pack((image, 1)))[0]

    assert (found.mode, found.size, found.tobytes()) == (image.mode, image.size, image.tobytes())


@pytest.mark.parametrize(
    "sample",
    [
        torch.ones(2, requires_grad=True),
        torch.arange(8.0)[::2],
        np.arange(8)[::2],
        np.array([object()]),
        Pair(1, 2),
        {1, 2}.__iter__(),
    ],
    ids=["gradient", "strided", "strided_array", "objects", "own_class", "iterator"],
)
def test_what_may_come_back_otherwise_is_refused(sample):
    with pytest.raises(TypeError):
        pack(sample)


def test_a_placeholder_keeps_its_number():
    assert unpack(pack([Placeholder(3)]))[0].number == 3
