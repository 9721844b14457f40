"""A real S3 server on loopback, with latency, throttling and broken answers between."""

from __future__ import annotations

import multiprocessing
import pickle
import traceback
from collections import Counter

import numpy as np
import pytest

from faulty_store import KEYS, faulty_store
from steptime.data import Loader, open_source
from steptime.data.source import Column
from steptime.data.stores.cloud_files import CloudFiles
from steptime.data.stores.retries import Retries
from steptime.errors import DataError

pytest.importorskip("moto")
pytest.importorskip("s3fs")
pytestmark = [
    pytest.mark.slow("starts an S3 server on loopback, whose packages take seconds to import"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
NUM = 48


def content(number):
    return np.random.Generator(np.random.PCG64(number)).bytes(500 + number)


class Objects:
    """One sample an object."""

    name, columns, num_bytes, reads_in_flight = "objects", (Column("data", "bytes"),), None, 16

    def __init__(self, files):
        self.files = files

    def __len__(self):
        return NUM

    def read(self, indices):
        opened = [self.files.open_bytes(self.place_of(int(index))) for index in indices]
        return {"data": [one.read_at(0, one.size) for one in opened]}

    def place_of(self, index):
        return f"s3://samples/part/{index}.bin"

    def close(self):
        pass


@pytest.fixture(scope="module")
def store():
    with faulty_store({f"part/{number}.bin": content(number) for number in range(NUM)}) as store:
        yield store


@pytest.fixture
def faults(store):
    faults = store[1]
    yield faults
    faults.latency_s, faults.busy_first, faults.broken_first, faults.silent = 0.0, 0, 0, False
    faults.seen.clear()
    faults.most_at_once = 0


def make_files(store, **options):
    return CloudFiles(store[0], Retries(first_pause_s=0.01, longest_pause_s=0.05, **options))


def epoch_of(files, **options):
    return Counter(
        data for batch in Loader(Objects(files), 16, **options) for data in batch["data"]
    )


def test_an_epoch_is_whole_though_the_store_is_slow_busy_and_breaks_off(store, faults):
    faults.latency_s, faults.busy_first, faults.broken_first = 0.02, 2, 1

    assert epoch_of(make_files(store)) == Counter(content(number) for number in range(NUM))
    assert faults.num_requests >= 4 * NUM
    assert 8 < faults.most_at_once <= 16


def test_a_store_that_stays_busy_ends_the_epoch_with_the_object_and_no_key(store, faults):
    faults.busy_first = 10**6

    with pytest.raises(DataError, match=r"s3://samples/part/\d+.bin cannot be read") as raised:
        epoch_of(make_files(store, attempts=3))
    told = "".join(traceback.format_exception(raised.value))
    assert not [secret for secret in KEYS.values() if secret in told]
    assert max(faults.seen.values()) == 3


def test_a_store_that_never_answers_is_given_up(store, faults):
    faults.silent = True
    quick = {"config_kwargs": {"read_timeout": 0.3, "retries": {"total_max_attempts": 1}}}
    files = CloudFiles({**store[0], **quick}, Retries(attempts=2, first_pause_s=0.01))

    with pytest.raises(DataError, match="cannot be read"):
        files.open_bytes("s3://samples/part/0.bin")


def test_names_and_sizes_are_those_of_the_store(store, faults):
    found = dict(make_files(store).walk("s3://samples/part"))

    assert found == {f"{number}.bin".encode(): 500 + number for number in range(NUM)}


def test_a_folder_of_objects_is_opened_by_its_url_and_read_by_many_at_once(store, faults):
    faults.latency_s = 0.01
    source = pickle.loads(pickle.dumps(open_source("s3://samples/part", files=make_files(store))))

    batches = list(Loader(source, 16, shuffle=False))

    names = sorted(f"{number}.bin" for number in range(NUM))
    read = [data for batch in batches for data in batch["data"]]
    assert read == [content(int(name.partition(".")[0])) for name in names]
    assert faults.most_at_once > 8


def _read_in_fork(files, queue):
    queue.put(files.read_range("s3://samples/part/7.bin", 3, 9))


def test_a_process_that_was_forked_reads_on(store, faults):
    files = make_files(store)
    files.read_range("s3://samples/part/7.bin", 0, 3)
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_read_in_fork, args=(files, queue))

    child.start()
    child.join(30)

    assert child.exitcode == 0
    assert queue.get() == content(7)[3:9]
