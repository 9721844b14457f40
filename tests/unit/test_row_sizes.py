"""The sizes of rows come from lists that a data set holds; no row is read."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

from steptime.guest.longest.row_sizes import find_columns

torch = pytest.importorskip("torch")
data = torch.utils.data


class Rows(data.Dataset):  # type: ignore[misc]
    """Holds what it is given, and fails where a row is read."""

    def __init__(self, num: int = 3, **held: Any) -> None:
        self.num = num
        self.__dict__.update(held)

    def __len__(self) -> int:
        return self.num

    def __getitem__(self, index: int) -> NoReturn:
        raise AssertionError("a row was read")


def sizes(dataset: Any) -> dict[str, list[int]]:
    return {one.name: list(one.sizes) for one in find_columns(torch, dataset)}


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ({"lengths": [4, 9, 2]}, [4, 9, 2]),
        ({"lengths": torch.tensor([4, 9, 2])}, [4, 9, 2]),
        ({"texts": ["a", "bcd", ""]}, [1, 3, 0]),
        ({"ids": [[1, 2], [3], [4, 5, 6]]}, [2, 1, 3]),
        ({"frames": [torch.zeros(2, 5), torch.zeros(1, 5), torch.zeros(4, 5)]}, [10, 5, 20]),
        ({"pairs": [([1, 2, 3], 0), ([1], 1), ([1, 2], 0)]}, [3, 1, 2]),
        ({"rows": [{"x": [1, 2], "y": 3}, {"x": [1], "y": 0}, {"x": [1] * 5, "y": 1}]}, [2, 1, 5]),
        ({"sizes": [(4, 6), (2, 2), (10, 1)]}, [24, 4, 10]),
    ],
)
def test_each_way_to_hold_rows_tells_their_sizes(held: dict[str, Any], expected: list[int]) -> None:
    assert sizes(Rows(**held)) == {next(iter(held)): expected}


@pytest.mark.parametrize(
    "held",
    [
        {"lengths": [4, 9]},  # not one for each row
        {"lengths": [4, 9, "2"]},
        {"lengths": [4, -9, 2]},
        {"labels": [0, 1, 2]},
        {"ids": [[1, 2], [3, 4], [5, 6]]},  # all of one size
        {"ids": [[1, 2], [3], object()]},
        {"ids": {0: [1]}},
    ],
)
def test_what_tells_no_sizes_is_left_out(held: dict[str, Any]) -> None:
    assert sizes(Rows(**held)) == {}


def test_a_column_of_lengths_comes_first() -> None:
    assert list(sizes(Rows(texts=["a", "bb", ""], length=[3, 4, 5]))) == ["length", "texts"]


def test_parts_and_sums_of_data_sets_are_followed() -> None:
    rows = Rows(texts=["a", "bcd", ""])
    both = data.ConcatDataset([data.Subset(rows, [1, 2]), rows])

    assert sizes(data.Subset(rows, [2, 1])) == {"texts": [0, 3]}
    assert sizes(both) == {"texts": [3, 0, 1, 3, 0]}
    assert sizes(data.ConcatDataset([rows, Rows(words=["a", "b", "ccc"])])) == {}


def test_large_and_small_data_sets_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steptime.guest.longest.row_sizes.MAX_ROWS", 2)

    assert sizes(Rows(texts=["a", "bcd", ""])) == {}
    assert sizes(Rows(1, texts=["a"])) == {}
