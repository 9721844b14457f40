"""What each reader of a format promises: the same samples, a place for each, and no surprises."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("google_crc32c")
pytest.importorskip("pyarrow")

from steptime.data.sources import open_source, reader_child  # noqa: E402
from steptime.data.stored_bytes import BytesInMemory  # noqa: E402
from steptime.errors import DataError, SteptimeError  # noqa: E402
from written_samples import NUM_SAMPLES, WRITERS  # noqa: E402 - it needs both


@pytest.fixture(scope="module", params=WRITERS)
def written(request, tmp_path_factory):
    made = WRITERS[request.param](tmp_path_factory.mktemp("written"))
    made.name = request.param
    return made


@pytest.fixture
def source(written):
    opened = open_source(written.where, **written.options)
    yield opened
    opened.close()


def assert_equal(values, expected, rows):
    assert list(values) == list(expected)
    for name, column in expected.items():
        for value, row in zip(values[name], rows, strict=True):
            wanted = column[row]
            assert np.array_equal(value, wanted), f"{name} of {row}"
            if isinstance(wanted, np.ndarray):
                assert value.dtype == wanted.dtype
            elif not isinstance(wanted, np.generic):
                assert type(value) is type(wanted)


class TestEverySource:
    def test_all_samples_are_what_was_written(self, source, written):
        assert len(source) == NUM_SAMPLES

        assert_equal(source.read(range(NUM_SAMPLES)), written.expected, range(NUM_SAMPLES))

    def test_samples_come_in_the_order_asked_for(self, source, written):
        rows = np.random.default_rng(1).integers(0, NUM_SAMPLES, 300)

        assert_equal(source.read(rows), written.expected, rows.tolist())

    def test_one_sample_and_none(self, source, written):
        assert_equal(source.read([137]), written.expected, [137])
        assert all(len(values) == 0 for values in source.read([]).values())

    def test_a_number_outside_is_an_error_of_the_caller(self, source):
        for row in (-1, NUM_SAMPLES):
            with pytest.raises(ValueError, match="numbers 0 to 199"):
                source.read([0, row])

    def test_columns_say_what_is_read(self, source):
        values = source.read([0, 1])

        assert [column.name for column in source.columns] == list(values)
        for column in source.columns:
            first = values[column.name]
            if column.kind in ("number", "array") and column.shape is not None:
                assert isinstance(first, np.ndarray)
                assert first.shape == (2, *column.shape)
                assert first.dtype == np.dtype(column.dtype)
            elif column.kind == "text":
                assert isinstance(first[0], str)
            elif column.kind in ("bytes", "image"):
                assert isinstance(first[0], bytes)
                assert (column.kind == "image") == first[0].startswith(b"\xff\xd8\xff")

    def test_it_opens_again_in_another_process(self, source, written):
        again = pickle.loads(pickle.dumps(source))
        rows = [199, 3, 3, 100]

        assert_equal(again.read(rows), written.expected, rows)
        assert again.columns == source.columns
        again.close()

    def test_threads_may_read_at_once(self, source, written):
        batches = [random.Random(i).sample(range(NUM_SAMPLES), 40) for i in range(24)]
        with ThreadPoolExecutor(8) as pool:
            for rows, values in zip(batches, pool.map(source.read, batches), strict=True):
                assert_equal(values, written.expected, rows)

    def test_each_sample_has_a_place(self, source, written):
        places = [source.place_of(row) for row in range(NUM_SAMPLES)]

        assert len(set(places)) == NUM_SAMPLES
        assert all(str(written.where) in place for place in places)

    def test_a_fingerprint_changes_with_the_files(self, source, written):
        before = source.fingerprint
        assert before == pickle.loads(pickle.dumps(source)).fingerprint

        file = next(p for p in [written.where, *written.where.rglob("*")] if p.is_file())
        times = file.stat()
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns + 1))
        assert source.fingerprint != before

    def test_bytes_are_counted_or_not_known(self, source):
        assert source.num_bytes is None or source.num_bytes > NUM_SAMPLES


class FilesInMemory:
    """A store: names and bytes, no paths."""

    def __init__(self, folder):
        self.contents = {
            str(p): p.read_bytes() for p in [folder, *folder.rglob("*")] if p.is_file()
        }

    def is_folder(self, where):
        if where in self.contents:
            return False
        return True if any(name.startswith(f"{where}/") for name in self.contents) else None

    def walk(self, where):
        for name, data in self.contents.items():
            if name.startswith(f"{where}/"):
                yield os.fsencode(name.removeprefix(f"{where}/")), len(data)

    def open_bytes(self, where):
        if where not in self.contents:
            raise FileNotFoundError(where)
        return BytesInMemory(self.contents[where])

    def path_of(self, where):
        return None


def test_a_store_without_paths_is_read_alike(written):
    files = FilesInMemory(written.where)
    if written.name == "HDF5":
        with pytest.raises(DataError, match="can be read from a local disk alone"):
            open_source(written.where, files=files)
        return

    source = open_source(written.where, files=files, **written.options)
    rows = [199, 0, 1, 2, 150, 0]
    assert_equal(source.read(rows), written.expected, rows)
    assert_equal(pickle.loads(pickle.dumps(source)).read(rows), written.expected, rows)
    assert source.fingerprint
    source.close()


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Flip, set, cut, insert, or repeat some bytes."""
    at = rng.randrange(len(data))
    kind = rng.randrange(6)
    if kind == 0:
        return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
    if kind == 1:
        return data[:at]
    if kind == 2:
        hostile = rng.choice([b"\xff" * 8, b"\0" * 8, b"\xff\xff\xff\x7f", b"\0\0\0\x80"])
        return data[:at] + hostile + data[at + len(hostile) :]
    if kind == 3:
        return data[:at] + rng.randbytes(rng.randrange(1, 40)) + data[at:]
    if kind == 4:
        return data[:at] + data[at + rng.randrange(1, 40) :]
    head = rng.randrange(min(len(data), 400))  # where lengths and counts are
    return data[:head] + rng.randbytes(rng.randrange(1, 9)) + data[head + 8 :]


MUTATIONS = 80
READ_IN_CHILDREN = ("HDF5",)
"""Each opening starts a process."""


class TestDamagedBytes:
    def test_they_end_in_a_sentence_or_in_samples(self, written, tmp_path, monkeypatch):
        """No failure of another kind, whatever byte is damaged; the file is always named."""
        monkeypatch.setattr(reader_child, "PROCESSOR_S", 1)
        rng = random.Random(zlib.crc32(written.name.encode()))
        files = sorted(p for p in [written.where, *written.where.rglob("*")] if p.is_file())
        where = tmp_path / written.where.name
        (shutil.copytree if written.where.is_dir() else shutil.copy)(written.where, where)
        few = len(files) >= 100 or written.name in READ_IN_CHILDREN
        for _ in range(10 if few else MUTATIONS):
            victim = rng.choice(files)
            whole = victim.read_bytes()
            target = where / victim.relative_to(written.where) if where.is_dir() else where
            target.write_bytes(damaged(whole, rng))
            error = error_of_reading(where, written.options)
            assert error is None or str(where) in str(error)
            target.write_bytes(whole)


def error_of_reading(where, options):
    """The error of ours in which reading all samples ended, if any."""
    try:
        source = open_source(where, **options)
    except SteptimeError as error:
        return error
    last = None
    for begin in range(0, min(len(source), 4 * NUM_SAMPLES), 64):
        try:
            source.read(range(begin, min(begin + 64, len(source))))
        except SteptimeError as error:
            last = error
    source.close()
    return last
