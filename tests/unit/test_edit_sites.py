"""Where the guest says that things are made and called, and what the parent keeps of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptime.guest.hooks.patching import PATCHES
from steptime.guest.trial.looks.edit_sites import SiteNotes, describe_output, find_images
from steptime.tune.trials.facts.source_sites import hash_file, name_in, read_sites
from steptime.tune.values.site_values import SourcePlace, parse_place

torch = pytest.importorskip("torch")
data = torch.utils.data
HERE = str(Path(__file__))
has_columns = sys.version_info >= (3, 11)


@pytest.fixture
def notes() -> Iterator[SiteNotes]:
    num_before = len(PATCHES)
    failures: list[str] = []
    found = SiteNotes(torch, failures.append)
    found.hook()
    yield found
    assert failures == []
    while len(PATCHES) > num_before:
        owner, name, before, _ = PATCHES.pop()
        setattr(owner, name, before)


def text_at(place: Any) -> str:
    """The source of a place on one line."""
    file, line, _, begin, end = place
    return Path(file).read_text(encoding="utf-8").splitlines()[line - 1][begin:end]


def made_here() -> Any:
    return torch.optim.AdamW([torch.zeros(2)], lr=0.1)


def test_an_optimizer_is_placed_where_the_script_makes_it(notes: SiteNotes) -> None:
    optimizer = made_here()
    (row,) = notes.describe([optimizer], [])

    assert (row["what"], row["name"]) == ("optimizer", "AdamW")
    assert row["place"][0] == HERE
    assert not row["callers"]
    if has_columns:
        assert text_at(row["place"]) == "torch.optim.AdamW([torch.zeros(2)], lr=0.1)"


def test_only_optimizers_that_stepped_are_told_and_each_place_once(notes: SiteNotes) -> None:
    one, other = made_here(), made_here()
    torch.optim.SGD([torch.zeros(2)])

    assert len(notes.describe([one, other], [])) == 1


def test_an_own_subclass_is_placed_at_its_call_of_torch(notes: SiteNotes) -> None:
    class Own(torch.optim.SGD):  # type: ignore[misc, name-defined]
        def __init__(self, parameters: Any) -> None:
            super().__init__(parameters, lr=0.5)

    (row,) = notes.describe([Own([torch.zeros(2)])], [])
    assert row["name"] == "Own"
    if has_columns:
        assert text_at(row["place"]) == "super().__init__(parameters, lr=0.5)"


def make_loader(rows: Any) -> Any:
    return data.DataLoader(rows, batch_size=2)


ROWS = data.TensorDataset(torch.zeros(4, 2))
FACTS = {"dataset": "TensorDataset", "is_tensor_dataset": True}


def test_a_loader_says_what_an_edit_of_it_must_know(notes: SiteNotes) -> None:
    loader = data.DataLoader(ROWS, num_workers=2, collate_fn=list)
    (row,) = notes.describe([], [(loader, FACTS)])

    assert row["traits"] == ["dataset:TensorDataset", "workers:2", "tensor_dataset", "own_collate"]


def test_a_data_set_that_gives_whole_batches_is_said_to_be_in_memory(notes: SiteNotes) -> None:
    loader = data.DataLoader([(torch.zeros(2), 1)])
    (row,) = notes.describe([], [(loader, {"dataset": "MNIST", "is_in_memory": True})])

    assert row["traits"] == ["dataset:MNIST", "in_memory"]


def test_a_call_that_also_makes_a_loader_for_evaluation_is_shared(notes: SiteNotes) -> None:
    train = make_loader(ROWS)
    assert "shared" not in notes.describe([], [(train, FACTS)])[0]["traits"]

    held_out = make_loader(ROWS)
    assert "shared" in notes.describe([], [(train, FACTS)])[0]["traits"]
    del held_out


def test_a_loader_for_each_epoch_is_not_shared(notes: SiteNotes) -> None:
    loaders = [make_loader(ROWS) for _ in range(3)]

    assert "shared" not in notes.describe([], [(loaders[0], FACTS)])[0]["traits"]


def test_a_call_of_a_model_has_its_callers_images_and_output(notes: SiteNotes) -> None:
    model = torch.nn.Conv2d(1, 1, 1)

    def train(net: Any) -> Any:
        image = torch.zeros(1, 1, 2, 2)
        take = notes.see_call(net, (image,), {"scale": image, "label": 3})
        if take is not None:
            take((net(image), None))
        return take

    takes = [train(model) for _ in range(2)]
    (row,) = notes.describe([], [])

    assert takes[1] is None, "the place is known"
    assert row["traits"] == ["image:0", "image:scale", "no_blocks", "output:float,other"]
    if has_columns:
        assert text_at(row["callers"][0]) == "train(model)"


def test_code_that_is_in_no_file_is_generated(notes: SiteNotes) -> None:
    names = {"torch": torch}
    exec("one = torch.optim.SGD([torch.zeros(2)])", names)
    (row,) = notes.describe([names["one"]], [])

    assert row["place"][0] == "<string>"
    assert row["traits"] == ["generated"]


def test_a_cell_of_a_notebook_is_one(notes: SiteNotes) -> None:
    names = {"torch": torch}
    code = compile("one = torch.optim.SGD([torch.zeros(2)])", "/tmp/ipykernel_7/12.py", "exec")
    exec(code, names)

    assert notes.describe([names["one"]], [])[0]["traits"] == ["notebook"]


@pytest.mark.parametrize(
    ("result", "word"),
    [
        (torch.zeros(2), "float"),
        (torch.zeros(2, dtype=torch.int64), "other"),
        ((torch.zeros(2), None), "float,other"),
        ((torch.zeros(2), (torch.zeros(2), torch.zeros(2))), "float,floats"),
        ({"loss": torch.zeros(())}, "mapping"),
        ({"logits": torch.zeros(())}, "nested"),
        ((torch.zeros(2), [torch.zeros(2)]), "nested"),
        ((torch.zeros(2),), "nested"),
        (None, "other"),
    ],
)
def test_outputs_have_a_word(result: Any, word: str) -> None:
    assert describe_output(torch, result) == word


def test_images_inside_a_list_are_seen() -> None:
    assert find_images(torch, ([torch.zeros(1, 1, 2, 2)], torch.zeros(2)), {}) == ["inside"]


# -- the parent's side


@given(
    file=st.sampled_from(["train.py", "my models/net.py", "/a/b:3.py", "<string>"]),
    line=st.integers(1, 10**6),
    columns=st.none() | st.tuples(st.integers(0, 999), st.integers(1, 999), st.integers(0, 999)),
)
def test_a_place_is_read_as_it_was_written(file: str, line: int, columns: Any) -> None:
    begin, last, end = columns or (None, None, None)
    place = SourcePlace(file=file, line=line, column=begin, end_line=last, end_column=end)

    assert parse_place(str(place)) == place


def test_a_text_without_a_line_is_no_place() -> None:
    with pytest.raises(ValueError, match="a place such as"):
        parse_place("train.py")


def test_places_are_named_from_the_folder_and_their_files_hashed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\n")
    row = {
        "what": "optimizer",
        "name": "SGD",
        "place": [str(script), 3, 3, 4, 20],
        "callers": [],
        "traits": [],
    }
    other = row | {"place": ["/elsewhere/net.py", 1, None, None, None]}
    found = read_sites([row, other, {"what": "oven"}, 7], ("python", "train.py"), folder=tmp_path)

    assert found is not None
    assert [str(site.place) for site in found.sites] == ["train.py:3:4-3:20", "/elsewhere/net.py:1"]
    assert found.files == {"train.py": hash_file(script)}
    assert name_in(tmp_path, "<string>") == "<string>"


def test_a_guest_that_told_nothing_leaves_nothing(tmp_path: Path) -> None:
    assert read_sites(None, ("python", "x.py"), folder=tmp_path) is None


def test_a_place_is_told_again_when_its_optimizer_is_gone(notes: SiteNotes) -> None:
    optimizer = made_here()
    (row,) = notes.describe([optimizer], [])
    del optimizer

    assert notes.describe([], []) == [row]
