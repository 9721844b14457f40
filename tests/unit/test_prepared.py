"""The prepared form: what is written is what is read, by us and by anybody."""

import json
import pickle

import numpy as np
import pytest
from pyarrow import ipc

from steptime.data.convert.conversion import convert
from steptime.data.convert.planning import make_plan, take_sample
from steptime.data.convert.treatment import Treatment
from steptime.data.prepared.prepared_source import open_prepared
from steptime.data.source import Column
from steptime.errors import DataError
from unit.data_lists import ListSource, make_mixed

KEPT = Treatment()


def prepare(source, target, *, shard_bytes=600, treatment=KEPT, **options):
    sample = take_sample(source, treatment)
    plan = make_plan(source, "lists", treatment, sample, shard_bytes=shard_bytes)
    return convert(source, target, plan, treatment, **options)


def same(ours, theirs):
    return all(np.array_equal(one, other) for one, other in zip(ours, theirs, strict=True))


def test_each_kind_of_column_comes_back_in_any_order(tmp_path):
    source = make_mixed(50)
    done = prepare(source, tmp_path / "out")
    prepared = open_prepared(tmp_path / "out")

    assert done.num_shards > 3
    assert len(prepared) == 50
    assert [c[:3] for c in prepared.columns] == [c[:3] for c in source.columns]
    assert prepared.columns[1].classes == ("cat", "dog")
    order = [49, 0, 7, 7, 23, 1]
    ours, theirs = prepared.read(order), source.read(order)
    for column in source.columns:
        assert same(ours[column.name], theirs[column.name]), column.name
    assert ours["pixels"].dtype == np.uint8
    assert ours["wave"][0].flags.writeable


def test_anybody_can_read_it(tmp_path):
    prepare(make_mixed(20), tmp_path / "out")

    index = json.loads((tmp_path / "out" / "index.json").read_text())
    files = {column["name"]: column["file"] for column in index["columns"]}
    pixels = np.load(tmp_path / "out" / files["pixels"], mmap_mode="r")
    assert pixels.shape == (20, 4, 5)
    first = index["shards"][0]
    with ipc.open_file(tmp_path / "out" / first["arrow"]) as file:
        table = file.read_all()
    assert table["data"].to_pylist() == make_mixed(20).values["data"][: first["rows"]]


def test_the_index_says_where_the_bytes_of_a_varying_column_lie(tmp_path):
    """Somebody without Arrow, such as the guest in a training, maps the file."""
    source = make_mixed(20)
    prepare(source, tmp_path / "out")
    shard = json.loads((tmp_path / "out" / "index.json").read_text())["shards"][1]

    whole = (tmp_path / "out" / shard["arrow"]).read_bytes()
    at = shard["buffers"]["wave"]
    offsets = np.frombuffer(whole, "<i8", shard["rows"] + 1, at["offsets_at"])
    shapes = np.frombuffer(whole, "<i8", shard["rows"] * at["ndim"], at["shapes_at"])
    for row in range(shard["rows"]):
        start, end = at["values_at"] + offsets[row], at["values_at"] + offsets[row + 1]
        wave = np.frombuffer(whole[start:end], "<f4")
        assert np.array_equal(wave, source.values["wave"][shard["first"] + row])
        assert shapes[row] == len(wave)


def test_a_number_that_is_no_samples_is_refused(tmp_path):
    prepare(make_mixed(5), tmp_path / "out")

    with pytest.raises(ValueError, match="0 to 4"):
        open_prepared(tmp_path / "out").read([5])


def test_it_can_be_sent_to_a_worker(tmp_path):
    prepare(make_mixed(5), tmp_path / "out")

    again = pickle.loads(pickle.dumps(open_prepared(tmp_path / "out")))

    assert again.read([3])["label"].tolist() == [1]


@pytest.mark.parametrize("which", ["pixels", "data"])
def test_a_corrupt_byte_names_shard_and_row(tmp_path, which):
    prepare(make_mixed(50), tmp_path / "out")
    prepared = open_prepared(tmp_path / "out")
    number = 2 if which == "pixels" else 6
    shard = next(n for n, s in enumerate(prepared.layout.shards) if s.first + s.rows > number)
    found = prepared.layout.shards[shard]
    if which == "pixels":
        path, at = tmp_path / "out" / "00-pixels.npy", 128 + number * 20
    else:
        path = tmp_path / "out" / found.arrow
        whole, place = path.read_bytes(), found.buffers["data"]
        offsets = np.frombuffer(whole, "<i8", found.rows + 1, place.offsets_at)
        at = place.values_at + int(offsets[number - found.first])
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))

    damage = list(open_prepared(tmp_path / "out").damage())

    assert [one.number for one in damage] == [number]
    assert f"shard {shard}, row {number - found.first}" in damage[0].place


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda index: index | {"version": 99}, "version 99"),
        (lambda index: index | {"format": "other"}, "another format"),
        (lambda index: index | {"num_samples": 7}, "damaged"),
        (lambda index: {"columns": []}, "cannot be read"),
        (lambda index: index | {"columns": [index["columns"][0] | {"file": "../x.npy"}]}, "names"),
    ],
)
def test_a_damaged_index_is_a_sentence(tmp_path, change, word):
    prepare(make_mixed(5), tmp_path / "out")
    path = tmp_path / "out" / "index.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))

    with pytest.raises(DataError, match=word):
        open_prepared(tmp_path / "out")


def test_a_file_that_was_cut_is_a_sentence(tmp_path):
    prepare(make_mixed(50), tmp_path / "out")
    arrow = tmp_path / "out" / "part-00000.arrow"
    arrow.write_bytes(arrow.read_bytes()[:100])
    with pytest.raises(DataError, match="shard 0"):
        open_prepared(tmp_path / "out").read([0])

    npy = tmp_path / "out" / "00-pixels.npy"
    npy.write_bytes(npy.read_bytes()[:200])
    with pytest.raises(DataError, match="damaged"):
        open_prepared(tmp_path / "out")


def test_no_folder_is_a_sentence(tmp_path):
    with pytest.raises(DataError, match="no prepared data"):
        open_prepared(tmp_path)


def test_a_value_of_another_shape_makes_the_column_vary(tmp_path):
    """The sample did not have it."""
    rows = [np.full((2,), index, np.int16) for index in range(9)] + [np.zeros((3,), np.int16)]
    source = ListSource([Column("x", "array", "int16")], {"x": rows})
    plan = make_plan(
        source, "lists", KEPT,
        take_sample(ListSource(source.columns, {"x": rows[:9]}), KEPT), shard_bytes=8,
    )  # fmt: skip
    assert plan.columns[0].file is not None

    convert(source, tmp_path / "out", plan, KEPT)

    prepared = open_prepared(tmp_path / "out")
    assert prepared.layout.columns[0].file is None
    assert same(prepared.read(range(10))["x"], rows)
    assert not list((tmp_path / "out").glob("0*.npy"))


def test_a_missing_text_stays_missing(tmp_path):
    source = ListSource([Column("x", "text")], {"x": ["a", None, ""]})
    prepare(source, tmp_path / "out")

    assert open_prepared(tmp_path / "out").read([0, 1, 2])["x"] == ["a", None, ""]
