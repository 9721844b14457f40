"""Binding to a node or to physical cores, on machines made up in folders."""

import os
import sys
import threading

import pytest

from steptime.levers.base import Facts, Preserves
from steptime.levers.host import process_binding
from steptime.levers.host.cores import nodes_of, one_of_each, parse_cores
from steptime.tune.trials.facts import resources

LEVER = process_binding.LEVER
EIGHT = set(range(8))


def make_facts(**fields):
    base = {"torch_version": "2.13.0", "num_cores": 8, "num_physical_cores": 8, "num_numa_nodes": 1}
    return Facts(**(base | fields))


@pytest.fixture
def machine(tmp_path):
    """Two nodes of two cores with two threads each: the second threads come last, as they do."""
    for node, cores in ((0, "0-1,4-5"), (1, "2-3,6-7")):
        folder = tmp_path / f"sys/devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cores + "\n")
    for core in range(8):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{core}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{core % 4},{core % 4 + 4}\n")
    return str(tmp_path)


def test_lists_of_cores_are_read():
    assert parse_cores("0-2,8\n") == {0, 1, 2, 8}
    assert parse_cores("\n") == frozenset()


def test_nodes_hold_the_allowed_cores_alone(machine):
    assert nodes_of(EIGHT, machine) == {0: {0, 1, 4, 5}, 1: {2, 3, 6, 7}}
    assert nodes_of({0, 1}, machine) == {0: {0, 1}}
    assert nodes_of(EIGHT, machine + "/nowhere") == {}


def test_one_thread_of_each_core_is_taken_within_what_is_allowed(machine):
    assert one_of_each(EIGHT, machine) == [0, 1, 2, 3]
    assert one_of_each({4, 5, 6, 2}, machine) == [4, 5, 2]


@pytest.mark.parametrize(
    ("to", "rank", "ranks", "expected"),
    [
        ("node", 0, 1, [0, 1, 4, 5]),
        ("node", 1, 2, [2, 3, 6, 7]),
        ("node", 2, 4, [0, 1, 4, 5]),
        ("physical_cores", 0, 1, [0, 1, 2, 3]),
        ("physical_cores", 1, 2, [2, 3]),
        ("physical_cores", 5, 8, [0, 1, 2, 3]),
    ],
)
def test_ranks_take_a_node_or_their_share(machine, to, rank, ranks, expected):
    assert process_binding.choose(to, EIGHT, rank, ranks, machine) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"num_numa_nodes": 2}, ["node"]),
        ({"num_physical_cores": 4}, ["physical_cores"]),
        ({"num_numa_nodes": 2, "num_physical_cores": 4}, ["node", "physical_cores"]),
    ],
)
def test_it_is_offered_where_there_is_a_choice(fields, expected):
    facts = make_facts(**fields)

    assert LEVER.applies(facts) is None
    assert [settings["to"] for settings in LEVER.space(facts)] == expected


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "each is a physical core"),
        ({"num_numa_nodes": None}, "not observed"),
        ({"num_physical_cores": None}, "not known"),
    ],
)
def test_it_is_not_offered_and_the_reason_is_said(fields, words):
    assert words in LEVER.applies(make_facts(**fields))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [({"num_threads": 4}, Preserves.EXACT), ({"num_threads": 8}, None), ({}, None)],
)
def test_the_bits_stay_where_the_threads_do(fields, expected):
    facts = make_facts(num_physical_cores=4, **fields)

    assert LEVER.class_here(facts, {"to": "physical_cores"}) is expected


class Torch:
    """What the lever asks of torch."""

    def __init__(self, num_threads):
        self.num_threads = num_threads

    def get_num_threads(self):
        return self.num_threads

    def set_num_threads(self, number):
        self.num_threads = number


class Session:
    def __init__(self, num_threads):
        self.torch = Torch(num_threads)


@pytest.mark.skipif(sys.platform != "linux", reason="it binds by Linux's calls")
def test_all_threads_are_bound_within_what_was_allowed_and_freed_again(monkeypatch):
    before = os.sched_getaffinity(0)
    one = {min(before)}
    monkeypatch.setattr(process_binding, "one_of_each", lambda cores, root: sorted(one))
    for name in process_binding.THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    started, done = threading.Event(), threading.Event()
    threads = []

    def work():
        threads.append(threading.get_native_id())
        started.set()
        done.wait()

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    session = Session(num_threads=2)
    try:
        undo = LEVER.apply({"to": "physical_cores"}, session)
        bound = [os.sched_getaffinity(number) for number in (0, threads[0])]
        num_threads = session.torch.num_threads
        undo()
        freed = [os.sched_getaffinity(number) for number in (0, threads[0])]
    finally:
        done.set()
        thread.join()

    assert bound == [one, one]
    assert num_threads == 1
    assert freed == [before, before]
    assert session.torch.num_threads == 2


@pytest.mark.skipif(sys.platform != "linux", reason="it binds by Linux's calls")
def test_a_number_of_threads_that_was_chosen_stays(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    session = Session(num_threads=64)
    undo = LEVER.apply({"to": "physical_cores"}, session)

    assert session.torch.num_threads == 64
    undo()


@pytest.mark.parametrize("text", ["", "x", "²", "9" * 30, "-1"])
def test_what_is_no_number_of_a_launcher_counts_as_none(monkeypatch, text):
    monkeypatch.setenv("LOCAL_RANK", text)

    assert process_binding.number("LOCAL_RANK", 0) == 0


def test_the_parent_counts_the_nodes_of_the_allowed_cores(monkeypatch, machine, tmp_path):
    monkeypatch.setattr(resources, "_allowed_cores", lambda: frozenset({0, 1, 2}))

    assert resources.count_nodes(root=tmp_path) == 2
    assert resources.count_nodes(root=tmp_path / "nowhere") is None
