"""What the guest tells of a step's inputs, so that steps of other work are not compared."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from steptime.guest.timeline.recorder import Recorder
from steptime.guest.watchers.inputs import LoaderBook, Shapes, find_versions
from steptime.measure.fold.run_fold import measure
from steptime.measure.values.observations import LoaderUse
from unit.builders import make_head, make_update, read


class Tensor:
    """What is asked of a plain tensor."""

    is_nested = False

    def __init__(self, *shape: int, dtype: str = "torch.float32") -> None:
        self.shape, self.dtype = shape, dtype


class Subclass(Tensor):
    """Code of its own would run."""


def make_loader(dataset: object, **fields: Any) -> SimpleNamespace:
    values = {"batch_size": 8, "batch_sampler": None, "num_workers": 0, "pin_memory": False}
    values |= {"persistent_workers": False, "prefetch_factor": None}
    return SimpleNamespace(dataset=dataset, **(values | fields))


@pytest.fixture
def book(tmp_path: Path) -> LoaderBook:
    return LoaderBook(Recorder(str(tmp_path), dict), set())


def told(book: LoaderBook) -> list[dict[str, Any]]:
    text = book.poll(0, is_last=False)
    found: list[dict[str, Any]] = json.loads(text)["loaders"] if text else []
    return found


class Clicks:
    """A data set whose method asks for its source."""

    def __init__(self, source: str) -> None:
        self.source, self.secret, self.size = source, "not asked for", 3
        self.rows, self.path, self.is_train = [1, 2], None, True

    def __getitem__(self, index: int) -> int:
        return index if self.source in ("random", "file") else -1


def test_the_attributes_that_decide_branches_are_told(book: LoaderBook) -> None:
    dataset = Clicks("random")
    book.see(make_loader(dataset))
    book.trained.add(id(dataset))

    ((one,),) = [facts["classes"] for facts in told(book)]

    assert one["name"] == "Clicks"
    assert one["file"] == __file__
    assert one["words"] == {"source": "random", "size": 3, "path": None, "is_train": True}


def test_a_loader_is_told_once_it_was_trained_on(book: LoaderBook) -> None:
    dataset = object()
    book.see(make_loader(dataset))

    assert told(book) == []
    book.trained.add(id(dataset))
    (facts,) = told(book)
    assert (facts["dataset"], facts["batch_size"]) == ("object", 8)
    assert told(book) == []


def test_loaders_of_evaluations_are_not_told(book: LoaderBook) -> None:
    book.see(make_loader(object()))
    dataset = object()
    book.see(make_loader(dataset, batch_size=4))
    book.trained.add(id(dataset))

    assert [facts["batch_size"] for facts in told(book)] == [4]


def test_a_size_that_only_the_batch_sampler_knows_is_found(book: LoaderBook) -> None:
    dataset = object()
    sampler = SimpleNamespace(batch_size=16)
    book.see(make_loader(dataset, batch_size=None, batch_sampler=sampler))
    book.trained.add(id(dataset))

    assert [facts["batch_size"] for facts in told(book)] == [16]


def test_a_script_that_makes_loaders_without_end_costs_no_memory(book: LoaderBook) -> None:
    datasets = [object() for _ in range(100)]
    for dataset in datasets:
        book.see(make_loader(dataset))

    assert len(book.seen) == 20


def make_shapes(num_modes: int = 0) -> Shapes:
    core = SimpleNamespace(_len_torch_function_stack=lambda: num_modes)
    return Shapes(SimpleNamespace(Tensor=Tensor, _C=core))


def test_shapes_that_two_updates_agree_in_are_told() -> None:
    shapes = make_shapes()
    for is_second in (False, True):
        shapes.see(({"x": [Tensor(64, 3)]}, Tensor(9)), is_second=is_second)
        shapes.see((Tensor(dtype="torch.int64"),), is_second=is_second)

    assert json.loads(shapes.line(13)) == {
        "k": "x",
        "n": 13,
        "shapes": ["1 int64", "64x3 float32"],
    }


def test_sequences_of_varying_length_are_not_told() -> None:
    shapes = make_shapes()
    shapes.see((Tensor(8, 17),), is_second=False)
    shapes.see((Tensor(8, 19),), is_second=True)

    assert shapes.line(13) == ""


def test_inputs_of_tokens_are_told_even_where_their_length_varies() -> None:
    shapes = make_shapes()
    shapes.see((Tensor(8, 17, dtype="torch.int64"),), is_second=False)
    shapes.see((Tensor(8, 19, dtype="torch.int64"),), is_second=True)

    assert json.loads(shapes.line(13)) == {"k": "x", "n": 13, "shapes": [], "has_tokens": True}
    for other in (Tensor(8, dtype="torch.int64"), Tensor(8, 9, dtype="torch.uint8"), Tensor(8, 9)):
        shapes.see((other,), is_second=True)
        assert shapes.line(13) == ""


@pytest.mark.parametrize(
    ("shapes", "value"),
    [
        (make_shapes(), Subclass(8)),
        (make_shapes(), type("Own", (dict,), {})(x=Tensor(8))),
        (make_shapes(), 5),
        (make_shapes(num_modes=1), Tensor(8)),
    ],
)
def test_nothing_of_the_users_is_asked(shapes: Shapes, value: object) -> None:
    for is_second in (False, True):
        shapes.see((value,), is_second=is_second)

    assert shapes.line(13) == ""


def test_versions_are_those_of_imported_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lazy(ModuleType):
        def __getattr__(self, name: str) -> str:
            raise AssertionError(name)

    modules = {name: ModuleType(name) for name in ("library", "_own", "library.part")}
    for module in modules.values():
        module.__dict__["__version__"] = "1.2.3"
    odd = {"lazy": Lazy("lazy"), "strange": 5, "numbered": SimpleNamespace(__version__=3)}
    for name, module in (modules | odd).items():
        monkeypatch.setitem(sys.modules, name, module)

    found = find_versions()

    assert found["library"] == "1.2.3"
    assert not {"_own", "library.part", "lazy", "strange", "numbered", "json"} & set(found)


def test_the_measurement_has_what_the_guest_told() -> None:
    loader = {"dataset": "Rows", "batch_size": 8, "num_workers": 2, "pin_memory": False}
    loader |= {"persistent_workers": True, "prefetch_factor": 2}
    lines = [
        make_head(versions={"numpy": "2.0"}),
        make_update(0),
        {"k": "i", "n": 1, "loaders": []},
        {"k": "i", "n": 2, "loaders": [loader]},
        {"k": "x", "n": 13, "shapes": ["8x3 float32"]},
        {"k": "x", "n": 13, "shapes": 5},
    ]

    (rank,) = measure(read({"rank-0.jsonl": lines})).ranks

    assert rank.versions == {"numpy": "2.0"}
    assert rank.input_shapes == ("8x3 float32",)
    assert rank.loaders == (
        LoaderUse(
            dataset="Rows",
            batch_size=8,
            num_workers=2,
            persistent_workers=True,
            prefetch_factor=2,
        ),
    )


def test_a_rank_of_an_older_guest_lacks_them() -> None:
    (rank,) = measure(read({"rank-0.jsonl": [make_head(), make_update(0)]})).ranks

    assert (rank.versions, rank.input_shapes, rank.loaders) == (None, (), ())
