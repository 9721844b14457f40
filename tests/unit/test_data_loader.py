"""The loader: exact batches for any threads, exact resuming, errors that name the sample."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptime.data import ArraySource, DataError, Loader

N = 23


def make_source(num=N):
    return ArraySource({"x": np.arange(num * 2).reshape(num, 2), "y": np.arange(num)})


def make_loader(num=N, batch_size=4, **options):
    return Loader(make_source(num), batch_size, **options)


def numbers(batch):
    return [int(number) for number in batch["y"]]


def all_of(loader):
    return [number for batch in loader for number in numbers(batch)]


def epoch_of(loader):
    return [numbers(batch) for batch in loader]


class Broken:
    """A source whose sample 5 cannot be read; what it raises is somebody else's error."""

    name = "broken"
    columns = make_source().columns
    num_bytes = None

    def __init__(self, error=None):
        self.error = error or KeyError("no such key")

    def __len__(self):
        return N

    def read(self, indices):
        if 5 in list(indices):
            raise self.error
        return make_source().read(indices)

    def place_of(self, index):
        return f"shard-0.bin, row {index}"

    def close(self):
        pass


def test_an_epoch_has_every_sample_once_and_the_next_one_another_order():
    loader = make_loader()

    first, second = epoch_of(loader), epoch_of(loader)

    assert [len(batch) for batch in first] == [4, 4, 4, 4, 4, 3]
    assert sorted(n for batch in first for n in batch) == list(range(N))
    assert sorted(n for batch in second for n in batch) == list(range(N))
    assert first != second
    assert len(loader) == 6


@pytest.mark.parametrize("threads", [1, 3, 16])
def test_threads_change_neither_the_batches_nor_their_order(threads):
    alone, beside = make_loader(threads=0), make_loader(threads=threads)

    for _ in range(3):
        assert epoch_of(alone) == epoch_of(beside)


def test_columns_stay_together_and_come_as_tuples_where_asked():
    loader = make_loader(columns=("y", "x"), as_tuple=True)

    for y, x in loader:
        assert (np.asarray(x)[:, 0] == 2 * np.asarray(y)).all()


@given(st.integers(0, 6), st.integers(1, 7), st.integers(0, 3))
def test_a_loader_that_is_resumed_in_the_middle_gives_the_rest_exactly(seen, batch_size, threads):
    loader = make_loader(threads=threads)
    epoch_of(loader)
    taken, state = [], loader.state_dict()
    for batch, _ in zip(loader, range(seen), strict=False):
        taken += numbers(batch)
        state = loader.state_dict()

    resumed = make_loader(batch_size=batch_size)
    resumed.load_state_dict(state)
    rest = all_of(resumed)

    other = make_loader()
    other.set_epoch(1)
    assert taken + rest == all_of(other)
    assert resumed.epoch == 2


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (3, 2), (4, 4)])
def test_a_training_goes_on_with_another_number_of_ranks(before, after):
    def ranks(num):
        return [make_loader(world_size=num, rank=rank, batch_size=3) for rank in range(num)]

    seen = Counter()
    for loader in ranks(before):
        seen.update(numbers(next(iter(loader))))
        state = loader.state_dict()
    later = ranks(after)
    for loader in later:
        loader.load_state_dict(state)
        seen.update(all_of(loader))

    assert seen == Counter(range(N))


def test_a_state_in_the_last_batch_leaves_nothing_of_its_epoch():
    loader = make_loader()
    for _ in loader:
        state = loader.state_dict()
    resumed = make_loader()
    resumed.load_state_dict(state)

    assert (epoch_of(resumed), resumed.epoch) == ([], 1)
    assert epoch_of(resumed) == epoch_of(loader)


def test_set_epoch_is_honored_and_keeps_a_place_that_was_loaded():
    loader = make_loader()
    next(iter(loader))
    state = loader.state_dict()
    resumed = make_loader()
    resumed.load_state_dict(state)

    resumed.set_epoch(0)

    assert all_of(resumed) == all_of(make_loader())[4:]
    resumed.set_epoch(0)
    assert epoch_of(resumed) == epoch_of(make_loader())


def test_an_iteration_that_was_left_early_is_over():
    loader, other = make_loader(), make_loader()
    next(iter(loader))
    other.set_epoch(1)

    assert epoch_of(loader) == epoch_of(other)


@pytest.mark.parametrize(
    ("changed", "named"),
    [({"seed": 1}, "seed"), ({"num": N + 1}, "num_samples"), ({"shuffle": False}, "shuffle")],
)
def test_a_state_of_another_order_is_refused(changed, named):
    state = make_loader().state_dict()

    with pytest.raises(DataError, match=named):
        make_loader(**changed).load_state_dict(state)


@pytest.mark.parametrize("wrong", [{"position": -1}, {"position": 24}, {"epoch": None}])
def test_a_damaged_state_is_refused(wrong):
    loader = make_loader()

    with pytest.raises(DataError, match="damaged"):
        loader.load_state_dict({**loader.state_dict(), **wrong})


@pytest.mark.parametrize("threads", [0, 1, 4])
@pytest.mark.parametrize("error", [KeyError("no such key"), OSError(5, "gone")])
def test_an_error_names_shard_and_row_and_ends_the_epoch(threads, error):
    loader = Loader(Broken(error), 4, shuffle=False, threads=threads)
    iterator = iter(loader)

    assert numbers(next(iterator)) == [0, 1, 2, 3]
    with pytest.raises(DataError, match=r"shard-0.bin, row 5: .*(no such key|gone)") as raised:
        next(iterator)
    assert raised.value.__cause__ is error
    with pytest.raises(StopIteration):
        next(iterator)


def test_a_thread_that_ends_itself_ends_the_epoch():
    with pytest.raises(SystemExit):
        epoch_of(Loader(Broken(SystemExit(3)), 4, threads=2))


def test_an_error_of_the_decoder_names_the_sample():
    def decode(columns):
        if 7 in columns["y"]:
            raise ValueError("not a picture")
        return columns

    with pytest.raises(DataError, match="arrays, row 7: ValueError: not a picture"):
        epoch_of(make_loader(decode=decode, threads=2))


def test_no_more_batches_are_read_ahead_than_asked():
    read, lock = [], threading.Lock()

    class Counted(Broken):
        def read(self, indices):
            with lock:
                read.extend(indices)
            return make_source().read(indices)

    iterator = iter(Loader(Counted(), 2, shuffle=False, threads=1, depth=3))
    next(iterator)
    for _ in range(200):  # the reader has had its time
        if len(read) >= 8:
            break
        time.sleep(0.005)

    assert sorted(read) == list(range(8))
    iterator.close()


def test_an_epoch_that_is_left_leaves_no_threads():
    before = set(threading.enumerate())
    iterator = iter(make_loader(threads=3))
    next(iterator)
    mine = [one for one in threading.enumerate() if one not in before]
    iterator.close()
    for thread in mine:
        thread.join(10)

    assert mine
    assert not any(thread.is_alive() for thread in mine)


SLOW_EPOCH = """
import atexit, sys, time
from steptime.data import Column, Loader

class Slow:
    name, columns, num_bytes, begun = "slow", (Column("x", "number"),), None, 0
    def __len__(self):
        return 400
    def read(self, indices):
        Slow.begun += 1
        time.sleep(0.2)
        return {"x": list(indices)}
    def place_of(self, index):
        return str(index)

atexit.register(lambda: print(Slow.begun))
for number, batch in enumerate(Loader(Slow(), 4, threads=4, depth=100)):
    print("ready", flush=True)
"""


def test_ctrl_c_ends_an_epoch_without_reading_what_is_queued():
    """Of the 400 reads that are queued, those that had begun end, and no others begin."""
    child = subprocess.Popen(
        [sys.executable, "-c", SLOW_EPOCH],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    child.stdout.readline()
    child.send_signal(signal.SIGINT)
    said, complained = child.communicate(timeout=60)

    assert "KeyboardInterrupt" in complained
    assert int(said.split()[-1]) < 100
    assert child.returncode in (-signal.SIGINT, 1, 130)


def test_what_a_source_is_made_for_decides_the_threads():
    assert make_loader().num_threads == 0
    assert Loader(Broken(), 4).num_threads == 1
    assert make_loader(threads=5).num_threads == 5


@pytest.mark.parametrize(
    "wrong", [{"batch_size": 0}, {"threads": -1}, {"depth": 0}, {"columns": ("z",)},
              {"rank": 2, "world_size": 2}],
)  # fmt: skip
def test_arguments_out_of_their_range_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong)) + r"|no column \['z'\]"):
        make_loader(**wrong)


def test_the_end_of_an_epoch_is_said():
    assert "3 of 4" in make_loader().end_of_epoch
    assert "left out" in make_loader(drop_last=True).end_of_epoch
    assert [len(batch) for batch in epoch_of(make_loader(drop_last=True))] == [4] * 5


def test_arrays_of_unlike_lengths_and_rows_that_are_not_there_are_refused():
    with pytest.raises(ValueError, match="one length"):
        ArraySource({"x": np.zeros(3), "y": np.zeros(2)})
    with pytest.raises(DataError, match="3 rows"):
        ArraySource({"x": np.zeros(3)}).read([3])


def test_neighbors_are_read_without_a_copy_and_cannot_be_written_into():
    array = np.arange(10)
    source = ArraySource({"x": array})

    assert np.shares_memory(source.read([3, 4, 5])["x"], array)
    assert not source.read([3, 4, 5])["x"].flags.writeable
    assert source.read([5, 4, 3])["x"].tolist() == [5, 4, 3]
