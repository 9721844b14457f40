"""A loader of a child that is thrown away hands out its first batch, and then the largest one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from steptime.guest.longest.largest_first import LargestFirst, spread

torch = pytest.importorskip("torch")
data = torch.utils.data

NUM, SIZE, LONG = 30, 4, 17


class Lengths(data.Dataset):  # type: ignore[misc]
    """Makes its rows when they are read, so that nothing tells their sizes before."""

    num_read = 0

    def __len__(self) -> int:
        return NUM

    def __getitem__(self, index: int) -> Any:
        self.num_read += 1
        return torch.zeros(50 if index == LONG else 2 + index % 5)


class Lists(Lengths):
    def __init__(self) -> None:
        self.lengths = [50 if index == LONG else 2 + index % 5 for index in range(NUM)]


class OwnSampler(data.Sampler):  # type: ignore[misc]
    def __len__(self) -> int:
        return NUM

    def __iter__(self) -> Iterator[int]:
        for _ in range(NUM):
            yield int(torch.randint(NUM, ()))


class Stream(data.IterableDataset):  # type: ignore[misc]
    def __iter__(self) -> Iterator[Any]:
        return iter([torch.zeros(3)] * NUM)


def pad(rows: list[Any]) -> Any:
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def taken(dataset: Any, num: int = 3, **how: Any) -> tuple[LargestFirst, list[tuple[int, ...]]]:
    """What a loop is given: the shapes of its first batches."""
    largest = LargestFirst(torch)
    loader = data.DataLoader(dataset, **{"batch_size": SIZE, "collate_fn": pad} | how)
    iterator = iter(loader)
    shapes = [tuple(largest.take(iterator, next(iterator)).shape) for _ in range(num)]
    return largest, shapes


@pytest.mark.parametrize("dataset", [Lists(), Lengths()], ids=["listed", "read"])
@pytest.mark.parametrize("how", [{}, {"shuffle": True}, {"shuffle": True, "num_workers": 1}])
def test_the_largest_batch_comes_from_the_second_on(dataset: Any, how: dict[str, Any]) -> None:
    torch.manual_seed(1)
    order = list(data.DataLoader(range(NUM), batch_size=SIZE, shuffle=bool(how)))
    expected = next(n for n, batch in enumerate(order) if LONG in batch.tolist())
    torch.manual_seed(1)

    largest, shapes = taken(dataset, **how)

    assert shapes[1:] == [(SIZE, 50)] * 2 or shapes[1:] == [(2, 50)] * 2
    facts = largest.facts()
    assert facts is not None
    assert (facts["sample"], facts["size"], facts["batch"]) == (LONG, 50, expected)
    assert facts["num_known"] == NUM


def test_where_the_order_is_unknown_the_largest_rows_come_together() -> None:
    largest, shapes = taken(Lists(), sampler=OwnSampler())

    assert shapes[1:] == [(SIZE, 50)] * 2
    facts = largest.facts()
    assert facts is not None
    assert (facts["batch"], facts["sample"], facts["order"]) == (None, LONG, "own_sampler")


class Paths(Lengths):
    """Keeps names, whose lengths say nothing of the rows."""

    def __init__(self) -> None:
        self.paths = ["x" * (1 + 7 * index % 11) for index in range(NUM)]


def test_a_list_that_tells_nothing_of_the_samples_is_not_believed() -> None:
    largest, shapes = taken(Paths())

    assert shapes[1:] == [(SIZE, 50)] * 2
    facts = largest.facts()
    assert facts is not None
    assert facts["told_by"] == "rows"


@pytest.mark.parametrize("dataset", [Stream(), [torch.zeros(3)] * NUM], ids=["stream", "alike"])
def test_where_no_batch_is_larger_they_come_as_they_are(dataset: Any) -> None:
    largest, shapes = taken(dataset)

    assert largest.facts() is None
    assert len(shapes) == 3


def test_reading_stops_at_its_limit_and_says_how_much_it_read() -> None:
    ticks = iter(range(1_000))
    largest = LargestFirst(torch, limit_s=9, clock=lambda: float(next(ticks)))
    iterator = iter(data.DataLoader(Lengths(), batch_size=SIZE, collate_fn=pad))
    largest.take(iterator, next(iterator))

    facts = largest.facts()
    assert facts is not None
    assert (facts["num_known"], facts["num_samples"]) == (10, NUM)


def test_a_part_of_all_indices_is_spread_over_them() -> None:
    assert sorted(spread(NUM)) == list(range(NUM))
    assert spread(8) == [0, 4, 2, 6, 1, 3, 5, 7]
    assert spread(1) == [0]
