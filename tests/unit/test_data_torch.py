"""With torch: batches are tensors of their own, and torch's DataLoader gets whole batches."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from steptime.data import ArraySource, DataError, Loader, MapDataset

torch = pytest.importorskip("torch")
DataLoader = torch.utils.data.DataLoader


def make_source(num=10):
    array = np.arange(num * 3, dtype=np.float32).reshape(num, 3)
    return ArraySource(
        {"x": array, "y": np.arange(num), "name": np.array([str(i) for i in range(num)])}
    )


def test_a_batch_is_of_tensors_and_text_stays_what_it_is():
    batch = next(iter(Loader(make_source(), 4, shuffle=False)))

    assert (batch["x"].shape, batch["x"].dtype) == ((4, 3), torch.float32)
    assert batch["y"].tolist() == [0, 1, 2, 3]
    assert batch["name"].tolist() == ["0", "1", "2", "3"]


def test_who_writes_into_a_batch_writes_into_no_source():
    source = make_source()
    batch = next(iter(Loader(source, 4, shuffle=False)))

    batch["x"].zero_()

    assert source.read([1])["x"].tolist() == [[3.0, 4.0, 5.0]]


def test_views_share_their_memory_with_what_is_mapped(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(40.0))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="c")

    class Mapped(ArraySource):
        def read(self, indices):
            return {"x": mapped[indices[0] : indices[-1] + 1]}

    def address(**options):
        batch = next(iter(Loader(Mapped({"x": mapped}), 4, shuffle=False, **options)))
        return batch["x"].data_ptr()

    assert address(views=True) == mapped.ctypes.data
    assert address() != mapped.ctypes.data


@pytest.mark.parametrize("array", [
    np.arange(4, dtype=">i4"), np.arange(4)[::-1], np.arange(4, dtype=np.longdouble)],
    ids=["big-endian", "reversed", "long double"],
)  # fmt: skip
def test_arrays_that_torch_has_no_way_with_are_handed_on_whole(array):
    class Odd(ArraySource):
        def read(self, indices):
            return {"x": array}

    batch = next(iter(Loader(Odd({"x": np.zeros(4)}), 4, shuffle=False)))

    assert batch["x"].tolist() == array.tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_the_data_loader_of_torch_asks_for_whole_batches(workers):
    class Counted(MapDataset):
        def __getitem__(self, index):
            raise AssertionError("asked for a single sample")

    loader = DataLoader(Counted(make_source(), columns=("x", "y")), batch_size=4,
                        num_workers=workers)  # fmt: skip
    batches = list(loader)

    assert [batch["y"].tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert batches[0]["x"].shape == (4, 3)


def test_batches_are_those_of_a_dataset_of_single_samples():
    dataset = MapDataset(make_source(), columns=("x", "y"), as_tuple=True)
    singles = [dataset[i] for i in range(len(dataset))]

    def batches(of):
        torch.manual_seed(3)
        return list(DataLoader(of, batch_size=3, shuffle=True))

    for ours, theirs in zip(batches(dataset), batches(singles), strict=True):
        assert type(ours) is type(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert torch.equal(one, other)
            assert one.dtype == other.dtype


def test_an_own_collate_function_gets_samples():
    dataset = MapDataset(make_source())

    (batch, *_) = DataLoader(dataset, batch_size=4, collate_fn=lambda rows: rows)

    assert len(batch) == 4
    assert [row["y"] for row in batch] == [0, 1, 2, 3]
    assert batch[1:3][0]["name"] == "1"


def test_rows_that_were_mixed_with_others_are_collated_one_by_one():
    dataset = MapDataset(make_source(), columns=("x", "y"))
    rows = list(dataset.__getitems__([0, 1])) + list(dataset.__getitems__([2]))

    batch = torch.utils.data.default_collate(rows)

    assert batch["y"].tolist() == [0, 1, 2]


def test_an_error_in_a_worker_names_the_sample():
    def decode(columns):
        if 5 in columns["y"]:
            raise ValueError("not a picture")
        return columns

    loader = DataLoader(MapDataset(make_source(), decode=decode), batch_size=4, num_workers=1)

    with pytest.raises(DataError, match="arrays, row 5: ValueError: not a picture"):
        list(loader)


def test_a_sample_that_is_not_there_is_an_index_error():
    dataset = MapDataset(make_source())

    assert dataset[-1]["y"] == 9
    with pytest.raises(IndexError):
        dataset[10]


def test_a_missing_package_is_said_with_the_line_that_brings_it(monkeypatch):
    import steptime.data as data

    monkeypatch.setitem(sys.modules, "steptime.data.feed.feed_loader", None)
    with pytest.raises(data.MissingExtraError) as raised:
        _ = data.Loader
    assert "steptime[data]" in str(raised.value.hint)
    with pytest.raises(AttributeError):
        _ = data.Nothing


def test_importing_the_room_imports_nothing_heavy():
    code = "import sys, steptime.data; print([n for n in ('numpy', 'torch') if n in sys.modules])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.stdout.strip() == "[]", done.stderr
