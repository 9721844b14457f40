"""What data is told to be, what a folder of files is, and what is refused in a sentence."""

from __future__ import annotations

import os
import pickle
import tracemalloc

import pytest

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.parquet")

from steptime.data.sources import open_source  # noqa: E402 - it needs both
from steptime.data.sources.formats.folder_files import pack_names  # noqa: E402
from steptime.data.stored_bytes import StoredPlace  # noqa: E402
from steptime.errors import DataError, NotFoundError, UsageError  # noqa: E402

JPEG = b"\xff\xd8\xff\xe0 a picture"


def refusal(where, error=DataError, **options):
    with pytest.raises(error) as caught:
        open_source(where, **options)
    return str(caught.value)


class TestWhatDataIs:
    def test_nothing(self, tmp_path):
        assert "there is no file or folder" in refusal(tmp_path / "none", NotFoundError)

    def test_what_cannot_be_told_says_what_was_looked_at(self, tmp_path):
        (tmp_path / "data.bin").write_bytes(b"\x01\x02abc")

        with pytest.raises(DataError) as caught:
            open_source(tmp_path / "data.bin")

        assert "by its name and its first bytes: 01 02 61 62 63 (??abc)" in str(caught.value)
        assert "format=" in caught.value.hint

    def test_an_empty_file_and_an_empty_folder(self, tmp_path):
        (tmp_path / "empty").touch()
        (tmp_path / "folder").mkdir()

        assert "it is empty" in refusal(tmp_path / "empty")
        assert "there are none" in refusal(tmp_path / "folder")

    def test_a_suffix_alone_tells_nothing(self, tmp_path):
        np.save(tmp_path / "x.npy", np.arange(3))
        (tmp_path / "x.npy").rename(tmp_path / "x.parquet")

        assert open_source(tmp_path / "x.parquet").name == "npy"

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            *(("x.csv", '{"a": 1, "b": 2}\n{"a": 1, "b": 2}\n'), ("x.jsonl", "a,b\n1,2\n")),
            *(("x.txt", "Yes, it is.\nNo, it was.\n"), ("x.json", '[{"a": 1, "b": 2}]\n')),
        ],
    )
    def test_of_text_its_name_and_what_is_in_it_agree_or_it_is_asked(self, tmp_path, name, text):
        (tmp_path / name).write_text(text)

        assert "by its name and its first bytes: text that begins" in refusal(tmp_path / name)

    def test_lines_of_json_have_any_name_but_that_of_csv(self, tmp_path):
        (tmp_path / "x.json").write_text('{"text": "a, b"}\n{"text": "c, d"}\n')

        assert open_source(tmp_path / "x.json").read([0, 1]) == {"text": ["a, b", "c, d"]}

    def test_files_that_are_read_as_one_say_so(self, tmp_path):
        for name in "abc":
            (tmp_path / f"{name}.csv").write_text("x,y\n1,2\n")

        assert open_source(tmp_path).name == "CSV (3 files as one set)"

    def test_a_format_or_an_option_that_there_is_not(self, tmp_path):
        (tmp_path / "a").touch()

        assert "there are folder," in refusal(tmp_path / "a", UsageError, format="mat")
        said = refusal(tmp_path, UsageError, format="folder", colour=1)
        assert said.endswith("read as folder, which has no option colour: it has kind, names")

    def test_an_index_of_something_else_makes_no_shards_of_files(self, tmp_path):
        (tmp_path / "index.json").write_text("[3]")
        (tmp_path / "1.jpg").write_bytes(JPEG)

        assert open_source(tmp_path).name == "folder of files"

    @pytest.mark.parametrize(
        ("index", "shard", "name"),
        [
            ('{"shards": []}', "shard.00000.mds", "MosaicML Streaming (MDS)"),
            ('{"shards": ', "shard.00000.mds", "MosaicML Streaming (MDS)"),
            ('{"chunks": []}', "chunk-0-0.bin", "LitData"),
        ],
    )
    def test_shards_of_libraries_that_are_not_read_say_whose_they_are(
        self, tmp_path, index, shard, name
    ):
        (tmp_path / "index.json").write_text(index)
        (tmp_path / shard).write_bytes(b"1")

        assert f"is data of {name}, which Steptime does not read" in refusal(tmp_path)

    @pytest.mark.parametrize(
        ("file", "start", "name"),
        [("data.mdb", b"\0" * 16, "LMDB"), ("x.db", b"SQLite format 3\0", "SQLite")],
    )
    def test_stores_that_are_not_read_say_whose_they_are(self, tmp_path, file, start, name):
        (tmp_path / file).write_bytes(start)
        place = tmp_path if name == "LMDB" else tmp_path / file

        assert f"is data of {name}, which Steptime does not read" in refusal(place)

    def test_a_pipe_is_not_waited_for(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")

        assert "a pipe" in refusal(tmp_path / "pipe")


class TestFolders:
    def test_names_in_any_encoding_keep_their_order(self, tmp_path):
        names = [b"caf\xe9.txt", "é.txt".encode(), b"a b.txt", b"\xff\xfe.txt", b"Z.txt"]
        for name in names:
            with open(os.path.join(os.fsencode(tmp_path), name), "wb") as file:
                file.write(name)

        source = open_source(tmp_path, format="folder", kind="files", names=True)

        values = source.read(range(5))
        assert values["data"] == sorted(names) == values["name"]
        assert open_source(os.fsencode(tmp_path), format="folder").read([0])["data"]

    def test_classes_are_the_folders_in_the_order_of_torchvision(self, tmp_path):
        for name in ("b/2.jpg", "a-b/1.png", "a/9.jpeg", "a/10.JPG", "a/notes.txt", "a/x/1.jpg"):
            (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
            (tmp_path / name).write_bytes(JPEG)

        source = open_source(tmp_path)

        assert source.columns[1].classes == ("a", "a-b", "b")
        assert source.read(range(len(source)))["label"].tolist() == [0, 0, 0, 1, 2]
        assert source.columns[0].kind == "image"
        assert [source.place_of(i).split("/", len(tmp_path.parts))[-1] for i in range(5)] == [
            *("a/10.JPG", "a/9.jpeg", "a/x/1.jpg", "a-b/1.png", "b/2.jpg")
        ]
        assert source.num_bytes == 5 * len(JPEG)

    def test_files_beside_the_folders_have_no_labels(self, tmp_path):
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "1.bin").write_bytes(b"1")
        (tmp_path / "2.bin").write_bytes(b"2")

        assert [column.name for column in open_source(tmp_path).columns] == ["data"]

    def test_links_in_a_circle_end(self, tmp_path):
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "1.bin").write_bytes(b"1")
        (tmp_path / "a" / "again").symlink_to(tmp_path)

        assert len(open_source(tmp_path)) == 1

    def test_a_file_that_is_gone_is_named(self, tmp_path):
        for name in "abc":
            (tmp_path / name).write_bytes(b"1")
        source = open_source(tmp_path)
        (tmp_path / "b").unlink()

        with pytest.raises(DataError, match=r"/b cannot be read: .*No such file"):
            source.read([2, 1, 0])

    def test_a_folder_that_grows_keeps_its_order_in_other_processes(self, tmp_path):
        (tmp_path / "b").write_bytes(b"b")
        kept = pickle.dumps(open_source(tmp_path))
        (tmp_path / "a").write_bytes(b"a")

        assert pickle.loads(kept).read([0])["data"] == [b"b"]

    def test_names_of_many_files_take_no_object_each(self):
        class Many:
            def walk(self, where):
                for i in range(100_000):
                    yield b"class %d/%08d.jpg" % (i % 10, 99_999_999 - i), None

        tracemalloc.start()
        names = pack_names(StoredPlace("many", Many()), None)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

        assert names.name(0) == b"class 0/99900009.jpg"
        assert names.offsets.nbytes + names.data.nbytes < 30 * 100_000
        assert peak < 90 * 100_000  # Python's objects of them all would take 12 MB


class TestShards:
    def test_several_splits_are_not_mixed(self, tmp_path):
        for split in ("train", "test"):
            table = pa.table({"split": [split] * 3})
            pa.parquet.write_table(table, tmp_path / f"{split}-00000-of-00001.parquet")

        assert "several splits: test, train" in refusal(tmp_path)
        assert open_source(tmp_path, split="train").read([0]) == {"split": ["train"]}
        assert "no split validation" in refusal(tmp_path, split="validation")

    def test_shards_with_other_columns_are_refused(self, tmp_path):
        for number in range(2):
            schema = pa.schema({f"x{number}": pa.int64()})
            with pa.ipc.new_file(tmp_path / f"{number}.arrow", schema) as writer:
                writer.write_batch(pa.record_batch([[1, 2]], schema))

        assert "1.arrow has other columns than" in refusal(tmp_path)

    def test_columns_can_be_chosen(self, tmp_path):
        table = pa.table({"a": [1], "b": ["x"], "c": pa.array([[{"x": 1}]])})
        pa.parquet.write_table(table, tmp_path / "t.parquet")

        assert "columns=" in (caught := _hint(tmp_path / "t.parquet")), caught
        source = open_source(tmp_path / "t.parquet", columns=("b", "a"))
        assert source.read([0]) == {"a": [1], "b": ["x"]}
        assert "has no column d: it has a, b, c" in refusal(tmp_path / "t.parquet", columns=("d",))

    def test_what_is_missing_is_none(self, tmp_path):
        table = pa.table({"n": [1, None], "s": ["x", None], "l": [[1.5], None]})
        pa.parquet.write_table(table, tmp_path / "t.parquet")

        values = open_source(tmp_path / "t.parquet").read([1, 0])

        assert values["n"] == [None, 1]
        assert values["s"] == [None, "x"]
        assert values["l"][0] is None

    def test_bytes_of_hugging_face_pictures(self, tmp_path):
        images = [{"bytes": JPEG, "path": "1.jpg"}, {"bytes": JPEG, "path": None}]
        pa.parquet.write_table(pa.table({"image": images}), tmp_path / "t.parquet")

        source = open_source(tmp_path / "t.parquet")

        assert source.columns[0].kind == "image"
        assert source.read([1])["image"] == [JPEG]


def _hint(where):
    with pytest.raises(DataError) as caught:
        open_source(where)
    return caught.value.hint


class TestArrays:
    def test_pickled_objects_are_refused(self, tmp_path):
        np.save(tmp_path / "x.npy", np.array([{}, []], dtype=object))

        assert "never unpickled" in refusal(tmp_path / "x.npy")

    def test_arrays_of_different_lengths(self, tmp_path):
        np.save(tmp_path / "x.npy", np.zeros(3))
        np.save(tmp_path / "y.npy", np.zeros(4))

        assert "x has 3, y has 4" in refusal(tmp_path)

    def test_what_has_no_samples_in_one_piece(self, tmp_path):
        np.save(tmp_path / "f.npy", np.asfortranarray(np.zeros((3, 2))))
        np.save(tmp_path / "one.npy", np.float32(3))

        assert "Fortran order" in refusal(tmp_path / "f.npy")
        assert "a single number" in refusal(tmp_path / "one.npy")

    def test_a_shape_that_the_file_has_not(self, tmp_path):
        np.save(tmp_path / "x.npy", np.zeros((4, 3)))
        whole = (tmp_path / "x.npy").read_bytes()
        (tmp_path / "x.npy").write_bytes(whole.replace(b"(4, 3), ", b"(9**9,),"))
        assert "its header is damaged" in refusal(tmp_path / "x.npy")

        (tmp_path / "x.npy").write_bytes(whole.replace(b"(4, 3), ", b"(4, 99),"))
        assert "should have 3,168 bytes of values, and has 96" in refusal(tmp_path / "x.npy")

    def test_a_file_that_becomes_shorter_is_not_read(self, tmp_path):
        np.save(tmp_path / "x.npy", np.zeros((4, 3)))
        source = open_source(tmp_path / "x.npy")
        os.truncate(tmp_path / "x.npy", 130)

        with pytest.raises(DataError, match=r"x.npy, row 0 cannot be read: .*shorter"):
            source.read([0])
