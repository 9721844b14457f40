"""What a reader says of damage, and that hostile lengths take no memory."""

from __future__ import annotations

import io
import json
import pickle
import re
import struct
import tarfile
import zipfile
from types import SimpleNamespace

import pytest

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")

from steptime.data.sources import open_source, reader_child  # noqa: E402
from steptime.data.stored_bytes import DamagedBytesError  # noqa: E402
from steptime.errors import DataError  # noqa: E402
from written_samples import (  # noqa: E402 - it needs numpy
    example,
    tfrecord,
    write_csv,
    write_feather,
    write_hdf5,
    write_tar,
)


def refusal(where, *rows, **options):
    with pytest.raises(DataError) as caught:
        open_source(where, **options).read(rows)
    return str(caught.value)


def flip(file, at):
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


class TestTheRowIsNamed:
    def test_of_a_flipped_byte_in_a_tfrecord(self, tmp_path):
        file = tmp_path / "x.tfrecord"
        file.write_bytes(tfrecord([b"a" * 10, b"b" * 10, b"c" * 10]))
        flip(file, 26 + 12 + 3)

        source = open_source(file)

        assert source.read([0, 2])["data"] == [b"a" * 10, b"c" * 10]
        said = refusal(file, 2, 1, 0)
        assert said.startswith(f"{file}, row 1 cannot be read: its checksum is wrong")
        assert open_source(file, verify=False).read([1])["data"] == [b"bbbcbbbbbb"]

    def test_of_a_length_or_a_cut_in_a_tfrecord(self, tmp_path):
        file = tmp_path / "x.tfrecord"
        whole = tfrecord([b"a" * 10, b"b" * 10, b"c" * 10])
        file.write_bytes(whole[:-1])
        assert "x.tfrecord, row 2: it is cut off" in refusal(file)

        file.write_bytes(whole)
        flip(file, 26)
        assert "x.tfrecord, row 1: the checksum of its length is wrong" in refusal(file)

    def test_of_a_header_in_a_tar(self, tmp_path):
        where = write_tar(tmp_path).where
        data = (where / "000001.tar").read_bytes()
        flip(where / "000001.tar", data.index(b"00150.cls"))

        assert "000001.tar, row 51 cannot be read: the header at offset" in refusal(where)

    def test_of_a_tar_that_is_cut_off(self, tmp_path):
        where = write_tar(tmp_path).where
        data = (where / "000000.tar").read_bytes()
        (where / "000000.tar").write_bytes(data[:20_000])

        assert "000000.tar, row " in (said := refusal(where)), said

    def test_of_a_value_in_hdf5_that_is_longer_than_its_place(self, tmp_path):
        file = write_hdf5(tmp_path).where
        data = file.read_bytes()
        at = data.index(b"GCOL")
        address = struct.pack("<Q", at)
        reference = data.index(address)
        file.write_bytes(data[: reference - 4] + b"\xff\xff\xff\x7f" + data[reference:])

        assert "row 0 cannot be read: Can't synchronously read data" in refusal(file, 3, 0)

    def test_of_a_class_of_many_digits_in_a_tar(self, tmp_path):
        with tarfile.open(tmp_path / "x.tar", "w") as tar:
            member = tarfile.TarInfo("0.cls")
            member.size = 5000
            tar.addfile(member, io.BytesIO(b"0" * 4999 + b"5"))

        said = refusal(tmp_path / "x.tar", 0)
        assert said.endswith(
            "row 0 (0) cannot be read: a class is a whole number, and has 5,000 bytes"
        )

    def test_of_lines_of_csv(self, tmp_path):
        file = tmp_path / "x.csv"
        file.write_text("a,b\n1,2\n3,4\n5\n" + "7,8\n" * 3)

        assert "cannot be read as CSV" in refusal(file, format="csv")

        file.write_text('a,b\n1,"2\n3,4\n')
        assert "a quote is opened and not closed" in refusal(file, delimiter=",", format="csv")


class TestHostileLengths:
    def test_a_zip_that_claims_more_than_it_can_hold(self, tmp_path):
        array = io.BytesIO()
        np.save(array, np.zeros(4 << 20, np.uint8))
        with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("x.npy", array.getvalue())
        whole = (tmp_path / "x.npz").read_bytes()
        size = struct.pack("<I", len(array.getvalue()))
        (tmp_path / "x.npz").write_bytes(whole.replace(size, struct.pack("<I", 0xFFFF0000)))

        assert "it should unpack to 4,294,901,760 bytes from" in refusal(tmp_path / "x.npz")

    def test_a_compressed_batch_that_claims_more_than_it_can_hold(self, tmp_path):
        file = write_feather(tmp_path).where
        data = bytearray(file.read_bytes())
        frame = data.index(b"\x04\x22\x4d\x18")  # LZ4's magic number; the length lies before it
        data[frame - 8 : frame] = struct.pack("<q", 1 << 40)
        file.write_bytes(data)

        assert "expected 1099511627776 bytes but decompressed" in refusal(file, 0)


class TestALibraryThatDies:
    def test_that_hangs_is_ended(self, tmp_path, monkeypatch):
        monkeypatch.setattr(reader_child, "PROCESSOR_S", 1)
        monkeypatch.chdir(tmp_path)
        (tmp_path / "(a+)+b").touch()

        with pytest.raises(DamagedBytesError, match="took more than 1 s of a processor for it"):
            reader_child.ReaderInChild(re.fullmatch, "(a+)+b", "a" * 60)

    def test_after_its_death_sound_rows_are_read(self, tmp_path):
        written = write_hdf5(tmp_path)
        source = open_source(written.where)
        source._reader._child.kill()

        with pytest.raises(DataError, match=r"data\.h5.*ended with SIGKILL"):
            source.read([3])
        assert source.read([3])["text"] == [written.expected["text"][3]]


class TestNothingElseIsReadOrRun:
    def test_pickles_stay_bytes(self, tmp_path):
        bomb = pickle.dumps(Bomb())
        with tarfile.open(tmp_path / "x.tar", "w") as tar:
            member = tarfile.TarInfo("0.pyd")
            member.size = len(bomb)
            tar.addfile(member, io.BytesIO(bomb))

        assert open_source(tmp_path / "x.tar").read([0])["pyd"] == [bomb]

    def test_hdf5_follows_no_link_to_another_file(self, tmp_path):
        h5py = pytest.importorskip("h5py")
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file["x"] = np.zeros(3)
            file["y"] = h5py.ExternalLink("other.h5", "/y")

        assert "/y leads to another file" in refusal(tmp_path / "x.h5")


class Bomb:
    def __reduce__(self):
        return exec, ("raise SystemExit('it was unpickled')",)


class TestExamples:
    def test_records_that_are_no_examples_are_bytes(self, tmp_path):
        (tmp_path / "x").write_bytes(tfrecord([b"\x07no example", b""]))

        assert open_source(tmp_path / "x").read([0])["data"] == [b"\x07no example"]

    def test_a_feature_that_is_missing_is_none(self, tmp_path):
        first, second = example({"a": [1], "b": b"x"}), example({"a": [-2]})
        (tmp_path / "x").write_bytes(tfrecord([first, second]))

        values = open_source(tmp_path / "x").read([0, 1])

        assert values["a"].tolist() == [1, -2]
        assert values["b"] == [b"x", None]

    def test_lengths_that_vary_later_are_named_by_ragged(self, tmp_path):
        records = [example({"a": [1, 2]})] * 70 + [example({"a": [1, 2, 3]})]
        (tmp_path / "x").write_bytes(tfrecord(records))

        assert "row 70 cannot be read: column a has the shape (3,)" in refusal(tmp_path / "x", 70)
        values = open_source(tmp_path / "x", ragged=("a",)).read([69, 70])["a"]
        assert [value.tolist() for value in values] == [[1, 2], [1, 2, 3]]


def test_csv_tells_names_types_and_delimiters(tmp_path):
    file = tmp_path / "x.tsv"
    file.write_text("id\tname\tscore\n7\ta,b,c,d\t0.5\n\n8\t,,,\t\n")

    source = open_source(file)

    assert source.name == "CSV"
    assert [column.dtype for column in source.columns] == ["int64", None, "float64"]
    values = source.read([1, 0])
    assert values["id"].tolist() == [8, 7]
    assert values["name"] == [",,,", "a,b,c,d"]
    assert values["score"] == [None, 0.5]
    assert source.place_of(1).endswith("x.tsv, row 1")


@pytest.mark.parametrize("text", ["1,2\n3,4\n", "a,b\nc,d\n", "NA,b\n1,d\n2,e\n", "a,b\n"])
def test_the_header_of_csv_is_asked_for_where_it_is_in_doubt(tmp_path, text):
    (tmp_path / "x.csv").write_text(text)

    said = refusal(tmp_path / "x.csv")

    assert said.startswith(f"{tmp_path}/x.csv: it cannot be told whether its first line names")
    rows = text.count("\n")
    assert len(open_source(tmp_path / "x.csv", format="csv_with_header")) == rows - 1
    source = open_source(tmp_path / "x.csv", format="csv_without_header")
    assert len(source) == rows
    assert [column.name for column in source.columns] == ["column0", "column1"]


def test_integers_of_csv_that_no_number_holds_stay_as_they_are(tmp_path):
    digits = "9" * 5000
    (tmp_path / "x.csv").write_text(f"id,n,x\n{digits},1,1e300\n12345678901234567890,2,2\n")

    values = open_source(tmp_path / "x.csv").read([0, 1])

    assert values["id"] == [digits, "12345678901234567890"]
    assert (values["n"].tolist(), values["x"].tolist()) == ([1, 2], [1e300, 2.0])


def test_csv_that_does_not_fit_into_memory_is_refused(tmp_path, monkeypatch):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=7))

    said = "x.csv: 8 bytes of rows would be held in memory, and 7 bytes are free"
    assert said in refusal(tmp_path / "x.csv")


def test_a_column_of_csv_has_the_type_that_fits_all_shards(tmp_path):
    (tmp_path / "0.csv").write_text("a,b\n1,x\n")
    (tmp_path / "1.csv").write_text("a,b\n2.5,y\n")

    assert open_source(tmp_path).read([0, 1])["a"].tolist() == [1.0, 2.5]
    (tmp_path / "1.csv").write_text("a,b\nz,y\n")
    assert "cannot be opened as csv" in refusal(tmp_path)


def test_sets_of_shards_in_csv(tmp_path):
    written = write_csv(tmp_path)
    (tmp_path / "README.md").write_text("notes")

    assert len(open_source(written.where)) == 200


def test_lines_of_json_keep_each_value(tmp_path):
    large, huge = (1 << 53) + 1, 1 << 70
    lines = [
        {"n": large, "of_both": large, "mixed": 1, "ids": [1, 2], "large": huge},
        {"n": None, "of_both": 0.5, "mixed": "1", "ids": [0.5], "large": 1, "late": "x"},
    ]
    text = "\ufeff" + "\r\n".join(map(json.dumps, lines)) + '\r\n\r\n{"nan": NaN}'
    (tmp_path / "x.ndjson").write_text(text, encoding="utf-8")

    values = open_source(tmp_path / "x.ndjson").read([1, 0])

    assert values["n"] == [None, large]
    assert values["of_both"] == ["0.5", str(large)]
    assert values["mixed"] == ['"1"', "1"]
    assert [ids.tolist() for ids in values["ids"]] == [[0.5], [1.0, 2.0]]
    assert values["large"] == ["1", str(huge)]
    assert values["late"] == ["x", None]


def test_a_line_that_is_no_object_is_named_when_it_is_read(tmp_path):
    digits = "9" * 5000
    (tmp_path / "x.jsonl").write_text(f'{{"a": 1}}\n[2]\n{{"a": {digits}}}\n{{"a": ')
    source = open_source(tmp_path / "x.jsonl")

    assert source.read([0])["a"].tolist() == [1]
    for row, why in enumerate(["not an object", "more digits than Python", "not JSON"], 1):
        with pytest.raises(DataError, match=f"x.jsonl, row {row} cannot be read: .*{why}"):
            source.read([row])
