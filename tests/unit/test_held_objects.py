"""Which attributes of a data set workers will copy, and the lines that set them."""

from __future__ import annotations

import ast
import sys
from types import SimpleNamespace

import pytest

from steptime.guest.watchers.held_objects import MIN_OBJECTS, estimate, find_held, inside
from steptime.guest.watchers.inputs import start_method, transforms_of
from steptime.guest.watchers.process_memory import read_rollup
from steptime.measure.source.held_lines import find_held_lines


class Rows:
    def __init__(self, rows: object) -> None:
        self.rows = rows

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"asked for {name}")


def dicts(num: int) -> list[dict[str, object]]:
    return [{"path": f"{i:08d}.jpg", "label": i + 1000} for i in range(num)]


def test_a_list_of_dicts_is_found_with_its_size() -> None:
    rows = dicts(MIN_OBJECTS)
    (found,) = find_held(Rows(rows))

    one = sum(map(sys.getsizeof, (rows[0], rows[0]["path"], rows[0]["label"])))
    assert (found["attribute"], found["holder"], found["element"]) == ("rows", "Rows", "dict")
    assert (found["length"], found["num_objects"]) == (MIN_OBJECTS, 3 * MIN_OBJECTS)
    assert found["bytes"] == pytest.approx(one * MIN_OBJECTS, rel=0.02)
    assert found["file"] == __file__


@pytest.mark.parametrize(
    "value",
    [
        dicts(100),
        [7] * 10 * MIN_OBJECTS,
        bytes(10**6),
        [memoryview(bytes(100))] * 3 * MIN_OBJECTS,
        None,
    ],
    ids=["few", "one object often", "bytes", "one buffer often", "none"],
)
def test_what_workers_share_is_not_named(value: object) -> None:
    assert find_held(Rows(value)) == []


@pytest.mark.parametrize(
    "value",
    [
        [f"name {i}" for i in range(MIN_OBJECTS)],
        {f"name {i}": [i + 999, 1.5] for i in range(MIN_OBJECTS)},
        tuple((f"{i}.jpg", i) for i in range(MIN_OBJECTS)),
        [SimpleNamespace(name=f"name {i}") for i in range(MIN_OBJECTS)],
    ],
    ids=["strings", "dict", "tuples", "instances"],
)
def test_other_containers_of_objects_are_named(value: object) -> None:
    assert [row["container"] for row in find_held(Rows(value))] == [type(value).__name__]


def test_an_empty_container_holds_nothing() -> None:
    assert estimate([]) == (0, 0)


def test_data_sets_inside_data_sets_are_looked_at_without_end() -> None:
    inner = Rows(dicts(MIN_OBJECTS))
    outer = SimpleNamespace(dataset=SimpleNamespace(datasets=[inner, 3]))
    inner.__dict__["dataset"] = outer

    assert [row["holder"] for row in find_held(outer)] == ["Rows"]
    assert inside(outer)[0] is outer


def test_the_transforms_of_a_data_set_are_named() -> None:
    chain = SimpleNamespace(transforms=[1, "a"])

    assert transforms_of({"transform": chain}) == ["int", "str"]
    assert transforms_of({"transforms": SimpleNamespace(transform=chain)}) == ["int", "str"]
    assert transforms_of({"transform": 3}) == ["int"]
    assert transforms_of({}) == []


def test_asking_for_the_start_method_does_not_fix_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import multiprocessing.context

    default = multiprocessing.context._default_context
    monkeypatch.setattr(default, "_actual_context", None)

    assert start_method(None) == multiprocessing.get_all_start_methods()[0]
    assert default._actual_context is None
    assert start_method(multiprocessing.get_context("spawn")) == "spawn"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_the_kernel_tells_what_is_shared() -> None:
    found = read_rollup()

    assert set(found) == {"pss", "shared_dirty", "private_dirty"}
    assert found["pss"] > 1 << 20


SOURCE = """
class Rows(Dataset):
    def __init__(self, num):
        self.names: list[str] = []
        self.rows, self.num = [1] * num, num

    def fill(self):
        self.rows = [2]


data = Rows(3)
other = datasets.ImageFolder("images")
"""


@pytest.mark.parametrize(
    ("holder", "attribute", "file", "line"),
    [
        ("Rows", "rows", "train.py", 5),
        ("Rows", "names", "train.py", 4),
        ("Rows", "inherited", "train.py", 11),
        ("ImageFolder", "samples", "library.py", 12),
        ("Unknown", "samples", "library.py", None),
    ],
)
def test_the_line_that_sets_an_attribute(
    holder: str, attribute: str, file: str, line: int | None
) -> None:
    trees = {"train.py": ast.parse(SOURCE)}
    found = find_held_lines(trees, [(holder, attribute, file)])

    assert found == ([] if line is None else [(holder, attribute, "train.py", line)])
