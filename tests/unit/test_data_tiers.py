"""Tiers: budgets that hold, hits that stay, and a disk that may be full, damaged or shared."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from steptime.data import ArraySource, CachedSource, DataError, Loader
from steptime.data.source import Column
from steptime.data.tiers import disk_tier
from steptime.data.tiers.sample_codec import decode_sample, encode_sample

N, WIDTH = 200, 1000


def content(number, width=WIDTH):
    return np.random.Generator(np.random.PCG64(number)).bytes(width)


class Counted:
    """Samples of some width; it counts how often each was read."""

    columns = (Column("data", "bytes"), Column("number", "number", "int64", ()))
    name = "counted"

    def __init__(self, num=N, width=WIDTH, version=0):
        self.num, self.width, self.fingerprint = num, width, version
        self.reads = np.zeros(num, dtype=int)

    @property
    def num_bytes(self):
        return self.num * self.width

    def __len__(self):
        return self.num

    def read(self, indices):
        for index in indices:
            self.reads[index] += 1
        return {
            "data": [content(index, self.width) for index in indices],
            "number": np.asarray(indices, dtype=np.int64),
        }

    def place_of(self, index):
        return f"counted, row {index}"

    def close(self):
        pass


def epoch_of(source, epoch=0, **options):
    """Read an epoch; check each sample."""
    loader = Loader(source, 16, **options)
    loader.set_epoch(epoch)
    numbers = []
    for batch in loader:
        for data, number in zip(batch["data"], batch["number"], strict=True):
            assert data == content(int(number), len(data))
            numbers.append(int(number))
    return numbers


@pytest.mark.parametrize("threads", [0, 4])
def test_a_second_epoch_comes_from_memory(threads):
    source = Counted()
    cached = CachedSource(source, ram_bytes=2 * source.num_bytes)

    epochs = [epoch_of(cached, epoch, threads=threads) for epoch in range(3)]

    assert source.reads.tolist() == [1] * N
    assert [sorted(epoch) for epoch in epochs] == [list(range(N))] * 3
    assert cached.hit_rate == pytest.approx(2 / 3)


def test_a_quarter_of_the_data_in_memory_gives_a_quarter_of_the_hits_in_each_epoch():
    """The plan's figure: a budget of a quarter hits at least 24 % and is never exceeded."""
    source = Counted(num=1000, width=4000)
    budget = source.num_bytes // 4
    cached = CachedSource(source, ram_bytes=budget)
    epoch_of(cached)

    for epoch in range(1, 4):
        before = source.reads.sum()
        epoch_of(cached, epoch)
        assert 1 - (source.reads.sum() - before) / 1000 >= 0.24
        assert cached.ram_bytes <= budget


def test_disk_and_memory_together_hold_more_than_either(tmp_path):
    source = Counted()
    cached = CachedSource(source, ram_bytes=80_000, disk_bytes=80_000, folder=tmp_path)
    epoch_of(cached)
    source.reads[:] = 0

    epoch_of(cached, 1)

    assert (source.reads == 0).sum() >= 0.7 * N
    assert (cached.ram_bytes <= 80_000, cached.disk_bytes <= 80_000) == (True, True)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert 70_000 < sum(path.stat().st_size for path in files) <= 80_000


def test_what_is_on_the_disk_serves_the_next_training(tmp_path):
    epoch_of(CachedSource(Counted(), disk_bytes=10**6, folder=tmp_path))
    source = Counted()

    epoch_of(CachedSource(source, disk_bytes=10**6, folder=tmp_path))

    assert source.reads.sum() == 0


def test_another_version_of_the_data_finds_nothing_of_the_old_one(tmp_path):
    epoch_of(CachedSource(Counted(), disk_bytes=10**6, folder=tmp_path))
    source = Counted(version=1)

    epoch_of(CachedSource(source, disk_bytes=10**6, folder=tmp_path))

    assert source.reads.tolist() == [1] * N


@pytest.mark.parametrize("name", ["entries.bin", "index.bin"])
@pytest.mark.parametrize("what", ["flipped", "cut", "emptied", "filled"])
def test_a_damaged_disk_gives_no_wrong_sample(tmp_path, name, what):
    epoch_of(CachedSource(Counted(), disk_bytes=10**6, folder=tmp_path))
    (path,) = tmp_path.rglob(name)
    data = bytearray(path.read_bytes())
    if what == "flipped":
        for place in range(3, len(data), 501):
            data[place] ^= 0x41
    path.write_bytes({"flipped": data, "cut": data[: len(data) // 2 + 5], "emptied": b"",
                      "filled": b"\xff" * len(data)}[what])  # fmt: skip
    source = Counted()
    cached = CachedSource(source, disk_bytes=10**6, folder=tmp_path)

    assert sorted(epoch_of(cached)) == list(range(N))
    assert source.reads.sum() > 0
    assert sorted(epoch_of(cached, 1)) == list(range(N))
    assert source.reads.max() <= 2


def test_a_damaged_sample_is_read_again_kept_again_and_said_once(tmp_path):
    epoch_of(CachedSource(Counted(), disk_bytes=10**6, folder=tmp_path))
    (path,) = tmp_path.rglob("entries.bin")
    data = bytearray(path.read_bytes())
    data[500] ^= 1
    path.write_bytes(data)
    source = Counted()
    cached = CachedSource(source, disk_bytes=10**6, folder=tmp_path)

    epoch_of(cached)
    epoch_of(cached, 1)

    assert source.reads.sum() == 1
    assert len(cached.notes) == 1
    assert "damaged" in cached.notes[0]


def test_a_full_disk_leaves_the_rest_to_the_source_with_one_note(tmp_path, monkeypatch, caplog):
    room = [50_000]

    def write(descriptor, data, offset):
        room[0] -= len(data)
        if room[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        os.pwrite(descriptor, data, offset)

    monkeypatch.setattr(disk_tier, "_write_all", write)
    source = Counted()
    cached = CachedSource(source, disk_bytes=10**6, folder=tmp_path)

    for epoch in range(3):
        assert sorted(epoch_of(cached, epoch)) == list(range(N))

    assert "No space left" in cached.notes[0]
    assert len(cached.notes) == len(caplog.records) == 1
    assert 30 < (source.reads == 1).sum() < 60


@pytest.mark.parametrize("place", ["file", "missing/below/file"])
def test_a_folder_that_cannot_be_made_leaves_all_to_the_source(tmp_path, place):
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "missing").symlink_to(tmp_path / "file")
    source = Counted()

    cached = CachedSource(source, disk_bytes=10**6, folder=tmp_path / place)

    assert sorted(epoch_of(cached)) == list(range(N))
    assert len(cached.notes) == 1
    assert cached.disk_bytes == 0


def test_a_link_in_place_of_a_file_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"")
    epoch_of(CachedSource(Counted(), disk_bytes=10**6, folder=tmp_path / "tier"))
    (path,) = tmp_path.rglob("entries.bin")
    path.unlink()
    path.symlink_to(victim)

    cached = CachedSource(Counted(), disk_bytes=10**6, folder=tmp_path / "tier")

    assert cached.notes
    assert sorted(epoch_of(cached)) == list(range(N))
    assert victim.read_bytes() == b""


def _read_epochs(folder, seed, queue):
    source = Counted()
    cached = CachedSource(source, disk_bytes=100_000, folder=folder)
    read = [sorted(epoch_of(cached, epoch, seed=seed)) for epoch in range(2)]
    queue.put((read == [list(range(N))] * 2, cached.disk_bytes, int(source.reads.sum())))


def test_processes_share_a_disk_within_one_budget(tmp_path):
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    children = [context.Process(target=_read_epochs, args=(tmp_path, seed, queue))
                for seed in range(3)]  # fmt: skip
    for child in children:
        child.start()
    told = [queue.get() for _ in children]
    for child in children:
        child.join(30)

    assert all(is_whole and num_bytes <= 100_000 for is_whole, num_bytes, _ in told)
    (entries,) = tmp_path.rglob("entries.bin")
    (index,) = tmp_path.rglob("index.bin")
    assert entries.stat().st_size + index.stat().st_size <= 100_000
    assert entries.stat().st_size / index.stat().st_size * 24 > WIDTH  # no sample stands twice
    later = Counted()
    epoch_of(CachedSource(later, disk_bytes=100_000, folder=tmp_path))
    assert 90 <= (later.reads == 0).sum() <= 100


def _read_in_child(cached, queue):
    queue.put(sorted(epoch_of(cached, 1)))


def test_a_forked_process_reads_and_writes_with_files_of_its_own(tmp_path):
    cached = CachedSource(Counted(), ram_bytes=50_000, disk_bytes=10**6, folder=tmp_path)
    epoch_of(cached)
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    with cached._lock, cached._disk._lock:  # a thread of the parent is in the midst of something
        child = context.Process(target=_read_in_child, args=(cached, queue))
        child.start()
    read = queue.get()
    child.join(30)

    assert read == list(range(N))


def test_a_cached_source_travels_to_another_process(tmp_path):
    cached = CachedSource(Counted(), ram_bytes=10**6, disk_bytes=10**6, folder=tmp_path)
    epoch_of(cached)

    again = pickle.loads(pickle.dumps(cached))

    again._source.reads[:] = 0
    assert sorted(epoch_of(again)) == list(range(N))
    assert again._source.reads.sum() == 0


def test_the_source_shows_through():
    source = Counted()
    cached = CachedSource(source)

    assert cached.hit_rate is None
    assert (cached.name, cached.columns, len(cached)) == (source.name, source.columns, N)
    assert (cached.num_bytes, cached.place_of(3)) == (source.num_bytes, "counted, row 3")
    assert cached.reads_in_flight == 1
    epoch_of(cached)
    assert cached.hit_rate == 0.0


def test_values_of_all_kinds_come_back_as_they_were():
    source = ArraySource({
        "image": np.arange(24, dtype=np.uint8).reshape(4, 2, 3),
        "label": np.arange(4, dtype=np.int16),
        "weight": np.linspace(0, 1, 4, dtype=np.float32),
        "flag": np.array([True, False, True, False]),
        "time": np.array(["2026-01-01"] * 4, dtype="datetime64[D]"),
    })  # fmt: skip
    cached = CachedSource(source, ram_bytes=10**6)

    first, second = cached.read([2, 0, 3]), cached.read([2, 0, 3])

    assert cached.num_reads == {"ram": 3, "disk": 0, "source": 3}
    for name, values in first.items():
        assert second[name].dtype == values.dtype
        assert second[name].tolist() == values.tolist()


def test_some_from_memory_and_some_from_the_source_come_in_order():
    cached = CachedSource(Counted(), ram_bytes=10**6)
    cached.read([3, 5])

    read = cached.read([5, 1, 3, 1])

    assert read["number"].tolist() == [5, 1, 3, 1]
    assert read["number"].dtype == np.int64
    assert read["data"] == [content(number) for number in (5, 1, 3, 1)]


def test_samples_that_cannot_be_kept_are_read_each_time():
    class Odd(Counted):
        def read(self, indices):
            return {"data": [object()] * len(indices), "number": np.asarray(indices)}

    cached = CachedSource(Odd(), ram_bytes=10**6)

    cached.read([1, 2])
    cached.read([1, 2])

    assert cached.num_reads["source"] == 4
    assert len(cached.notes) == 1


@pytest.mark.parametrize("wrong", [{"ram_bytes": -1}, {"disk_bytes": -1}, {"disk_bytes": 1}])
def test_budgets_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValueError, match="must hold"):
        CachedSource(Counted(), **wrong)


def test_a_budget_below_the_index_keeps_nothing():
    cached = CachedSource(Counted(), ram_bytes=100)
    epoch_of(cached)

    assert cached.ram_bytes == 0
    assert epoch_of(cached, 1)


def test_an_error_of_the_source_passes_through():
    class Broken(Counted):
        def read(self, indices):
            raise DataError("row 4 is damaged")

    with pytest.raises(DataError, match="row 4"):
        CachedSource(Broken(), ram_bytes=10**6).read([4])


PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False),
    st.text(), st.binary(),
    arrays.arrays(st.sampled_from([np.uint8, np.float32, np.complex128]), arrays.array_shapes()),
)  # fmt: skip


@given(st.lists(PLAIN))
def test_a_sample_survives_being_kept(values):
    again = decode_sample(encode_sample(values))

    assert len(again) == len(values)
    for before, after in zip(values, again, strict=True):
        if isinstance(before, np.ndarray):
            np.testing.assert_array_equal(before, after)
            assert before.dtype == after.dtype
        else:
            assert before == after
            assert type(before) is type(after)


@given(st.binary())
def test_bytes_that_are_no_sample_are_refused(data):
    with contextlib.suppress(ValueError):
        decode_sample(data)
