"""How many samples an update was made from."""

from __future__ import annotations

from collections import UserDict
from typing import Any

import pytest

from steptime.guest.trial.samples import SampleCounter


class Tensor:
    """As much of a tensor as has a size."""

    def __init__(self, *shape: int, dtype: str = "float") -> None:
        self.shape = shape
        self.dtype = dtype

    def dim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        product = 1
        for size in self.shape:
            product *= size
        return product

    def is_floating_point(self) -> bool:
        return self.dtype == "float"

    def is_complex(self) -> bool:
        return False


class Torch:
    Tensor = Tensor
    bool = "bool"


IDS = Tensor(4, 7, dtype="int")


def counted(batch: Any) -> tuple[int, str | None]:
    counter = SampleCounter(Torch)
    counter.take_batch(batch)
    counter.begin_work()
    return counter.take(), counter.unit


@pytest.mark.parametrize(
    ("batch", "found"),
    [
        (Tensor(16, 3), (16, "samples")),
        ((Tensor(16, 3, 8, 8), Tensor(16, dtype="int")), (16, "samples")),
        ([["text"], Tensor(5)], (5, "samples")),
        ({"input_ids": IDS, "labels": IDS}, (28, "tokens")),
        (UserDict(input_ids=IDS), (28, "tokens")),
        (Tensor(4, 7, dtype="bool"), (4, "samples")),
        (Tensor(4, 7, 2, dtype="int"), (4, "samples")),
        (Tensor(), (-1, None)),
        ("nothing", (-1, None)),
        ([[[[[[Tensor(3)]]]]]], (-1, None)),
    ],
)
def test_a_batch_counts_by_its_first_tensor(batch: Any, found: tuple[int, str | None]) -> None:
    assert counted(batch) == found


def test_micro_batches_add_up() -> None:
    counter = SampleCounter(Torch)
    for _ in range(3):
        counter.take_batch(Tensor(8, 2))
        counter.begin_work(Tensor(8, 2))
        counter.begin_work()
        counter.end_backward()

    assert counter.take() == 24
    assert counter.take() == -1


def test_a_batch_for_an_evaluation_does_not_count() -> None:
    counter = SampleCounter(Torch)
    counter.take_batch(Tensor(8, 2))
    counter.begin_work()
    counter.take_batch(Tensor(100, 2))
    counter.drop_batch()

    assert counter.take() == 8


def test_without_a_loader_the_models_input_counts_once_a_micro_batch() -> None:
    counter = SampleCounter(Torch)
    for _ in range(2):
        counter.begin_work((), {"ids": IDS})
        counter.begin_work((), {"ids": IDS})  # two calls, one backward
        counter.begin_work()
        counter.end_backward()

    assert counter.take() == 56
    assert counter.unit == "tokens"


def test_with_a_loader_the_models_input_is_not_looked_at() -> None:
    counter = SampleCounter(Torch)
    counter.take_batch(Tensor(8, 2))
    counter.begin_work((Tensor(3),), {})
    counter.end_backward()
    counter.begin_work((Tensor(3),), {})

    assert counter.take() == 8
