"""The line that reads a sample is found in the class of the data set."""

from __future__ import annotations

import ast

import pytest

from steptime.measure.source.data_reads import find_reads

SOURCE = """\
class Rows(Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        return index


class Many(Rows):
    def __getitem__(self, index):
        return index

    def __getitems__(self, indices):
        return indices


class Stream:
    def __iter__(self):
        yield 1


class Derived(Rows):
    pass
"""


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ({"Rows"}, [("Rows", 5)]),
        ({"Many"}, [("Many", 13)]),
        ({"Stream", "Subset"}, [("Stream", 18)]),
        ({"Derived"}, []),
        (set(), []),
    ],
)
def test_the_method_that_a_loader_calls_is_named(
    names: set[str], found: list[tuple[str, int]]
) -> None:
    trees = {"/data.py": ast.parse(SOURCE)}

    assert [(name, line) for name, file, line in find_reads(trees, names)] == found
