"""The order of an epoch is read from its iterator, which stands afterwards where it stood."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from steptime.guest.longest.drawn_ahead import (
    AS_IT_GOES,
    ITERABLE,
    KNOWN,
    OWN_SAMPLER,
    read_order,
)

torch = pytest.importorskip("torch")
data = torch.utils.data

NUM, SIZE = 22, 4


class OwnSampler(data.Sampler):  # type: ignore[misc]
    """Draws when it is asked, as nobody can know before."""

    def __len__(self) -> int:
        return NUM

    def __iter__(self) -> Iterator[int]:
        for _ in range(NUM):
            yield int(torch.randint(NUM, ()))


class OwnBatches:
    """Batches that were made before the epoch."""

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[list[int]]:
        return iter([[3, 4], [9], [0, 1, 2]])


class Stream(data.IterableDataset):  # type: ignore[misc]
    def __iter__(self) -> Iterator[int]:
        return iter(range(NUM))


ROWS = list(range(NUM))
KNOWN_ORDERS: dict[str, dict[str, Any]] = {
    "shuffled": {"shuffle": True, "batch_size": SIZE},
    "whole batches": {"shuffle": True, "batch_size": SIZE, "drop_last": True},
    "in order": {"batch_size": SIZE},
    "own generator": {"shuffle": True, "batch_size": SIZE, "generator": torch.Generator()},
    "subset": {"sampler": data.SubsetRandomSampler([5, 6, 7, 8, 9]), "batch_size": 2},
    "weighted": {"sampler": data.WeightedRandomSampler([1.0] * NUM, 9), "batch_size": 2},
    "ranks": {
        "sampler": data.DistributedSampler(ROWS, num_replicas=2, rank=1),
        "batch_size": SIZE,
    },
    "batches": {"batch_sampler": OwnBatches()},
    "no batches": {"batch_size": None, "sampler": [4, 2, 9]},
    "workers": {"shuffle": True, "batch_size": 2, "num_workers": 1},
}


@pytest.mark.parametrize("how", KNOWN_ORDERS.values(), ids=list(KNOWN_ORDERS))
def test_the_order_is_that_in_which_batches_come(how: dict[str, Any]) -> None:
    torch.manual_seed(3)
    iterator = iter(data.DataLoader(ROWS, **how))
    came = [torch.as_tensor(next(iterator)).reshape(-1).tolist()]

    before = torch.get_rng_state()
    order, drawn = read_order(torch, iterator)
    assert torch.equal(before, torch.get_rng_state())

    assert order == KNOWN
    assert drawn is not None
    came += [torch.as_tensor(batch).reshape(-1).tolist() for batch in iterator]
    assert [list(drawn.batch(n)) for n in range(len(drawn.starts))] == came


@pytest.mark.parametrize(
    ("loader", "expected"),
    [
        (data.DataLoader(ROWS, batch_size=SIZE, sampler=OwnSampler()), OWN_SAMPLER),
        (data.DataLoader(Stream(), batch_size=SIZE), ITERABLE),
        (
            data.DataLoader(
                ROWS, batch_size=SIZE, sampler=data.RandomSampler(ROWS, replacement=True)
            ),
            AS_IT_GOES,
        ),
        (
            data.DataLoader(
                ROWS, batch_size=SIZE, sampler=data.RandomSampler(ROWS, num_samples=3 * NUM)
            ),
            AS_IT_GOES,
        ),
    ],
    ids=["own sampler", "iterable", "with replacement", "several rounds"],
)
def test_what_is_not_drawn_yet_is_not_known(loader: Any, expected: str) -> None:
    iterator = iter(loader)
    next(iterator)

    assert read_order(torch, iterator) == (expected, None)


def test_an_epoch_at_its_end_is_not_known() -> None:
    iterator = iter(data.DataLoader(ROWS, batch_size=SIZE, shuffle=True))
    assert len(list(iterator)) == 6

    assert read_order(torch, iterator)[1] is None
